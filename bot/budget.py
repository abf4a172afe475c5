"""Daily caps on tokens, and what tokens cost. A day is a UTC day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from bot.records import Used


@dataclass(frozen=True, slots=True)
class Caps:
    """The most tokens a day for one person, one room and all together; 0 is no limit."""

    user_tokens: int = 0
    room_tokens: int = 0
    tokens: int = 0

    @property
    def are_set(self) -> bool:
        return bool(self.user_tokens or self.room_tokens or self.tokens)


def day_of(at_ms: int) -> str:
    """Give the UTC day of a time in milliseconds, as the store's `used` takes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def overdrawn(caps: Caps, *, user: Used, room: Used, everyone: Used) -> str | None:
    """Give the polite sentence that refuses a question for today; None while every cap has room left."""
    for limit, used, whose in (
        (caps.user_tokens, user.tokens, "Your"),
        (caps.room_tokens, room.tokens, "This channel's"),
        (caps.tokens, everyone.tokens, "The team's"),
    ):
        if limit and used >= limit:
            return (
                f"{whose} allowance of {limit:,} tokens for today is used up; it is renewed at midnight UTC. "
                "`run` and searching the standards still work."
            )
    return None


def cost(tokens: int, *, price_of_a_million: float) -> float:
    """Give what the tokens cost, in the currency of the price."""
    return tokens * price_of_a_million / 1_000_000
