"""Drafts, shown at Discord's pace without holding anybody up: the newest one waits for its second, older ones are gone.

The final text never waits for a draft that was not sent yet, and always comes after one that was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from adapters.pacing import Pacer
from bot.conversation import Part
from bot.errors import Incident, OutletRefused, attempt


class Drafts:
    """One waiting draft for each part."""

    def __init__(self, pacer: Pacer, edit: Callable[[Part], Awaitable[object]]) -> None:
        self._pacer = pacer
        self._edit = edit
        self._newest: dict[str, Part] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: set[str] = set()  # of these nothing more is drafted

    def put(self, part: Part) -> None:
        """Show this draft as soon as its channel may be spoken in, unless a newer one comes before."""
        if part.key in self._refused:
            return
        self._newest[part.key] = part
        if part.key not in self._tasks:
            self._tasks[part.key] = asyncio.create_task(self._send(part), name=f"draft {part.key}")

    async def _send(self, part: Part) -> None:
        try:
            while part.key in self._newest:
                await self._pacer.slot(part.reply_to["channel"])
                if (newest := self._newest.pop(part.key, None)) is not None:
                    done = await attempt(self._edit(newest), where=f"drafting in {part.session}")
                    if isinstance(done, Incident) and isinstance(done.error, OutletRefused):
                        self._refused.add(part.key)
                        self._newest.pop(part.key, None)
        finally:
            self._tasks.pop(part.key, None)

    async def end(self, key: str) -> None:
        """Drop what waits under `key`, and wait for what is under way."""
        self._refused.discard(key)
        is_waiting = self._newest.pop(key, None) is not None
        task = self._tasks.get(key)
        if task is not None:
            if is_waiting:
                task.cancel()
            await asyncio.wait({task})

    async def close(self) -> None:
        """Drop everything."""
        for key in list(self._tasks):
            await self.end(key)
