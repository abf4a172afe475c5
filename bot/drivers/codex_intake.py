"""The folder into the index: what is new, what changed, what is gone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.drivers.codex_files import LIMIT_BYTES, FoundFile, decode, find_files
from bot.drivers.codex_index import Index
from bot.sections import Document, Parsed, parse_document

Progress = Callable[[int, int], None]  # (done, of how many); called from a worker thread


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh took in: documents new or changed, and documents gone."""

    replaced: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.replaced or self.forgotten)


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of looking through the folder: `documents` were found, `skipped` says why other files were not used."""

    changes: Changes
    documents: int
    skipped: tuple[str, ...]


def take_in(index: Index, folder: Path, *, globs: Sequence[str], progress: Progress | None) -> Taken:
    """Bring `index` up to what `folder` holds. Raises: CodexUnreadable."""
    files, skipped = find_files(folder, globs=globs)
    known = index.known()
    gone = tuple(known.keys() - {file.name for file in files})
    if gone:
        index.forget(gone)
    doubtful = [file for file in files if file.name not in known or not known[file.name].surely_unchanged(file)]
    replaced: list[str] = []
    for number, file in enumerate(doubtful, 1):
        before = known.get(file.name)
        if _take_in(index, file, before.sha if before else b"", skipped):
            replaced.append(file.name)
        if progress:
            progress(number, len(doubtful))
    return Taken(Changes(tuple(replaced), gone), len(files), tuple(skipped))


def _take_in(index: Index, file: FoundFile, known_sha: bytes, skipped: list[str]) -> bool:
    """Index `file` if it holds something else than `known_sha` says; say whether it did."""
    seen_ns = time.time_ns()
    try:
        with open(file.path, "rb") as opened:
            data = opened.read(LIMIT_BYTES + 1)
    except OSError as error:
        skipped.append(f"{file.name}: it cannot be read ({error.strerror}).")
        return False
    sha = hashlib.sha256(data).digest()
    if sha == known_sha:
        index.touch(file, seen_ns=seen_ns)
        return False
    text, fault = decode(data, file.name)
    if fault:
        # It stays bound as it was while it could be read: not even its name is for other rooms.
        parsed = Parsed(Document(file.name, file.name, 0, (fault,)), (), channels=index.channels_of(file.name))
    else:
        parsed = parse_document(text, file.name)
    index.replace(file, parsed, sha=sha, seen_ns=seen_ns)
    return True
