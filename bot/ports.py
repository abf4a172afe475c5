"""What the core needs of the world, on one screen. A port exists only where a second implementation does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from bot.conversation import (
    Answer,
    Author,
    Body,
    Command,
    CommandResult,
    Message,
    Part,
    RoomKey,
    SessionKey,
    Surroundings,
    Turn,
    Usage,
    Verdict,
)
from bot.records import (
    CommandState,
    Decision,
    LoggedCall,
    NewPart,
    OpenTurn,
    PlannedCommand,
    RoomSummary,
    SettledTurn,
    Start,
    Step,
    ToDeliver,
    UsageRow,
    Used,
)
from bot.sections import Document, Section


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One entry of what is sent to a model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model can take. `prompts` is `one` for a capable model, `split` for a small one."""

    context_tokens: int = 24_000
    max_reply_tokens: int = 1_024
    prompts: Literal["one", "split"] = "one"


class Band(StrEnum):
    """How far the findings can be trusted to cover the question."""

    LOW = "low"
    MIDDLE = "middle"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Hit:
    """A section found; `components` are the scores that made up `score`, by name.

    `passage` is the part of a long section that fits best, and empty where the section is short enough to give whole.
    """

    section: Section
    score: float
    components: Mapping[str, float] = field(default_factory=dict)
    passage: str = ""

    @property
    def text(self) -> str:
        """What of the section is worth reading."""
        return self.passage or self.section.text


@dataclass(frozen=True, slots=True)
class Findings:
    """The best sections first, and how sure the search is that they cover the question (0 to 1)."""

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    band: Band = Band.LOW


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call: only `messages` are sent and logged; an answerer without a model quotes from the findings.

    `built_for` is the profile that the messages were built for. Of several models one that cannot take them raises
    ContextTooLong with the profile to build them for again.
    """

    messages: tuple[ChatMessage, ...]
    question: str
    findings: Findings
    max_reply_tokens: int
    built_for: Profile | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """The next piece of visible reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a complete reply. `reason` is `stop`, `length` or the endpoint's own word; `model` is who answered.

    `note` is a sentence for below the answer: another than the first of several models gave it, or a filter ended it.
    `faults` are the kinds of error of those that were asked before it.
    """

    reason: str
    usage: Usage
    model: str
    note: str = ""
    faults: tuple[str, ...] = ()


Piece: TypeAlias = Text | Finished


class ChatModel(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def profile(self) -> Profile: ...
    def stream(self, call: ModelCall) -> AsyncIterator[Piece]:
        """Give the reply in pieces; the last is `Finished`. Raises: the ModelError family only."""
        ...


class Sandbox(Protocol):
    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        """Run one command in its room; cancelling kills it. Raises: SandboxUnavailable only."""
        ...

    async def put(self, room: RoomKey, generation: int, name: str, data: bytes) -> None: ...
    async def get(self, room: RoomKey, generation: int, path: str) -> bytes: ...
    async def interrupt(self, room: RoomKey) -> None:
        """Kill whatever a dead process left running in the room. Never raises."""
        ...

    async def destroy(self, room: RoomKey, *, through: int) -> None:
        """Remove container and snapshot of every generation up to `through`. Raises: SandboxUnavailable."""
        ...


class Outlet(Protocol):
    """One per platform. `show`, `find` and `delete` raise the OutletError family only."""

    def render(self, answer: Answer) -> tuple[Body, ...]:
        """Give the messages of an answer; pure. A draft answer gives exactly one."""
        ...

    async def surroundings(self, turn: Turn) -> Surroundings: ...
    async def status(self, turn: Turn, text: str | None) -> None:
        """Show that work goes on; None clears. Never raises."""
        ...

    async def show(self, part: Part, *, draft: bool) -> str:
        """Edit `part.ref`, else create under `part.key`; give the platform's id of the message."""
        ...

    async def find(self, part: Part) -> str | None:
        """Look for a part that may have been posted. None: surely not posted."""
        ...

    async def delete(self, part: Part) -> None: ...


class Retriever(Protocol):
    async def search(self, question: str, earlier: Sequence[str], *, room: RoomKey, limit: int) -> Findings: ...
    def documents(self, room: RoomKey) -> Sequence[Document]: ...
    def sections(self, room: RoomKey, document: str) -> Sequence[Section]:
        """Give a document's sections in order; empty for an unknown document."""
        ...

    def section(self, room: RoomKey, section_id: str) -> Section | None: ...
    def url(self, section: Section) -> str:
        """Give the deep link of a section, or '' without a base address."""
        ...


class Store(Protocol):
    """Domain verbs, each one transaction; no table and no connection leaves. All raise StoreUnavailable.

    Verbs that add raise Superseded when a reset, a stop or another owner came first (records.OpenTurn is the fence).
    """

    @property
    def owner(self) -> str: ...
    @property
    def tick(self) -> int: ...
    async def wait_for_change(self, tick: int, *, timeout_s: float) -> int: ...
    def hold(self, name: str) -> bool: ...

    # turns
    async def claim(self, turn: Turn, *, direct: bool = False) -> bool: ...
    async def amend(self, turn: Turn) -> bool: ...
    async def withdraw(self, turn: Turn) -> None: ...
    async def begin(
        self, platforms: Collection[str], *, only_beside: bool = False, without: Collection[RoomKey] = ()
    ) -> OpenTurn | None: ...
    async def let_go(self, turn: OpenTurn) -> None: ...
    async def doomed(self, seqs: Collection[int]) -> dict[int, str]: ...
    async def know_author(self, turn: OpenTurn, author: Author, text: str) -> None: ...
    async def settle(
        self, turn: OpenTurn, answer: Answer, *, said: tuple[Message, ...], parts: tuple[NewPart, ...], tokens: int = 0
    ) -> None: ...
    async def settle_ended(
        self, turn: OpenTurn, answer: Answer, *, said: tuple[Message, ...] = (), parts: tuple[NewPart, ...] = ()
    ) -> None: ...
    async def stop(self, room: RoomKey, turn_id: str, by: str) -> bool: ...
    async def find_turn(self, room: RoomKey, turn_id: str) -> SettledTurn | None: ...
    async def turn_at(self, seq: int) -> SettledTurn | None: ...
    async def history(
        self, session: SessionKey, *, before: OpenTurn | None = None, limit: int | None = None
    ) -> list[Message]: ...
    async def is_joined(self, session: SessionKey) -> bool: ...
    async def open_askers(self, session: SessionKey) -> list[str]: ...
    async def counts(self) -> Mapping[str, int]: ...
    async def oldest_open_at(self) -> int | None: ...

    # steps
    async def steps(self, turn: OpenTurn) -> list[Step]: ...
    async def record_call(
        self, turn: OpenTurn, step: int, *, model: str, request: Sequence[ChatMessage], findings: Findings
    ) -> None: ...
    async def complete_call(
        self,
        turn: OpenTurn,
        step: int,
        *,
        reply: str,
        finished: Finished,
        first_piece_ms: int | None,
        total_ms: int,
        commands: Sequence[str],
    ) -> None: ...
    async def fail_call(
        self, turn: OpenTurn, step: int, *, error: str, reply: str, first_piece_ms: int | None, total_ms: int
    ) -> None: ...
    async def plan_run(self, turn: OpenTurn, code: str) -> None: ...
    async def commands(self, turn: OpenTurn) -> list[PlannedCommand]: ...
    async def start_command(self, turn: OpenTurn, command: PlannedCommand) -> Start: ...
    async def interrupt_orphans(self, room: RoomKey) -> None: ...
    async def end_command(self, command: PlannedCommand, result: CommandResult, *, state: CommandState) -> None: ...
    async def ask_a_person(self, turn: OpenTurn, command: PlannedCommand, *, ticket: str, expires_at: int) -> None: ...
    async def decide(self, turn: OpenTurn, ticket: str, verdict: Verdict, *, by: str) -> Decision: ...
    async def expire_tickets(self) -> int: ...
    async def prompt_log(self, session: SessionKey) -> list[LoggedCall]: ...
    async def forget_calls(self, before: int) -> int: ...

    # outbox
    async def keep_files(self, body: Body) -> None: ...
    async def sweep_files(self) -> None: ...
    async def open_draft(self, turn: OpenTurn, part: NewPart) -> tuple[Part, bool] | None: ...
    async def note_ref(self, key: str, ref: str) -> None: ...
    async def draft_of(self, turn: OpenTurn) -> Part | None: ...
    async def next_part(self, platforms: Collection[str]) -> ToDeliver | None: ...
    async def posted(self, part: Part, ref: str) -> bool: ...
    async def put_back(self, key: str, *, next_try_at: int, error: str) -> None: ...
    async def end_part(self, key: str, *, state: str, error: str = "") -> None: ...
    async def redraw(self, seq: int, answer: Answer, bodies: tuple[Body, ...]) -> bool: ...
    async def outbox_age_at(self) -> int | None: ...

    # resets, rooms and what stands beside
    async def raise_generation(self, reset: OpenTurn) -> None: ...
    async def unfinished(self, reset: OpenTurn) -> int: ...
    async def forget(self, reset: OpenTurn) -> None: ...
    async def cleared_mark(self, session: SessionKey) -> int: ...
    async def room_generation(self, room: RoomKey) -> int: ...
    async def rooms(self) -> list[RoomSummary]: ...
    async def sessions(self, room: RoomKey) -> list[SessionKey]: ...
    async def feedback(self, room: RoomKey, turn_id: str, *, user: str, verdict: str) -> bool: ...
    async def used(self, day: str, *, user: str = "", room: str = "") -> Used: ...
    async def usage(self, day: str) -> list[UsageRow]: ...
