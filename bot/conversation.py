"""Who said what, where: the values that every other module passes on.

A room is a channel and owns one sandbox; a session is a conversation inside it and owns the transcript. A turn is one
thing a person asked; its id is the id of what the person did, never of a delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias
from urllib.parse import quote, unquote

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class RoomKey:
    """A channel: `slack/T1/C1`. `space` is the workspace or guild, `dm`, or `local`."""

    platform: str
    space: str
    channel: str

    def __str__(self) -> str:
        return "/".join(quote(part, safe="") for part in (self.platform, self.space, self.channel))

    @classmethod
    def parse(cls, text: str) -> RoomKey:
        """Undo `str`. Raises: ValueError when there are not three parts."""
        platform, space, channel = (unquote(part) for part in text.split("/"))
        return cls(platform, space, channel)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A conversation in a room. `thread=None` is the channel itself."""

    room: RoomKey
    thread: str | None = None

    def __str__(self) -> str:
        return str(self.room) if self.thread is None else f"{self.room}#{quote(self.thread, safe='')}"

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """Undo `str`. Raises: ValueError when the room is not a room."""
        room, _, thread = text.partition("#")
        return cls(RoomKey.parse(room), unquote(thread) or None)


class Standing(StrEnum):
    """What the platform says the person is. `UNKNOWN` until the surroundings were looked up."""

    MEMBER = "member"
    LOCAL = "local"
    GUEST = "guest"
    OUTSIDER = "outsider"
    BOT = "bot"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Author:
    """A person, known by `id`; the name is for reading only, never for deciding. `groups` are role or group ids.

    `may_run` is False where the place itself rules commands out: a server that Duet is not a member of.
    """

    id: str
    name: str
    standing: Standing = Standing.UNKNOWN
    groups: tuple[str, ...] = ()
    may_run: bool = True


class TurnKind(StrEnum):
    """ASK goes to the model; RUN is a person's own command; PRESS is a button; RESET and STOP run beside the lanes."""

    ASK = "ask"
    RUN = "run"
    PRESS = "press"
    RESET = "reset"
    STOP = "stop"


class Verdict(StrEnum):
    """What a press decided: about a ticket (approve, deny) or a failed turn (retry)."""

    APPROVE = "approve"
    DENY = "deny"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a turn, not yet fetched. `where` is what the platform needs to fetch it."""

    name: str
    where: str
    size_bytes: int = 0
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing a person asked.

    `id` is unique within its platform, space and channel. `text` is what the person typed, without the mention; for
    RUN it is the command. `target` is the ticket of an APPROVE or DENY, or the id of the turn that a RETRY or STOP
    means. `at` is UTC milliseconds. `reply_to` is what the platform needs to answer (thread, interaction token).
    """

    id: str
    session: SessionKey
    author: Author
    text: str
    at: int
    kind: TurnKind = TurnKind.ASK
    files: tuple[Attachment, ...] = ()
    reply_to: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    verdict: Verdict | None = None

    @property
    def room(self) -> RoomKey:
        return self.session.room


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a transcript. `role` is `user`, `agent` or `command`; `at` is UTC milliseconds.

    `turn` is the id of the turn it belongs to, by which its answer, with sources and commands, can be had again.
    """

    role: str
    author: str
    text: str
    at: int
    turn: str = ""


@dataclass(frozen=True, slots=True)
class Quoted:
    """Something said in a thread before Duet was asked. Data, never instruction."""

    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a platform adds to a turn after the claim.

    `author` replaces the turn's (its standing is now known); `text` replaces the turn's, with names for ids, when
    given; `files` holds the name and text of each attachment that could be read; `notes` are sentences for the
    answer ("photo.png was not read: it is not text").
    """

    author: Author
    text: str | None = None
    thread: tuple[Quoted, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    uploads: tuple[tuple[str, bytes], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """One shell command for a room's sandbox. `key` names turn, step and ordinal."""

    key: str
    room: RoomKey
    generation: int
    code: str


class Ended(StrEnum):
    """How a command ended; only EXIT has an exit code that means something."""

    EXIT = "exit"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    KILLED = "killed"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of a command. Streams are clean text (no control characters but tab and newline), clipped with a mark.

    `note` says why in words when `ended` is not EXIT ("waiting for approval", "no Docker engine"). `painted` is the
    output with its colour sequences, and with no other; empty where it has none.
    """

    code: str
    ended: Ended
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    duration_ms: int = 0
    note: str = ""
    painted: str = ""

    @property
    def output(self) -> str:
        """Both streams as a person reads them; `[no output]` when there is none."""
        parts = [self.stdout.rstrip("\n"), self.stderr.rstrip("\n")]
        return "\n".join(part for part in parts if part) or "[no output]"


@dataclass(frozen=True, slots=True)
class Source:
    """A section that an answer rests on. `number` is its marker in the text; `quote` stands verbatim in the section.

    `heading` is the path below the title, joined with ` > `; `line` counts from 1; `url` is empty without a base.
    """

    number: int
    section_id: str
    document: str
    heading: str
    line: int
    url: str
    quote: str


class TicketState(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Ticket:
    """A command that waits for a person's yes or no. `decided_by` is a name once it is decided."""

    id: str
    code: str
    state: TicketState = TicketState.WAITING
    decided_by: str = ""
    expires_at: int = 0


class Outcome(StrEnum):
    """What became of a turn: also what its row says. DRAFT is an answer still being made."""

    DRAFT = "draft"
    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is shown for a turn. `text` is Markdown; it holds no `<run>` tag and no marker without a source.

    `turn` is the turn's id, for buttons; `incident` greps in the log; `notes` are short lines below the answer.
    `covered` is None where the Codex was not asked (a command, a reset).
    """

    turn: str
    text: str
    outcome: Outcome = Outcome.ANSWERED
    kind: TurnKind = TurnKind.ASK
    covered: bool | None = None
    sources: tuple[Source, ...] = ()
    commands: tuple[CommandResult, ...] = ()
    ticket: Ticket | None = None
    notes: tuple[str, ...] = ()
    model: str = ""
    incident: str = ""
    total_ms: int = 0


@dataclass(frozen=True, slots=True)
class FileData:
    """A file that goes out with a part."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Body:
    """One platform message, rendered: `content` is the platform's own JSON."""

    content: Mapping[str, Json]
    files: tuple[FileData, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One platform message of an answer: a row of the outbox.

    `key` is unique and short enough for a nonce (25 characters); `ordinal` counts from 0; `ref` is the platform's id
    of the message once it is posted.
    """

    key: str
    turn: str
    session: SessionKey
    ordinal: int
    reply_to: Mapping[str, str]
    body: Body
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call; zero where the endpoint did not say."""

    prompt_tokens: int = 0
    reply_tokens: int = 0


# What a front that answers within the request hears of its turn, in order; the last is always `Settled`.


@dataclass(frozen=True, slots=True)
class Drafted:
    """The visible text so far (all of it, not a delta)."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandStarted:
    code: str


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """New output of the running command."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandEnded:
    result: CommandResult


@dataclass(frozen=True, slots=True)
class Settled:
    answer: Answer


Event: TypeAlias = Drafted | CommandStarted | CommandOutput | CommandEnded | Settled
