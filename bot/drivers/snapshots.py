"""Workspaces at rest: opaque tar files below the data folder, never unpacked on this side."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bot.errors import SandboxUnavailable

LOCK_RETRY_S = 0.02
WRITING = ".writing-"
WRITING_LASTS_S = 300.0  # since its last byte; no save may take so long


class Snapshots:
    """The folder of snapshots: one file a room and generation, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, digest: str, generation: int) -> Path:
        return self._folder / f"{digest}-g{generation}.tar"

    def exists(self, digest: str, generation: int) -> bool:
        return self.path(digest, generation).is_file()

    def size_bytes(self, digest: str, generation: int) -> int:
        return self.path(digest, generation).stat().st_size

    def pieces(self, digest: str, generation: int, *, chunk_bytes: int = 65_536) -> Iterator[bytes]:
        """Give the bytes of a snapshot."""
        with self.path(digest, generation).open("rb") as file:
            while piece := file.read(chunk_bytes):
                yield piece

    def writer(self, digest: str, generation: int) -> SnapshotWriter:
        """Begin a snapshot. Raises: OSError when there is no room for it."""
        return SnapshotWriter(self.path(digest, generation))

    def drop_unfinished(self) -> None:
        """Delete what processes that were killed while writing have left."""
        for path in self._folder.glob(f"{WRITING}*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= WRITING_LASTS_S:
                    path.unlink()

    def drop(self, digest: str, *, through: int) -> None:
        """Delete the snapshots of a room up to a generation."""
        for path in self._folder.glob(f"{digest}-g*.tar"):
            if _generation(path) <= through:
                path.unlink(missing_ok=True)

    def all(self) -> list[tuple[str, int]]:
        """Give (room hash, generation) of every snapshot there is."""
        return [(path.name.split("-", 1)[0], _generation(path)) for path in self._folder.glob("*-g*.tar")]


class SnapshotWriter:
    """A snapshot being written; `end` puts it in the place of the old one, or leaves the old one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fault = ""
        fd, name = tempfile.mkstemp(prefix=WRITING, dir=path.parent)
        self._file = os.fdopen(fd, "wb")
        self._written = Path(name)

    def write(self, stream: int, data: bytes) -> None:
        """Take a piece; after a fault of the disk the rest is let go by, so that its writer comes to its end."""
        if stream != 1 or self._fault:  # standard error is no part of the tar
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._fault = error.strerror or str(error)

    def end(self, *, keep: bool) -> str:
        """Close it, and put it in its place if it is to be kept; give why it could not be written, '' if it could."""
        try:
            self._file.close()
            if keep and not self._fault:
                self._written.replace(self._path)
        except OSError as error:
            self._fault = self._fault or error.strerror or str(error)
        finally:
            self._written.unlink(missing_ok=True)
        return self._fault


def _generation(path: Path) -> int:
    return int(path.stem.rsplit("-g", 1)[1])


class RoomLocks:
    """One holder a room, in order of asking, across tasks and across the processes that share the data folder.

    A lock file's lock ends with its process, however that ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turns: dict[str, asyncio.Lock] = {}

    async def hold(self, digest: str) -> RoomHold:
        """Wait for the room and take it."""
        turn = self._turns.setdefault(digest, asyncio.Lock())
        await turn.acquire()
        try:
            while (fd := self._locked_file(digest)) is None:  # noqa: ASYNC110 - the other holder is a process
                await asyncio.sleep(LOCK_RETRY_S)
        except BaseException:
            turn.release()
            raise
        return RoomHold(turn, fd)

    async def try_hold(self, digest: str) -> RoomHold | None:
        """Take the room, or give None where somebody has it."""
        turn = self._turns.setdefault(digest, asyncio.Lock())
        if turn.locked():
            return None
        await turn.acquire()  # free: taken without a switch to another task
        if (fd := self._locked_file(digest)) is None:
            turn.release()
            return None
        return RoomHold(turn, fd)

    def _locked_file(self, digest: str) -> int | None:
        try:
            fd = os.open(self._folder / f"{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SandboxUnavailable(
                f"The data folder cannot be used: {error.strerror}.", mend="Make room in the data folder, or mend it."
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        return fd


class RoomHold:
    """The right to work on a room, until released; releasing twice does nothing."""

    def __init__(self, turn: asyncio.Lock, fd: int) -> None:
        self._turn = turn
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._turn.release()
