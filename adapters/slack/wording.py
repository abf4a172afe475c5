"""Slack's way of writing text: read into plain words, written so that nothing in it can ping or deceive.

Slack writes `<@U1>`, `<#C1|general>`, `<https://a|label>` and `&lt;`: https://docs.slack.dev/messaging/formatting-message-text/
Nothing that comes from a model, a document or a command may produce any of these. Whether `<!channel>` pings from
inside a `markdown` block is not documented, so it is treated as if it did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from bot.markdown import (
    ZERO_WIDTH_SPACE,
    Block,
    Code,
    Heading,
    Item,
    Listing,
    Paragraph,
    Quote,
    Rule,
    Span,
    Table,
    aligned,
    clean,
    parse,
)

_TOKEN = re.compile(r"<([^<>|\n]*)(?:\|([^<>\n]*))?>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>\n]*)?>")
# Not only whole words: a text may still be cut, and `@channels` would end as `@channel`.
_BROADCAST = re.compile(r"(?i)@(?=channel|here|everyone|group)")
# `<`, in any of the shapes in which Markdown lets it be written, before what would make it a mention or a broadcast.
_OPENING = re.compile(r"(<|&(?:lt|LT|#0*60|#[xX]0*3[cC]);?)(?=[!@#\\&])")
_UNSEEN = re.compile(r"[\u200b-\u200f\u2060\ufeff]")


def mentioned(text: str) -> list[str]:
    """Give the ids of the people that a text mentions, in order."""
    return _MENTION.findall(text)


def decoded(text: str) -> str:
    """Give a Slack text as its writer saw it; mentions of people stay `<@U1>` until their names are known."""
    return _unescaped(_TOKEN.sub(_decoded_token, text))


def _decoded_token(match: re.Match[str]) -> str:
    inside, label = match[1], match[2] or ""
    kind = inside[:1]
    if kind == "@":
        return f"<{inside}>"
    if kind == "#":
        return f"#{label or inside[1:]}"
    if kind == "!":
        name = inside[1:].split("^")[0]
        return label or f"@{name}"
    address = inside.removeprefix("mailto:")
    if not label or address.partition("://")[2].rstrip("/") == label.rstrip("/"):
        return label or address  # Slack made a link of what was typed without `https://`
    return address if label in (address, inside) else f"{label} ({address})"


def _unescaped(text: str) -> str:
    # `&amp;` last, or `&amp;lt;` would be undone twice.
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def named(text: str, names: Mapping[str, str]) -> str:
    """Put names for the mentions of people; an unknown one keeps its id."""
    return _MENTION.sub(lambda match: f"@{names.get(match[1], match[1])}", text)


def as_word(text: str) -> str:
    """Give a text for comparing with a command word: trimmed, lower case, without quotes and end marks."""
    return _UNSEEN.sub("", text.replace("\xa0", " ")).strip(" \t\n.!?,;:'\"`“”‘’*_").lower()


def escaped(text: str) -> str:
    """Give text for a `mrkdwn` field, in which it can neither mention, broadcast nor link."""
    return _BROADCAST.sub(f"@{ZERO_WIDTH_SPACE}", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def tamed(markdown: str) -> str:
    """Give Markdown for a `markdown` block, in which nothing can mention or broadcast."""
    return _BROADCAST.sub(f"@{ZERO_WIDTH_SPACE}", _OPENING.sub(rf"\1{ZERO_WIDTH_SPACE}", markdown))


def link(url: str, label: str) -> str:
    """Give a `mrkdwn` link; the label alone where the address is not http or https."""
    text = escaped(label).replace("|", "¦").replace("\n", " ")
    if not url.startswith(("http://", "https://")):
        return text
    return f"<{quote(url, safe=':/?#[]@!$&()*+,;=%~-._').replace('&', '&amp;')}|{text}>"


def mrkdwn(markdown: str) -> str:
    """Give Markdown in Slack's older notation, for where a `markdown` block is not taken."""
    return "\n\n".join(_block(block) for block in parse(markdown))


def _block(block: Block) -> str:
    match block:
        case Paragraph(spans):
            return _spans(spans)
        case Heading(_, spans):
            return _spans(Span(s.text, True, s.italic, s.strike, s.code, s.href) for s in spans)
        case Code(text):
            return f"```\n{escaped(text)}\n```"
        case Table():
            return f"```\n{escaped(aligned(block))}\n```"
        case Quote(blocks):
            return "\n".join(f"> {line}" for line in "\n\n".join(map(_block, blocks)).split("\n"))
        case Listing(items, start):
            return "\n".join(_item(item, n, start) for n, item in enumerate(items))
        case Rule():
            return "———"


def _item(item: Item, index: int, start: int | None) -> str:
    marker = "•" if start is None else f"{start + index}."
    if item.checked is not None:
        marker = "☑" if item.checked else "☐"
    return f"{marker} " + "\n".join(map(_block, item.blocks)).replace("\n", "\n    ")


def _spans(spans: Iterable[Span]) -> str:
    return "".join(map(_span, spans))


def _span(span: Span) -> str:
    """Write one span. Slack reads `*` only at a word's edge, so a style stands between zero-width spaces."""
    if span.href:
        return link(span.href, span.text)
    text = escaped(span.text)
    lead, core, tail = text[: len(text) - len(text.lstrip())], text.strip(), text[len(text.rstrip()) :]
    if not core:
        return text
    marks = [mark for on, mark in ((span.code, "`"), (span.strike, "~"), (span.italic, "_"), (span.bold, "*")) if on]
    if not marks:
        return text
    for mark in marks:
        core = f"{mark}{core}{mark}"
    return f"{lead}{ZERO_WIDTH_SPACE}{core}{ZERO_WIDTH_SPACE}{tail}"


def one_line(text: str, limit: int) -> str:
    """Give text on one line of at most `limit` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
