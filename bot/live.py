"""What is going on right now, for those who watch a turn: kept in memory only, since the rows hold what counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bot.conversation import CommandEnded, CommandOutput, CommandStarted, Drafted, Event, RoomKey, Settled


@dataclass(slots=True)
class _Watched:
    """A turn's latest draft, its command events so far, and who listens."""

    draft: Drafted | None = None
    commands: list[Event] = field(default_factory=list)
    queues: set[asyncio.Queue[Event]] = field(default_factory=set)


class Live:
    """Events of the turns that this process works on. A late listener first hears what it missed."""

    def __init__(self) -> None:
        self._turns: dict[tuple[RoomKey, str], _Watched] = {}

    def tell(self, room: RoomKey, turn_id: str, event: Event) -> None:
        """Pass an event on; a settled turn is forgotten."""
        watched = self._turns.setdefault((room, turn_id), _Watched())
        match event:
            case Drafted():
                if event == watched.draft:
                    return
                watched.draft = event
            case CommandStarted() | CommandOutput() | CommandEnded():
                watched.commands.append(event)
        for queue in watched.queues:
            queue.put_nowait(event)
        if isinstance(event, Settled):
            self._turns.pop((room, turn_id), None)

    @contextmanager
    def listening(self, room: RoomKey, turn_id: str) -> Iterator[asyncio.Queue[Event]]:
        """Give a queue that begins with what has happened so far."""
        watched = self._turns.setdefault((room, turn_id), _Watched())
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in watched.commands:
            queue.put_nowait(event)
        if watched.draft is not None:
            queue.put_nowait(watched.draft)
        watched.queues.add(queue)
        try:
            yield queue
        finally:
            watched.queues.discard(queue)
            if not watched.queues and watched.draft is None and not watched.commands:
                self._turns.pop((room, turn_id), None)


async def drained(queue: asyncio.Queue[Event], *, timeout_s: float) -> AsyncIterator[Event]:
    """Give what is in the queue, waiting at most `timeout_s` for the first."""
    try:
        async with asyncio.timeout(timeout_s):
            first = await queue.get()
    except TimeoutError:
        return
    yield first
    while not queue.empty():
        yield queue.get_nowait()
