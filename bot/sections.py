"""Markdown text -> sections with breadcrumbs, anchors and line numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One heading and what stands under it, up to the next heading of any level.

    `document` is the path below the Codex folder with forward slashes; `title` the document's; `headings` the path
    below the title, outermost first (empty for the text before the first heading or under the H1 itself). `line` and
    `end_line` count from 1 and are the heading's and the last line's. `text` is the body without the heading.
    """

    id: str
    document: str
    title: str
    headings: tuple[str, ...]
    anchor: str
    line: int
    end_line: int
    text: str

    @property
    def heading(self) -> str:
        """The path below the title, joined with ` > `; the title itself where there is none."""
        return " > ".join(self.headings) or self.title


@dataclass(frozen=True, slots=True)
class Document:
    """One file of the Codex. `name` is its path below the folder; `faults` says what could not be read of it."""

    name: str
    title: str
    sections: int
    faults: tuple[str, ...] = ()
