"""The store: every verb about turns, steps, the outbox, resets and sandboxes, over one database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bot.drivers.database import Database
from bot.drivers.outbox_rows import OutboxRows
from bot.drivers.reset_rows import ResetRows
from bot.drivers.sandbox_rows import SandboxRows
from bot.drivers.step_rows import StepRows
from bot.drivers.turn_rows import TurnRows


class SqliteStore(TurnRows, StepRows, OutboxRows, ResetRows, SandboxRows):
    """One process's door to the file that all of them share. Each verb is one transaction."""

    def __init__(self, home: Path | None, *, now: Callable[[], int], owner: str | None = None) -> None:
        database = Database(home, owner=owner)
        TurnRows.__init__(self, database, now)
        StepRows.__init__(self, database, now)
        OutboxRows.__init__(self, database, now)
        ResetRows.__init__(self, database, now)
        SandboxRows.__init__(self, database)
        self.database = database

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    @property
    def tick(self) -> int:
        """A number that changes with every commit, of this process or another."""
        return self.database.tick

    async def wait_for_change(self, tick: int, *, timeout_s: float) -> int:
        """Wait until something was committed after `tick`, at most `timeout_s`; give the tick of now."""
        return await self.database.wait_for_change(tick, timeout_s=timeout_s)

    def hold(self, name: str) -> bool:
        """Take a lock of the whole program; False when another process has it."""
        return self.database.hold(name)
