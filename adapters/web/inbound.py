"""HTTP request -> values: every fault of a body or a query is told at once, and nothing untyped passes on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.conversation import Author, RoomKey, SessionKey, Standing, Turn, TurnKind, Verdict
from bot.errors import BadInput

if TYPE_CHECKING:
    from aiohttp import web

MAX_ID_CHARS = 200
MAX_TEXT_CHARS = 100_000
MAX_CODE_CHARS = 20_000
MAX_NAME_CHARS = 500
MAX_TURN_ID_CHARS = 128
BODY_TIMEOUT_S = 10.0

_TURN_ID = re.compile(r"[!-~]{1,128}")
# Control characters and lone surrogates: neither belongs in a name, the latter not even in a text.
_UNFIT_FOR_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNFIT_FOR_TEXT = re.compile(r"[\x00\ud800-\udfff]")


class BadRequest(BadInput):
    """The request cannot be used. `details` maps each field to what is wrong with it."""

    def __init__(self, details: Mapping[str, Sequence[str]]) -> None:
        super().__init__("invalid request")
        self.details = {name: list(faults) for name, faults in details.items()}


class SlowBody(BadInput):
    """The body did not arrive in time."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks over HTTP: the space whose rooms are theirs, and the person to name when the request names none."""

    space: str
    author: Author

    def room(self, room_id: str) -> RoomKey:
        return RoomKey("web", self.space, room_id)

    def session(self, session_id: str) -> SessionKey:
        return SessionKey(self.room(session_id))

    def named(self, user_id: str | None) -> Author:
        """Give the author that a request names. What a token holder claims is a name, never an id: ids decide."""
        if not user_id:
            return self.author
        is_local = self.author.standing is Standing.LOCAL
        return Author(user_id if is_local else self.author.id, user_id, self.author.standing)


class Fields:
    """The fields of one body or query. Faults are gathered; `check` raises them all together."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._faults: dict[str, list[str]] = {}

    def text(self, name: str, *, limit: int = MAX_TEXT_CHARS) -> str:
        """Give a required, trimmed text; '' after a fault."""
        return self._string(name, limit, unfit=_UNFIT_FOR_TEXT).strip()

    def id(self, name: str) -> str:
        """Give a required name of a session or room, exactly as given; '' after a fault."""
        return self._string(name, MAX_ID_CHARS, unfit=_UNFIT_FOR_ID)

    def name(self, name: str) -> str:
        """Give the required name of a document or section, exactly as given; '' after a fault."""
        return self._string(name, MAX_NAME_CHARS, unfit=_UNFIT_FOR_ID)

    def optional_id(self, name: str) -> str | None:
        """Give a name that may be left out or blank, trimmed."""
        value = self._values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        return self._string(name, MAX_ID_CHARS, unfit=_UNFIT_FOR_ID).strip() or None

    def turn_id(self, name: str) -> str | None:
        """Give a caller's own key for a turn: printable ASCII without spaces."""
        value = self._values.get(name)
        if value is None or (isinstance(value, str) and _TURN_ID.fullmatch(value)):
            return value
        self.fault(name, f"Expected 1 to {MAX_TURN_ID_CHARS} printable ASCII characters without spaces")
        return None

    def one_of(self, name: str, words: Sequence[str], *, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if isinstance(value, str) and value in words:
            return value
        self.fault(name, f"Expected one of: {', '.join(words)}")
        return words[0]

    def items(self, name: str, *, limit: int) -> list[Any]:
        """Give a required list that is not empty; [] after a fault. Its items are for the caller to check."""
        value = self._values.get(name)
        if isinstance(value, list) and 0 < len(value) <= limit:
            return value
        self.fault(name, "Required" if value is None else f"Expected a list of 1 to {limit} items")
        return []

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            self.fault(name, "Expected true or false")
        return value is True

    def inner(self, name: str) -> Fields:
        """Give the fields of an optional object; none where it is anything else."""
        value = self._values.get(name)
        return Fields(value if isinstance(value, dict) else {})

    def fault(self, name: str, sentence: str) -> None:
        self._faults.setdefault(name, []).append(sentence)

    def check(self) -> None:
        """Raises: BadRequest when anything was wrong."""
        if self._faults:
            raise BadRequest(self._faults)

    def _string(self, name: str, limit: int, *, unfit: re.Pattern[str]) -> str:
        value = self._values.get(name)
        fault = _fault_of(value, name, limit, unfit)
        if fault:
            self.fault(name, fault)
            return ""
        return str(value)


def is_storable(text: str) -> bool:
    """Say whether a text holds nothing that no database or terminal takes: NUL, or half of a character."""
    return not _UNFIT_FOR_TEXT.search(text)


def _fault_of(value: object, name: str, limit: int, unfit: re.Pattern[str]) -> str | None:
    if value is None:
        return "Required"
    if not isinstance(value, str):
        return "Expected string"
    if not value.strip():
        return f"{name[0].upper()}{name[1:]} cannot be empty"
    if len(value) > limit:
        return f"Expected at most {limit} characters"
    return "Contains characters that cannot be used" if unfit.search(value) else None


async def json_fields(request: web.Request) -> Fields:
    """Read the body as a JSON object, whatever content type the client claims (the seeds' clients vary).

    Raises: BadRequest, SlowBody, and aiohttp's HTTPRequestEntityTooLarge.
    """
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            raw = await request.read()
    except TimeoutError as error:
        raise SlowBody("the body did not arrive in time") from error
    try:
        value = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest({"body": ["Expected a JSON object in UTF-8"]}) from error
    if not isinstance(value, dict):
        raise BadRequest({"body": ["Expected a JSON object"]})
    return Fields(value)


def query_fields(request: web.Request) -> Fields:
    """Give the query's fields; a name given twice is a fault, not a choice."""
    fields = Fields(dict(request.query))
    for name in set(request.query):
        if len(request.query.getall(name)) > 1:
            fields.fault(name, "Given more than once")
    return fields


def path_id(request: web.Request, name: str = "id") -> str:
    """Give a room's or session's id out of the path. Raises: BadRequest."""
    fields = Fields(dict(request.match_info))
    value = fields.id(name)
    fields.check()
    return value


def path_turn_id(request: web.Request) -> str:
    """Give a turn's id out of the path. Raises: BadRequest."""
    fields = Fields(dict(request.match_info))
    value = fields.turn_id("turnId")
    fields.check()
    return value or ""


def chosen_turn_id(request: web.Request, fields: Fields) -> str | None:
    """Give the caller's key for the turn: the `Idempotency-Key` header, else `turnId` in the body."""
    in_body = fields.turn_id("turnId")
    return idempotency_key(request, fields) or in_body


def idempotency_key(request: web.Request, fields: Fields) -> str | None:
    """Give the `Idempotency-Key` header; one that is no turn id becomes a fault of `fields`."""
    header = request.headers.get("Idempotency-Key")
    if header is not None and not _TURN_ID.fullmatch(header):
        fields.fault("Idempotency-Key", f"Expected 1 to {MAX_TURN_ID_CHARS} printable ASCII characters without spaces")
        return None
    return header


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a new turn needs from outside: an id and the time in UTC milliseconds."""

    id: str
    at: int


def asked(caller: Caller, session_id: str, text: str, stamp: Stamp, *, user_id: str | None = None) -> Turn:
    """Give the turn of a question."""
    return Turn(stamp.id, caller.session(session_id), caller.named(user_id), text, stamp.at)


def commanded(caller: Caller, session_id: str, code: str, stamp: Stamp, *, user_id: str | None = None) -> Turn:
    """Give the turn of a person's own command."""
    return Turn(stamp.id, caller.session(session_id), caller.named(user_id), code, stamp.at, TurnKind.RUN)


def resetting(caller: Caller, session_id: str, stamp: Stamp) -> Turn:
    """Give the turn that clears a room: transcript and sandbox."""
    return Turn(stamp.id, caller.session(session_id), caller.author, "", stamp.at, TurnKind.RESET)


def pressed(caller: Caller, session_id: str, target: str, verdict: Verdict, stamp: Stamp) -> Turn:
    """Give the turn of a button: `target` is a ticket, or the turn to try again."""
    return Turn(
        stamp.id,
        caller.session(session_id),
        caller.author,
        "",
        stamp.at,
        TurnKind.PRESS,
        target=target,
        verdict=verdict,
    )
