"""Cut Markdown at a limit so that every piece stands by itself: what a chat platform's message limit asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bot.markdown import ZERO_WIDTH_SPACE, Code, Prose, Segment, Table, aligned, segments

LEAST_LIMIT = 40  # below this a fence and its repair leave no room for code

_FENCE_START = re.compile(r"^ {0,3}(?:`{3}|~{3})")


def split(text: str, limit: int, *, tables_as_code: bool = False) -> list[str]:
    """Cut `text` into Markdown pieces of at most `limit` characters; every fence is closed where it was opened.

    Cuts fall between paragraphs, else between lines, else between words. The repair of a fence counts inside the
    limit. Empty text gives no piece. Raises: ValueError when `limit` is below `LEAST_LIMIT`.
    """
    if limit < LEAST_LIMIT:
        raise ValueError(f"a limit of {limit} leaves no room; give at least {LEAST_LIMIT}")
    pieces: list[str] = []
    for segment in segments(text):
        for block in _source_blocks(segment, limit, tables_as_code=tables_as_code):
            if pieces and len(pieces[-1]) + 2 + len(block) <= limit:
                pieces[-1] += "\n\n" + block
            else:
                pieces.append(block)
    return pieces


def split_prose(text: str, limit: int) -> list[str]:
    """Cut prose (no fences) into paragraphs of at most `limit` characters each, long ones between lines or words."""
    paragraphs = (part for part in re.split(r"\n[ \t]*\n+", text) if part.strip())
    return [piece for paragraph in paragraphs for piece in _cut(paragraph, limit)]


def split_code(text: str, limit: int) -> list[str]:
    """Cut code into pieces of at most `limit` characters, between lines where they fit; nothing is added or lost.

    The newline at a cut belongs to no piece; a line that had to be cut itself has none there.
    """
    pieces: list[str] = []
    rest = text
    while len(rest) > limit:
        newline = rest.rfind("\n", 0, limit + 1)
        at = newline if newline > 0 else limit
        pieces.append(rest[:at])
        rest = rest[at + (newline > 0) :]
    return [*pieces, rest]


def fenced(code: Code) -> str:
    """Write code between fences that its own lines cannot close."""
    return f"{(mark := _fence_mark(code.text))}{code.language}\n{code.text}\n{mark}"


def _fence_mark(text: str) -> str:
    """Give the shorter of the two kinds of fence that no line of `text` closes."""
    runs: dict[str, int] = {"`": 2, "~": 2}
    for run in re.findall(r"^ {0,3}(`{3,}|~{3,})[ \t]*$", text, re.MULTILINE):
        runs[run[0]] = max(runs[run[0]], len(run))
    mark = min(runs, key=lambda kind: runs[kind])
    return mark * (runs[mark] + 1)


def _source_blocks(segment: Segment, limit: int, *, tables_as_code: bool) -> list[str]:
    match segment:
        case Prose(text):
            return split_prose(text, limit)
        case Table() if tables_as_code:
            return _fenced_pieces(Code(aligned(segment)), limit)
        case Table():
            return _table_pieces(segment, limit)
        case Code():
            return _fenced_pieces(segment, limit)


def _fenced_pieces(code: Code, limit: int) -> list[str]:
    """Give the code in as few fences as fit; a language that leaves no room is left out."""
    whole = fenced(code)
    if len(whole) <= limit:
        return [whole]
    language = code.language if len(code.language) <= limit // 4 else ""
    # A cut can make a line of backticks alone out of a longer one, so each piece has a mark of its own.
    room = limit - len(language) - 2
    pieces: list[str] = []
    rest = code.text
    while rest:
        size = room - 6
        while len(piece := fenced(Code(split_code(rest, size)[0], language))) > limit and size > 1:
            size = max(1, size - (len(piece) - limit + 1) // 2 - 1)
        taken = len(split_code(rest, size)[0])
        rest = rest[taken:].removeprefix("\n") if rest[taken : taken + 1] == "\n" else rest[taken:]
        pieces.append(piece)
    return pieces


def _table_pieces(table: Table, limit: int) -> list[str]:
    """Give the table, cut between rows with the head repeated; as code where even one row does not fit."""
    head = f"{_row(table.head)}\n|{' --- |' * len(table.head)}"
    rows = [_row(row) for row in table.rows]
    if any(len(head) + 1 + len(row) > limit for row in rows) or len(head) > limit:
        return _fenced_pieces(Code(aligned(table)), limit)
    pieces = [head]
    for row in rows:
        if len(pieces[-1]) + 1 + len(row) > limit:
            pieces.append(head)
        pieces[-1] += "\n" + row
    return pieces


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _cut(paragraph: str, limit: int) -> Iterator[str]:
    """Cut between lines, else between words, else anywhere; no piece begins with what would open a fence."""
    rest = paragraph.rstrip()
    while len(rest) > limit:
        at = max(rest.rfind("\n", 1, limit), -1)
        if at < limit // 2:
            at = max(at, rest.rfind(" ", 1, limit))
        at = at if at > 0 else limit
        if piece := rest[:at].rstrip():
            yield piece
        rest = rest[at:].lstrip()
        if _FENCE_START.match(rest):
            rest = ZERO_WIDTH_SPACE + rest
    if rest:
        yield rest
