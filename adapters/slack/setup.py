"""Setting Slack up: one link that makes the app, the steps left, and a `.env` that only its owner can read."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import bot
from bot.errors import BadInput

_SHAPES = {
    "SLACK_BOT_TOKEN": (re.compile(r"xoxb-[\w-]{6,}"), "the Bot User OAuth Token, which begins with xoxb-"),
    "SLACK_APP_TOKEN": (re.compile(r"xapp-[\w-]{6,}"), "the app-level token, which begins with xapp-"),
    "SLACK_SIGNING_SECRET": (re.compile(r"[0-9a-f]{32}"), "the signing secret: 32 characters, 0-9 and a-f"),
}


def manifest() -> dict[str, Any]:
    """Give the app's manifest: what it is called, hears and may do."""
    root = Path(bot.__file__).parent
    beside = root.parent / "manifest" / "slack.json"
    path = beside if beside.is_file() else root / "_data" / "manifest" / "slack.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def manifest_for_http(events_url: str) -> dict[str, Any]:
    """Give the manifest for signed HTTP events at this address, in place of Socket Mode."""
    made = manifest()
    settings = made["settings"]
    settings["socket_mode_enabled"] = False
    settings["event_subscriptions"]["request_url"] = events_url
    settings["interactivity"] |= {"request_url": events_url, "message_menu_options_url": events_url}
    for command in made["features"]["slash_commands"]:
        command["url"] = events_url
    return made


def creation_link(made: Mapping[str, Any]) -> str:
    """Give the address that opens Slack's "create an app" with this manifest filled in."""
    text = json.dumps(made, separators=(",", ":"), ensure_ascii=False)
    return f"https://api.slack.com/apps?new_app=1&manifest_json={quote(text, safe='')}"


def setup_text(*, events_url: str = "") -> str:
    """Give the steps to take; with `events_url` for HTTP events, else for Socket Mode."""
    made = manifest_for_http(events_url) if events_url else manifest()
    second = (
        "3. Basic Information > App Credentials: copy the Signing Secret."
        if events_url
        else "3. Basic Information > App-Level Tokens > Generate, with the scope connections:write: copy it (xapp-…)."
    )
    return "\n".join(
        [
            "1. Open this link, pick your workspace, and press Next and Create. Everything is filled in:",
            "",
            f"   {creation_link(made)}",
            "",
            "2. Install App > Install to Workspace > Allow: copy the Bot User OAuth Token (xoxb-…).",
            second,
            "4. Give both to `duet setup slack`, which writes them into .env, or set them yourself:",
            f"   SLACK_BOT_TOKEN and {'SLACK_SIGNING_SECRET' if events_url else 'SLACK_APP_TOKEN'}.",
            "5. Run `duet doctor`: it checks tokens, permissions and channels, and says how to mend each.",
            "6. Run `duet serve`. In a channel: /invite @duet, then ask @duet What is our branch naming convention?",
            "",
            "Whenever the permissions of the app change, Slack wants it reinstalled (Install App > Reinstall).",
        ]
    )


def shape_faults(values: Mapping[str, str]) -> list[str]:
    """Give a sentence for each value that cannot be what its name says; no value is repeated."""
    faults = []
    for name, value in values.items():
        pattern, what = _SHAPES[name]
        if pattern.fullmatch(value.strip()):
            continue
        other = next((o for o, (shape, _) in _SHAPES.items() if o != name and shape.fullmatch(value.strip())), "")
        faults.append(f"{name} must be {what}." + (f" What was given looks like {other}." if other else ""))
    return faults


def write_env(path: Path, values: Mapping[str, str]) -> None:
    """Put the values into a `.env`, keeping its other lines; only its owner may read it (mode 0600).

    Names are SLACK_BOT_TOKEN, SLACK_APP_TOKEN and SLACK_SIGNING_SECRET. Raises: BadInput when a value has the wrong
    shape or the file cannot be written.
    """
    if faults := shape_faults(values):
        raise BadInput("\n".join(faults))
    try:
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if _name_of(line) not in values]
        _replace(path, "\n".join([*kept, *(f"{name}={value.strip()}" for name, value in values.items())]) + "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be written: {error}. Mend it or move it away.") from error


def _name_of(line: str) -> str:
    return line.split("=", 1)[0].strip().removeprefix("export ").strip()


def _replace(path: Path, text: str) -> None:
    """Write the whole file beside and move it there, never readable by others in between."""
    handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=".env-")  # made with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path.resolve())
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
