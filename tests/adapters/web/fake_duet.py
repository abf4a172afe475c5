"""A core with the same door, scripted by what is asked: it keeps the contract (claims, order, resets) and no more.

A question that begins with one of these words gets what the word says; anything else a short answer with a source:
`slow` many drafts until told to end or stopped · `fail` a failed turn, well on the second try · `run` a command ·
`ask` a ticket · `say` the rest, verbatim.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.conversation import (
    Answer,
    Author,
    CommandEnded,
    CommandOutput,
    CommandResult,
    CommandStarted,
    Drafted,
    Ended,
    Event,
    Message,
    Outcome,
    RoomKey,
    SessionKey,
    Settled,
    Source,
    Ticket,
    TicketState,
    Turn,
    TurnKind,
    Verdict,
)
from bot.duet import Status
from bot.errors import StoreUnavailable
from bot.ports import Band, Findings, Hit
from bot.records import LoggedCall
from bot.sections import Document, Section, parse_document

CORPUS = Path(__file__).parents[3] / "corpus"

HOTFIX = Source(
    1,
    "branch-naming.md#branch-types",
    "branch-naming.md",
    "Branch types",
    29,
    "",
    "a fault in production that cannot wait",
)
ANSWER = (
    "Name the branch `hotfix/<ticket>-<short-description>` and start it from the **production tag** [1].\n\n"
    "```text\nhotfix/LF-1533-login-loop\n```\n\n"
    "It is merged into `main` and into the release branch [1]."
)


@dataclass(slots=True)
class Going:
    """A turn under way: its events so far, and whoever waits for more."""

    turn: Turn
    events: list[Event] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    stopped_by: str = ""
    task: asyncio.Task[None] | None = None

    @property
    def answer(self) -> Answer | None:
        last = self.events[-1] if self.events else None
        return last.answer if isinstance(last, Settled) else None

    async def tell(self, event: Event) -> None:
        async with self.changed:
            self.events.append(event)
            self.changed.notify_all()


class FakeDuet:
    """See the module. `pace_s` is the time between drafts; `heard` holds every turn claimed."""

    def __init__(self, *, pace_s: float = 0.0) -> None:
        self.pace_s = pace_s
        self.heard: list[Turn] = []
        self.store_is_down = False
        self.sandbox_is_stuck = False
        self.commands_fail = ""
        self.refuses = ""
        self.source = HOTFIX
        self.figures = Status("fake-model", 5, (), 0, None, None)
        self.go_on = asyncio.Event()
        self.hush = asyncio.Event()
        self._turns: dict[tuple[RoomKey, str], Going] = {}
        self._lanes: dict[SessionKey, asyncio.Lock] = {}
        self._messages: dict[RoomKey, list[Message]] = {}
        self._calls: dict[RoomKey, list[LoggedCall]] = {}
        parsed = [parse_document(path.read_text("utf-8"), path.name) for path in sorted(CORPUS.glob("*.md"))]
        self._documents = [one.document for one in parsed]
        self._sections = [section for one in parsed for section in one.sections]

    # ── The door ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def hear(self, turn: Turn, *, direct: bool = False) -> bool:
        if self.store_is_down:
            raise StoreUnavailable("disk full")
        key = (turn.room, turn.id)
        if key in self._turns:
            return False
        self.heard.append(turn)
        going = self._turns[key] = Going(turn)
        going.task = asyncio.create_task(self._work(going))
        return True

    async def ask(self, turn: Turn) -> AsyncIterator[Event]:
        await self.hear(turn)
        async for event in self.follow(turn.room, turn.id):
            yield event

    async def follow(self, room: RoomKey, turn_id: str) -> AsyncIterator[Event]:
        going = self._turns.get((room, turn_id))
        if going is None:
            return
        seen = 0
        while seen == 0 or not isinstance(going.events[seen - 1], Settled):
            async with going.changed:
                while len(going.events) == seen:
                    await going.changed.wait()
            yield going.events[seen]
            seen += 1

    async def answer(self, room: RoomKey, turn_id: str) -> Answer | None:
        going = self._turns.get((room, turn_id))
        return going.answer if going else None

    async def state(self, room: RoomKey, turn_id: str) -> str | None:
        going = self._turns.get((room, turn_id))
        if going is None:
            return None
        return going.answer.outcome.value if going.answer else "running"

    async def stop(self, room: RoomKey, turn_id: str, *, by: Author, id: str) -> bool:
        going = self._turns.get((room, turn_id))
        if going is None or going.answer is not None:
            return False
        going.stopped_by = by.name
        return True

    async def history(self, session: SessionKey) -> list[Message]:
        return list(self._messages.get(session.room, ()))

    async def prompt_log(self, session: SessionKey) -> list[LoggedCall]:
        return list(self._calls.get(session.room, ()))

    def documents(self, room: RoomKey) -> Sequence[Document]:
        return self._documents

    def sections(self, room: RoomKey, document: str) -> Sequence[Section]:
        return [section for section in self._sections if section.document == document]

    def url(self, section: Section) -> str:
        return f"https://standards.example/{section.document}#{section.anchor}"

    def section(self, room: RoomKey, section_id: str) -> Section | None:
        return next((section for section in self._sections if section.id == section_id), None)

    async def search(self, question: str, room: RoomKey, *, limit: int = 5) -> Findings:
        words = set(question.lower().split())
        hits = [
            Hit(section, float(score), {"words": float(score)})
            for section in self._sections
            if (score := sum(word in section.text.lower() for word in words))
        ]
        hits.sort(key=lambda hit: -hit.score)
        return Findings(tuple(hits[:limit]), 0.8 if hits else 0.0, Band.HIGH if hits else Band.LOW)

    async def status(self) -> Status:
        if self.store_is_down:
            raise StoreUnavailable("disk full")
        return self.figures

    # ── What it does with a turn ──────────────────────────────────────────────────────────────────────────────────

    async def _work(self, going: Going) -> None:
        turn = going.turn
        if turn.kind is TurnKind.RESET:
            await self._reset(going)
            return
        async with self._lanes.setdefault(turn.session, asyncio.Lock()):
            self._note(turn, "user", turn.author.name, turn.text)
            async for event in self._script(going):
                if isinstance(event, Settled):
                    self._note(turn, "agent", "Duet", event.answer.text)
                    self._log(turn, event.answer)
                await going.tell(event)

    async def _reset(self, going: Going) -> None:
        room = going.turn.room
        if self.refuses:
            await going.tell(Settled(Answer(going.turn.id, self.refuses, Outcome.REFUSED, TurnKind.RESET)))
            return
        self._messages.pop(room, None)
        self._calls.pop(room, None)
        notes = ("The sandbox could not be removed yet.",) if self.sandbox_is_stuck else ()
        incident = "abc123" if notes else ""
        answer = Answer(going.turn.id, "Cleared.", kind=TurnKind.RESET, notes=notes, incident=incident)
        await going.tell(Settled(answer))

    async def _script(self, going: Going) -> AsyncIterator[Event]:
        turn = going.turn
        if turn.kind is TurnKind.PRESS:
            parent = next((g.turn for g in self._turns.values() if g.turn.id == turn.target), turn)
            text = {Verdict.APPROVE: "run echo approved", Verdict.DENY: "say It was denied."}
            asked = text.get(turn.verdict, "retried " + parent.text) if turn.verdict else ""
            going = replace(going, turn=replace(turn, text=asked, kind=TurnKind.ASK))
            async for event in self._script(going):
                yield event
            return
        word, _, rest = turn.text.partition(" ")
        if turn.kind is TurnKind.RUN:
            word, rest = "run", turn.text
        script = {"slow": self._slow, "fail": self._fail, "run": self._run, "ask": self._ticket}.get(word)
        if script is None:
            text = rest if word == "say" else ANSWER
            async for event in self._plain(turn, text):
                yield event
            return
        async for event in script(going, rest):
            yield event

    async def _plain(self, turn: Turn, text: str) -> AsyncIterator[Event]:
        for end in range(0, len(text), 12):
            if end:
                yield Drafted(text[:end])
                await asyncio.sleep(self.pace_s)
        yield Settled(Answer(turn.id, text, covered=True, sources=(self.source,), model="fake-model", total_ms=840))

    async def _slow(self, going: Going, rest: str) -> AsyncIterator[Event]:
        text = ""
        while not going.stopped_by and not self.go_on.is_set():
            if not self.hush.is_set():
                text += "A branch is short-lived. "
                yield Drafted(text)
            await asyncio.sleep(max(self.pace_s, 0.02))
        if going.stopped_by:
            note = f"Stopped by {going.stopped_by}."
            yield Settled(Answer(going.turn.id, text, Outcome.CANCELLED, notes=(note,)))
        else:
            yield Settled(Answer(going.turn.id, text + "Done.", model="fake-model", total_ms=2_000))

    async def _fail(self, going: Going, rest: str) -> AsyncIterator[Event]:
        await asyncio.sleep(self.pace_s)
        text = "The language model did not answer in time."
        yield Settled(Answer(going.turn.id, text, Outcome.FAILED, incident="c0ffee"))

    async def _run(self, going: Going, code: str) -> AsyncIterator[Event]:
        if self.commands_fail:
            result = CommandResult(code, Ended.NOT_STARTED, note=self.commands_fail)
            yield Settled(Answer(going.turn.id, "", kind=TurnKind.RUN, commands=(result,)))
            return
        yield CommandStarted(code)
        last = 40 if "long" in code else 400 if "huge" in code else 2
        lines = [f"line {number}\n" for number in range(1, last + 1)]
        for line in lines:
            yield CommandOutput(line)
            await asyncio.sleep(self.pace_s / 4)
        bad = 3 if "exit 3" in code else 0
        result = CommandResult(code, Ended.EXIT, bad, "".join(lines), "a warning\n" if bad else "", False, 412)
        if "colour" in code:
            paint = re.compile(r"^line (?=([1-6])$)", re.MULTILINE)
            result = replace(result, painted=paint.sub("\x1b[1;3\\1mline\x1b[0m ", result.output))
        yield CommandEnded(result)
        text = "" if going.turn.kind is TurnKind.RUN else "The command ran."
        yield Settled(Answer(going.turn.id, text, kind=going.turn.kind, commands=(result,), total_ms=500))

    async def _ticket(self, going: Going, code: str) -> AsyncIterator[Event]:
        ticket = Ticket(f"t-{going.turn.id[:8]}", code or "echo hello", TicketState.WAITING, expires_at=0)
        yield Settled(Answer(going.turn.id, "This needs your approval.", ticket=ticket))

    # ── What it keeps ─────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, turn: Turn, role: str, author: str, text: str) -> None:
        if text:
            self._messages.setdefault(turn.room, []).append(Message(role, author, text, turn.at, turn.id))

    def _log(self, turn: Turn, answer: Answer) -> None:
        found: dict[str, str | int | float] = {
            "document": self.source.document,
            "heading": self.source.heading,
            "line": self.source.line,
            "score": 7.31,
        }
        call = LoggedCall(
            turn=turn.id,
            author=turn.author.name,
            question=turn.text,
            step=0,
            state="failed" if answer.outcome is Outcome.FAILED else "complete",
            model="fake-model",
            request=(
                {"role": "system", "content": "Answer from the sections only. Cite them."},
                {"role": "user", "content": f"{turn.author.name}: {turn.text}"},
            ),
            findings=(found,),
            confidence=0.82,
            band="high",
            reply=answer.text,
            finish="stop",
            prompt_tokens=812,
            reply_tokens=64,
            first_piece_ms=210,
            total_ms=840,
            error="",
            at=turn.at,
        )
        self._calls.setdefault(turn.room, []).append(call)
