"""What was typed -> turns: rooms by name, questions checked, ids made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bot.conversation import Author, RoomKey, SessionKey, Standing, Turn, TurnKind, Verdict
from bot.errors import BadInput
from bot.policy import unusable

PLATFORM = "terminal"
SPACE = "local"
DEFAULT_ROOM = "main"

MAX_COMMAND_CHARS = 20_000
MAX_NAME_CHARS = 200

_PLATFORMS = (PLATFORM, "web", "slack", "discord")
_ANSWERED_ELSEWHERE = {"slack": "Slack", "discord": "Discord"}
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def room_named(name: str) -> RoomKey:
    """Give the room that `--room` means: a full key as `duet rooms` prints it, else a room of this terminal.

    Raises: BadInput when it cannot be a name.
    """
    _check_name("room", name)
    if name.count("/") == 2 and name.split("/")[0] in _PLATFORMS:
        return RoomKey.parse(name)
    return RoomKey(PLATFORM, SPACE, name.strip())


def name_of(room: RoomKey) -> str:
    """Give the shortest text by which `room_named` gives the room again."""
    is_here = (room.platform, room.space) == (PLATFORM, SPACE)
    return room.channel if is_here and room_named(room.channel) == room else str(room)


def session_named(room: str, thread: str | None = None) -> SessionKey:
    """Give the session of `--room` and `--thread`. Raises: BadInput."""
    if thread is not None:
        _check_name("thread", thread)
    return SessionKey(room_named(room), thread)


def _check_name(what: str, name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME_CHARS or _UNFIT.search(name):
        raise BadInput(f"A {what}'s name is 1 to {MAX_NAME_CHARS} printable characters; give another to --{what}.")


@dataclass(frozen=True, slots=True)
class Keyboard:
    """The local user. `new_id` gives ids that never come twice, `now_ms` UTC milliseconds."""

    user: str
    new_id: Callable[[], str]
    now_ms: Callable[[], int]

    @property
    def author(self) -> Author:
        return Author(self.user, self.user, Standing.LOCAL)

    def ask(self, session: SessionKey, question: str) -> Turn:
        """Give the turn of a question. Raises: BadInput when it is empty, too long or not for this terminal."""
        return self._turn(session, usable(question), TurnKind.ASK)

    def run(self, session: SessionKey, code: str) -> Turn:
        """Give the turn of a person's own command. Raises: BadInput as `ask`."""
        text = _storable(code)
        if not text:
            raise BadInput("The command is empty; give one in quotes, for example: duet run 'ls -la'")
        if len(text) > MAX_COMMAND_CHARS:
            raise BadInput(f"The command has {len(text):,} characters; the most is {MAX_COMMAND_CHARS:,}.")
        return self._turn(session, text, TurnKind.RUN)

    def retry(self, session: SessionKey, turn_id: str) -> Turn:
        return self._turn(session, "", TurnKind.PRESS, target=turn_id, verdict=Verdict.RETRY)

    def decide(self, session: SessionKey, ticket: str, verdict: Verdict) -> Turn:
        return self._turn(session, "", TurnKind.PRESS, target=ticket, verdict=verdict)

    def reset(self, session: SessionKey) -> Turn:
        """Give the turn that clears a session, or the whole room where there is no thread."""
        return Turn(self.new_id(), session, self.author, "", self.now_ms(), TurnKind.RESET)

    def _turn(
        self,
        session: SessionKey,
        text: str,
        kind: TurnKind,
        *,
        target: str | None = None,
        verdict: Verdict | None = None,
    ) -> Turn:
        if platform := _ANSWERED_ELSEWHERE.get(session.room.platform):
            raise BadInput(f"{session.room} is a channel of {platform}: ask there, or name another room with --room.")
        return Turn(self.new_id(), session, self.author, text, self.now_ms(), kind, target=target, verdict=verdict)


def usable(question: str) -> str:
    """Give the question as it is stored. Raises: BadInput when it is empty or too long."""
    text = _storable(question)
    if fault := unusable(text):
        raise BadInput(fault)
    return text


def _storable(text: str) -> str:
    """Give the text without what neither SQLite nor JSON can hold: NUL, and halves of characters from the shell."""
    return _SURROGATE.sub("\ufffd", text).replace("\x00", "").strip()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a conversation: `name` is the slash command without its slash, empty for a question."""

    name: str
    rest: str


def read_line(text: str) -> Line:
    """Tell a slash command from a question; `//` at the start is a question that begins with a slash."""
    text = text.strip()
    if text.startswith("//"):
        return Line("", text[1:])
    if text.startswith("/"):
        name, _, rest = text[1:].partition(" ")
        return Line(name.casefold() or "help", rest.strip())
    return Line("", text)
