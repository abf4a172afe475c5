"""One turn while it is worked on: what was said and run so far, and how it is shown meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bot.conversation import (
    Answer,
    Author,
    CommandResult,
    Drafted,
    Event,
    Message,
    Outcome,
    Surroundings,
    Ticket,
    TurnKind,
)
from bot.delivery import Draft
from bot.ports import Outlet, Profile, Store
from bot.records import OpenTurn
from bot.redaction import Redactor
from bot.rendering import part_key

NAME = "Duet"
# A reply comes in many small pieces; what can be seen of it is worked out this often.
SHOWN_EVERY_S = 0.03


@dataclass(slots=True)
class Scene:
    """What a turn has come to. `prose` holds the steps that are complete, `writing` the reply that is coming.

    `profile` is that of the model which answered last, of several perhaps. `is_told` says that the platform shows the
    answer already, in an earlier message that was edited.
    """

    turn: OpenTurn
    author: Author
    outlet: Outlet | None
    draft: Draft | None
    redact: Redactor
    emit: Callable[[OpenTurn, Event], None]
    status: asyncio.Task[None] | None = None
    surroundings: Surroundings | None = None
    prose: list[str] = field(default_factory=list)
    writing: Callable[[], str] | None = None
    results: list[CommandResult] = field(default_factory=list)
    running: CommandResult | None = None
    said: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model: str = ""
    profile: Profile | None = None
    tokens: int = 0
    is_told: bool = False
    started: float = field(default_factory=time.monotonic)
    _shown_at: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    @property
    def text(self) -> str:
        writing = self.redact.draft(self.writing()) if self.writing else ""
        return "\n\n".join(part for part in (*self.prose, writing) if part.strip())

    @property
    def question(self) -> str:
        given = self.surroundings.text if self.surroundings else None
        return given if given is not None else self.turn.asking.turn.text

    @property
    def is_run(self) -> bool:
        """A person's own command, or the approval of one."""
        return self.turn.asking.turn.kind is TurnKind.RUN

    @property
    def asker(self) -> str:
        """The name of who asked, which is not who pressed a button."""
        return self.turn.asking.turn.author.name if self.turn.parent else self.author.name

    def files(self) -> tuple[tuple[str, str], ...]:
        """Give the names and texts of the files that came with the turn."""
        found = self.surroundings.files if self.surroundings else ()
        return tuple((name, self.redact(text)) for name, text in found)

    def show(self) -> None:
        """Show how far it is, now or in a moment if it was shown just before."""
        if self._timer is not None:
            return
        wait_s = self._shown_at + SHOWN_EVERY_S - time.monotonic()
        if wait_s > 0:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._show_now)
        else:
            self._show_now()

    def _show_now(self) -> None:
        self._timer, self._shown_at = None, time.monotonic()
        text = self.text
        running = (self.running,) if self.running else ()
        if self.draft is not None and (text or self.results or running):
            commands = (*self.results, *running)
            self.draft.update(Answer(self.turn.turn.id, text, Outcome.DRAFT, commands=commands, model=self.model))
        if text:
            self.emit(self.turn, Drafted(text))

    async def finish(self) -> None:
        """Show no draft and no status after this; it may be called again where it was cut off."""
        if self._timer is not None:
            self._timer.cancel()
        if self.draft is not None:
            await self.draft.finish()
        if self.status is not None and self.outlet is not None:
            await asyncio.wait({self.status})
            await self.outlet.status(self.turn.turn, None)
            self.status = None

    def made(self, text: str, *, covered: bool | None, ticket: Ticket | None = None) -> Answer:
        """Give the answer that this has come to."""
        return Answer(
            turn=self.turn.turn.id,
            text=self.redact(text),
            kind=self.turn.asking.turn.kind,
            covered=covered,
            commands=tuple(self.results),
            ticket=ticket,
            notes=tuple(dict.fromkeys(self.notes)),
            model=self.model,
            total_ms=int((time.monotonic() - self.started) * 1000),
        )

    def refused(self, why_not: str) -> Answer:
        """Give the answer that says why not."""
        kind = self.turn.asking.turn.kind
        return Answer(self.turn.turn.id, why_not, Outcome.REFUSED, kind, notes=tuple(self.notes))


def opened(
    turn: OpenTurn,
    *,
    store: Store,
    outlets: Mapping[str, Outlet],
    redact: Redactor,
    emit: Callable[[OpenTurn, Event], None],
) -> Scene:
    """Give the scene of a turn that was just taken up."""
    outlet = outlets.get(turn.turn.room.platform)
    draft = Draft(store, outlet, turn, key=part_key(turn, 0)) if outlet else None
    return Scene(turn, turn.turn.author, outlet, draft, redact, emit)
