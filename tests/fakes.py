"""Fakes that keep the contract: a platform, a model, a retriever. Each remembers what it was asked."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot.conversation import (
    Answer,
    Author,
    Body,
    Command,
    CommandResult,
    Outcome,
    Part,
    RoomKey,
    SessionKey,
    Standing,
    Surroundings,
    Turn,
    TurnKind,
    Usage,
    Verdict,
)
from bot.errors import OutletUnavailable, SandboxUnavailable
from bot.ports import Band, Findings, Finished, Hit, ModelCall, Piece, Profile, Text
from bot.sections import Document, Section
from tests.fake_sandbox import FakeSandbox as ContractSandbox

ROOM = RoomKey("fake", "T1", "C1")
ANN = Author("U1", "Ann", Standing.MEMBER)
BOB = Author("U2", "Bob", Standing.MEMBER)

_numbers = itertools.count(1)


def turn(
    text: str = "What is our branch naming convention?",
    *,
    id: str = "",
    session: SessionKey | None = None,
    author: Author = ANN,
    kind: TurnKind = TurnKind.ASK,
    target: str | None = None,
    verdict: Verdict | None = None,
) -> Turn:
    """Give a turn with an id of its own."""
    number = next(_numbers)
    return Turn(
        id or f"m{number}",
        session or SessionKey(ROOM),
        author,
        text,
        1_000 + number,
        kind,
        target=target,
        verdict=verdict,
    )


def section(name: str, text: str, *, line: int = 1) -> Section:
    """Give a section `name` of the document `<name>.md`."""
    return Section(f"{name}.md#{name}", f"{name}.md", name.title(), (name.title(),), name, line, line + 2, text)


NAMING = section("naming", "Every branch is named `feature/<ticket>-<words>`. Hotfix branches begin with `hotfix/`.")


@dataclass
class FakeRetriever:
    """Finds `NAMING` for questions about branches and nothing for others."""

    sections_: tuple[Section, ...] = (NAMING,)
    band: Band | None = None
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def search(self, question: str, earlier: Sequence[str], *, room: RoomKey, limit: int) -> Findings:
        self.asked.append((question, tuple(earlier)))
        is_near = bool(re.search(r"branch|hotfix|naming", " ".join((question, *earlier)), re.IGNORECASE))
        band = self.band or (Band.HIGH if is_near else Band.LOW)
        return Findings(tuple(Hit(s, 1.0) for s in self.sections_), 0.9 if band is Band.HIGH else 0.1, band)

    def documents(self, room: RoomKey) -> Sequence[Document]:
        return [Document(s.document, s.title, 1) for s in self.sections_]

    def sections(self, room: RoomKey, document: str) -> Sequence[Section]:
        return [s for s in self.sections_ if s.document == document]

    def section(self, room: RoomKey, section_id: str) -> Section | None:
        return next((s for s in self.sections_ if s.id == section_id), None)

    def url(self, section: Section) -> str:
        return ""


Script = Callable[[ModelCall], "str | Exception | Iterable[str | float | asyncio.Event | Exception]"]


@dataclass
class FakeModel:
    """Replies with what `script` gives: a text, an error, or pieces, pauses (seconds), gates and errors in a row."""

    script: Script = lambda call: "Branches are named `feature/<ticket>-<words>` [1]."
    name: str = "fake-model"
    profile: Profile = field(default_factory=Profile)
    calls: list[ModelCall] = field(default_factory=list)

    async def stream(self, call: ModelCall) -> AsyncIterator[Piece]:
        self.calls.append(call)
        made = self.script(call)
        for piece in [made] if isinstance(made, (str, Exception)) else made:
            match piece:
                case Exception():
                    raise piece
                case asyncio.Event():
                    await piece.wait()
                case float() | int():
                    await asyncio.sleep(piece)
                case _:
                    yield Text(piece)
        yield Finished("stop", Usage(10, 5), self.name)

    def sent(self, number: int = -1) -> str:
        """Give all that was sent in a call, as one text."""
        return "\n".join(message.content for message in self.calls[number].messages)


class FakeSandbox(ContractSandbox):
    """The sandbox that keeps the port's contract; it remembers what was killed. `away` plays an engine that is down."""

    def __init__(self, *, away: bool = False, output: str = "") -> None:
        super().__init__(timeout_s=60)
        self.killed: list[Command] = []
        self.away = away
        self.output = output

    @property
    def away(self) -> bool:
        return self.unavailable is not None

    @away.setter
    def away(self, is_away: bool) -> None:
        gone = SandboxUnavailable("No Docker engine answers.", mend="Start one.")
        self.unavailable = gone if is_away else None

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        if self.output:
            self.outputs.setdefault(command.code, self.output)
        try:
            return await super().run(command, on_output=on_output)
        except asyncio.CancelledError:
            self.killed.append(command)
            raise


@dataclass
class Posted:
    """One message as it stands on the fake platform."""

    ref: str
    key: str
    session: SessionKey
    text: str
    is_draft: bool
    shown: list[str] = field(default_factory=list)


@dataclass
class FakeOutlet:
    """A platform in memory: messages by ref, and every act in `acts`. `faults` are raised one by one, before or after

    the message is taken in (`("before", error)`, `("after", error)`).
    """

    standing: Standing = Standing.MEMBER
    latency_s: float = 0.0
    messages: dict[str, Posted] = field(default_factory=dict)
    acts: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, Exception]] = field(default_factory=list)
    around: Callable[[Turn], Surroundings] | None = None
    statuses: list[str | None] = field(default_factory=list)
    part_chars: int = 2_000

    def render(self, answer: Answer) -> tuple[Body, ...]:
        lines = [answer.text]
        lines += [f"$ {c.code} -> {c.exit_code} {c.output} {c.note}".rstrip() for c in answer.commands]
        lines += [f"({s.number}) {s.document}: {s.quote}" for s in answer.sources]
        if answer.ticket:
            lines.append(f"ticket {answer.ticket.id} {answer.ticket.state} {answer.ticket.decided_by}".rstrip())
        text = "\n".join((*lines, *answer.notes))
        if answer.outcome is Outcome.DRAFT:
            return (Body({"text": text[: self.part_chars]}),)
        cuts = range(0, max(len(text), 1), self.part_chars)
        return tuple(Body({"text": text[at : at + self.part_chars]}) for at in cuts)

    async def surroundings(self, turn: Turn) -> Surroundings:
        return self.around(turn) if self.around else Surroundings(replace(turn.author, standing=self.standing))

    async def status(self, turn: Turn, text: str | None) -> None:
        self.statuses.append(text)

    async def show(self, part: Part, *, draft: bool) -> str:
        fault = self.faults.pop(0) if self.faults else ("", None)
        if fault[0] == "before" and fault[1]:
            raise fault[1]
        await asyncio.sleep(self.latency_s)
        text = str(part.body.content["text"])
        if part.ref is not None:
            posted = self.messages.get(part.ref)
            if posted is None:
                raise OutletUnavailable("no such message")
            posted.text, posted.is_draft = text, draft
        else:
            posted = Posted(f"p{next(_numbers)}", part.key, part.session, text, draft)
            self.messages[posted.ref] = posted
        posted.shown.append(text)
        self.acts.append(("edit" if part.ref else "post", text))
        if fault[0] == "after" and fault[1]:
            raise fault[1]
        return posted.ref

    async def find(self, part: Part) -> str | None:
        return next((posted.ref for posted in self.messages.values() if posted.key == part.key), None)

    async def delete(self, part: Part) -> None:
        self.acts.append(("delete", part.ref or ""))
        self.messages.pop(part.ref or "", None)

    @property
    def texts(self) -> list[str]:
        return [posted.text for posted in self.messages.values()]
