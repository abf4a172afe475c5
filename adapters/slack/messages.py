"""What a Slack message says: its own words, those of the app that wrote it, and the messages that it forwards. Pure.

Forwarded messages stand in `attachments`, not in `text`: https://docs.slack.dev/reference/events/message. What they say
is somebody else's and may say anything, so it is only ever quoted, and no mention in it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapters.slack.payload import Payload, list_at, map_at, text_at
from adapters.slack.wording import decoded

FORWARDS = 10
TEXT_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class Said:
    """Words of one person or app. `user` is an id or '', `name` what the message calls them or ''."""

    user: str
    name: str
    text: str
    is_forwarded: bool = False


def forwards_of(message: Payload) -> list[Payload]:
    """Give the messages that this one forwards, as its attachments hold them."""
    return [shared for shared in list_at(message, "attachments") if _is_forwarded(shared)][:FORWARDS]


def said_in(message: Payload) -> list[Said]:
    """Give all that a message says, its own words first; mentions of people stay `<@U1>`."""
    bot = text_at(message, "bot_profile", "name") or text_at(message, "username")
    said = [
        Said(text_at(message, "user"), f"{bot} (bot)" if bot else "", own_text(message)),
        *forwarded_in(message),
    ]
    return [one for one in said if one.text.strip()]


def forwarded_in(message: Payload) -> list[Said]:
    """Give what the messages say that this one forwards."""
    return [_forwarded(shared) for shared in forwards_of(message)]


def own_text(message: Payload) -> str:
    """Give a message's own words; those of an app may stand in blocks or attachments alone."""
    written = decoded(text_at(message, "text")) or text_of_blocks(list_at(message, "blocks"))
    # A link's preview names its address: that is a web page's text and not the writer's.
    told = [_told(one) for one in list_at(message, "attachments") if not (_is_forwarded(one) or one.get("from_url"))]
    return "\n".join(filter(None, (written, *told)))[:TEXT_CHARS]


def text_of_blocks(blocks: Sequence[Payload]) -> str:
    """Give the words of blocks, a line for each of their parts."""
    return "\n".join(filter(None, map(_block_text, blocks)))


def _is_forwarded(attachment: Payload) -> bool:
    return attachment.get("is_share") is True or attachment.get("is_msg_unfurl") is True


def _forwarded(shared: Payload) -> Said:
    inner = [block for item in list_at(shared, "message_blocks") for block in list_at(item, "message", "blocks")]
    text = decoded(text_at(shared, "text")) or text_of_blocks(inner) or decoded(text_at(shared, "fallback"))
    name = text_at(shared, "author_subname") or text_at(shared, "author_name")
    return Said(text_at(shared, "author_id"), name, text[:TEXT_CHARS], is_forwarded=True)


def _told(attachment: Payload) -> str:
    """Give what an app's attachment says, such as an alert."""
    parts = [decoded(text_at(attachment, name)) for name in ("pretext", "title", "text")]
    parts += [f"{text_at(f, 'title')}: {decoded(text_at(f, 'value'))}" for f in list_at(attachment, "fields")]
    parts.append(text_of_blocks(list_at(attachment, "blocks")))
    return "\n".join(filter(None, parts)) or decoded(text_at(attachment, "fallback"))


def _block_text(block: Payload) -> str:
    match text_at(block, "type"):
        case "rich_text":
            return "\n".join(map(_rich_text, list_at(block, "elements")))
        case "context":
            return " ".join(filter(None, map(_text, list_at(block, "elements"))))
    return "\n".join(filter(None, (_text(block), _text(map_at(block, "text")), *map(_text, list_at(block, "fields")))))


def _text(holder: Payload) -> str:
    """Give the text of a text object, or of a block that is its own."""
    text = text_at(holder, "text")
    return decoded(text) if text_at(holder, "type") == "mrkdwn" else text


def _rich_text(element: Payload) -> str:
    if text_at(element, "type") == "rich_text_list":
        return "\n".join(f"• {_line(item)}" for item in list_at(element, "elements"))
    return _line(element)


def _line(element: Payload) -> str:
    return "".join(map(_inline, list_at(element, "elements")))


def _inline(element: Payload) -> str:
    match text_at(element, "type"):
        case "link":
            return text_at(element, "text") or text_at(element, "url")
        case "user":
            return f"<@{text_at(element, 'user_id')}>"
        case "channel":
            return f"#{text_at(element, 'channel_id')}"
        case "broadcast":
            return f"@{text_at(element, 'range')}"
        case "emoji":
            return f":{text_at(element, 'name')}:"
    return text_at(element, "text")
