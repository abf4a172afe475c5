"""Containers that stand by for rooms to come: started, empty, and claimed by exactly one process.

Each is a file named after the container; claiming is renaming the file, which one process alone can do. So the first
command of a room needs no call on the engine but its own.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from bot.drivers.container import Names
from bot.drivers.containers import Containers, Found
from bot.errors import SandboxUnavailable

CLAIMED = ".claimed"
CLAIM_LASTS_S = 120.0


class Standby:
    """The pool of one installation."""

    def __init__(self, folder: Path, *, names: Names, containers: Containers) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._names = names
        self._containers = containers

    def claim(self) -> str | None:
        """Take a container for a room; give its id, or None when none stands by."""
        for path in sorted(self._folder.iterdir()):
            if path.suffix == CLAIMED:
                continue
            try:
                os.utime(path)  # not touch: it would make the file anew where another process has just claimed it
                path.rename(path.with_suffix(CLAIMED))
            except FileNotFoundError:
                continue  # another process was quicker
            return path.name
        return None

    def settled(self, container_id: str) -> None:
        """Forget a claim: the container bears its room's name now."""
        (self._folder / container_id).with_suffix(CLAIMED).unlink(missing_ok=True)

    def is_mine(self, container_id: str) -> bool:
        """Say whether the container stands by, or was claimed so lately that its room may not be written down yet."""
        claimed = (self._folder / container_id).with_suffix(CLAIMED)
        if claimed.exists() and time.time() - claimed.stat().st_mtime < CLAIM_LASTS_S:
            return True
        return (self._folder / container_id).exists()

    def count(self) -> int:
        return sum(1 for path in self._folder.iterdir() if path.suffix != CLAIMED)

    def drop(self, container_id: str) -> None:
        """Take a container out of the pool without using it."""
        (self._folder / container_id).unlink(missing_ok=True)

    async def fill(self, size: int) -> None:
        """Start containers until `size` stand by; remove those above it. One process at a time does this."""
        while self.count() < size:
            container_id = await self._containers.create(self._names.pooled(secrets.token_hex(6)))
            try:
                (self._folder / container_id).touch(mode=0o600)
            except OSError as error:  # nobody would know of it, and the next round would make another
                await self._containers.remove(container_id)
                raise SandboxUnavailable(f"The data folder cannot be used: {error.strerror}.") from error
        while self.count() > size and (surplus := self.claim()):
            await self._containers.remove(surplus)
            self.settled(surplus)

    def sort_out(self, found: list[Found], *, spec_hash: str) -> list[str]:
        """Compare the files with what runs; give the ids of containers that are to go."""
        here = {one.id for one in found}
        fit = {one.id for one in found if one.running and one.spec_hash == spec_hash}
        for path in list(self._folder.iterdir()):
            if path.suffix == CLAIMED:
                if path.stem not in here or time.time() - path.stat().st_mtime >= CLAIM_LASTS_S:
                    path.unlink(missing_ok=True)
            elif path.name not in fit:
                path.unlink(missing_ok=True)
        pooled = [one for one in found if one.name.lstrip("/").startswith(self._names.pooled(""))]
        return [one.id for one in pooled if not self.is_mine(one.id)]
