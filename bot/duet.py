"""The door: hear, ask, press, stop, reset, and read. Every front comes in here and nowhere else.

`hear` commits a turn before it returns, so that a front may acknowledge; the work happens in lanes. Fronts that answer
within the request (terminal, web) `ask` and follow; the others attach an `Outlet`, through which answers go out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from bot.answering import Answering
from bot.conversation import (
    Answer,
    Author,
    CommandEnded,
    Event,
    Message,
    RoomKey,
    SessionKey,
    Settled,
    Standing,
    Turn,
    TurnKind,
)
from bot.delivery import Delivery
from bot.lanes import Lanes
from bot.live import Live, drained
from bot.policy import Policy
from bot.ports import ChatModel, Findings, Outlet, Retriever, Sandbox, Store
from bot.records import LoggedCall, OpenTurn, RoomSummary, UsageRow
from bot.redaction import Redactor, well_formed
from bot.resetting import Resetting
from bot.sections import Document, Section
from bot.tally import CountedModel, Tally

__all__ = ["Duet", "LoggedCall", "RoomSummary", "Status"]

# Fronts that answer within the request: any process may finish their turns when the one that heard them is dead.
DIRECT = ("terminal", "web")


@dataclass(frozen=True, slots=True)
class Status:
    """What `/duet status`, `/readyz` and `/metrics` tell. Ages are milliseconds; None means that nothing waits.

    `counts` holds turns by state, and what this process counted (`Tally.counts`).
    """

    model: str
    documents: int
    platforms: tuple[str, ...]
    turns_running: int
    queue_age_ms: int | None
    outbox_age_ms: int | None
    counts: dict[str, int] = field(default_factory=dict)


class Duet:
    """One process's Duet, over the rows that all processes share."""

    def __init__(
        self,
        store: Store,
        model: ChatModel,
        retriever: Retriever,
        sandbox: Sandbox,
        *,
        policy: Policy,
        redact: Redactor,
        now: Callable[[], int],
        new_id: Callable[[], str],
        turn_timeout_s: float = 120.0,
        reset_wait_s: float = 10.0,
        find_after_s: float = 3.0,
        first_wait_s: float = 0.5,
    ) -> None:
        self.policy = policy
        self._tally = Tally(now)
        model = CountedModel(model, self._tally)
        self._store = store
        self._model = model
        self._retriever = retriever
        self._sandbox = sandbox
        self._redact = redact
        self._now = now
        self._new_id = new_id
        self._outlets: dict[str, Outlet] = {}
        self._live = Live()
        self._answering = Answering(
            store,
            model,
            retriever,
            sandbox,
            self._outlets,
            policy=policy,
            redact=redact,
            now=now,
            new_id=new_id,
            emit=self._tell,
            turn_timeout_s=turn_timeout_s,
        )
        self._resetting = Resetting(
            store, sandbox, self._outlets, policy=policy, now=now, wait_s=reset_wait_s, emit=self._tell
        )
        self._lanes = Lanes(
            store,
            platforms=self._platforms,
            work=self._answering.work,
            end=self._answering.end,
            beside=self._resetting.work,
        )
        self._delivery = Delivery(
            store, self._outlets, now=now, room_is_gone=self.end, find_after_s=find_after_s, first_wait_s=first_wait_s
        )
        self._loops: list[asyncio.Task[None]] = []

    def attach(self, platform: str, outlet: Outlet) -> None:
        """Answer this platform's turns through this outlet. Call it before `start`."""
        self._outlets[platform] = outlet

    def start(self) -> None:
        """Begin to take turns up and to post."""
        self._loops = [
            asyncio.create_task(self._lanes.run(), name="duet-lanes"),
            asyncio.create_task(self._delivery.run(), name="duet-delivery"),
        ]

    async def drain(self, *, timeout_s: float) -> None:
        """Take up nothing more, and see what runs answered and posted; what takes longer is left to the next process.

        Call it while the fronts are still connected: what is heard meanwhile is stored and acknowledged.
        """
        until = asyncio.get_running_loop().time() + timeout_s
        await self._lanes.drain(timeout_s=timeout_s)
        while self._outlets and await self._store.outbox_age_at() is not None:
            if asyncio.get_running_loop().time() >= until:
                return
            await asyncio.sleep(0.05)

    async def close(self, *, drain_s: float = 0.0) -> None:
        """Wait up to `drain_s` for what runs, then let go of it: the rows stay, and the next process goes on."""
        await self._lanes.drain(timeout_s=drain_s) if drain_s else None
        await self._lanes.close()
        await self._delivery.close(timeout_s=5.0)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    # Hearing.

    async def hear(self, turn: Turn, *, direct: bool = False) -> bool:
        """Store a turn of any kind; False when it was heard before. Raises: StoreUnavailable, so do not acknowledge.

        `direct` says that the front will `follow` it at once, so that its drafts must come from this process.
        """
        is_new = await self._store.claim(self._clean(turn), direct=direct)
        self._tally.note_heard(turn, is_new=is_new)
        return is_new

    async def press(self, turn: Turn) -> bool:
        """Store the press of a button; the same as `hear`, named for what it is."""
        return await self.hear(turn)

    async def ask(self, turn: Turn) -> AsyncIterator[Event]:
        """Hear a turn and give its events until it is settled; going away does not cancel it."""
        await self.hear(turn, direct=True)
        async for event in self.follow(turn.room, turn.id):
            yield event

    async def follow(self, room: RoomKey, turn_id: str) -> AsyncIterator[Event]:
        """Give the events of a turn heard before: what was missed, what comes, and `Settled` at the end.

        Of a turn that another process works on only the end is heard. Nothing is given for a turn never heard.
        """
        ended = 0
        with self._live.listening(room, turn_id) as queue:
            while True:
                known = await self._store.find_turn(room, turn_id)
                if known is None:
                    return
                if known.answer is not None and queue.empty():
                    for result in known.answer.commands[ended:]:
                        yield CommandEnded(result)
                    yield Settled(known.answer)
                    return
                async for event in drained(queue, timeout_s=0.1):
                    yield event
                    if isinstance(event, Settled):
                        return
                    ended += isinstance(event, CommandEnded)

    async def stop(self, room: RoomKey, turn_id: str, *, by: Author, id: str) -> bool:
        """Ask for a turn to be stopped; `id` is the id of what the person did. False when it was heard before."""
        session = SessionKey(room)
        return await self.hear(Turn(id, session, by, "", self._now(), TurnKind.STOP, target=turn_id))

    async def withdraw(self, turn: Turn) -> None:
        """The turn's message was deleted: stop it while it is open, or make sure that it is never heard."""
        await self._store.withdraw(replace(self._clean(turn), text=""))

    async def amend(self, turn: Turn) -> None:
        """A twin delivery of the same turn carries more files; they count while it is only heard."""
        await self._store.amend(turn)

    async def end(self, key: RoomKey | SessionKey) -> None:
        """The channel or thread itself is gone: end it as by a reset, and post nothing."""
        session = key if isinstance(key, SessionKey) else SessionKey(key)
        duet = Author("duet", "Duet", Standing.LOCAL)
        await self._store.claim(
            Turn(f"gone-{self._new_id()}", session, duet, "", self._now(), TurnKind.RESET, reply_to={"silent": "1"}),
            direct=True,
        )

    def _clean(self, turn: Turn) -> Turn:
        author = replace(turn.author, name=well_formed(turn.author.name))
        return replace(turn, text=self._redact(turn.text), author=author)

    # Reading.

    async def answer(self, room: RoomKey, turn_id: str) -> Answer | None:
        """Give a turn's answer; None while it is open, after a reset, or when it was never heard."""
        known = await self._store.find_turn(room, turn_id)
        return known.answer if known else None

    async def state(self, room: RoomKey, turn_id: str) -> str | None:
        """Give what became of a turn so far (`heard`, `running`, `answered`, …); None when it was never heard."""
        known = await self._store.find_turn(room, turn_id)
        return known.state if known else None

    async def is_joined(self, session: SessionKey) -> bool:
        """Tell whether Duet takes part in this session since its last reset."""
        return await self._store.is_joined(session)

    async def open_askers(self, session: SessionKey) -> list[str]:
        """Give the ids of the people who are being answered in a session; for a room's own session, in the room."""
        return await self._store.open_askers(session)

    async def cleared_at(self, session: SessionKey) -> int:
        """Give when the session was last reset (UTC ms; 0: never): nothing older may be read back as context."""
        return await self._store.cleared_mark(session)

    async def history(self, session: SessionKey) -> list[Message]:
        """Give the whole transcript since the last reset."""
        return await self._store.history(session)

    async def prompt_log(self, session: SessionKey) -> list[LoggedCall]:
        """Give every model call of the session: exactly what was sent, what was found, what came back."""
        return await self._store.prompt_log(session)

    async def rooms(self) -> list[RoomSummary]:
        return await self._store.rooms()

    async def usage(self, day: str) -> list[UsageRow]:
        """Give who used what on one UTC day."""
        return await self._store.usage(day)

    async def sessions(self, room: RoomKey) -> list[SessionKey]:
        return await self._store.sessions(room)

    async def feedback(self, room: RoomKey, turn_id: str, *, user: str, verdict: str) -> bool:
        """Keep what a person thinks of an answer; False when there is no such turn."""
        return await self._store.feedback(room, turn_id, user=user, verdict=verdict)

    def documents(self, room: RoomKey) -> Sequence[Document]:
        return self._retriever.documents(room)

    def sections(self, room: RoomKey, document: str) -> Sequence[Section]:
        return self._retriever.sections(room, document)

    def section(self, room: RoomKey, section_id: str) -> Section | None:
        return self._retriever.section(room, section_id)

    def url(self, section: Section) -> str:
        return self._retriever.url(section)

    async def search(self, question: str, room: RoomKey, *, limit: int = 5) -> Findings:
        return await self._retriever.search(question, (), room=room, limit=limit)

    async def get_file(self, room: RoomKey, path: str) -> bytes:
        """Bring a file out of a room's workspace. Raises: SandboxUnavailable; BadInput when it is not there."""
        return await self._sandbox.get(room, await self._store.room_generation(room), path)

    async def status(self) -> Status:
        queued, posting = await self._store.oldest_open_at(), await self._store.outbox_age_at()
        return Status(
            model=self._model.name,
            documents=len(self._retriever.documents(RoomKey("", "", ""))),
            platforms=tuple(self._outlets),
            turns_running=self._lanes.running,
            queue_age_ms=None if queued is None else self._now() - queued,
            outbox_age_ms=None if posting is None else self._now() - posting,
            counts=dict(await self._store.counts()) | self._tally.counts,
        )

    def _platforms(self) -> tuple[str, ...]:
        return (*self._outlets, *DIRECT)

    def _tell(self, turn: OpenTurn, event: Event) -> None:
        self._tally.note_event(turn.turn, event)
        self._live.tell(turn.turn.room, turn.turn.id, event)
