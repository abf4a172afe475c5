"""Who runs next: one turn a session in order of arrival, sessions side by side; a dead process's turns are taken up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from bot.conversation import RoomKey, TurnKind
from bot.errors import Incident, Superseded, attempt
from bot.logs import bound
from bot.ports import Store
from bot.records import OpenTurn

log = logging.getLogger(__name__)

TURNS_AT_ONCE = 16
# Nobody announces its own death: without other news the heads of the lanes are looked at this often.
LOOK_EVERY_S = 0.1
# A database that is full or locked is tried again this often.
RETRY_AFTER_S = 1.0


class Lanes:
    """The loop that takes turns up and cancels those that a reset or a person ended."""

    def __init__(
        self,
        store: Store,
        *,
        platforms: Callable[[], Collection[str]],
        work: Callable[[OpenTurn], Awaitable[None]],
        end: Callable[[OpenTurn, str], Awaitable[None]],
        beside: Callable[[OpenTurn], Awaitable[None]],
        turns_at_once: int = TURNS_AT_ONCE,
    ) -> None:
        """`work` answers a turn; `end` cleans up after one that was cancelled (by whom; '' for a reset)."""
        self._store = store
        self._platforms = platforms
        self._work = work
        self._end = end
        self._beside = beside
        self._turns_at_once = turns_at_once
        self._running: dict[int, asyncio.Task[None]] = {}
        self._rooms: Counter[RoomKey] = Counter()
        self._ended_by: dict[int, str] = {}
        self._wrappers: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def run(self) -> None:
        """Take turns for ever; a fault of one round is logged and the next goes on."""
        tick = -1
        while True:
            await attempt(self._cancel_doomed(), where="looking for turns that were ended")
            if not self._is_closing:
                await attempt(self._take(), where="looking for the next turn")
            tick = await self._store.wait_for_change(tick, timeout_s=LOOK_EVERY_S)

    @property
    def running(self) -> int:
        return len(self._running)

    async def drain(self, *, timeout_s: float) -> bool:
        """Take nothing new and wait for what runs; True when all of it ended in time."""
        self._is_closing = True
        if self._wrappers:
            await asyncio.wait(self._wrappers, timeout=timeout_s)
        return not self._wrappers

    async def close(self) -> None:
        """Let go of what still runs: its rows stay `running`, and the next process takes them up."""
        self._is_closing = True
        for task in self._running.values():
            task.cancel()
        if self._wrappers:
            await asyncio.wait(self._wrappers)

    async def _take(self) -> None:
        while True:
            free = self._turns_at_once - len(self._running)
            turn = await self._store.begin(self._platforms(), only_beside=free <= 0, without=self._sated(free))
            if turn is None:
                return
            if self._is_closing:  # it was closed while the store looked: nobody would wait for this one
                await self._store.let_go(turn)
                return
            is_beside = turn.turn.kind in (TurnKind.RESET, TurnKind.STOP)
            self._start(turn, self._beside if is_beside else self._work)

    def _sated(self, free: int) -> list[RoomKey]:
        """Give the rooms that may begin no more: those that run as many turns as are free.

        So a room that is alone gets half, and there is always one left for a room that has none.
        """
        return [room for room, running in self._rooms.items() if running >= free]

    def _start(self, turn: OpenTurn, work: Callable[[OpenTurn], Awaitable[None]]) -> None:
        with bound(turn.turn.session, turn.turn.id):  # both tasks keep it for their lines in the log
            self._running[turn.seq] = asyncio.create_task(_as_task(work, turn), name=f"turn {turn}")
            wrapper = asyncio.create_task(self._see_through(turn, self._running[turn.seq]), name=f"lane {turn}")
        self._rooms[turn.turn.room] += 1
        self._wrappers.add(wrapper)
        wrapper.add_done_callback(self._wrappers.discard)

    async def _see_through(self, turn: OpenTurn, task: asyncio.Task[None]) -> None:
        """Wait for a turn's task and clean up after it if it was cancelled for a reason; never cancelled itself."""
        await asyncio.wait({task})
        by = self._ended_by.pop(turn.seq, None)
        fault: object = None if task.cancelled() else task.exception()
        if by is None and fault is not None:
            # A Superseded turn that nobody ended: another owner has it, or the same news reached us as an exception.
            doomed = await attempt(self._store.doomed([turn.seq]), where=f"asking what ended {turn}")
            by = None if isinstance(doomed, Incident) else doomed.get(turn.seq)
        if by is not None:
            # It may have cleaned up and settled by itself in the moment in which it was ended.
            with suppress(Superseded):
                fault = await attempt(self._end(turn, by), where=f"ending {turn}")
        self._running.pop(turn.seq, None)
        self._rooms -= Counter([turn.turn.room])  # and a room that runs nothing is no longer in it
        if fault is not None:
            log.warning("Turn %s was let go: %s", turn, fault, extra={"action": "let go"})
        if fault is not None and not isinstance(fault, Superseded):
            await self._let_go(turn)

    async def _let_go(self, turn: OpenTurn) -> None:
        """Give back a turn whose end could not be written: a row that says `running` would block its lane for ever."""
        is_done: object = Incident
        while is_done is not None and not self._is_closing:
            await asyncio.sleep(RETRY_AFTER_S)
            is_done = await attempt(self._store.let_go(turn), where=f"letting go of {turn}")

    async def _cancel_doomed(self) -> None:
        doomed = await self._store.doomed([seq for seq in self._running if seq not in self._ended_by])
        for seq, by in doomed.items():
            task = self._running.get(seq)
            if task is not None and not task.done():
                self._ended_by[seq] = by
                task.cancel()


async def _as_task(work: Callable[[OpenTurn], Awaitable[None]], turn: OpenTurn) -> None:
    """Begin the work inside the task: one that is cancelled before it began leaves nothing that was never awaited."""
    await work(turn)
