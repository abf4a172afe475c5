"""Interactions that were acknowledged here: what became of each acknowledgement, and how long its token lives.

Kept in memory only: an interaction from before a restart counts as acknowledged, for its turn was heard first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """`ok` says that Discord took the acknowledgement; `original` is the id of the message that it made, 0 unknown."""

    ok: bool = True
    original: int = 0


class Tokens:
    """Hold back what answers an interaction until it is acknowledged."""

    def __init__(self, *, now_ms: Callable[[], int], keep: int = 10_000) -> None:
        self._now_ms = now_ms
        self._keep = keep
        self._acknowledged: OrderedDict[str, asyncio.Future[Acknowledged]] = OrderedDict()

    def expect(self, interaction: str) -> None:
        """Note that an acknowledgement is under way."""
        self._acknowledged[interaction] = asyncio.get_running_loop().create_future()
        while len(self._acknowledged) > self._keep:
            self._acknowledged.popitem(last=False)

    def note(self, interaction: str, acknowledged: Acknowledged) -> None:
        """Note what became of it."""
        future = self._acknowledged.get(interaction)
        if future is None or future.done():
            future = self._acknowledged[interaction] = asyncio.get_running_loop().create_future()
        future.set_result(acknowledged)

    async def acknowledged(self, interaction: str) -> Acknowledged:
        """Wait until the interaction is acknowledged, or give the default where nothing is known of it."""
        future = self._acknowledged.get(interaction)
        return await asyncio.shield(future) if future else Acknowledged()

    def is_alive(self, reply_to: Mapping[str, str]) -> bool:
        """Tell whether the interaction's token can still be used to answer."""
        return bool(reply_to.get("token")) and self._now_ms() < int(reply_to.get("expires") or 0)

    def remaining_s(self, reply_to: Mapping[str, str]) -> float:
        """Give how many seconds the token can still be used."""
        return max(0.0, (int(reply_to.get("expires") or 0) - self._now_ms()) / 1000)
