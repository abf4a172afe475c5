"""What the core needs of the world, on one screen. A port exists only where a second implementation does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from bot.conversation import Answer, Body, Command, CommandResult, Part, RoomKey, Surroundings, Turn, Usage
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
    """A section found; `components` are the scores that made up `score`, by name."""

    section: Section
    score: float
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """The best sections first, and how sure the search is that they cover the question (0 to 1)."""

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    band: Band = Band.LOW


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call: only `messages` are sent and logged; an answerer without a model quotes from the findings."""

    messages: tuple[ChatMessage, ...]
    question: str
    findings: Findings
    max_reply_tokens: int


@dataclass(frozen=True, slots=True)
class Text:
    """The next piece of visible reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a complete reply. `reason` is `stop`, `length` or the endpoint's own word; `model` is who answered."""

    reason: str
    usage: Usage
    model: str


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
