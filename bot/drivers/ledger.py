"""Which container is whose: the rows that the sandbox keeps of every room, and the verbs it needs of the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from bot.conversation import RoomKey


class SandboxState(StrEnum):
    """NONE: there is no container; LIVE: running, as far as was seen; STOPPED: its files lie in the snapshot."""

    NONE = "none"
    LIVE = "live"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SandboxRow:
    """What is known of a room's sandbox. Times are UTC milliseconds.

    `dirty` means that the workspace may differ from the snapshot. Generations up to `doomed_through` are void; those
    up to `destroyed_through` are known to be gone from the engine as well (−1: none).
    """

    room: RoomKey
    generation: int = 0
    host: str = ""
    container_id: str = ""
    snapshot: bool = False
    dirty: bool = False
    state: SandboxState = SandboxState.NONE
    last_used_at: int = 0
    doomed_through: int = -1
    destroyed_through: int = -1

    @property
    def is_doomed(self) -> bool:
        """There may still be containers of a voided generation."""
        return self.doomed_through > self.destroyed_through


class Ledger(Protocol):
    """The `sandboxes` table: one row a room, shared by every process of one data folder.

    Each verb is one transaction. `put` inserts or replaces the row, but never lowers `doomed_through` or
    `destroyed_through` (it keeps the larger of the stored and the given): a put that raced with a reset must not undo
    it. `doom` raises those two alone and makes the row where there is none.
    """

    async def sandbox(self, room: RoomKey) -> SandboxRow | None: ...
    async def put_sandbox(self, row: SandboxRow) -> None: ...
    async def doom_sandbox(self, room: RoomKey, *, through: int, destroyed: bool) -> None: ...
    async def sandboxes(self) -> list[SandboxRow]: ...


class MemoryLedger:
    """A ledger that keeps the contract and forgets everything with the process: for tests and one-off commands."""

    def __init__(self) -> None:
        self._rows: dict[RoomKey, SandboxRow] = {}

    async def sandbox(self, room: RoomKey) -> SandboxRow | None:
        return self._rows.get(room)

    async def put_sandbox(self, row: SandboxRow) -> None:
        old = self._rows.get(row.room, row)
        self._rows[row.room] = replace(
            row,
            doomed_through=max(old.doomed_through, row.doomed_through),
            destroyed_through=max(old.destroyed_through, row.destroyed_through),
        )

    async def doom_sandbox(self, room: RoomKey, *, through: int, destroyed: bool) -> None:
        old = self._rows.get(room, SandboxRow(room))
        self._rows[room] = replace(
            old,
            doomed_through=max(old.doomed_through, through),
            destroyed_through=max(old.destroyed_through, through if destroyed else -1),
        )

    async def sandboxes(self) -> list[SandboxRow]:
        return list(self._rows.values())
