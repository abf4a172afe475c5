"""The sweep: what expires, and the sandboxes' upkeep; done by one process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.errors import attempt
from bot.ports import Store

EVERY_S = 1.0
RECONCILE_EVERY_S = 3600.0
DAY_MS = 86_400_000
LOCK = "housekeeper.lock"


class Housekeeping:
    """The loop that keeps house if no other process does."""

    def __init__(
        self,
        store: Store,
        *,
        sweep: Callable[[int], Awaitable[None]],
        reconcile: Callable[[], Awaitable[None]],
        now: Callable[[], int],
        every_s: float = EVERY_S,
        keep_days: int = 0,
    ) -> None:
        self._store = store
        self._sweep = sweep
        self._reconcile = reconcile
        self._now = now
        self._every_s = every_s
        self._keep_days = keep_days

    async def run(self) -> None:
        """Keep house for ever, or wait until the process that does is gone."""
        while not self._store.hold(LOCK):  # noqa: ASYNC110 - another process's lock announces nothing
            await asyncio.sleep(self._every_s)
        reconciled_at: int | None = None
        while True:
            if reconciled_at is None or self._now() - reconciled_at >= RECONCILE_EVERY_S * 1000:
                await attempt(self._reconcile(), where="comparing containers with rooms")
                await attempt(self._store.sweep_files(), where="removing the files of parts that are over")
                await attempt(self._forget(), where="removing what the prompt log holds too long")
                reconciled_at = self._now()
            await attempt(self._store.expire_tickets(), where="closing tickets whose time is over")
            await attempt(self._sweep(self._now()), where="keeping the sandboxes")
            await asyncio.sleep(self._every_s)

    async def _forget(self) -> None:
        """Remove model calls that are older than they are to be kept; 0 days keep them for ever."""
        before = self._now() - self._keep_days * DAY_MS
        while self._keep_days and await self._store.forget_calls(before):
            pass
