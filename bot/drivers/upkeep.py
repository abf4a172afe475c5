"""What keeps sandboxes in order over time: idle ones saved and stopped, orphans removed, a few standing by."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from bot.conversation import RoomKey
from bot.drivers.container import room_hash
from bot.drivers.containers import Found
from bot.drivers.ledger import SandboxRow, SandboxState
from bot.drivers.room_sandboxes import RoomSandboxes
from bot.errors import SandboxUnavailable, attempt

log = logging.getLogger(__name__)

CLOSE_LIMIT_S = 10.0


class Upkeep:
    """For the one process that keeps house; rooms in use are passed over and come next time.

    Nothing here raises because the engine is away: the next round does what this one could not.
    """

    def __init__(self, rooms: RoomSandboxes) -> None:
        self._rooms = rooms
        self._round = asyncio.Lock()
        self._unsaved: dict[RoomKey, int] = {}
        self._seen_probes: set[str] = set()

    async def sweep(self, now: int) -> None:
        """Do what is due at `now` (UTC milliseconds): resets to finish, saving, stopping, removing, filling up."""
        async with self._round:
            try:
                for row in await self._rooms.ledger.sandboxes():
                    await attempt(self._kept(row, now), where="keeping a sandbox")
                await self._rooms.standby.fill(self._rooms.spec.pool)
            except SandboxUnavailable as error:
                log.debug("Sandboxes were not swept: %s", error)

    async def _kept(self, row: SandboxRow, now: int) -> None:
        hold = await self._rooms.locks.try_hold(room_hash(row.room))
        if hold is None:
            return
        try:
            row = await self._rooms.row(row.room)
            if row.is_doomed:
                await self._rooms.finish_doom(row.room)
            elif row.state is not SandboxState.NONE or row.snapshot:
                await self._aged(row, (now - row.last_used_at) / 1000)
        except SandboxUnavailable as error:
            log.debug("A sandbox was not kept: %s", error)
        finally:
            hold.release()

    async def _aged(self, row: SandboxRow, idle_s: float) -> None:
        spec = self._rooms.spec
        if idle_s >= spec.remove_after_s:
            # Not the generation's end: the same room may run again, from nothing.
            await self._forgotten(row)
        elif idle_s >= spec.stop_after_s and row.state is SandboxState.LIVE:
            await self._stopped(row)
        elif idle_s >= spec.snapshot_after_s and row.state is SandboxState.LIVE and row.dirty:
            await self._saved(row)

    async def _saved(self, row: SandboxRow) -> bool:
        if self._unsaved.get(row.room) == row.last_used_at:
            return False  # what could not be saved is tried once a command
        if await self._rooms.save(row):
            self._unsaved.pop(row.room, None)
            return True
        self._unsaved[row.room] = row.last_used_at
        return False

    async def _forgotten(self, row: SandboxRow) -> None:
        if row.container_id:
            await self._rooms.containers.remove(row.container_id)
        self._rooms.forget(row.room)
        self._rooms.snapshots.drop(room_hash(row.room), through=row.generation)
        await self._rooms.ledger.put_sandbox(SandboxRow(row.room, row.generation))

    async def _stopped(self, row: SandboxRow) -> None:
        if row.dirty and not await self._saved(row):
            return  # files are worth more than the memory; a day idle ends it all the same
        row = await self._rooms.row(row.room)
        self._rooms.forget(row.room)
        await self._rooms.ledger.put_sandbox(replace(row, state=SandboxState.STOPPED))
        await self._rooms.containers.stop(row.container_id)

    async def reconcile(self) -> None:
        """Bring rows, containers and snapshots together: at start and each hour.

        Live rooms are taken over, orphans of a killed process go, and containers of another data folder are not even
        listed.
        """
        async with self._round:
            try:
                found = await self._rooms.containers.all()
                rows = await self._rooms.ledger.sandboxes()
                by_hash = {room_hash(row.room): row.room for row in rows}
                for row in rows:
                    await attempt(self._matched(row.room, {one.id: one for one in found}), where="taking over a room")
                await self._without_orphans(found, by_hash, taken={row.container_id for row in rows})
                current = await self._rooms.containers.current_hash()
                for container_id in self._rooms.standby.sort_out(found, spec_hash=current):
                    if container_id not in {row.container_id for row in await self._rooms.ledger.sandboxes()}:
                        await self._rooms.containers.remove(container_id)
                await self._without_old_probes(found)
                await self._without_stray_snapshots(by_hash)
                self._rooms.snapshots.drop_unfinished()
            except SandboxUnavailable as error:
                log.warning("Sandboxes were not reconciled: %s", error, extra={"action": "reconcile"})

    async def _matched(self, room: RoomKey, found: dict[str, Found]) -> None:
        """Make the row say what is: its container may have ended or gone, and its name may be the pool's still."""
        hold = await self._rooms.locks.try_hold(room_hash(room))
        if hold is None:
            return  # in use, so somebody knows better
        try:
            row = await self._rooms.row(room)
            if not row.container_id or row.is_doomed:
                return
            one = found.get(row.container_id) or await self._rooms.containers.find(row.container_id)
            if one is None:
                await self._rooms.ledger.put_sandbox(
                    replace(row, container_id="", state=SandboxState.NONE, dirty=False)
                )
                return
            if not one.running and row.state is SandboxState.LIVE:
                await self._rooms.ledger.put_sandbox(replace(row, state=SandboxState.STOPPED, dirty=False))
            elif one.running and row.state is SandboxState.LIVE:
                # A process that was killed may not have written down its last command.
                await self._rooms.ledger.put_sandbox(replace(row, dirty=True))
            name = self._rooms.names.room(room_hash(room), row.generation)
            if one.name.lstrip("/") != name:
                await self._rooms.containers.rename(one.id, name)
        finally:
            hold.release()

    async def _without_orphans(self, found: list[Found], rooms: dict[str, RoomKey], *, taken: set[str]) -> None:
        for one in found:
            whose = self._rooms.names.parse(one.name)
            if whose is None or one.id in taken:
                continue
            hold = await self._rooms.locks.try_hold(whose[0])
            if hold is None:
                continue  # it may be in the making
            try:
                room = rooms.get(whose[0])
                row = await self._rooms.row(room) if room else None
                if row is None or row.container_id != one.id:
                    await self._rooms.containers.remove(one.id)
            finally:
                hold.release()

    async def _without_old_probes(self, found: list[Found]) -> None:
        """Remove what a killed doctor left: a probe that was there an hour ago as well."""
        probes = {one.id for one in found if one.name.lstrip("/").startswith(self._rooms.names.probes)}
        for container_id in probes & self._seen_probes:
            await self._rooms.containers.remove(container_id)
        self._seen_probes = probes

    async def _without_stray_snapshots(self, rooms: dict[str, RoomKey]) -> None:
        for digest, generation in self._rooms.snapshots.all():
            room = rooms.get(digest)
            row = await self._rooms.row(room) if room else None
            if row is None or generation < row.generation or generation <= row.doomed_through:
                self._rooms.snapshots.drop(digest, through=generation)

    async def close(self) -> None:
        """Save every dirty workspace that nobody works on, within ten seconds."""
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                for row in await self._rooms.ledger.sandboxes():
                    if row.dirty and row.state is SandboxState.LIVE:
                        await attempt(self._saved_at_last(row), where="saving a workspace")
        except TimeoutError:
            log.warning("Not every workspace was saved before the end", extra={"action": "close"})

    async def _saved_at_last(self, row: SandboxRow) -> None:
        hold = await self._rooms.locks.try_hold(room_hash(row.room))
        if hold is None:
            return
        try:
            row = await self._rooms.row(row.room)
            if row.dirty and row.state is SandboxState.LIVE:
                await self._rooms.save(row)
        finally:
            hold.release()
