"""Markdown as Discord shows it, in pieces that each stand by themselves.

Discord has no tables, images, HTML, task lists, `~~~` fences or headings beyond three signs; `__x__` underlines and
`||x||` hides. https://support.discord.com/hc/en-us/articles/210298617
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bot.markdown import ZERO_WIDTH_SPACE, Code, Prose, Table, aligned, clean, segments
from bot.splitting import split_code, split_prose

# https://docs.discord.com/developers/resources/message#create-message: counted in code points.
LIMIT_CHARS = 2000
LEAST_ROOM = 400  # a block that must be cut is begun in the message before it when this much is free there
FENCE = "```"

_LINK = re.compile(
    r"\[(?P<label>[^\[\]\n]+)\]\(<?(?P<url>(?:https?|mailto):[^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?[^()\n]*\)"
)
_BARE_URL = re.compile(r"(?:\\?<)?(https?://[^\s<>]*[^\s<>.,;:!?'\")\]*_|\\])", re.IGNORECASE)
_ENTITIES = {"&amp;": "&", "&lt;": "\\<", "&gt;": "\\>", "&quot;": '"', "&#39;": "'", "&nbsp;": " "}
_ESCAPED = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_NOT_UNDERLINED = ("#", ">", "- ", "* ", "+ ", "———", "**")
_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_KNOWN_COLOURS = {0, 1, 4, *range(30, 38), *range(40, 48)}
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class Fence:
    """A code block; `text` holds no fence of its own any more."""

    text: str
    language: str = ""

    def __str__(self) -> str:
        return f"{FENCE}{self.language}\n{self.text}\n{FENCE}"


Block: TypeAlias = str | Fence


def blocks(markdown: str) -> list[Block]:
    """Give a model's Markdown as what Discord shows: prose as text, code and tables as fences."""
    found: list[Block] = []
    for segment in segments(markdown):
        match segment:
            case Prose(text):
                found += re.split(r"\n[ \t]*\n+", prose(text))
            case Code(text, language):
                found.append(fence(text, language))
            case Table():
                found.append(fence(aligned(segment)))
    return [block for block in found if isinstance(block, Fence) or block.strip()]


def fence(text: str, language: str = "") -> Fence:
    """Give a code block that nothing in `text` can end early: Discord knows no longer fence, so theirs are broken."""
    return Fence(unfenced(text) or " ", language)


def unfenced(text: str) -> str:
    """Put zero-width spaces into every run of three backticks or more."""
    return re.sub(r"`{3,}", lambda found: ZERO_WIDTH_SPACE.join(found[0]), text)


def coloured(text: str) -> Fence:
    """Give a command's output as a block: the colours that Discord shows, and no other escape."""
    kept = _COLOUR.sub(lambda found: found[0] if _is_shown(found[1]) else "", text)
    if "\x1b" not in kept or not _COLOUR.search(kept):
        return fence(clean(text))
    parts = re.split(
        r"(\x1b\[[0-9;]*m)", _ESCAPE.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", kept)
    )
    return fence("".join(part if _COLOUR.fullmatch(part) else clean(part) for part in parts), "ansi")


def _is_shown(codes: str) -> bool:
    return all(code.isdigit() and int(code) in _KNOWN_COLOURS for code in codes.split(";")) if codes else True


def visible(code: str) -> str:
    """Give a command with everything that cannot be seen written out, so that what is shown is what runs."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", code)


def inline(text: str) -> str:
    """Give plain text that fires no markup: a file's or a person's name."""
    return re.sub(r"([\\`*_~|\[\]<>#])", r"\\\1", " ".join(clean(text).split()))


def link(label: str, url: str) -> str:
    """Give a link without a preview, or the label where there is no address."""
    return f"[{inline(label)}](<{url}>)" if url and not re.search(r"[\s<>]", url) else inline(label)


# ── Prose ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def prose(text: str) -> str:
    """Give prose as Discord's Markdown; inline code is left alone."""
    lines: list[str] = []
    for line in unfenced(text).split("\n"):
        if lines and _is_underline(line) and lines[-1].strip() and not lines[-1].lstrip().startswith(_NOT_UNDERLINED):
            lines[-1] = f"{'#' if '=' in line else '##'} {lines[-1].strip()}"
        else:
            lines.append(_line(line))
    return "\n".join(lines)


def _is_underline(line: str) -> bool:
    """Tell whether a line makes a heading of the one above it."""
    bare = line.strip()
    return bool(bare) and (not bare.strip("=") or (len(bare) > 1 and not bare.strip("-")))


def _line(line: str) -> str:
    if re.fullmatch(r" {0,3}([-*_])(?: *\1){2,} *", line):
        return "———"
    line = re.sub(r"^( {0,3})>(?:[> ]*>)? ?", r"\1> ", line)
    line = re.sub(r"^ {0,3}#{4,6} +(.*?)(?: +#+)? *$", lambda found: f"**{found[1].replace('**', '')}**", line)
    line = re.sub(r"^(\s*)\+ ", r"\1- ", line)
    line = re.sub(r"^(\s*(?:[-*]|\d+\.)) \[([ xX])\] ", _task, line)
    return "".join(_outside(part) if is_text else part for part, is_text in _around_code(line))


def _task(found: re.Match[str]) -> str:
    return f"{found[1]} {'☐' if found[2] == ' ' else '☑'} "


def _around_code(line: str) -> Iterator[tuple[str, bool]]:
    """Give the pieces of a line and whether each is text, the others being inline code."""
    runs = [(found.start(), found.end()) for found in re.finditer(r"`+", line)]
    following: dict[int, int] = {}  # length of a run -> the next run of that length, seen from the end
    closing: dict[int, int] = {}
    for start, end in reversed(runs):
        closing[start] = following.get(end - start, -1)
        following[end - start] = end
    at = 0
    for start, _ in runs:
        if start >= at and closing[start] > 0:
            yield line[at:start], True
            yield line[start : closing[start]], False
            at = closing[start]
    yield line[at:], True


def _outside(text: str) -> str:
    text = re.sub(r"<br */?>", "\n", text, flags=re.IGNORECASE)
    text = re.sub(r"</?(?:b|strong)>", "**", text, flags=re.IGNORECASE)
    text = re.sub(r"</?(?:i|em)>", "*", text, flags=re.IGNORECASE)
    parts = re.split(r"(\[[^\[\]\n]+\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)|<(?:https?|mailto):[^\s<>]*>)", text)
    return "".join(_addressed(part) if n % 2 else _plain(part) for n, part in enumerate(parts))


def _addressed(text: str) -> str:
    """Give a link in the form that fetches no preview; links by which others could be told who read are none."""
    found = _LINK.fullmatch(text)
    if found is None:
        return text
    # Discord makes no link of a label that is an address itself.
    is_address = re.match("https?://", found["label"], re.IGNORECASE)
    return f"<{found['url']}>" if is_address else f"[{_plain(found['label'])}](<{found['url']}>)"


def _plain(text: str) -> str:
    text = re.sub("|".join(_ENTITIES), lambda found: _ENTITIES[found[0]], text)
    # Discord takes what stands in an address as it is, so an escape there would be part of it.
    text = _BARE_URL.sub(lambda found: f"<{re.sub(_ESCAPED, '', found[1])}>", text)
    text = re.sub(r"(?<![\w\\])__(?=\S)([^_]{1,300})(?<=\S)__(?!\w)", r"**\1**", text)
    text = re.sub(r"(?<!\\)\|\|", r"\\|\\|", text)
    return re.sub(r"@(?=everyone|here)|(?<=<@)(?=&)", lambda found: found[0] + ZERO_WIDTH_SPACE, text)


# ── Pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────


def pieces(wanted: Iterable[Block], *, limit: int = LIMIT_CHARS) -> list[str]:
    """Pack the blocks into messages of at most `limit` characters; every fence is closed where it was opened."""
    packed: list[str] = []
    before: Block = ""
    for block in wanted:
        gap = "\n" if isinstance(block, Fence) or isinstance(before, Fence) else "\n\n"
        room = limit - len(packed[-1]) - len(gap) if packed else limit
        for piece in _cut(block, room if room >= LEAST_ROOM else limit, limit):
            if packed and len(packed[-1]) + len(gap) + len(piece) <= limit:
                packed[-1] += gap + piece
            else:
                packed.append(piece)
        before = block
    return packed


def _cut(block: Block, room: int, limit: int) -> list[str]:
    """Give the block in pieces of at most `limit`, the first one of at most `room` where it has to be cut anyway."""
    if len(str(block)) <= limit:
        return [str(block)]
    if isinstance(block, Fence):
        cost = len(str(Fence("", block.language)))
        first = split_code(block.text, room - cost)[0]
        rest = block.text[len(first) :].removeprefix("\n")
        cuts = [first, *(split_code(rest, limit - cost) if rest else [])]
        return [str(Fence(piece, block.language)) for piece in cuts if piece]
    first = split_prose(block, room)[0]
    rest = block[len(first) :].lstrip() if block.startswith(first) else ""
    return [first, *split_prose(rest, limit)] if rest else split_prose(block, limit)
