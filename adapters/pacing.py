"""How often a channel may be spoken in: a slot a message, and a rest where the platform asked for one.

A key is whatever the platform counts by: a channel for posts, a channel for edits. Channels never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from aiolimiter import AsyncLimiter


@dataclass(slots=True)
class _Channel:
    limiter: AsyncLimiter
    free_at: float = 0.0  # loop time when the last slot taken is over
    rest_until: float = 0.0  # loop time before which the platform wants to hear nothing


class Pacer:
    """Give each key its slots: `burst` at once, then one every `period_s`, in the order they were asked for."""

    def __init__(self, *, period_s: float = 1.0, burst: int = 1, keep: int = 1_000) -> None:
        self._period_s = period_s
        self._burst = burst
        self._keep = keep
        self._channels: OrderedDict[str, _Channel] = OrderedDict()

    async def slot(self, key: str) -> None:
        """Wait until something may be sent under `key`, and take that slot."""
        channel = self._channel(key)
        await channel.limiter.acquire()
        # A rest may be asked for while one waits. After it everybody takes a slot anew, or all would go at once.
        while (pause := channel.rest_until - _now()) > 0:
            await asyncio.sleep(pause)
            await channel.limiter.acquire()
        channel.free_at = _now() + self._period_s

    async def try_slot(self, key: str) -> bool:
        """Take a slot if one is free now; for what may as well be left out."""
        channel = self._channel(key)
        if channel.rest_until > _now() or not channel.limiter.has_capacity():
            return False
        await channel.limiter.acquire()
        channel.free_at = _now() + self._period_s
        return True

    async def hold(self, key: str) -> None:
        """Wait until the slot taken last is over, without taking another.

        A drafter that holds after each edit asks for its next text only when that can be shown, so what it then
        shows is fresh: waiting before the edit would always show the text of a second ago.
        """
        channel = self._channel(key)
        await asyncio.sleep(max(channel.free_at, channel.rest_until) - _now())

    def rest(self, key: str, seconds: float) -> None:
        """Keep `key` silent for `seconds`, as the platform asked."""
        channel = self._channel(key)
        channel.rest_until = max(channel.rest_until, _now() + seconds)

    def resting_s(self, key: str) -> float:
        """Give how many seconds of a rest are left; 0 when there is none."""
        channel = self._channels.get(key)
        return max(0.0, channel.rest_until - _now()) if channel else 0.0

    def _channel(self, key: str) -> _Channel:
        channel = self._channels.get(key)
        if channel is None:
            rate = AsyncLimiter(self._burst, self._period_s * self._burst)
            channel = self._channels[key] = _Channel(rate)
        self._channels.move_to_end(key)
        while len(self._channels) > self._keep and self._is_idle(oldest := next(iter(self._channels))):
            del self._channels[oldest]
        return channel

    def _is_idle(self, key: str) -> bool:
        channel = self._channels[key]
        return max(channel.free_at, channel.rest_until) < _now() and channel.limiter.has_capacity(self._burst)


def _now() -> float:
    return asyncio.get_running_loop().time()
