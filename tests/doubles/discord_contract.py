"""Discord's own words on what a request may hold, and the limits that its schema leaves out.

`discord_schemas.json` is cut from Discord's published OpenAPI description (github.com/discord/discord-api-spec, MIT):

    python tests/doubles/discord_contract.py specs/openapi.json
"""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema.protocols

SCHEMAS = Path(__file__).with_name("discord_schemas.json")

# Method and path below the API's base -> schema of the request, `[]` for a list of them.
REQUESTS = {
    "POST /channels/{}/messages": "MessageCreateRequest",
    "PATCH /channels/{}/messages/{}": "MessageEditRequestPartial",
    "POST /channels/{}/messages/{}/threads": "CreateTextThreadWithMessageRequest",
    "POST /users/@me/channels": "CreatePrivateChannelRequest",
    "PUT /applications/{}/commands": "ApplicationCommandUpdateRequest[]",
    "PUT /applications/{}/guilds/{}/commands": "ApplicationCommandUpdateRequest[]",
    "POST /webhooks/{}/{}": "IncomingWebhookRequestPartial",
    "PATCH /webhooks/{}/{}/messages/{}": "IncomingWebhookUpdateRequestPartial",
}
CALLBACKS = {
    4: "CreateMessageInteractionCallbackRequest",
    5: "CreateMessageInteractionCallbackRequest",
    6: "UpdateMessageInteractionCallbackRequest",
    7: "UpdateMessageInteractionCallbackRequest",
    8: "ApplicationCommandAutocompleteCallbackRequest",
}
CONTENT_CHARS = 2000
BUTTONS_A_ROW, ROWS, LABEL_CHARS, ID_CHARS, NONCE_CHARS = 5, 5, 80, 100, 25


def faults(method: str, path: str, body: Any) -> list[str]:
    """Give what Discord's schema and limits find wrong with a request; empty when nothing is."""
    name = _schema_of(method, path, body)
    found: list[str] = []
    if name is not None:
        bodies = body if name.endswith("[]") else [body]
        for one in bodies:
            error = jsonschema.exceptions.best_match(_validator(name.removesuffix("[]")).iter_errors(_as_ids(one)))
            found += [f"{method} {path}: {error.json_path}: {error.message[:300]}"] if error else []
    message = body.get("data", body) if isinstance(body, dict) and path.endswith("/callback") else body
    return found + [f"{method} {path}: {fault}" for fault in limit_faults(message)]


def limit_faults(message: Any) -> list[str]:
    """Give which of Discord's limits a message breaks. https://docs.discord.com/developers/resources/message"""
    if not isinstance(message, dict):
        return []
    found = []
    if len(str(message.get("content") or "")) > CONTENT_CHARS:
        found.append("content: longer than 2000")
    if len(str(message.get("nonce") or "")) > NONCE_CHARS:
        found.append("nonce: longer than 25")
    rows = message.get("components") or []
    buttons = [button for row in rows for button in row.get("components", [])]
    if len(rows) > ROWS or any(len(row.get("components", [])) > BUTTONS_A_ROW for row in rows):
        found.append("components: too many")
    if any(len(b.get("custom_id", "")) > ID_CHARS or len(b.get("label", "")) > LABEL_CHARS for b in buttons):
        found.append("components: an id or a label is too long")
    ids = [button["custom_id"] for button in buttons if "custom_id" in button]
    if len(ids) != len(set(ids)):
        found.append("components: an id stands twice")
    return found


def _schema_of(method: str, path: str, body: Any) -> str | None:
    if method == "POST" and re.fullmatch(r"/interactions/[^/]+/[^/]+/callback", path):
        return CALLBACKS.get(body.get("type"))
    for pattern, name in REQUESTS.items():
        known_method, _, known_path = pattern.partition(" ")
        if method == known_method and re.fullmatch(re.escape(known_path).replace(r"\{\}", "[^/]+"), path):
            return name
    return None


def _as_ids(value: Any, key: str = "") -> Any:
    """Give the value with ids as text: discord.py sends some as numbers, which Discord takes."""
    if isinstance(value, dict):
        return {name: _as_ids(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_ids(inner, key) for inner in value]
    is_id = isinstance(value, int) and not isinstance(value, bool) and (key == "id" or key.endswith("_id"))
    return str(value) if is_id and key != "attachment_id" else value


@functools.cache
def _validator(name: str) -> jsonschema.protocols.Validator:
    document = json.loads(SCHEMAS.read_text("utf-8"))
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


def _referred(value: Any) -> set[str]:
    text = json.dumps(value)
    return set(re.findall(r'"#/components/schemas/(\w+)"', text))


def cut(openapi: dict[str, Any]) -> dict[str, Any]:
    """Give the schemas of the requests, and what they refer to, without words."""
    known = openapi["components"]["schemas"]
    wanted = {name.removesuffix("[]") for name in (*REQUESTS.values(), *CALLBACKS.values())}
    kept: dict[str, Any] = {}
    while wanted:
        name = wanted.pop()
        kept[name] = _without_words(known[name])
        wanted |= _referred(kept[name]) - kept.keys()
    return {"version": openapi["info"]["version"], "components": {"schemas": dict(sorted(kept.items()))}}


def _without_words(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {
            k: v for k, v in value.items() if not (k.startswith("x-") or (k == "description" and isinstance(v, str)))
        }
        return {k: _without_words(v) for k, v in kept.items()}
    return [_without_words(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    made = cut(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    SCHEMAS.write_text(json.dumps(made, separators=(",", ":")) + "\n", "utf-8")
