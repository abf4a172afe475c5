"""The markers of a reply: found in whatever way a model writes them, taken out, and put in again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from markdown_it import MarkdownIt

# `[1]`, `[1, 2]`, `[1-3]`, `[1 and 2]`, `[^1]`, `[#1]`, `[Source 1]`, `[ 1 ]`, `\[1\]`, ［1］, 【1†source】, `([1])`,
# `(source 1)`, `<sup>[1]</sup>`, `[[1]](address)`; not a link's text
_WORD = r"(?:sources?|sections?|refs?|references?)"
_NUMBERS = r"\d{1,3}(?:\s*(?:[-–—,;&、，]|and|to)\s*#?\d{1,3})*"
_LABEL = rf"\s*\^?(?:{_WORD}|§)?[\s:.]*#?{_NUMBERS}\s*"
_TARGET = r"\([^()\s]*(?:\s+[\"'][^()\n]*)?\)"
_BARE = rf"(?:\\?[\[［]{_LABEL}\\?[\]］](?!{_TARGET})|【{_LABEL}[^】]*】)"
_ONE = (
    rf"(?:[(（]\s*(?:{_BARE}[\s,;]*)+[)）]|<sup>\s*(?:{_BARE}\s*)+</sup>|\[{_BARE}\](?:{_TARGET})?|{_BARE}"
    rf"|[(（](?:see\s+)?{_WORD}[\s:.]*#?{_NUMBERS}[)）])"
)
_MARKER = re.compile(rf"[ \t]*{_ONE}", re.IGNORECASE)
# One that opens a line takes the white space behind it along.
_TAKEN = re.compile(rf"^{_ONE}[ \t]*|{_MARKER.pattern}", re.IGNORECASE | re.MULTILINE)
_RUN = re.compile(rf"(?:{_MARKER.pattern})+[.,;]?", re.IGNORECASE)
_LEADING = re.compile(rf"(?:{_MARKER.pattern})+[.,;]?(?=\s|$)", re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:\s*(?:[-–—]|to)\s*#?(\d+))?")
_TICKS = re.compile(r"`+")

CODE = re.compile(
    r"(^ {0,3}(?P<fence>`{3,}(?![^\n]*`)|~{3,}).*?(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z))", re.MULTILINE | re.DOTALL
)
# Where a model explains its markers itself: as definitions, which would make links of them, or as a list at the end.
_DEFINITION = re.compile(r"^ {0,3}\[\^?\d{1,3}\]:[^\n]*\n?", re.MULTILINE)
_OWN_SOURCES = re.compile(
    r"(?:\A|\n)[ \t]*[#*_ \t]*(?:sources?|references|citations|footnotes)[*_: \t]*\n"
    rf"(?:[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?{_BARE}[^\n]*(?:\n|\Z)|[ \t]*\n)+[ \t]*\Z",
    re.IGNORECASE,
)


def unexplained(prose: str, *, is_last: bool) -> str:
    """Give `prose` without what a model says itself of its markers: which source is which the program says."""
    prose = _DEFINITION.sub("", prose)
    return _OWN_SOURCES.sub("", prose) if is_last else prose


def taken_out(raw: str) -> tuple[str, list[int]]:
    """Give a sentence without its markers, and their numbers in order."""
    numbers: list[int] = []
    text, before = raw, ""
    while text != before:  # taking one out may bring another one together
        text, before = _TAKEN.sub(lambda marker: _without(marker, numbers), text), text
    return text, list(dict.fromkeys(numbers))


def _without(marker: re.Match[str], numbers: list[int]) -> str:
    """Give what stands in a marker's place; its numbers go into `numbers`."""
    before, after = marker.string[: marker.start()], marker.string[marker.end() :]
    if is_in_code(marker.string, marker.start()):
        return marker[0]
    numbers.extend(_numbers(marker[0].split("†")[0].split("](")[0]))
    # Two runs of backticks must not become one: what stands in code would come out of it.
    return " " if before.endswith("`") and after.startswith("`") else ""


def _numbers(label: str) -> Iterator[int]:
    for first, last in _RANGE.findall(label):
        yield from range(int(first), min(int(last or first), int(first) + 20) + 1)


def without_strays(text: str, known: Collection[int]) -> str:
    """Give `text` without what a reader of Markdown sees as a marker though no source stands for it.

    A parser tells here, since a stray or an escaped backtick makes text of what looked like code.
    """
    while strays := _bracketed(text) - set(map(str, known)):
        inlines = (token for token in MarkdownIt("commonmark").parse(text) if token.type == "inline")
        seen = "\n".join(piece.content for line in inlines for piece in line.children or () if piece.type == "text")
        if not (strays := strays & _bracketed(seen)):
            break
        text = re.sub(rf"\[(?:{'|'.join(strays)})\]", "", text)
    return text


def _bracketed(text: str) -> set[str]:
    return set(re.findall(r"\[(\d{1,9})\]", text))


def leading(text: str) -> str:
    """Give the markers that `text` begins with; '' where it begins with something else."""
    found = _LEADING.match(text)
    return found[0] if found else ""


def pieces(raw: str) -> list[str]:
    """Cut a sentence behind each of its markers that more words follow; never inside a quotation."""
    cuts = [
        run.end()
        for run in _RUN.finditer(raw)
        if re.search(r"\w", raw[: run.start()])
        and re.search(r"\w", raw[run.end() :])
        and not is_in_code(raw, run.start())
        and not is_open(raw[: run.end()])
    ]
    return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


def is_open(text: str) -> bool:
    """Say whether a quotation begins in `text` that does not end there."""
    return (
        any(text.count(opening) > text.count(closing) for opening, closing in ("“”", "«»", "「」", "『』"))
        or text.count('"') % 2 == 1
    )


def is_in_code(text: str, at: int) -> bool:
    """Tell whether a place is inside a code span: opened by a run of backticks, closed by the next of that length."""
    position = 0
    while opening := _TICKS.search(text, position, at):
        length = len(opening[0])
        closing = next((run for run in _TICKS.finditer(text, opening.end()) if len(run[0]) == length), None)
        if closing is not None and closing.start() >= at:
            return True
        position = closing.end() if closing else opening.end()
    return False


def with_markers(text: str, numbers: Sequence[int]) -> str:
    """Put the markers before the sentence's end mark, outside a quotation and inside a table's row."""
    markers = " " + "".join(f"[{number}]" for number in numbers)
    body = text.rstrip()
    rest = text[len(body) :]
    if body.endswith("|"):
        return f"{body[:-1].rstrip()}{markers} |{rest}"
    end = re.search(r"[.,!?:;。！？，；]+[*_)]*$", body)
    return body[: end.start()] + markers + body[end.start() :] + rest if end else body + markers + rest
