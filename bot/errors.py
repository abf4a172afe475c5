"""Everything that can go wrong, as one tree, and the one place that catches it.

DuetError
├── BadInput                 the person or the settings must change something; exit code 2
│   ├── SettingsError        every faulty setting at once
│   └── CodexUnreadable      the folder of standards is missing, empty or unreadable
├── StoreError
│   ├── StoreUnavailable     what could not be stored is not acknowledged
│   └── Superseded           a reset, a stop or another owner made this write void
├── ModelError               `.room_text` is safe to show; `.partial` holds what had come
│   ├── ModelUnreachable     refused, DNS, TLS, cut before the first token
│   ├── ModelTimeout         one of the clocks ran out
│   ├── ModelBusy            429, 503, 529; `.retry_after_s`
│   ├── ModelQuota           the allowance is used up: retrying is pointless
│   ├── ModelRefused         key, address, model name or request not accepted
│   ├── ContextTooLong       the prompt does not fit; trim and ask once more
│   └── ModelGarbled         not a reply: HTML, half JSON, an end without a finish
├── SandboxUnavailable       no engine, no image; `.mend` says how to get them
└── OutletError
    ├── OutletUnavailable    try again later; `.retry_after_s`
    └── OutletRefused        trying again is pointless; `.room_is_gone` ends the room
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from bot.ports import Profile

log = logging.getLogger(__name__)

T = TypeVar("T")


class DuetError(Exception):
    """Root of every fault that this program raises on purpose."""


class BadInput(DuetError):
    """What was given cannot be used; the message says what to do."""


class SettingsError(BadInput):
    """One or more settings are wrong. `faults` holds a sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class CodexUnreadable(BadInput):
    """The folder of standards cannot be read, or holds no document."""


class StoreError(DuetError):
    """The database did not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be written or read now (locked, full, damaged)."""


class Superseded(StoreError):
    """The write was fenced off: a reset, a stop or another owner came first."""


class ModelError(DuetError):
    """The language model gave no complete reply.

    `room_text` is one sentence that may be shown to the room: no key, no account id, no HTML, no JSON.
    `partial` is the visible text that had come before the fault.
    """

    def __init__(self, room_text: str, *, detail: str = "", partial: str = "") -> None:
        super().__init__(detail or room_text)
        self.room_text = room_text
        self.partial = partial


class ModelUnreachable(ModelError):
    """No connection, or one that was cut."""


class ModelTimeout(ModelError):
    """Connect, first token, silence or the whole turn took too long."""


class ModelBusy(ModelError):
    """The endpoint asks to come back later."""

    def __init__(
        self, room_text: str, *, retry_after_s: float | None = None, detail: str = "", partial: str = ""
    ) -> None:
        super().__init__(room_text, detail=detail, partial=partial)
        self.retry_after_s = retry_after_s


class ModelQuota(ModelError):
    """The allowance is used up."""


class ModelRefused(ModelError):
    """The endpoint does not accept the key, the model or the request."""


class ContextTooLong(ModelError):
    """The prompt does not suit the model that is to answer: build it again and ask once more.

    `build_for` is the profile to build for where it is another model's; `context_tokens` is the limit that the
    endpoint named, if it did.
    """

    def __init__(
        self,
        room_text: str,
        *,
        build_for: Profile | None = None,
        context_tokens: int | None = None,
        detail: str = "",
        partial: str = "",
    ) -> None:
        super().__init__(room_text, detail=detail, partial=partial)
        self.build_for = build_for
        self.context_tokens = context_tokens


class ModelGarbled(ModelError):
    """What came back is not a complete reply."""


class SandboxUnavailable(DuetError):
    """Commands cannot be run now. `mend` says what a person can do about it."""

    def __init__(self, reason: str, *, mend: str = "") -> None:
        super().__init__(f"{reason} {mend}".strip())
        self.reason = reason
        self.mend = mend


class OutletError(DuetError):
    """The platform did not take what was to be shown."""


class OutletUnavailable(OutletError):
    """It may work later, not before `retry_after_s` seconds if given."""

    def __init__(self, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class OutletRefused(OutletError):
    """It will not work however often it is tried.

    `room_is_gone` says that the channel or thread itself has ended, which ends the room or session as by a reset.
    """

    def __init__(self, reason: str, *, room_is_gone: bool = False) -> None:
        super().__init__(reason)
        self.room_is_gone = room_is_gone


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault that was caught: `id` stands in the log, `text` may be shown to the room."""

    id: str
    where: str
    text: str
    error: Exception


async def attempt(work: Awaitable[T], *, where: str) -> T | Incident:
    """Await `work`; give its result, or the incident that any fault became.

    The one catch-all of the program, for turns and for loops. `CancelledError` and `Superseded` pass: the one is
    a request, the other an outcome that the caller must see.
    """
    try:
        return await work
    except (asyncio.CancelledError, Superseded):
        raise
    except Exception as error:  # the boundary that keeps one turn's fault from being everyone's
        incident = Incident(secrets.token_hex(3), where, room_text(error), error)
        expected = isinstance(error, DuetError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "Failed while %s: %s (incident %s)",
            where,
            error,
            incident.id,
            exc_info=None if expected else error,
            extra={"action": "incident"},
        )
        return incident


def room_text(error: Exception) -> str:
    """Give one sentence about `error` that is fit for a room."""
    match error:
        case ModelError():
            return error.room_text
        case DuetError():
            return str(error)
        case _:
            return "Something went wrong inside Duet."
