"""Outbox -> outlet: each part once, in order, fenced by generation. Drafts are the first part before it is final."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from bot.conversation import Answer, Part, SessionKey
from bot.errors import Incident, OutletRefused, OutletUnavailable, Superseded, attempt
from bot.ports import Outlet, Store
from bot.records import NewPart, OpenTurn, ToDeliver

log = logging.getLogger(__name__)

POSTS_AT_ONCE = 32
MAX_ATTEMPTS = 200
# Before this, "not found" is not "surely not posted": the platform may still be taking the message in.
FIND_AFTER_S = 3.0
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 300.0
RETRY_AFTER_S = 1.0


class Delivery:
    """The loop that posts what the store holds ready, for the platforms this process has outlets for."""

    def __init__(
        self,
        store: Store,
        outlets: Mapping[str, Outlet],
        *,
        now: Callable[[], int],
        room_is_gone: Callable[[SessionKey], Awaitable[None]],
        find_after_s: float = FIND_AFTER_S,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._store = store
        self._outlets = outlets
        self._now = now
        self._room_is_gone = room_is_gone
        self._find_after_s = find_after_s
        self._first_wait_s = first_wait_s
        self._posting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Post for ever; a fault of one round is logged and the next goes on."""
        tick = -1
        while True:
            if self._outlets:
                await attempt(self._take(), where="reading the outbox")
            tick = await self._store.wait_for_change(tick, timeout_s=0.5)

    async def close(self, *, timeout_s: float) -> None:
        """Wait for the posts in flight; they are never cut off by us."""
        if self._posting:
            await asyncio.wait(self._posting, timeout=timeout_s)

    async def _take(self) -> None:
        while len(self._posting) < POSTS_AT_ONCE:
            todo = await self._store.next_part(tuple(self._outlets))
            if todo is None:
                return
            task = asyncio.create_task(self._deliver(todo), name=f"post {todo.part.key}")
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)

    async def _deliver(self, todo: ToDeliver) -> None:
        part = todo.part
        outlet = self._outlets[part.session.room.platform]
        done = await attempt(self._post(outlet, todo), where=f"posting to {part.session}")
        if isinstance(done, Incident):
            # A row that says `posting` would hold up its session for ever: a full database is waited for.
            where = f"putting back a part of {part.session}"
            while isinstance(await attempt(self._again_later(todo, done.error), where=where), Incident):  # noqa: ASYNC110
                await asyncio.sleep(RETRY_AFTER_S)

    async def _post(self, outlet: Outlet, todo: ToDeliver) -> None:
        part = todo.part
        if todo.look_first:
            part = replace(part, ref=await self._look(outlet, part, since=todo.shown_at))
        if not todo.is_final:  # a reset came: whatever stands there goes
            if part.ref is not None:
                await outlet.delete(part)
            await self._store.end_part(part.key, state="dropped")
            return
        ref = await outlet.show(part, draft=False)
        if not await self._store.posted(part, ref):
            await outlet.delete(replace(part, ref=ref))
            await self._store.end_part(part.key, state="dropped")

    async def _look(self, outlet: Outlet, part: Part, *, since: int) -> str | None:
        """Look for a part that may have been posted, but not sooner than its absence can be believed."""
        await asyncio.sleep(max(0.0, self._find_after_s - (self._now() - since) / 1000))
        ref = await outlet.find(part)
        if ref is not None:
            await self._store.note_ref(part.key, ref)
        return ref

    async def _again_later(self, todo: ToDeliver, error: Exception) -> None:
        part = todo.part
        if isinstance(error, OutletRefused) or todo.attempt >= MAX_ATTEMPTS:
            await self._store.end_part(part.key, state="failed", error=str(error))
            if isinstance(error, OutletRefused) and error.room_is_gone:
                await self._room_is_gone(part.session)
            return
        asked = error.retry_after_s if isinstance(error, OutletUnavailable) else None
        wait_s = asked if asked is not None else min(LONGEST_WAIT_S, self._first_wait_s * 2 ** min(todo.attempt, 10))
        await self._store.put_back(part.key, next_try_at=self._now() + int(wait_s * 1000), error=str(error))


class Draft:
    """The answer while it is being made: the latest state wins, one `show` at a time; a fault only ends drafting."""

    def __init__(self, store: Store, outlet: Outlet, turn: OpenTurn, *, key: str) -> None:
        self._store = store
        self._outlet = outlet
        self._turn = turn
        self._key = key
        self._latest: Answer | None = None
        self._part: Part | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def update(self, answer: Answer) -> None:
        """Show this as soon as the one before is shown."""
        self._latest = answer
        if not self._is_over and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._show_latest(), name=f"draft {self._turn}")

    async def finish(self) -> None:
        """Draft no more, and wait for the one in flight: after this the platform hears nothing from here."""
        self._is_over = True
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _show_latest(self) -> None:
        while self._latest is not None and not self._is_over:
            answer, self._latest = self._latest, None
            try:
                done = await attempt(self._show(answer), where=f"drafting for {self._turn.turn.session}")
            except Superseded:
                self._is_over = True
                return
            if isinstance(done, Incident):
                self._is_over = True

    async def _show(self, answer: Answer) -> None:
        body = self._outlet.render(answer)[0]
        if self._part is None:
            opened = await self._store.open_draft(self._turn, NewPart(self._key, 0, body))
            if opened is None:
                return  # an earlier answer is still on its way; drafting starts when it is out
            part, is_new = opened
            if part.ref is None and not is_new:
                self._is_over = True  # a dead process may have posted it: settling looks for it
                return
            self._part = part
        ref = await self._outlet.show(replace(self._part, body=body), draft=True)
        if self._part.ref is None:
            self._part = replace(self._part, ref=ref)
            await self._store.note_ref(self._part.key, ref)
