"""Markdown, parsed once: what both platforms and the web page render from.

Three views of one text: `segments` (prose, code and tables in a row, which is what a chat platform shows), `parse`
(the tree, for whoever needs bold to be bold), `html` (sanitised, for the page). Prose keeps the author's own
characters; only what could deceive is rewritten: images, links that show another address than they lead to, control
characters and bidirectional overrides. Code is never touched: bytes in, bytes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode

ZERO_WIDTH_SPACE = "\u200b"

# ECMA-48: CSI, OSC (ended by BEL or ST), and the two-character escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_TASK = re.compile(r"^\[([ xX])\]\s+")
_SCHEMES = ("http://", "https://", "mailto:")


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text in one style. `href` is an http, https or mailto address, or empty."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    href: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A fence or an indented block; `text` has no newline at its end. `language` is empty where none is named."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as plain text; every row is as long as `head`."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Quote:
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list; `checked` is None where it is no task."""

    blocks: tuple[Block, ...]
    checked: bool | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A list; `start` is the first number, None where it has bullets."""

    items: tuple[Item, ...]
    start: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A thematic break."""


@dataclass(frozen=True, slots=True)
class Prose:
    """Markdown without code blocks and tables, in the author's own characters but for what could deceive."""

    text: str


Block: TypeAlias = Paragraph | Heading | Listing | Code | Table | Quote | Rule
Segment: TypeAlias = Prose | Code | Table


def clean(text: str) -> str:
    """Drop terminal escapes, control characters (but tab and newline) and bidirectional overrides."""
    return _UNSEEN.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


# ── The tree ──────────────────────────────────────────────────────────────────────────────────────────────────────


def parse(text: str) -> tuple[Block, ...]:
    """Give the blocks of `text`, in order."""
    return tuple(_blocks(_tree(_tokens(clean(text))).children))


def spans_text(spans: Iterable[Span]) -> str:
    """Give the words alone, without styles or addresses."""
    return "".join(span.text for span in spans)


def plain(text: str) -> str:
    """Give `text` as a person would read it aloud: no markers, tables aligned, list entries behind bullets."""
    return "\n\n".join(_plain_block(block) for block in parse(text)).strip()


def _blocks(nodes: Sequence[SyntaxTreeNode]) -> Iterator[Block]:
    for node in nodes:
        match node.type:
            case "paragraph":
                yield Paragraph(_spans(node))
            case "heading":
                yield Heading(int(node.tag[1]), _spans(node))
            case "fence" | "code_block":
                yield _code(node.content, node.info)
            case "bullet_list" | "ordered_list":
                start = None if node.type == "bullet_list" else int(node.attrs.get("start", 1))
                yield Listing(tuple(_item(child) for child in node.children), start)
            case "blockquote":
                yield Quote(tuple(_blocks(node.children)))
            case "table":
                yield _table(node)
            case "hr":
                yield Rule()


def _item(node: SyntaxTreeNode) -> Item:
    blocks = list(_blocks(node.children))
    if blocks and isinstance(first := blocks[0], Paragraph) and first.spans:
        lead = first.spans[0]
        if (task := _TASK.match(lead.text)) and not lead.code:
            rest = Span(lead.text[task.end() :], lead.bold, lead.italic, lead.strike, href=lead.href)
            blocks[0] = Paragraph((rest, *first.spans[1:]))
            return Item(tuple(blocks), checked=task[1] != " ")
    return Item(tuple(blocks))


def _code(content: str, info: str) -> Code:
    language = re.match(r"[\w+#.-]{1,30}", info.strip())
    return Code(content.removesuffix("\n"), language[0] if language else "")


def _table(node: SyntaxTreeNode) -> Table:
    rows = [
        tuple(spans_text(_spans(cell)).replace("\n", " ") for cell in row.children)
        for part in node.children
        for row in part.children
    ]
    return Table(rows[0], tuple(rows[1:]))


def _spans(node: SyntaxTreeNode) -> tuple[Span, ...]:
    return node.children[0].meta["spans"] if node.children else ()


def _styled(children: Iterable[Token]) -> Iterator[Span]:
    """Give the spans of an inline token. It walks the flat list: emphasis nests deeper than recursion can follow."""
    depth = {"strong": 0, "em": 0, "s": 0}
    href = ""
    for child in children:
        kind = child.type.removesuffix("_open").removesuffix("_close")
        if kind in depth:
            depth[kind] += child.nesting
        elif kind == "link":
            href = str(child.attrs["href"]) if child.nesting == 1 else ""
        text = "\n" if kind in ("softbreak", "hardbreak") else child.content
        if text:
            yield Span(text, depth["strong"] > 0, depth["em"] > 0, depth["s"] > 0, kind == "code_inline", href)


def _plain_block(block: Block) -> str:
    match block:
        case Paragraph(spans) | Heading(_, spans):
            return spans_text(spans)
        case Code(text):
            return text
        case Table():
            return aligned(block)
        case Quote(blocks):
            return "\n".join(f"> {line}" for line in "\n\n".join(map(_plain_block, blocks)).split("\n"))
        case Listing(items, start):
            return "\n".join(_plain_item(item, n, start) for n, item in enumerate(items))
        case Rule():
            return "———"


def _plain_item(item: Item, index: int, start: int | None) -> str:
    marker = "•" if start is None else f"{start + index}."
    if item.checked is not None:
        marker = "☑" if item.checked else "☐"
    body = "\n".join(_plain_block(block) for block in item.blocks)
    return f"{marker} " + body.replace("\n", "\n   ")


def aligned(table: Table) -> str:
    """Give a table as text in columns, for places that draw none."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[n]) for row in rows) for n in range(len(table.head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("─" * max(width, 1) for width in widths), *lines[1:]])


# ── The parser ────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # `_honest` decides, and keeps the label
    return parser


def _tokens(text: str) -> list[Token]:
    """Parse, with images made links (nothing may be fetched merely because it is shown) and only honest links."""
    tokens = _parser().parse(text)
    for token in tokens:
        if token.children and any(child.type in ("image", "link_open") for child in token.children):
            honest = list(_honest(token.children))
            token.meta["rewritten"] = honest != token.children
            token.children = honest
    return tokens


def _tree(tokens: Sequence[Token]) -> SyntaxTreeNode:
    """Give the tree of blocks; each inline node is a leaf with its spans in `meta`."""
    from markdown_it.tree import SyntaxTreeNode

    for token in tokens:
        if token.type == "inline":
            token.meta["spans"] = tuple(_styled(token.children or ()))
            token.children = []
    return SyntaxTreeNode(tokens)


def _honest(children: Iterable[Token]) -> Iterator[Token]:
    """Give the children with images as links, and with links that lead where they say.

    A disguised one becomes `label (address)`; one that leads nowhere on the web (relative, `javascript:`) its label.
    """
    label: list[Token] | None = None
    opened: Token | None = None
    for child in children:
        if child.type == "link_open":
            opened, label = child, []
        elif child.type == "link_close" and opened and label is not None:
            yield from _honest_link(opened, label)
            opened = label = None
        elif child.type == "image":
            text = _text_token(child.content or "image")
            if label is None:
                yield from _honest_link(_link_open(str(child.attrs["src"])), [text])
            else:
                label.append(text)
        elif label is not None:
            label.append(child)
        else:
            yield child


def _honest_link(opened: Token, label: list[Token]) -> Iterator[Token]:
    from markdown_it.token import Token

    href = str(opened.attrs["href"])
    close = Token("link_close", "a", -1)
    if not href.lower().startswith(_SCHEMES):
        yield from label
    elif _is_disguise("".join(token.content for token in label), href):
        yield from (*label, _text_token(" ("), opened, _text_token(href), close, _text_token(")"))
    else:
        yield from (opened, *label, close)


def _text_token(content: str) -> Token:
    from markdown_it.token import Token

    return Token("text", "", 0, content=content)


def _link_open(href: str) -> Token:
    from markdown_it.token import Token

    return Token("link_open", "a", 1, attrs={"href": href})


def _is_disguise(label: str, href: str) -> bool:
    """Tell whether the label reads as an address of another host than the link leads to."""
    shown = re.match(r"\s*(?:\w+://)?((?:[\w-]+\.)+[a-z]{2,})(?![\w(])", label, re.IGNORECASE)
    if shown is None:
        shown = re.search(r"://((?:[\w-]+\.)+[a-z]{2,})", label)
    return shown is not None and not f".{_host(href)}".endswith(f".{shown[1].lower()}")


def _host(address: str) -> str:
    try:
        parts = urlsplit(address)
        return (parts.hostname or parts.path.rpartition("@")[2]).lower()
    except ValueError:
        return ""


# ── Segments ──────────────────────────────────────────────────────────────────────────────────────────────────────


def segments(text: str) -> tuple[Segment, ...]:
    """Give prose, code and tables in order. Code inside a list or a quote stands by itself, between its halves."""
    text = clean(text)
    tokens = _tokens(text)
    lines: list[str | None] = [*text.split("\n")]
    _drop_definitions(lines, tokens)
    for token in tokens:
        if token.type == "inline" and token.map and _must_be_rewritten(token):
            _rewrite(lines, token)
    found: list[Segment] = []
    at = 0
    for node in _tree(tokens).walk():
        if node.type in ("fence", "code_block", "table") and node.map:
            found += _prose(lines[at : node.map[0]], continued=bool(found))
            found.append(_table(node) if node.type == "table" else _code(node.content, node.info))
            at = node.map[1]
    return (*found, *_prose(lines[at:], continued=bool(found)))


def _prose(lines: Iterable[str | None], *, continued: bool) -> list[Segment]:
    """Give the lines as one segment, or none. After code, what an enclosing list had indented is moved back."""
    kept = "\n".join(line for line in lines if line is not None).rstrip()
    head, *rest = kept.lstrip("\n").split("\n")
    if continued and (indent := len(head) - len(head.lstrip(" "))):
        moved = [head[indent:]]
        while rest and rest[0][:indent].isspace():
            moved.append(rest.pop(0)[indent:])
        return [Prose("\n".join([*moved, *rest]))]
    # A quote's marker alone is what is left of a quote whose code was cut out.
    return [Prose("\n".join([head, *rest]))] if kept.strip(" \n>") else []


def _drop_definitions(lines: list[str | None], tokens: Sequence[Token]) -> None:
    """Blank the lines that no block covers: link definitions, whose links are written out where they stand."""
    covered: set[int] = set()
    for token in tokens:
        if token.map and token.level == 0:
            covered.update(range(*token.map))
    for number in range(len(lines)):
        if number not in covered:
            lines[number] = ""


def _must_be_rewritten(token: Token) -> bool:
    """Tell whether a link was not honest, or is one by reference, whose definition may end up elsewhere."""
    links = sum(child.type == "link_open" for child in token.children or ())
    written = len(re.findall(r"\]\(|<(?:https?|mailto):", token.content, re.IGNORECASE))
    return bool(token.meta.get("rewritten")) or links > written


def _rewrite(lines: list[str | None], token: Token) -> None:
    """Put a safe form of the inline `token` where its source stands."""
    start, end = token.map or (0, 0)
    safe = "".join(map(_span_source, _styled(token.children or ())))
    first = token.content.split("\n")[0]
    lines[start] = (lines[start] or "").replace(first, safe, 1) if first in (lines[start] or "") else safe
    for number in range(start + 1, min(end, start + token.content.count("\n") + 1)):
        lines[number] = None


def _span_source(span: Span) -> str:
    """Write one span as Markdown."""
    if span.code:
        return f"`` {span.text} ``" if "`" in span.text else f"`{span.text}`"
    text = " " if span.text == "\n" else re.sub(r"([\\`*_\[\]<>~|])", r"\\\1", span.text)
    lead, core, tail = re.fullmatch(r"(\s*)(.*?)(\s*)", text, re.DOTALL).groups()  # type: ignore[union-attr]  # always
    for on, mark in ((span.strike, "~~"), (span.italic, "*"), (span.bold, "**")):
        core = f"{mark}{core}{mark}" if on and core else core
    if span.href and core:
        core = f"<{span.href}>" if span.text == span.href else f"[{core}]({span.href})"
    return lead + core + tail


# ── The page ──────────────────────────────────────────────────────────────────────────────────────────────────────

_TAGS = {"p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "blockquote"}
_TAGS |= {"ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td"}


def html(text: str) -> str:
    """Give sanitised HTML: no image, no script, no style; links open elsewhere and tell nobody who came."""
    import nh3

    tokens = _tokens(clean(text))
    for token in tokens:
        _mark_task(token)
    parser = _parser()
    return nh3.clean(
        parser.renderer.render(tokens, parser.options, {}),
        tags=_TAGS,
        attributes={"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}},
        attribute_filter=lambda tag, name, value: (
            value if (tag, name) != ("code", "class") or re.fullmatch(r"language-[\w+#.-]{1,30}", value) else None
        ),
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _mark_task(token: Token) -> None:
    if (
        token.type == "inline"
        and token.level >= 3
        and token.children
        and (task := _TASK.match(token.children[0].content))
    ):
        first = token.children[0]
        first.content = ("☐ " if task[1] == " " else "☑ ") + first.content[task.end() :]
