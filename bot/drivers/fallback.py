"""Several models in order: when one is down or out of quota the next answers, and a dead one is not asked every time.

Each model has a circuit: a failure opens it, so that the next turns go straight to the next model; after a while one
call is let through to see, and only its success closes the circuit again. `Finished.model` says who answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol, cast

from bot.checks import Check, Health
from bot.errors import ContextTooLong, ModelBusy, ModelError, ModelQuota, ModelRefused
from bot.ports import ChatModel, Finished, ModelCall, Piece, Profile
from bot.prompt import estimated_tokens

log = logging.getLogger(__name__)

OFFLINE = "offline"
FIRST_REST_S = 15.0
LONGEST_REST_S = 300.0
QUOTA_REST_S = 3_600.0  # allowances are renewed by the day; nobody knows whose


class Checked(Protocol):
    """A model that can say how it is."""

    async def checks(self) -> list[Check]: ...


@dataclass(slots=True)
class Circuit:
    """Whether a model may be asked now. Times are of a clock that never goes back."""

    now: Callable[[], float]
    failures: int = 0
    opens_at: float = 0.0
    is_probing: bool = False
    why: str = ""

    @property
    def is_ready(self) -> bool:
        return self.failures == 0 or (not self.is_probing and self.now() >= self.opens_at)

    def begin(self) -> None:
        self.is_probing = self.failures > 0

    def succeed(self) -> None:
        self.failures, self.is_probing, self.why = 0, False, ""

    def give_up(self) -> None:
        """The call ended without telling anything about the model."""
        self.is_probing = False

    def fail(self, error: ModelError) -> None:
        self.failures += 1
        self.is_probing = False
        self.why = error.room_text
        self.opens_at = self.now() + self._rest_s(error)

    def _rest_s(self, error: ModelError) -> float:
        if isinstance(error, (ModelQuota, ModelRefused)):
            return QUOTA_REST_S if isinstance(error, ModelQuota) else LONGEST_REST_S
        rest = min(FIRST_REST_S * 2.0 ** (self.failures - 1), LONGEST_REST_S)
        asked = error.retry_after_s if isinstance(error, ModelBusy) else None
        return max(rest, asked or 0.0)


class Fallback:
    """A ChatModel made of several. Its name and profile are those of the one that would be asked now."""

    def __init__(self, models: Sequence[ChatModel], *, now: Callable[[], float] = time.monotonic) -> None:
        self._models = tuple(models)
        self._circuits = tuple(Circuit(now) for _ in models)

    @property
    def name(self) -> str:
        return self._next().name

    @property
    def profile(self) -> Profile:
        return self._next().profile

    def _next(self) -> ChatModel:
        ready = (m for m, circuit in zip(self._models, self._circuits, strict=True) if circuit.is_ready)
        return next(ready, self._models[0])

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece, None]:
        """Give the reply of the first model that can. Raises: ContextTooLong with the profile to build for again where
        the prompt does not suit the next one; the last fault when none can; any fault once text was shown."""
        faults: list[ModelError] = []
        for model, circuit in zip(self._models, self._circuits, strict=True):
            if not circuit.is_ready:
                continue
            if not _suits(call, model.profile):
                raise ContextTooLong("The next model needs another prompt.", build_for=model.profile)
            circuit.begin()
            try:
                async with aclosing(cast("AsyncGenerator[Piece, None]", model.stream(call))) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Finished):
                            circuit.succeed()
                            note = " ".join(filter(None, (piece.note, self._who(model))))
                            piece = replace(piece, note=note, faults=tuple(type(fault).__name__ for fault in faults))
                        yield piece
                return
            except ContextTooLong:
                circuit.succeed()
                raise
            except ModelError as error:
                circuit.fail(error)
                log.warning(
                    "Model %s failed, the next one is asked: %s", model.name, error, extra={"action": "fallback"}
                )
                faults.append(error)
                if error.partial:
                    raise
            finally:
                circuit.give_up()
        if faults:
            raise faults[-1]
        raise ModelBusy(self._all_are_down(), retry_after_s=self._opens_in_s())

    def _who(self, model: ChatModel) -> str:
        """Say who answered in whose place; the answerer without a model says so itself."""
        first = self._models[0]
        if model is first or model.name == OFFLINE:
            return ""
        return f"Answered by {model.name}, because {first.name} does not answer just now."

    def _all_are_down(self) -> str:
        whys = dict.fromkeys(circuit.why for circuit in self._circuits if circuit.why)
        return " ".join(["No language model can be asked just now.", *whys])

    def _opens_in_s(self) -> float:
        return max(0.0, min(circuit.opens_at - circuit.now() for circuit in self._circuits))

    async def checks(self) -> list[Check]:
        """Give each model's own checks; a fault is only a warning while another model stands behind it."""
        found: list[Check] = []
        for model in self._models:
            checks = await cast(Checked, model).checks()
            found += [Check(f"{c.name}: {model.name}", c.verdict, c.seen, c.mend) for c in checks]
        if any(check.verdict is not Health.FAIL for check in found):
            found = [
                Check(c.name, Health.WARN if c.verdict is Health.FAIL else c.verdict, c.seen, c.mend) for c in found
            ]
        return found


def _suits(call: ModelCall, profile: Profile) -> bool:
    """Tell whether the messages, built for one profile, can be given to a model of another.

    A capable model understands a small one's prompt; not the other way about.
    """
    built_for = call.built_for
    if built_for is None or built_for == profile:
        return True
    if profile.prompts == "split" and built_for.prompts != "split":
        return False
    return estimated_tokens(call.messages) <= profile.context_tokens - profile.max_reply_tokens
