"""One SQLite connection in one thread: transactions, the write lock between processes, and who is alive.

Several processes share the file. Each write and its checkpoint is wrapped in `flock` on `write.lock`: SQLite before
3.51.3 can damage a WAL that two connections reset at once (https://sqlite.org/wal.html#walresetbug). Each process
holds `flock` on `alive/<owner>` for life, so that "is the owner dead?" needs no heartbeat and no clock.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar, cast

from sqlite_utils import Database as SqliteUtils

from bot.drivers.schema import migrations
from bot.errors import BadInput, StoreUnavailable

T = TypeVar("T")

LOCK_WAIT_S = 10.0
OTHERS_EVERY_S = 0.05
WRITES_A_COMMIT = 64


class _Write:
    """A write that waits for its turn, and what came of it."""

    def __init__(self, work: Callable[[sqlite3.Connection], object]) -> None:
        self._work = work
        self._result: object = None
        self._error: BaseException | None = None
        self._has_changed = False
        self.is_over = False

    def run(self, conn: sqlite3.Connection) -> None:
        """Run inside a savepoint: a fault undoes this write alone and is kept for who asked."""
        before = conn.total_changes
        conn.execute("SAVEPOINT one")
        try:
            self._result = self._work(conn)
        except Exception as error:  # noqa: BLE001 - kept, and raised again where the write was asked for
            conn.execute("ROLLBACK TO one")
            self._error = error
        conn.execute("RELEASE one")
        self._has_changed = conn.total_changes > before

    def end(self, error: BaseException | None = None) -> None:
        """Note that the commit came, or why it did not."""
        self._error = error or self._error
        self.is_over = True

    def outcome(self) -> tuple[object, bool]:
        """Give the result, and whether a row was changed. Raises: what the write raised."""
        if isinstance(self._error, sqlite3.Error):
            raise _unusable(self._error) from self._error
        if self._error is not None:
            raise self._error
        return self._result, self._has_changed


class Database:
    """The file, its thread and its locks. Whatever `write` and `read` are given runs in the one thread."""

    def __init__(self, home: Path | None, *, owner: str | None = None) -> None:
        """Prepare; nothing is opened before `open`. `home=None` keeps everything in memory, for tests."""
        self.home = home
        self.owner = owner or f"{os.getpid()}-{secrets.token_hex(4)}"
        self.tick = 0
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._writes: deque[_Write] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="duet-store")
        self._locks: list[IO[bytes]] = []
        self._write_lock: IO[bytes] | None = None
        self._alive: IO[bytes] | None = None
        self._db: SqliteUtils | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Open the file, bring its tables up to date, say that this process is alive.

        Raises: BadInput when the file is damaged or was made by a newer version; StoreUnavailable when it is locked.
        """
        try:
            await self._in_thread(self._open)
        except BaseException:
            await self.close()
            raise
        if self.home is not None:
            self._watch = asyncio.create_task(self._watch_others(), name="duet-store-watch")

    def _open(self) -> None:
        try:
            if self.home is not None:
                self._move_in(self.home)
            conn = sqlite3.connect(
                str(self.path or ":memory:"), timeout=5, isolation_level=None, check_same_thread=False
            )
            conn.row_factory = sqlite3.Row
            self._db = SqliteUtils(conn)
            with self._locked():
                conn.execute("PRAGMA journal_mode=wal")
                conn.execute("PRAGMA synchronous=full")
                conn.execute("PRAGMA journal_size_limit=16777216")
            self._check(conn)
            with self._locked():
                self._migrate(self._db)
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            raise BadInput(
                f"The data folder {self.home} cannot be used ({reason}). Set DUET_HOME to a folder you can write to."
            ) from error
        except sqlite3.OperationalError as error:
            raise _unusable(error, name=f"The database {self.path}") from error
        except sqlite3.DatabaseError as error:
            raise BadInput(
                f"The database {self.path} is damaged ({error}). Move it away, or put a backup in its place."
            ) from error

    def _move_in(self, home: Path) -> None:
        """Make the data folder, readable by its owner only; say in it that this process lives, and sweep the dead."""
        for folder in (home, home / "alive", home / "files"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_lock = open(home / "write.lock", "ab")  # noqa: SIM115 - held for life
        with self._locked():  # a file that is made and not locked yet looks like a dead process's
            for path in (home / "alive").iterdir():
                if not is_locked(path):
                    path.unlink(missing_ok=True)
            self._alive = open(home / "alive" / self.owner, "ab")  # noqa: SIM115 - held for life
            fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _migrate(self, db: SqliteUtils) -> None:
        """Bring the tables up to date. Raises: BadInput when a newer version made them."""
        known = {migration.name for migration in migrations.pending(SqliteUtils(memory=True))}
        if any(applied.name not in known for applied in migrations.applied(db)):
            raise BadInput(
                f"The database {self.path} was made by a newer version of Duet: use that one, or another DUET_HOME."
            )
        if migrations.pending(db):
            migrations.apply(db)

    def _check(self, conn: sqlite3.Connection) -> None:
        """Raise DatabaseError when the file is damaged. Outside the lock: a big file takes seconds."""
        if (found := conn.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(found.splitlines()[-1])

    @property
    def path(self) -> Path | None:
        return self.home / "duet.db" if self.home else None

    async def write(self, work: Callable[[sqlite3.Connection], T], *, is_news: bool = True) -> T:
        """Run `work` as one transaction and commit; what it raises rolls back. Raises: StoreUnavailable.

        Writes that wait at the same time share a commit, which is what costs: each stands or falls by itself, and none
        is answered before the commit. `is_news=False` wakes nobody here: for what only the turn itself goes on from.
        """
        job = _Write(work)
        self._writes.append(job)
        # Shielded: whoever is cancelled meanwhile must find what it asked for done or not done, never done later.
        await asyncio.shield(self._in_thread(lambda: self._commit_until(job)))
        result, has_changed = job.outcome()
        if has_changed and is_news:
            self._announce()
        return cast(T, result)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` without a transaction of its own."""
        return await self._in_thread(lambda: work(self._conn))

    async def wait_for_change(self, tick: int, *, timeout_s: float) -> int:
        """Wait until something was committed after `tick`, by this process or another; give the tick of now."""
        if self.tick == tick:
            # Not `wait_for`: before Python 3.12 it can swallow a cancellation that comes with the change.
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
        return self.tick

    def _announce(self) -> None:
        self.tick += 1
        was, self._changed = self._changed, asyncio.Event()
        was.set()

    async def _watch_others(self) -> None:
        """Announce what other processes commit: `data_version` changes for their commits only."""
        seen = await self._data_version()
        while True:
            await asyncio.sleep(OTHERS_EVERY_S)
            with suppress(StoreUnavailable):
                version = await self._data_version()
                if version != seen:
                    seen = version
                    self._announce()

    async def _data_version(self) -> int:
        return int(await self.read(lambda c: c.execute("PRAGMA data_version").fetchone()[0]))

    def is_alive(self, owner: str | None) -> bool:
        """Tell whether the process that called itself `owner` still runs."""
        if owner is None:
            return False
        if owner == self.owner:
            return True
        return self.home is not None and is_locked(self.home / "alive" / owner)

    def hold(self, name: str) -> bool:
        """Take the lock `name` for as long as this database is open; False when another process has it."""
        if self.home is None:
            return True
        lock = open(self.home / name, "ab")  # noqa: SIM115 - held for life
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._locks.append(lock)
        return True

    async def close(self) -> None:
        """Close the file; what this process still owns counts as a dead owner's from now on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        await self._in_thread(self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if self._db is not None:
            with self._locked():
                self._db.close()
        for lock in (*self._locks, self._write_lock, self._alive):
            if lock is not None:
                lock.close()
        if self.home is not None and self._alive is not None:
            (self.home / "alive" / self.owner).unlink(missing_ok=True)

    def _commit_until(self, job: _Write) -> None:
        """Commit what waits until this write is over; the call of an earlier one may have done it already.

        Whose call it is does not matter: each write keeps its own outcome, and one round need not reach this one.
        """
        while not job.is_over:
            self._commit([self._writes.popleft() for _ in range(min(len(self._writes), WRITES_A_COMMIT))])

    def _commit(self, jobs: list[_Write]) -> None:
        try:
            with self._locked():
                conn = self._conn
                conn.execute("BEGIN IMMEDIATE")
                try:
                    for job in jobs:
                        job.run(conn)
                    conn.execute("COMMIT")
                except BaseException:
                    if conn.in_transaction:
                        conn.execute("ROLLBACK")
                    raise
        except Exception as error:  # noqa: BLE001 - nothing was committed: none of them may think so
            for job in jobs:
                job.end(error)
        else:
            for job in jobs:
                job.end()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the write lock between processes, waiting for it up to `LOCK_WAIT_S`."""
        lock = self._write_lock
        if lock is None:
            yield
            return
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreUnavailable(
                        f"Another process has held {lock.name} for {LOCK_WAIT_S:.0f} s. Try again, or end that process."
                    ) from None
                time.sleep(0.001)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreUnavailable("The database is not open.")
        return self._db.conn

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            job = self._thread.submit(work)
        except RuntimeError as error:
            raise StoreUnavailable("The database is closed.") from error
        try:
            return await asyncio.wrap_future(job)
        except sqlite3.Error as error:
            raise _unusable(error) from error


def _unusable(error: sqlite3.Error, *, name: str = "The database") -> StoreUnavailable:
    """Give the fault as the front is to hear it: what is wrong, and what a person can do."""
    mends = {
        "SQLITE_BUSY": " Another program holds it: try again in a moment.",
        "SQLITE_FULL": " Make room on its disk.",
        "SQLITE_IOERR": " See whether its disk is full or failing.",
        "SQLITE_CANTOPEN": " Let Duet write to its data folder (DUET_HOME), and see whether its disk is full.",
        "SQLITE_READONLY": " Let Duet write to its data folder (DUET_HOME).",
    }
    code = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    return StoreUnavailable(f"{name} cannot be used now: {error}.{mends.get(code, '')}")


def is_locked(path: Path) -> bool:
    """Tell whether some process holds `flock` on the file; a missing file is held by nobody."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
