"""From a room to its running container and back: made ready, emptied after a command, saved, removed.

Everything here but `doom` is done while holding the room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bot.conversation import RoomKey
from bot.drivers.container import Names, SandboxSpec, room_hash
from bot.drivers.containers import Containers
from bot.drivers.engine import Engine, InTheWay, NotThere
from bot.drivers.ledger import Ledger, SandboxRow, SandboxState
from bot.drivers.snapshots import RoomLocks, Snapshots
from bot.drivers.standby import Standby
from bot.errors import SandboxUnavailable

log = logging.getLogger(__name__)

RESTARTED = "The sandbox had to be restarted; its files are as they were when it was last idle."
STOPPED_OUTSIDE = "The sandbox was stopped from outside; its files are as they were when it was last idle."


class Voided(Exception):
    """The room was reset: this generation has no sandbox any more."""


@dataclass(frozen=True, slots=True)
class Known:
    """What this process has seen itself: a container that was clean, on an engine that has not been away since."""

    container_id: str
    epoch: int


class RoomSandboxes:
    """The sandboxes of all rooms of one installation."""

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        engine: Engine,
        folder: Path,
        install_id: str,
        ledger: Ledger,
        clock: Callable[[], int],
    ) -> None:
        self.spec = spec
        self.engine = engine
        self.ledger = ledger
        self.clock = clock
        self.names = Names(install_id)
        self.containers = Containers(engine, spec, install_id=install_id, folder=folder)
        self.snapshots = Snapshots(folder)
        self.locks = RoomLocks(folder)
        self.standby = Standby(folder / "standby", names=self.names, containers=self.containers)
        self._known: dict[RoomKey, Known] = {}
        self._unnamed: set[RoomKey] = set()

    async def row(self, room: RoomKey) -> SandboxRow:
        """Give the room's row; a blank one where there is none."""
        return await self.ledger.sandbox(room) or SandboxRow(room, generation=-1)

    async def open(self, room: RoomKey, generation: int) -> SandboxRow:
        """Give the row of a container that runs, is clean and holds the room's files.

        Raises: SandboxUnavailable, Voided.
        """
        row = await self.row(room)
        if generation <= row.doomed_through or generation < row.generation:
            raise Voided
        if row.is_doomed:
            await self.finish_doom(room)
        if row.generation != generation:
            row = await self._next_generation(row, generation)
        if row.state is SandboxState.LIVE and self._known.get(room) == Known(row.container_id, self.engine.epoch):
            return row
        return await self._made_ready(row)

    async def _next_generation(self, row: SandboxRow, generation: int) -> SandboxRow:
        """Leave an older generation behind, whether or not a reset has said so."""
        if row.generation >= 0 and row.generation > row.destroyed_through:
            await self.doom(row.room, through=row.generation)
            await self.finish_doom(row.room)
        made = SandboxRow(row.room, generation, host=platform.node())
        return replace(made, snapshot=self.snapshots.exists(room_hash(row.room), generation))

    async def _made_ready(self, row: SandboxRow) -> SandboxRow:
        found = await self.containers.find(row.container_id) if row.container_id else None
        if found is None:
            return await self._furnished(row)
        if found.paused:
            await self.containers.unpause(found.id)
        if found.running and row.state is SandboxState.LIVE:
            self._know(row)
            if not await self._emptied(found.id):
                row = await self.restart(row)
            return row
        if not found.running and found.spec_hash != await self.containers.current_hash():
            await self.containers.remove(found.id)
            return await self._furnished(row)
        if not found.running:
            await self.containers.start(found.id)
        return await self._with_files(row)

    async def _furnished(self, row: SandboxRow) -> SandboxRow:
        """Give the row a container: one that stands by, else a new one."""
        digest = room_hash(row.room)
        claimed = self.standby.claim()
        if claimed and not row.container_id and not row.snapshot:
            container_id = claimed  # known to have run when it was set by; if it has not, the first exec finds out
        elif claimed and (found := await self.containers.find(claimed)) and found.running:
            container_id = claimed
        else:
            claimed = None
            container_id = await self.containers.create(self.names.room(digest, row.generation))
        row = replace(
            row, container_id=container_id, state=SandboxState.STOPPED, host=platform.node(), last_used_at=self.clock()
        )
        if claimed:
            self._unnamed.add(row.room)
        return await self._with_files(row)

    async def _with_files(self, row: SandboxRow) -> SandboxRow:
        """Put the snapshot into the (empty) workspace; only then is the sandbox live."""
        digest = room_hash(row.room)
        if self.snapshots.exists(digest, row.generation):
            await self.ledger.put_sandbox(replace(row, state=SandboxState.STOPPED))
            pieces = self.snapshots.pieces(digest, row.generation)
            size = self.snapshots.size_bytes(digest, row.generation)
            try:
                fault = await self.containers.load(row.container_id, pieces, size_bytes=size)
            except (NotThere, InTheWay) as error:
                raise SandboxUnavailable("The sandbox ended while its files were put back.") from error
            if fault:
                log.warning("Snapshot of a sandbox was not put back whole: %s", fault, extra={"action": "load"})
        row = replace(row, state=SandboxState.LIVE)
        await self.ledger.put_sandbox(row)
        if (await self.row(row.room)).doomed_through >= row.generation:
            await self.containers.remove(row.container_id)  # a reset came while it was made
            raise Voided
        self._know(row)
        return row

    async def settle_name(self, row: SandboxRow) -> None:
        """Rename a container that stood by to the room's: put off until after its first command."""
        if row.room in self._unnamed:
            await self.containers.rename(row.container_id, self.names.room(room_hash(row.room), row.generation))
            self.standby.settled(row.container_id)
            self._unnamed.discard(row.room)

    async def empty(self, row: SandboxRow) -> str:
        """End everything that a command left running; give a note for the room, '' when nothing is to be said."""
        try:
            if await self._emptied(row.container_id):
                return ""
            await self.restart(row)
        except (NotThere, InTheWay):
            self.forget(row.room)
            return STOPPED_OUTSIDE
        return RESTARTED

    async def _emptied(self, container_id: str) -> bool:
        return await self.containers.is_empty(container_id) or await self.containers.reap(container_id)

    async def restart(self, row: SandboxRow) -> SandboxRow:
        """Start the container anew, the last resort: the workspace is the snapshot's again."""
        self.forget(row.room)
        row = replace(row, state=SandboxState.STOPPED)
        await self.ledger.put_sandbox(row)
        await self.containers.restart(row.container_id)
        return await self._with_files(row)

    async def used(self, row: SandboxRow) -> None:
        """Note that a command may have changed the workspace just now."""
        latest = await self.row(row.room)
        if latest.container_id == row.container_id:
            await self.ledger.put_sandbox(replace(latest, dirty=True, last_used_at=self.clock()))

    async def save(self, row: SandboxRow) -> bool:
        """Write the workspace to its snapshot; say whether that went well."""
        try:
            writer = self.snapshots.writer(room_hash(row.room), row.generation)
        except OSError as error:
            log.warning("Workspace was not saved: %s", error, extra={"action": "save"})
            return False
        fault = "it did not finish"
        try:
            fault = await self.containers.save(row.container_id, writer.write)
        except (NotThere, InTheWay):
            fault = "the container is gone"
            self.forget(row.room)
        finally:
            fault = writer.end(keep=not fault) or fault
        if fault:
            log.warning("Workspace was not saved: %s", fault, extra={"action": "save"})
        if not fault:
            await self.ledger.put_sandbox(replace(row, dirty=False, snapshot=True))
        if (await self.row(row.room)).doomed_through >= row.generation:
            self.snapshots.drop(room_hash(row.room), through=row.generation)  # a reset came meanwhile
        return not fault

    async def doom(self, room: RoomKey, *, through: int) -> None:
        """Make every generation up to `through` void, for good: remembered, and its snapshots deleted at once."""
        await self.ledger.doom_sandbox(room, through=through, destroyed=False)
        self.snapshots.drop(room_hash(room), through=through)
        self.forget(room)

    async def finish_doom(self, room: RoomKey) -> None:
        """Remove what doomed generations left on the engine. Raises: SandboxUnavailable."""
        row = await self.row(room)
        through = row.doomed_through
        await self.remove_doomed(room, through=through)
        self.snapshots.drop(room_hash(room), through=through)
        if row.generation <= through:
            await self.ledger.put_sandbox(SandboxRow(room, row.generation))
        await self.ledger.doom_sandbox(room, through=through, destroyed=True)

    async def remove_doomed(self, room: RoomKey, *, through: int) -> None:
        """Remove the room's containers of every generation up to `through`, whether or not they are in use."""
        row = await self.row(room)
        digest = room_hash(room)
        for found in await self.containers.all():
            whose = self.names.parse(found.name)
            ours = whose is not None and whose[0] == digest and whose[1] <= through
            # Its name may still be the pool's: then only the row says whose it is.
            if ours or (found.id == row.container_id and row.generation <= through):
                await self.containers.remove(found.id)

    def _know(self, row: SandboxRow) -> None:
        self._known[row.room] = Known(row.container_id, self.engine.epoch)

    def forget(self, room: RoomKey) -> None:
        """Look at the room's container anew before it is used again."""
        with contextlib.suppress(KeyError):
            del self._known[room]


async def finished(task: asyncio.Task[object]) -> None:
    """Wait for `task` however often the waiter is cancelled meanwhile; then pass the cancelling on."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
