"""The Codex: a folder of Markdown, kept in an index, searched. Implements `Retriever`.

`await Codex.open(folder, index_path, base_url=…, load_model=…)` gives one whose index holds what the folder holds now.
Vectors are made in the background; until they are there, search goes by words. `await embedded(progress=…)` waits for
them. `await refresh()` takes in what changed since (a few milliseconds when nothing did); `watch()` does so for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import quote

from bot.checks import Check, Health
from bot.conversation import RoomKey
from bot.drivers.codex_access import Access, Catalogue
from bot.drivers.codex_files import GLOBS
from bot.drivers.codex_index import Index, is_damage
from bot.drivers.codex_intake import Changes, Progress, take_in
from bot.drivers.codex_ranking import (
    DEFAULT_THRESHOLDS,
    Thresholds,
    findings,
    search_by_meaning,
    search_by_words,
)
from bot.drivers.codex_spelling import Speller
from bot.drivers.codex_text import LIMIT_QUESTION_CHARS
from bot.drivers.codex_vectors import VectorModel, Vectors
from bot.errors import CodexUnreadable, attempt
from bot.ports import Findings
from bot.sections import Document, Section

log = logging.getLogger(__name__)

T = TypeVar("T")
Way: TypeAlias = Literal["words", "meaning"]
LoadModel = Callable[[], VectorModel | None]

LEAST_COVERAGE = 0.9  # of the chunks must have vectors before search goes by meaning
EMBEDDED_AT_ONCE = 32
TOKENS_UP_TO_CHUNKS = 20_000  # token vectors take 55 KB a section: 1 GB here
RECALL_PAUSE_S = 5.0  # while vectors are being made


@dataclass(frozen=True, slots=True)
class Memory:
    """What searching holds in memory. `state` counts the changes of structure and of vectors that it knows of."""

    state: tuple[int, int]
    speller: Speller
    vectors: Vectors | None


class Codex:
    """The standards of one team. SQLite and all computing stay on threads of its own."""

    def __init__(
        self,
        folder: Path,
        index_path: Path,
        *,
        base_url: str,
        globs: Sequence[str],
        rooms: Mapping[str, str],
        load_model: LoadModel,
    ) -> None:
        self.folder = folder
        self._index_path = index_path
        self._base_url = base_url.rstrip("/")
        self._globs = tuple(globs)
        self._catalogue = Catalogue(-1, {}, Access(rooms))
        self._skipped: tuple[str, ...] = ()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="codex-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="codex-read")
        self._mending = asyncio.Lock()
        self._thresholds = self._read_thresholds()
        self._load_model = load_model
        self._model: VectorModel | None = None
        self._memory = Memory((-1, -1), Speller({}, ()), None)
        self._chunks = 0
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="codex-load")
        self._embedder = ThreadPoolExecutor(1, thread_name_prefix="codex-embed")
        self._embedding: asyncio.Task[None] | None = None
        self._work_left = asyncio.Event()
        self._all_embedded = asyncio.Event()
        self._progress: list[Progress] = []

    @classmethod
    async def open(
        cls,
        folder: Path,
        index_path: Path,
        *,
        base_url: str = "",
        globs: Sequence[str] = GLOBS,
        rooms: Mapping[str, str] | None = None,
        load_model: LoadModel = lambda: None,
        progress: Progress | None = None,
    ) -> Codex:
        """Open the index at `index_path` (made anew if missing, old or damaged) and take in the folder.

        `rooms` says which room sees which subfolder (`codex_access`). `load_model` gives the embedding model, or None
        where it is not installed; it is called on a thread.
        Raises: CodexUnreadable when the folder cannot be read or holds no document.
        """
        codex = cls(folder, index_path, base_url=base_url, globs=globs, rooms=rooms or {}, load_model=load_model)
        try:
            await codex._mended(codex._writer, codex._connect)
            await codex.refresh(progress=progress)
            await codex._start_embedding()
        except BaseException:
            await codex.close()
            raise
        return codex

    def _connect(self) -> None:
        self._index = Index.open(self._index_path)
        # One connection for each thread; the desk's is for `section`, which is asked on the loop's own.
        self._search_index = Index(self._index_path)
        self._memory_index = Index(self._index_path)
        self._desk = Index(self._index_path)

    def _disconnect(self) -> None:
        for name in ("_index", "_search_index", "_memory_index", "_desk"):
            if (index := getattr(self, name, None)) is not None:
                index.close()

    async def close(self) -> None:
        """Stop the threads and close the index. Vectors made so far are kept."""
        if self._embedding:
            self._embedding.cancel()
            await asyncio.gather(self._embedding, return_exceptions=True)
        for pool in (self._embedder, self._loader, self._reader):
            await self._run(pool, lambda: None)  # what was running ends first
        await self._run(self._writer, self._disconnect)
        for pool in (self._embedder, self._loader, self._reader, self._writer):
            pool.shutdown(wait=True)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def _mended(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Run `work`; where the index turns out to be damaged, make it anew and run it again."""
        try:
            return await self._run(pool, work)
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, OSError) or not is_damage(error):
                raise CodexUnreadable(
                    f"The index {self._index_path} cannot be used ({error}): "
                    "make room there, and let this user read and write it."
                ) from error
            log.warning("Found the index damaged (%s): it is made anew", error, extra={"action": "index_rebuild"})
        async with self._mending:
            for other in (self._reader, self._loader):
                await self._run(other, lambda: None)
            await self._run(self._writer, self._rebuild)
        self._all_embedded.clear()
        self._work_left.set()
        return await self._run(pool, work)

    def _rebuild(self) -> None:
        self._disconnect()
        self._index_path.unlink(missing_ok=True)
        self._connect()
        self._catalogue = replace(self._catalogue, structure=-1)
        self._memory = replace(self._memory, state=(-1, -1), vectors=None)
        self._refresh(None)

    # The folder

    async def refresh(self, *, progress: Progress | None = None) -> Changes:
        """Take in what changed in the folder since the last time. Raises: CodexUnreadable."""
        changes = await self._mended(self._writer, lambda: self._refresh(progress))
        if changes and self._model:
            self._all_embedded.clear()
            self._work_left.set()
        await self._mended(self._loader, self._recall)
        return changes

    async def watch(self, *, interval_s: float = 2.0, on_change: Callable[[Changes], None] | None = None) -> None:
        """Refresh every `interval_s` until cancelled; less often where looking takes long.

        A fault is logged, and looked at again the next time.
        """
        took = 0.0
        while True:
            await asyncio.sleep(max(interval_s, 10 * took))
            started = time.monotonic()
            changes = await attempt(self.refresh(), where="watching the Codex")
            took = time.monotonic() - started
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
        taken = take_in(self._index, self.folder, globs=self._globs, progress=progress)
        self._skipped = taken.skipped
        self._current_catalogue(self._index)
        if not taken.documents:
            raise CodexUnreadable(
                f"The Codex folder {self.folder} holds no document ({', '.join(self._globs)}): "
                "put Markdown files into it, or set `codex` (DUET_CODEX) to another folder."
            )
        return taken.changes

    def _current_catalogue(self, index: Index) -> Catalogue:
        """Give the catalogue as `index` sees it now: a document just restricted must not slip through an old one."""
        catalogue = self._catalogue
        if index.counter("structure") != catalogue.structure:
            self._catalogue = catalogue = Catalogue.load(index, catalogue.access)
        return catalogue

    # The Retriever

    async def search(self, question: str, earlier: Sequence[str], *, room: RoomKey, limit: int) -> Findings:
        """Give the best sections for `question`; `earlier` holds the questions before it, oldest first."""
        return await self._mended(self._reader, lambda: self._search(question, earlier, room, limit))

    def _search(self, question: str, earlier: Sequence[str], room: RoomKey, limit: int) -> Findings:
        index = self._search_index
        with index.reading():
            shut = self._current_catalogue(index).shut_to(room)
            memory = self._memory
            speller, vectors = memory.speller, memory.vectors
            question, *earlier = [speller.mend(one[:LIMIT_QUESTION_CHARS]) for one in (question, *earlier[-1:])]
            if self._model is None or vectors is None or vectors.coverage < LEAST_COVERAGE:
                found, confidence = search_by_words(index, question, earlier, shut=shut, limit=limit)
                return findings(index, found, confidence, thresholds=self._thresholds["words"])
            found, confidence = search_by_meaning(
                index, vectors, self._model, question, earlier, shut=shut, limit=limit
            )
            return findings(index, found, confidence, thresholds=self._thresholds["meaning"])

    def _recall(self) -> None:
        """Bring what is held in memory for searching up to the index as it stands."""
        index, memory = self._memory_index, self._memory
        with index.reading():
            state = (index.counter("structure"), index.counter("vectors"))
            if state == memory.state:
                return
            speller = memory.speller
            if state[0] != memory.state[0]:
                speller = Speller(index.vocabulary(), self._model.known_words() if self._model else ())
            vectors = Vectors.load(index, memory.vectors) if self._model else None
            self._memory = Memory(state, speller, vectors)

    # Confidence

    @property
    def way(self) -> Way:
        """Give how search goes now: by `words`, or by words and `meaning`."""
        vectors = self._memory.vectors
        return "meaning" if self._model and vectors and vectors.coverage >= LEAST_COVERAGE else "words"

    async def calibrate(self, low: float, high: float) -> Path:
        """Keep thresholds for the way that search goes now, beside the index; give the file.

        Below `low` the Codex does not cover a question, from `high` on it surely does.
        """
        self._thresholds = {**self._thresholds, self.way: Thresholds(low, high)}
        rows = {way: {"low": one.low, "high": one.high} for way, one in self._thresholds.items()}
        path = self._thresholds_path
        await self._run(self._writer, lambda: path.write_text(json.dumps(rows, indent=2) + "\n", "utf-8") and None)
        return path

    @property
    def _thresholds_path(self) -> Path:
        return self._index_path.with_name(self._index_path.stem + ".thresholds.json")

    def _read_thresholds(self) -> dict[Way, Thresholds]:
        thresholds = dict(DEFAULT_THRESHOLDS)
        try:
            rows = json.loads(self._thresholds_path.read_text("utf-8"))
            for way in thresholds:
                thresholds[way] = Thresholds(float(rows[way]["low"]), float(rows[way]["high"]))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning(
                "Left out the thresholds in %s: %s", self._thresholds_path, error, extra={"action": "thresholds"}
            )
        return thresholds

    # Vectors

    async def _start_embedding(self) -> None:
        self._model = await self._run(self._embedder, self._load_model)
        if self._model is None:
            self._all_embedded.set()
            return
        self._memory = Memory((-1, -1), Speller({}, ()), None)  # the speller needs the model's words
        model_id = self._model.model_id
        await self._run(self._writer, lambda: self._index.use_model(model_id))
        await self._mended(self._loader, self._recall)
        self._work_left.set()
        self._embedding = asyncio.create_task(self._keep_embedding(), name="codex-embedding")

    async def embedded(self, *, progress: Progress | None = None) -> bool:
        """Wait until every section has its vectors; False where no model is installed."""
        if progress:
            self._progress.append(progress)
        try:
            await self._all_embedded.wait()
        finally:
            if progress:
                self._progress.remove(progress)
        return self._model is not None

    async def _keep_embedding(self) -> None:
        while True:
            await self._work_left.wait()
            self._work_left.clear()
            await attempt(self._embed_all(), where="making vectors of the Codex")
            if not self._work_left.is_set():
                self._all_embedded.set()

    async def _embed_all(self) -> None:
        whole = await self._mended(self._writer, lambda: self._index.count_unembedded())
        self._chunks = await self._mended(self._writer, lambda: self._index.chunk_count())
        done, recalled_at = 0, time.monotonic()
        while batch := await self._mended(self._writer, lambda: self._index.unembedded(limit=EMBEDDED_AT_ONCE)):
            rows = await self._run(self._embedder, partial(self._embed, batch))
            await self._mended(self._writer, partial(self._keep, rows))
            done += len(batch)
            for progress in self._progress:
                progress(min(done, whole), max(done, whole))
            if time.monotonic() - recalled_at > RECALL_PAUSE_S:
                await self._mended(self._loader, self._recall)
                recalled_at = time.monotonic()
        await self._mended(self._loader, self._recall)

    def _keep(self, rows: Sequence[tuple[bytes, bytes, bytes, bytes]]) -> None:
        self._index.keep_vectors(rows)

    def _embed(self, batch: Sequence[tuple[bytes, str, bool]]) -> list[tuple[bytes, bytes, bytes, bytes]]:
        assert self._model is not None
        made = self._model.passages([text for _, text, _ in batch])
        is_large = self._chunks > TOKENS_UP_TO_CHUNKS
        return [
            # A name is compared as a whole only: its tokens would double the index.
            (digest, one.vector, b"" if is_name or is_large else one.tokens, b"" if is_name else one.token_ids)
            for (digest, _, is_name), one in zip(batch, made, strict=True)
        ]

    def documents(self, room: RoomKey) -> tuple[Document, ...]:
        """Give the documents that `room` may see, in order of name."""
        return self._current_catalogue(self._desk).documents(room)

    def sections(self, room: RoomKey, document: str) -> tuple[Section, ...]:
        """Give a document's sections in order; empty for one that is unknown or not for this room."""
        with self._desk.reading():
            if not self._current_catalogue(self._desk).is_open(room, document):
                return ()
            return tuple(section for _, section in self._desk.sections_of(document))

    def section(self, room: RoomKey, section_id: str) -> Section | None:
        """Give one section; None where it is unknown or not for this room."""
        with self._desk.reading():
            section = self._desk.section(section_id)
            catalogue = self._current_catalogue(self._desk)
            return section if section and catalogue.is_open(room, section.document) else None

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
        return (
            *self._skipped,
            *(fault for shelf in self._catalogue.shelves.values() for fault in shelf.document.faults),
        )

    def checks(self) -> tuple[Check, ...]:
        """Give what `doctor` says about the Codex."""
        shelves = self._catalogue.shelves.values()
        sections = sum(shelf.document.sections for shelf in shelves)
        seen = f"{len(shelves)} documents, {sections} sections in {self.folder}"
        found = [Check("codex", Health.OK if sections else Health.FAIL, seen)]
        if self._model:
            found.append(Check("search", Health.OK, "by words and meaning"))
        else:
            lost = "by words alone: questions in other words than the standards' are found less often"
            mend = "duet model install semantic, with the extra `semantic` installed"
            found.append(Check("search", Health.WARN, lost, mend))
        found += [
            Check(
                "codex rooms", Health.FAIL, f"no document lies in {name}/, so its rooms see none", "Mend `codex_rooms`."
            )
            for name in self._catalogue.access.unknown(self._catalogue.shelves)
        ]
        found += [Check("codex file", Health.WARN, fault, "Mend the file or leave it out.") for fault in self.faults]
        return tuple(found)
