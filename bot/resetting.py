"""Resets and stops: turns of their own kind, beside the lanes.

A post is no SQL statement, so a reset works in this order: raise the generation; wait while every owner cancels what
it runs and takes back what it shows; destroy the sandbox; forget; and only then say "cleared", or plainly what may
still appear. Each step may be repeated, so a reset that a crash cut off is taken up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bot.conversation import Answer, Author, Event, Outcome, Settled, Standing, TurnKind
from bot.errors import Incident, attempt
from bot.policy import Action, Policy, refusal
from bot.ports import Outlet, Sandbox, Store
from bot.records import OpenTurn
from bot.rendering import new_parts

WAIT_FOR_OLD_S = 10.0


class Resetting:
    """Does the work of RESET and STOP turns."""

    def __init__(
        self,
        store: Store,
        sandbox: Sandbox,
        outlets: Mapping[str, Outlet],
        *,
        policy: Policy,
        now: Callable[[], int],
        emit: Callable[[OpenTurn, Event], None],
        wait_s: float = WAIT_FOR_OLD_S,
    ) -> None:
        self._store = store
        self._sandbox = sandbox
        self._outlets = outlets
        self._policy = policy
        self._now = now
        self._emit = emit
        self._wait_s = wait_s

    async def work(self, turn: OpenTurn) -> None:
        """Do a reset or a stop and settle it; a fault becomes a plain answer."""
        do = self._stop if turn.turn.kind is TurnKind.STOP else self._reset
        answer = await attempt(do(turn), where=f"{turn.turn.kind} of {turn.turn.session}")
        if isinstance(answer, Incident):
            text = f"This could not be finished: {answer.text} Ask again in a moment."
            answer = Answer(turn.turn.id, text, Outcome.FAILED, turn.turn.kind, incident=answer.id)
        outlet = self._outlets.get(turn.turn.room.platform)
        is_told = turn.turn.kind is TurnKind.RESET and "silent" not in turn.turn.reply_to
        parts = await new_parts(self._store, outlet, turn, answer) if is_told else ()
        await self._store.settle_ended(turn, answer, parts=parts)
        self._emit(turn, Settled(answer))

    async def _author(self, turn: OpenTurn) -> Author:
        outlet = self._outlets.get(turn.turn.room.platform)
        if turn.turn.author.standing is not Standing.UNKNOWN or outlet is None:
            return turn.turn.author
        return (await outlet.surroundings(turn.turn)).author

    async def _stop(self, turn: OpenTurn) -> Answer:
        author = await self._author(turn)
        if why_not := refusal(Action.STOP, author, self._policy):
            return Answer(turn.turn.id, why_not, Outcome.REFUSED, TurnKind.STOP)
        found = await self._store.stop(turn.turn.room, turn.turn.target or "", author.name)
        return Answer(turn.turn.id, "Stopping." if found else "There is nothing to stop.", kind=TurnKind.STOP)

    async def _reset(self, turn: OpenTurn) -> Answer:
        author = await self._author(turn)
        if why_not := refusal(Action.RESET, author, self._policy):
            return Answer(turn.turn.id, why_not, Outcome.REFUSED, TurnKind.RESET)
        await self._store.raise_generation(turn)
        late = await self._wait_for_old(turn)
        is_room = turn.turn.session.thread is None
        left = (
            await attempt(self._destroy(turn), where=f"destroying the sandbox of {turn.turn.room}") if is_room else None
        )
        await self._store.forget(turn)
        cleared = "this channel: every conversation and the sandbox" if is_room else "this conversation"
        notes = []
        if left:
            cleared = "every conversation of this channel"
            notes.append("The sandbox could not be removed yet; this is tried again until it works.")
        if late:
            notes.append(
                f"{late} earlier answer{'s' if late > 1 else ''} could not be called back and may still appear."
            )
        return Answer(
            turn.turn.id,
            f"{author.name} cleared {cleared}.",
            kind=TurnKind.RESET,
            notes=tuple(notes),
            incident=left.id if left else "",
        )

    async def _wait_for_old(self, turn: OpenTurn) -> int:
        """Wait until nothing of before the reset runs or stands half posted; give how much is left after the time."""
        until = asyncio.get_running_loop().time() + self._wait_s
        tick = self._store.tick
        while left := await self._store.unfinished(turn):
            if asyncio.get_running_loop().time() >= until:
                return left
            tick = await self._store.wait_for_change(tick, timeout_s=0.1)
        return 0

    async def _destroy(self, turn: OpenTurn) -> Incident | None:
        """Destroy the sandbox. Where the engine is away the driver remembers it and goes on trying."""
        room = turn.turn.room
        destroying = self._sandbox.destroy(room, through=await self._store.room_generation(room) - 1)
        return await attempt(destroying, where=f"destroying the sandbox of {room}")
