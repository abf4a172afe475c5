"""What `duet doctor` says about the data folder and the database in it; reads only, and makes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from bot.checks import Check, Health

LEAST_FREE_BYTES = 200_000_000
MOST_WAL_BYTES = 64_000_000


def database_checks(home: Path) -> list[Check]:
    """Give the state of the folder, its disk and the database."""
    folder = _folder(home)
    if folder.verdict is Health.FAIL:
        return [folder]
    return [folder, _disk(home), *_database(home / "duet.db")]


def _folder(home: Path) -> Check:
    nearest = next(place for place in (home, *home.parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        mend = "Set DUET_HOME to a folder you can write to."
        return Check("data folder", Health.FAIL, f"{home} cannot be written", mend)
    seen = str(home) if nearest == home else f"{home} is made at first use"
    return Check("data folder", Health.OK, seen)


def _disk(home: Path) -> Check:
    nearest = next(place for place in (home, *home.parents) if place.exists())
    free = shutil.disk_usage(nearest).free
    if free < LEAST_FREE_BYTES:
        mend = "Free some space: what cannot be stored is not answered."
        return Check("disk", Health.WARN, f"{free / 1e6:.0f} MB free", mend)
    return Check("disk", Health.OK, f"{free / 1e9:.1f} GB free")


def _database(path: Path) -> list[Check]:
    version = f"SQLite {sqlite3.sqlite_version}"
    if not path.exists():
        return [Check("database", Health.OK, f"{path.name} is made at first use; {version}")]
    try:
        conn = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            found = conn.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            conn.close()
    except sqlite3.OperationalError as error:
        return [Check("database", Health.FAIL, f"{path}: {error}", "Close what holds the file, or check its rights.")]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        mend = "Move the file away, or put a backup in its place."
        return [Check("database", Health.FAIL, f"{path} is damaged: {found}", mend)]
    return [Check("database", Health.OK, f"{path.stat().st_size / 1e6:.1f} MB, whole; {version}"), *_wal(path)]


def _wal(path: Path) -> list[Check]:
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size < MOST_WAL_BYTES:
        return []
    mend = "Another program holds a read transaction on it (a backup, a browser); end that."
    return [Check("database log", Health.WARN, f"{wal.name} has {size / 1e6:.0f} MB", mend)]
