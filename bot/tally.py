"""What this process counted since it started: names with slashes, as Prometheus wants them told.

Counters of the process, not of the database: they only ever grow, cost nothing to read, and begin anew with it, which
is what a counter's reader expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable

from bot.conversation import CommandEnded, Event, Settled, Turn
from bot.errors import ModelError
from bot.ports import ChatModel, Finished, ModelCall, Piece, Profile


class Tally:
    """Counts turns, duplicates, commands, tokens and faults. `now` gives UTC milliseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Give every count by name: `turns/slack/answered`, `tokens/prompt`, `model_errors/ModelBusy`, …"""
        return dict(self._counts)

    def note_heard(self, turn: Turn, *, is_new: bool) -> None:
        """Count a delivery."""
        self._counts[f"{'heard' if is_new else 'duplicates'}/{turn.room.platform}"] += 1

    def note_event(self, turn: Turn, event: Event) -> None:
        """Count what happened in a turn."""
        match event:
            case CommandEnded(result):
                self._counts[f"commands/{result.ended.value}"] += 1
            case Settled(answer):
                self._counts[f"turns/{turn.room.platform}/{answer.outcome.value}"] += 1
                self._counts["settled_turns"] += 1
                self._counts["settled_ms"] += max(0, self._now() - turn.at)

    def note_finished(self, finished: Finished) -> None:
        """Count the tokens of a complete reply, and the faults of the models that were to give it."""
        self._counts["tokens/prompt"] += finished.usage.prompt_tokens
        self._counts["tokens/reply"] += finished.usage.reply_tokens
        for kind in finished.faults:
            self._counts[f"model_errors/{kind}"] += 1

    def note_model_error(self, error: ModelError) -> None:
        self._counts[f"model_errors/{type(error).__name__}"] += 1


class CountedModel:
    """A chat model whose tokens and faults are counted; in all else the model itself."""

    def __init__(self, model: ChatModel, tally: Tally) -> None:
        self._model = model
        self._tally = tally

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def profile(self) -> Profile:
        return self._model.profile

    async def stream(self, call: ModelCall) -> AsyncIterator[Piece]:
        """Give the reply in pieces; the last is `Finished`. Raises: the ModelError family only."""
        try:
            async for piece in self._model.stream(call):
                if isinstance(piece, Finished):
                    self._tally.note_finished(piece)
                yield piece
        except ModelError as error:
            self._tally.note_model_error(error)
            raise
