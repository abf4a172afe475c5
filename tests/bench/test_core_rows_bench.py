"""What a database that has grown costs a turn: against a small one in the same run."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bot.conversation import Body, SessionKey
from bot.drivers.store import SqliteStore
from bot.records import NewPart
from tests.fakes import ROOM, turn

SMALL, BIG = 1_000, 1_000_000


def _fill(c: sqlite3.Connection, messages: int) -> None:
    """Put half of the messages into one session and the rest into others, all answered and posted long ago."""
    c.execute("BEGIN")
    c.execute("UPDATE turns SET state = 'answered'")
    c.execute("INSERT INTO rooms(key, created_at, last_active_at) VALUES('fake/T1/C9', 1, 1)")
    sessions = [str(SessionKey(ROOM)), *(f"fake/T1/C9#{n}" for n in range(200))]
    for session in sessions[1:]:
        c.execute("INSERT INTO sessions(key, room, last_active_at) VALUES(?, 'fake/T1/C9', 1)", (session,))
    of = f"iif(n % 2, '{sessions[0]}', 'fake/T1/C9#' || (n % 200))"
    room = f"iif(n % 2, '{ROOM}', 'fake/T1/C9')"
    count = f"WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < {messages // 2})"
    c.execute(
        f"""{count} INSERT INTO turns(platform, space, channel, message_id, kind, room, session, author_json, text,
              files_json, at, generation, room_generation, reply_to_json, state, attempts)
            SELECT 'fake', 'T1', 'C1', 'old' || n, 'ask', {room}, {of}, '{{}}', 'Which branch?', '[]', n, 0, 0, '{{}}',
              'answered', 1 FROM k"""
    )
    for role in ("user", "agent"):
        c.execute(
            f"""INSERT INTO messages(turn, session, role, author, text, at, generation)
                SELECT seq, session, '{role}', 'Ann', 'Every branch is named so.', at, 0 FROM turns
                WHERE message_id LIKE 'old%'"""
        )
    c.execute(
        """INSERT INTO outbox(key, turn, session, platform, ordinal, body_json, generation, room_generation, state)
           SELECT 'k' || seq, seq, session, 'fake', 0, '{}', 0, 0, 'delivered' FROM turns
           WHERE message_id LIKE 'old%'"""
    )
    c.execute("COMMIT")


async def _best_ms(work: Callable[[], Any], *, rounds: int = 7) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        took.append((time.perf_counter() - began) * 1000)
    return min(took)


async def _costs(store: SqliteStore) -> dict[str, float]:
    """Give the least milliseconds of what every turn does, and of what is done every 100 ms though nothing happens."""
    await store.claim(turn())
    asked = await store.begin(("fake",))
    assert asked is not None
    session = SessionKey(ROOM)
    part = NewPart("draft", 0, Body({"text": "x"}))
    return {
        "history": await _best_ms(lambda: store.history(session, before=asked, limit=200)),
        "begin": await _best_ms(lambda: store.begin(("fake",))),
        "next_part": await _best_ms(lambda: store.next_part(("fake",))),
        "know_author": await _best_ms(lambda: store.know_author(asked, asked.turn.author, "Which?")),
        "open_draft": await _best_ms(lambda: store.open_draft(asked, part)),
        "outbox_age": await _best_ms(store.outbox_age_at),
    }


@pytest.mark.slow
async def test_a_million_messages_do_not_slow_a_turn_down(tmp_path: Path) -> None:
    costs = []
    for size in (SMALL, BIG):
        store = SqliteStore(tmp_path / str(size), now=lambda: 10**12)
        await store.open()
        await store.claim(turn())
        await store.database.read(lambda c, size=size: _fill(c, size))
        assert len(await store.history(SessionKey(ROOM), limit=200)) == 200
        costs.append(await _costs(store))
        await store.close()
    small, big = costs
    floor = median(small.values())
    for name in small:
        assert big[name] <= 2 * max(small[name], floor), (name, small[name], big[name])


async def test_nothing_that_is_done_all_the_time_reads_through_what_is_over(tmp_path: Path) -> None:
    """The short form: as many rows as a second can make, and the looks must cost the same as with none."""
    costs = []
    for size in (100, 60_000):
        store = SqliteStore(tmp_path / str(size), now=lambda: 10**12)
        await store.open()
        await store.claim(turn())
        await store.database.read(lambda c, size=size: _fill(c, size))
        costs.append(await _costs(store))
        await store.close()
    small, big = costs
    for name in ("begin", "next_part", "outbox_age", "history"):
        assert big[name] <= 4 * small[name] + 1.0, (name, small[name], big[name])
