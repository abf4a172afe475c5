"""The ledger of the sandbox: which container is whose."""

from __future__ import annotations

import sqlite3
from dataclasses import fields

from bot.conversation import RoomKey
from bot.drivers.database import Database
from bot.drivers.ledger import SandboxRow, SandboxState

_COLUMNS = tuple(field.name for field in fields(SandboxRow))


class SandboxRows:
    """The verbs about sandboxes; each is one transaction. A put never lowers what a reset has doomed."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def sandbox(self, room: RoomKey) -> SandboxRow | None:
        sql = "SELECT * FROM sandboxes WHERE room = ?"
        row = await self._db.read(lambda c: c.execute(sql, (str(room),)).fetchone())
        return _row_of(row) if row else None

    async def sandboxes(self) -> list[SandboxRow]:
        return await self._db.read(lambda c: [_row_of(row) for row in c.execute("SELECT * FROM sandboxes")])

    async def put_sandbox(self, row: SandboxRow) -> None:
        values = [str(row.room), *(getattr(row, name) for name in _COLUMNS[1:])]
        await self._db.write(lambda c: _put(c, values))

    async def doom_sandbox(self, room: RoomKey, *, through: int, destroyed: bool) -> None:
        def work(c: sqlite3.Connection) -> None:
            known = c.execute("SELECT 1 FROM sandboxes WHERE room = ?", (str(room),)).fetchone()
            if known is None:
                fresh = SandboxRow(room)
                _put(c, [str(room), *(getattr(fresh, name) for name in _COLUMNS[1:])])
            c.execute(
                """UPDATE sandboxes SET doomed_through = max(doomed_through, ?),
                   destroyed_through = max(destroyed_through, ?) WHERE room = ?""",
                (through, through if destroyed else -1, str(room)),
            )

        await self._db.write(work)


def _put(c: sqlite3.Connection, values: list[object]) -> None:
    names = ", ".join(_COLUMNS)
    kept = ("doomed_through", "destroyed_through")
    changes = ", ".join(
        f"{name} = max({name}, excluded.{name})" if name in kept else f"{name} = excluded.{name}"
        for name in _COLUMNS[1:]
    )
    marks = ", ".join("?" * len(_COLUMNS))
    c.execute(f"INSERT INTO sandboxes({names}) VALUES({marks}) ON CONFLICT(room) DO UPDATE SET {changes}", values)


def _row_of(row: sqlite3.Row) -> SandboxRow:
    values = {name: row[name] for name in _COLUMNS}
    return SandboxRow(
        **{
            **values,
            "room": RoomKey.parse(values["room"]),
            "state": SandboxState(values["state"]),
            "snapshot": bool(values["snapshot"]),
            "dirty": bool(values["dirty"]),
        }
    )
