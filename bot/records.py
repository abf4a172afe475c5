"""Rows as values: what the store gives to the conductors and to those who read the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bot.conversation import Answer, Body, CommandResult, Json, Part, RoomKey, SessionKey, Turn


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that this process owns: `seq`, `attempt` and the generations fence every write made for it.

    `parent` is the turn that a press goes on with; `is_void` says that a reset came before it was taken up;
    `stopped_by` is the name of the person who stopped it.
    """

    seq: int
    turn: Turn
    attempt: int
    generation: int
    room_generation: int
    parent: OpenTurn | None = None
    is_void: bool = False
    stopped_by: str = ""

    @property
    def asking(self) -> OpenTurn:
        """The turn under which steps are recorded: the parent of an approval, else this one."""
        return self.parent or self

    def __str__(self) -> str:
        return f"{self.turn.session}:{self.turn.id}"


# Who stopped a turn whose message was deleted: nobody is told, and what was shown for it goes.
WITHDRAWN = "(the message was deleted)"


class CommandState(StrEnum):
    PLANNED = "planned"
    WAITING = "waiting"
    APPROVED = "approved"
    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class PlannedCommand:
    """A command's row. `result` is there once it is done, interrupted, refused or denied."""

    id: int
    step: int
    ordinal: int
    code: str
    state: CommandState
    result: CommandResult | None = None
    ticket: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in (
            CommandState.PLANNED,
            CommandState.WAITING,
            CommandState.APPROVED,
            CommandState.RUNNING,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step: the reply that was complete, and its commands."""

    step: int
    reply: str
    model: str
    commands: tuple[PlannedCommand, ...]


class Start(StrEnum):
    """What came of trying to start a command."""

    STARTED = "started"
    BUSY = "busy"
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True)
class Decision:
    """What came of a press on a ticket. `won` means this press decided (now, or before a crash).

    `shown_in` is the turn whose answer shows the ticket.
    """

    won: bool
    state: str
    decided_by: str
    command: PlannedCommand | None
    shown_in: int


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part about to be stored; the bytes of its files are kept already."""

    key: str
    ordinal: int
    body: Body


@dataclass(frozen=True, slots=True)
class ToDeliver:
    """A part that this process is to post. `look_first` says that it may stand there already."""

    part: Part
    attempt: int
    look_first: bool
    shown_at: int
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One model call as the prompt log keeps it. `request` is exactly what was sent."""

    turn: str
    author: str
    question: str
    step: int
    state: str
    model: str
    request: tuple[Mapping[str, Json], ...]
    findings: tuple[Mapping[str, Json], ...]
    confidence: float
    band: str
    reply: str
    finish: str
    prompt_tokens: int
    reply_tokens: int
    first_piece_ms: int | None
    total_ms: int | None
    error: str
    at: int
    commands: tuple[CommandResult, ...] = ()


@dataclass(frozen=True, slots=True)
class RoomSummary:
    """One room as `duet rooms` lists it."""

    key: RoomKey
    sessions: int
    turns: int
    open_turns: int
    last_active_at: int
    generation: int


@dataclass(frozen=True, slots=True)
class SettledTurn:
    """A turn's row for those who follow it: `answer` is None while it is open."""

    seq: int
    session: SessionKey
    state: str
    owner: str
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class Used:
    """What one person or room used on one UTC day."""

    turns: int = 0
    commands: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one person used in one room on one UTC day (`2026-12-01`)."""

    day: str
    user: str
    room: RoomKey
    used: Used
