"""The store: every verb about turns, steps, the outbox and resets, over one database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bot.drivers.database import Database
from bot.drivers.outbox_rows import OutboxRows
from bot.drivers.reset_rows import ResetRows
from bot.drivers.step_rows import StepRows
from bot.drivers.turn_rows import TurnRows


class SqliteStore(TurnRows, StepRows, OutboxRows, ResetRows):
    """One process's door to the file that all of them share. Each verb is one transaction."""

    def __init__(self, home: Path | None, *, now: Callable[[], int], owner: str | None = None) -> None:
        database = Database(home, owner=owner)
        TurnRows.__init__(self, database, now)
        StepRows.__init__(self, database, now)
        OutboxRows.__init__(self, database, now)
        ResetRows.__init__(self, database, now)
        self.database = database

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    async def version(self) -> int:
        """Give a number that changes when another process has written."""
        return await self.database.data_version()

    def hold(self, name: str) -> bool:
        """Take a lock of the whole program; False when another process has it."""
        return self.database.hold(name)
