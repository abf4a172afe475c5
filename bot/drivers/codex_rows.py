"""What the index of a Codex gives: values, no SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bot.drivers.codex_files import FoundFile
from bot.sections import Document


@dataclass(frozen=True, slots=True)
class Known:
    """What the index knows of a file. `seen_ns` is when it was read, in nanoseconds of the wall clock."""

    size: int
    mtime_ns: int
    sha: bytes
    seen_ns: int

    def surely_unchanged(self, file: FoundFile) -> bool:
        # A file written again within the clock's grain of being read may look the same: git calls it racy.
        same = (self.size, self.mtime_ns) == (file.size, file.mtime_ns)
        return same and file.mtime_ns < self.seen_ns - 2_000_000_000


@dataclass(frozen=True, slots=True)
class Shelf:
    """A document as it stands in the index; `channels` as in `Parsed`."""

    id: int
    document: Document
    channels: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that the full-text index found; `score` is BM25, higher is better."""

    chunk: int
    section: int
    document: int
    score: float


Table: TypeAlias = Literal["chunk", "name"]
