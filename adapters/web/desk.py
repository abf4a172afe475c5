"""What every route works with: the core's door, ids and clock, who calls, and the streams that are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from adapters.web.inbound import Caller, Stamp
from bot.checks import Link
from bot.conversation import Answer, Event, Settled, Turn

if TYPE_CHECKING:
    from bot.duet import Duet

CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)

HEARTBEAT_S = 15.0
WRITE_TIMEOUT_S = 30.0
STREAM_LIMIT_S = 1_800.0
MAX_STREAMS = 512


@dataclass(slots=True)
class Streams:
    """The event streams that are open now; `closing` ends them all when the server stops."""

    limit: int = MAX_STREAMS
    open: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_full(self) -> bool:
        return self.open >= self.limit


@dataclass(frozen=True, slots=True)
class Desk:
    """The door and what turns are stamped with. `new_id` gives unguessable ids, `now_ms` UTC milliseconds.

    `links` gives each platform's connection by name.
    """

    duet: Duet
    new_id: Callable[[], str]
    now_ms: Callable[[], int]
    streams: Streams
    links: Callable[[], Mapping[str, Link]] = dict

    def stamp(self, chosen: str | None = None) -> Stamp:
        return Stamp(chosen or self.new_id(), self.now_ms())

    async def settled(self, turn: Turn) -> Answer:
        """Hear a turn and wait for its answer; the asker's going away ends the waiting, never the turn."""
        answer: Answer | None = None
        async for event in self.duet.ask(turn):
            if isinstance(event, Settled):
                answer = event.answer
        if answer is None:
            raise RuntimeError(f"turn {turn.id} ended without an answer")  # the core promises `Settled` as the last
        return answer


def caller_of(request: web.Request) -> Caller:
    """Give who calls, as the guard found out."""
    return request[CALLER]


class Writer(Protocol):
    """How events look on the wire."""

    def begin(self) -> bytes: ...
    def render(self, event: Event) -> bytes: ...


async def stream(
    request: web.Request,
    desk: Desk,
    events: AsyncIterator[Event],
    writer: Writer,
    *,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send a turn's events as they come; comments in silence keep the way open and show who has gone.

    Ends with the turn, when the reader goes or takes nothing for `WRITE_TIMEOUT_S`, or after `STREAM_LIMIT_S`; but for
    the first the turn goes on and can be followed again by its id.
    """
    if desk.streams.is_full:
        return web.json_response(
            {"error": "too many open streams; try again later"}, status=429, headers={"Retry-After": "5"}
        )
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", **(headers or {})})
    desk.streams.open += 1
    try:
        await response.prepare(request)
        await _write(response, writer.begin())
        await _pump(response, desk.streams.closing, events, writer)
    except (ConnectionError, TimeoutError):
        response.force_close()  # the reader has gone; the turn goes on
    finally:
        desk.streams.open -= 1
    return response


async def _pump(
    response: web.StreamResponse, closing: asyncio.Event, events: AsyncIterator[Event], writer: Writer
) -> None:
    """Write each event as it comes, until there is none or the server closes."""
    stop = asyncio.create_task(closing.wait())
    coming = asyncio.create_task(_next(events))
    try:
        async with asyncio.timeout(STREAM_LIMIT_S):
            while not stop.done():
                await asyncio.wait({coming, stop}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    await _write(response, b": still here\n\n")
                    continue
                if (event := coming.result()) is None:
                    break
                await _write(response, writer.render(event))
                coming = asyncio.create_task(_next(events))
        await response.write_eof()
    finally:
        stop.cancel()
        coming.cancel()
        await asyncio.gather(stop, coming, return_exceptions=True)


async def _next(events: AsyncIterator[Event]) -> Event | None:
    """Give the next event, or None at the end."""
    return await anext(events, None)


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await response.write(data)
