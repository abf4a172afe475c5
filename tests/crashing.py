"""A crash inside a test: a Duet that stops as by `kill -9`, so that another on the same folder goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bot.drivers.store import SqliteStore
from bot.duet import Duet


async def crash(duet: Duet, store: SqliteStore) -> None:
    """Stop everything at once: what the thread had begun is done, nothing else is written, the lock of the living goes.

    Whatever still runs finds a store in which every verb is cancelled.
    """
    database = store.database

    async def gone(work: Callable[[], Any]) -> Any:
        raise asyncio.CancelledError

    database._in_thread = gone
    tasks = {*duet._loops, *duet._lanes._running.values(), *duet._lanes._wrappers, *duet._delivery._posting}
    scenes = duet._answering._scenes.values()
    drafts = {scene.draft._task for scene in scenes if scene.draft is not None and scene.draft._task is not None}
    statuses = {scene.status for scene in scenes if scene.status is not None}
    if database._watch is not None:
        tasks.add(database._watch)
    tasks |= drafts | statuses
    for _ in range(3):  # clean-up that waits for a draft is cancelled as well
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.to_thread(database._thread.shutdown, True, cancel_futures=True)
    if database._db is not None:
        database._db.close()
    for lock in (*database._locks, database._write_lock, database._alive):
        if lock is not None:
            lock.close()
    database._is_closed = True
