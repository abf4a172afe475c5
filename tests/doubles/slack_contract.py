"""Slack's contract as this repository knows it: schemas from its npm types, lengths and rules written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parent / "slack_schemas"

# What Slack documents and the types (3.2.0) do not hold yet, or what form encoding turns into text.
ALLOWED_EXTRA = {
    "chat.update": {"unfurl_links", "unfurl_media"},
    "chat.delete": set(),
}
TEAMS = {"team", "user_team", "source_team"}
# Of an attachment that is a forwarded message: https://github.com/slackapi/java-slack-sdk/issues/1179 shows one.
FORWARDED = {
    "is_share",
    "is_msg_unfurl",
    "author_id",
    "channel_id",
    "channel_name",
    "channel_team",
    "from_url",
    "files",
}
FORWARDED |= {"id", "message_blocks"}
# Slack's lengths: https://docs.slack.dev/reference/block-kit/blocks
TEXT = {"section": 3_000, "header": 150, "markdown": 12_000}
BLOCKS = 50
BLOCKS_CHARS = 13_200
POST_TEXT, UPDATE_TEXT = 40_000, 4_000
OLD_BLOCKS = {"section", "actions", "context", "divider", "rich_text", "header", "image", "input"}


@cache
def validator(name: str) -> jsonschema.protocols.Validator | None:
    path = SCHEMAS / f"{name}.json"
    if not path.exists():
        return None
    schema = json.loads(path.read_text("utf-8"))
    return jsonschema.validators.validator_for(schema)(schema)


def faults(name: str, value: Mapping[str, Any]) -> list[str]:
    """Give what the schema `name` finds wrong with a value; nothing where there is no such schema."""
    check = validator(name)
    if check is None:
        return []
    extra = ALLOWED_EXTRA.get(name, set())
    error = jsonschema.exceptions.best_match(check.iter_errors({k: v for k, v in value.items() if k not in extra}))
    return [f"{name}: {error.json_path}: {error.message[:300]}"] if error else []


def event_faults(event: Mapping[str, Any]) -> list[str]:
    """Give what is wrong with an event, beside what the types lack: teams, and what a message within one leaves out."""
    kind, subtype = f"event.{event.get('type')}", event.get("subtype")
    outer = {name: event[name] for name in ("channel", "channel_type", "event_ts") if name in event}
    known = {key: value for key, value in event.items() if key not in TEAMS}
    if "attachments" in known:
        known["attachments"] = [{k: v for k, v in a.items() if k not in FORWARDED} for a in known["attachments"]]
    for inner in ("message", "previous_message"):
        if inner in known:
            known[inner] = {k: v for k, v in (outer | known[inner]).items() if k not in TEAMS}
    return faults(f"{kind}.{subtype}" if subtype and subtype != "thread_broadcast" else kind, known)


def message_error(method: str, args: Mapping[str, Any], *, old_workspace: bool = False) -> str:
    """Give the error that Slack answers to a message's content, or ''."""
    text, blocks = args.get("text") or "", args.get("blocks") or []
    if len(text) > (UPDATE_TEXT if method == "chat.update" else POST_TEXT):
        return "msg_too_long"
    if not text and not blocks:
        return "no_text"
    if len(blocks) > BLOCKS or not all(map(_block_fits, blocks)):
        return "invalid_blocks"
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(ids) != len(set(ids)) or sum(block["type"] == "table" for block in blocks) > 1:
        return "invalid_blocks"
    if old_workspace and any(block["type"] not in OLD_BLOCKS for block in blocks):
        return "invalid_blocks"
    markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    if markdown > TEXT["markdown"] or len(json.dumps(blocks, ensure_ascii=False)) > BLOCKS_CHARS:
        return "msg_blocks_too_long"
    return ""


def _block_fits(block: Mapping[str, Any]) -> bool:
    if len(block.get("block_id", "")) > 255:
        return False
    match block["type"]:
        case "section":
            return 0 < len(block["text"]["text"]) <= TEXT["section"]
        case "markdown":
            return 0 < len(block["text"]) <= TEXT["markdown"]
        case "context":
            return 0 < len(block["elements"]) <= 10 and all(
                0 < len(e.get("text", "x")) <= 2_000 for e in block["elements"]
            )
        case "actions":
            return 0 < len(block["elements"]) <= 25 and all(map(_button_fits, block["elements"]))
        case "container":
            return 0 < len(block["child_blocks"]) <= 10 and all(map(_block_fits, block["child_blocks"]))
        case "table":
            return 0 < len(block["rows"]) <= 100 and all(0 < len(row) <= 20 for row in block["rows"])
        case "rich_text":
            return all(e.get("text", "x") != "" for part in block["elements"] for e in part.get("elements", []))
    return True


def _button_fits(button: Mapping[str, Any]) -> bool:
    label, value = button.get("text", {}).get("text", "x"), button.get("value", "")
    return 0 < len(label) <= 75 and len(value) <= 2_000 and len(button.get("action_id", "")) <= 255


def readable_as_markup(payload: Any) -> list[str]:
    """Give every text of a message in which Slack reads markup: all but literal elements of rich text and tables."""
    if isinstance(payload, list):
        return [text for item in payload for text in readable_as_markup(item)]
    if not isinstance(payload, Mapping):
        return []
    kind = payload.get("type", "")
    if kind in ("mrkdwn", "markdown"):
        return [payload["text"]]
    if kind in ("plain_text", "raw_text") or kind.startswith("rich_text"):
        return []
    found = [payload["text"]] if isinstance(payload.get("text"), str) and not kind else []
    return found + [text for key, item in payload.items() if key != "metadata" for text in readable_as_markup(item)]
