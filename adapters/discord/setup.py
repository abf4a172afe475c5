"""Setting Discord up: the steps, the invite link, the token into `.env`, and what stands in `manifest/discord.json`."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from pathlib import Path
from typing import Any, cast

import discord

from adapters.discord.commands import build_tree
from adapters.discord.entry import Entry
from adapters.discord.permissions import NEEDED, SCOPES, invite_url, needed
from adapters.discord.sync import payload
from bot.errors import BadInput

PORTAL = "https://discord.com/developers/applications"
_TOKEN = re.compile(r"[\w-]{18,}\.[\w-]{4,}\.[\w-]{20,}")


def setup_text(*, token: str = "", application_id: str = "") -> str:
    """Give the steps to take; the invite link is whole where the application is known by its id or its token."""
    application = application_id or application_of(token)
    link = invite_url(int(application)) if application else "duet setup discord prints it once DISCORD_TOKEN is set"
    return "\n".join(
        [
            f"1. Open {PORTAL}, press New Application, call it Duet, and press Create.",
            "2. Bot > Reset Token > Copy: that is DISCORD_TOKEN. No privileged intent is needed; Message Content only",
            "   if Duet is to answer in its threads without being mentioned (discord.message_content = true).",
            "3. Give it to `duet setup discord`, which writes it into .env, or set DISCORD_TOKEN yourself.",
            "4. Open the invite link, pick your server, and press Authorise:",
            "",
            f"   {link}",
            "",
            f"   It asks for: {', '.join(NEEDED.values())} (permissions={needed().value}).",
            "5. Run `duet doctor`: it checks token, intents, servers, channels, commands, and says how to mend each.",
            "6. Run `duet serve`. In a channel, ask: @Duet What is our branch naming convention?",
        ]
    )


def application_of(token: str) -> str:
    """Give the id of the application that a token belongs to: its first part, in base 64. Empty where it has none."""
    head = token.split(".", 1)[0]
    try:
        text = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return text if re.fullmatch(r"\d{15,20}", text) else ""


def token_fault(token: str) -> str:
    """Give a sentence when the text cannot be a bot token; the text is not repeated."""
    if _TOKEN.fullmatch(token.strip()):
        return ""
    return "DISCORD_TOKEN must be the bot's token (Bot > Reset Token): three parts with full stops between them."


def write_env(path: Path, token: str) -> None:
    """Put the token into a `.env`, keeping its other lines; only its owner may read it. Raises: BadInput."""
    from dotenv import set_key

    if fault := token_fault(token):
        raise BadInput(fault)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
        set_key(path, "DISCORD_TOKEN", token.strip(), quote_mode="never")
        path.chmod(0o600)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error}. Mend it or move it away.") from error


def wanted_commands() -> list[dict[str, Any]]:
    """Give the commands as Discord is told them, without a Duet behind them."""
    client = discord.Client(intents=discord.Intents.none())
    return payload(build_tree(client, cast(Entry, None)))


def manifest() -> dict[str, Any]:
    """Give what `manifest/discord.json` says: what is registered and asked for."""
    return {
        "scopes": list(SCOPES),
        "permissions": {"integer": str(needed().value), "names": list(NEEDED.values())},
        "privileged_intents": [],
        "commands": wanted_commands(),
    }


def written_manifest() -> str:
    return json.dumps(manifest(), indent=2, ensure_ascii=False) + "\n"
