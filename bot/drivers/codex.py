"""The Codex: a folder of Markdown, kept in an index, searched. Implements `Retriever`.

`await Codex.open(folder, index_path, base_url=…)` gives one whose index holds what the folder holds now.
`await refresh()` takes in what changed since (a few milliseconds when nothing did); `watch()` does so for ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from bot.checks import Check, Health
from bot.conversation import RoomKey
from bot.drivers.codex_files import GLOBS, FoundFile, decode, find_files
from bot.drivers.codex_index import Index, Shelf, is_damage
from bot.drivers.codex_ranking import search_lexically
from bot.errors import CodexUnreadable, attempt
from bot.ports import Findings
from bot.sections import Document, Parsed, Section, parse_document

log = logging.getLogger(__name__)

T = TypeVar("T")
Progress = Callable[[int, int], None]  # (done, of how many); called from a worker thread


@dataclass(frozen=True, slots=True)
class Changes:
    """What a refresh took in: documents new or changed, and documents gone."""

    replaced: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.replaced or self.forgotten)


class Codex:
    """The standards of one team. SQLite and all computing stay on threads of its own."""

    def __init__(self, folder: Path, index_path: Path, *, base_url: str, globs: Sequence[str]) -> None:
        self.folder = folder
        self._index_path = index_path
        self._base_url = base_url.rstrip("/")
        self._globs = tuple(globs)
        self._shelves: dict[str, Shelf] = {}
        self._skipped: tuple[str, ...] = ()
        self._structure = -1
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="codex-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="codex-read")
        self._mending = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        folder: Path,
        index_path: Path,
        *,
        base_url: str = "",
        globs: Sequence[str] = GLOBS,
        progress: Progress | None = None,
    ) -> Codex:
        """Open the index at `index_path` (made anew if missing, old or damaged) and take in the folder.

        Raises: CodexUnreadable when the folder cannot be read or holds no document.
        """
        codex = cls(folder, index_path, base_url=base_url, globs=globs)
        try:
            await codex._run(codex._writer, codex._connect)
            await codex.refresh(progress=progress)
        except BaseException:
            await codex.close()
            raise
        return codex

    def _connect(self) -> None:
        self._index = Index.open(self._index_path)
        # The second connection reads for `search`, the third for `section`, which is asked on the loop's own thread.
        self._search_index = Index(self._index_path)
        self._desk = Index(self._index_path)

    def _disconnect(self) -> None:
        for name in ("_index", "_search_index", "_desk"):
            if (index := getattr(self, name, None)) is not None:
                index.close()

    async def close(self) -> None:
        """Stop the threads and close the index."""
        await self._run(self._reader, lambda: None)
        await self._run(self._writer, self._disconnect)
        self._reader.shutdown(wait=True)
        self._writer.shutdown(wait=True)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def _mended(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Run `work`; where the index turns out to be damaged, make it anew and run it again."""
        try:
            return await self._run(pool, work)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            log.warning("Found the index damaged (%s): it is made anew", error, extra={"action": "index_rebuild"})
        async with self._mending:
            await self._run(self._reader, lambda: None)
            await self._run(self._writer, self._rebuild)
        return await self._run(pool, work)

    def _rebuild(self) -> None:
        self._disconnect()
        self._index_path.unlink(missing_ok=True)
        self._connect()
        self._structure = -1
        self._refresh(None)

    # The folder

    async def refresh(self, *, progress: Progress | None = None) -> Changes:
        """Take in what changed in the folder since the last time. Raises: CodexUnreadable."""
        return await self._mended(self._writer, lambda: self._refresh(progress))

    async def watch(self, *, interval_s: float = 2.0, on_change: Callable[[Changes], None] | None = None) -> None:
        """Refresh every `interval_s` until cancelled. A fault is logged, and looked at again the next time."""
        while True:
            await asyncio.sleep(interval_s)
            changes = await attempt(self.refresh(), where="watching the Codex")
            if isinstance(changes, Changes) and changes:
                log.info(
                    "Took in %s changed and %s removed documents",
                    len(changes.replaced),
                    len(changes.forgotten),
                    extra={"action": "codex_changed"},
                )
                if on_change:
                    on_change(changes)

    def _refresh(self, progress: Progress | None) -> Changes:
        files, skipped = find_files(self.folder, globs=self._globs)
        known = self._index.known()
        gone = tuple(known.keys() - {file.name for file in files})
        if gone:
            self._index.forget(gone)
        open_questions = [f for f in files if f.name not in known or not known[f.name].surely_unchanged(f)]
        replaced: list[str] = []
        for number, file in enumerate(open_questions, 1):
            before = known.get(file.name)
            if self._take_in(file, before.sha if before else b"", skipped):
                replaced.append(file.name)
            if progress:
                progress(number, len(open_questions))
        self._skipped = tuple(skipped)
        self._reload_shelves()
        if not files:
            raise CodexUnreadable(
                f"The Codex folder {self.folder} holds no document ({', '.join(self._globs)}): "
                "put Markdown files into it, or set `codex` (DUET_CODEX) to another folder."
            )
        return Changes(tuple(replaced), gone)

    def _take_in(self, file: FoundFile, known_sha: bytes, skipped: list[str]) -> bool:
        """Index `file` if it holds something else than `known_sha` says; say whether it did."""
        seen_ns = time.time_ns()
        try:
            data = file.path.read_bytes()
        except OSError as error:
            skipped.append(f"{file.name}: it cannot be read ({error.strerror}).")
            return False
        sha = hashlib.sha256(data).digest()
        if sha == known_sha:
            self._index.touch(file, seen_ns=seen_ns)
            return False
        text, fault = decode(data, file.name)
        parsed = parse_document(text, file.name) if not fault else _unread(file.name, fault)
        self._index.replace(file, parsed, sha=sha, seen_ns=seen_ns)
        return True

    def _reload_shelves(self) -> None:
        structure = self._index.counter("structure")
        if structure != self._structure:
            self._shelves = {shelf.document.name: shelf for shelf in self._index.shelves()}
            self._structure = structure

    # The Retriever

    async def search(self, question: str, earlier: Sequence[str], *, room: RoomKey, limit: int) -> Findings:
        """Give the best sections for `question`; `earlier` holds the questions before it, oldest first."""
        return await self._mended(self._reader, lambda: self._search(question, earlier, room, limit))

    def _search(self, question: str, earlier: Sequence[str], room: RoomKey, limit: int) -> Findings:
        shut = {shelf.id for shelf in self._shelves.values() if not may_see(shelf.channels, room)}
        with self._search_index.reading():
            return search_lexically(self._search_index, question, earlier, shut=shut, limit=limit)

    def documents(self, room: RoomKey) -> tuple[Document, ...]:
        """Give the documents that `room` may see, in order of name."""
        return tuple(shelf.document for shelf in self._shelves.values() if may_see(shelf.channels, room))

    def sections(self, room: RoomKey, document: str) -> tuple[Section, ...]:
        """Give a document's sections in order; empty for one that is unknown or not for this room."""
        if not self._is_open_to(room, document):
            return ()
        return tuple(section for _, section in self._desk.sections_of(document))

    def section(self, room: RoomKey, section_id: str) -> Section | None:
        """Give one section; None where it is unknown or not for this room."""
        section = self._desk.section(section_id)
        return section if section and self._is_open_to(room, section.document) else None

    def _is_open_to(self, room: RoomKey, document: str) -> bool:
        shelf = self._shelves.get(document)
        return shelf is not None and may_see(shelf.channels, room)

    def url(self, section: Section) -> str:
        """Give the deep link of a section, or '' without a base address."""
        if not self._base_url:
            return ""
        address = f"{self._base_url}/{quote(section.document)}"
        if section.anchor:
            return f"{address}#{quote(section.anchor)}"
        # A rendered page has no lines; GitHub and GitLab show the source with this query.
        return f"{address}?plain=1#L{section.line}" if "/blob/" in address and section.line > 1 else address

    # What doctor asks

    @property
    def faults(self) -> tuple[str, ...]:
        """A sentence for each file that could not be used, or not wholly."""
        return (*self._skipped, *(fault for shelf in self._shelves.values() for fault in shelf.document.faults))

    def checks(self) -> tuple[Check, ...]:
        """Give what `doctor` says about the Codex."""
        sections = sum(shelf.document.sections for shelf in self._shelves.values())
        seen = f"{len(self._shelves)} documents, {sections} sections in {self.folder}"
        found = [Check("codex", Health.OK if sections else Health.FAIL, seen)]
        found += [Check("codex file", Health.WARN, fault, "Mend the file or leave it out.") for fault in self.faults]
        return tuple(found)


def _unread(name: str, fault: str) -> Parsed:
    return Parsed(Document(name, name, 0, (fault,)), ())


def may_see(channels: Sequence[str] | None, room: RoomKey) -> bool:
    """Say whether a document bound to `channels` is for `room`.

    An entry is a channel's id (`C0123`), a whole room (`slack/T1/C0123`) or a pattern of one (`slack/T1/*`).
    """
    return channels is None or any(entry == room.channel or fnmatchcase(str(room), entry) for entry in channels)
