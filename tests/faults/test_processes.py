"""Several processes on one database, and processes that are killed: nothing lost, nothing twice, order kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.process import Wall

HERE = Path(__file__).parent.parent.parent


async def start(home: Path, **what: Any) -> asyncio.subprocess.Process:
    arguments = json.dumps({"home": str(home), **what})
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.process", arguments, cwd=HERE, stderr=asyncio.subprocess.PIPE
    )


async def ended(*processes: asyncio.subprocess.Process, timeout_s: float = 60.0) -> None:
    """Wait for processes; whatever one said on its error stream is shown when a test fails."""
    async with asyncio.timeout(timeout_s):
        for process in processes:
            _, said = await process.communicate()
            assert process.returncode in (0, -signal.SIGKILL), said.decode()


async def killed(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that is to kill itself: one that ended otherwise never came to the point."""
    await ended(process)
    assert process.returncode == -signal.SIGKILL


def asks(name: str, count: int, *, text: str = "Which branch?") -> list[tuple[str, None, str, str]]:
    return [(f"{name}-{n}", None, f"{text} {name}-{n}", "ask") for n in range(count)]


def rows(home: Path, sql: str) -> list[Any]:
    with sqlite3.connect(home / "duet.db") as c:
        return c.execute(sql).fetchall()


def standing(home: Path) -> dict[str, str]:
    """Give what stands on the wall at the end, by key."""
    texts: dict[str, str] = {}
    for line in Wall(home / "wall").lines():
        if line["do"] in ("post", "edit"):
            texts[line["key"]] = line["text"]
        elif line["do"] == "delete":
            texts.pop(line["key"], None)
    return texts


def posts(home: Path) -> list[str]:
    return [line["key"] for line in Wall(home / "wall").lines() if line["do"] == "post"]


async def test_three_processes_ask_twenty_each_in_one_room_and_one_is_killed(tmp_path: Path) -> None:
    one, two, three = await asyncio.gather(
        *(start(tmp_path, hear=asks(name, 20), pause_s=0.005, delay_s=0.01) for name in ("a", "b", "c"))
    )
    while len([line for line in Wall(tmp_path / "wall").lines() if line["do"] == "post"]) < 8:
        await asyncio.sleep(0.01)
    two.kill()
    await ended(one, two, three)
    states = dict(rows(tmp_path, "SELECT state, count(*) FROM turns GROUP BY state"))
    assert set(states) == {"answered"}
    assert states["answered"] >= 40
    answered = rows(tmp_path, "SELECT t.message_id, o.key FROM turns t JOIN outbox o ON o.turn = t.seq ORDER BY t.seq")
    assert posts(tmp_path) == [key for _, key in answered]  # each once, in order of arrival
    said = rows(tmp_path, "SELECT turn, role, count(*) FROM messages GROUP BY turn, role HAVING count(*) <> 1")
    assert said == []


async def test_a_reset_in_its_own_process_while_two_answer(tmp_path: Path) -> None:
    for round_ in range(3):
        many = [
            (f"{round_}-{name}-{n}", name, "Which OLD branch?", "ask") for n, name in itertools.product(range(6), "xy")
        ]
        workers = [
            await start(tmp_path, hear=many[half::2], model="OLD " * 50, delay_s=0.05, latency_s=0.01)
            for half in (0, 1)
        ]
        while not [
            line for line in Wall(tmp_path / "wall").lines() if f"{round_}-" in line["turn"] and line["do"] == "post"
        ]:
            await asyncio.sleep(0.01)
        if round_ == 2:
            workers[0].kill()
        resetter = await start(tmp_path, hear=[(f"reset-{round_}", None, "", "reset")])
        await ended(resetter, *workers)
        lines = Wall(tmp_path / "wall").lines()
        cleared = next(
            i for i, line in enumerate(lines) if line["turn"] == f"reset-{round_}" and "cleared" in line["text"]
        )
        heard_before = {line["turn"] for line in lines[:cleared] if line["do"] == "heard"}
        reset_at = rows(tmp_path, f"SELECT seq FROM turns WHERE message_id = 'reset-{round_}'")[0][0]
        old = {row[0] for row in rows(tmp_path, f"SELECT message_id FROM turns WHERE seq < {reset_at}")}
        late = [line for line in lines[cleared:] if line["turn"] in old and "OLD" in line["text"]]
        assert heard_before
        assert late == []


POINTS = [
    *("before claim", "after claim", "after begin", "before record_call", "after record_call"),
    *("before model", "in model", "after model", "before complete_call", "after complete_call"),
    *("before draft", "after draft", "before settle", "after settle", "after next_part"),
    *("before post", "after post", "before posted", "after posted"),
]


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_any_point_every_turn_is_answered_once(tmp_path: Path, point: str) -> None:
    hear = asks("k", 4)
    # A session drafts nothing while an earlier answer is on its way: of its first turn a draft is sure.
    await killed(await start(tmp_path, hear=hear, die_at=point, die_after=1 if "draft" in point else 2))
    # What was not acknowledged is delivered again by the platform; what was, must not need it.
    await ended(await start(tmp_path, hear=hear))
    assert dict(rows(tmp_path, "SELECT state, count(*) FROM turns GROUP BY state")) == {"answered": 4}
    assert len(posts(tmp_path)) == len(set(posts(tmp_path))) == 4
    assert all("Named" in text for text in standing(tmp_path).values())
    for table in ("messages WHERE role = 'user'", "messages WHERE role = 'agent'", "calls WHERE state = 'complete'"):
        assert rows(tmp_path, f"SELECT count(*) FROM {table}") == [(4,)]
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("point", ["before command", "after command", "before end_command", "after end_command"])
async def test_a_commands_effect_happens_at_most_once_and_is_said(tmp_path: Path, point: str) -> None:
    hear = [("c-0", None, "run this on the branch", "ask")]
    await killed(await start(tmp_path, hear=hear, model="Now. <run>echo effect</run>", die_at=point))
    await ended(await start(tmp_path, hear=hear, model="Now. <run>echo effect</run>"))
    effects = [line for line in Wall(tmp_path / "wall").lines() if line["do"] == "effect"]
    assert len(effects) == (0 if point == "before command" else 1)
    (text,) = standing(tmp_path).values()
    if point != "after end_command":
        assert "interrupted" in text
    assert "Done with it." in text
    assert dict(rows(tmp_path, "SELECT state, count(*) FROM turns GROUP BY state")) == {"answered": 1}
    assert rows(tmp_path, "SELECT step, state FROM calls ORDER BY step") == [(0, "complete"), (1, "complete")]


async def test_a_reset_that_was_cut_off_is_finished_by_the_next_process(tmp_path: Path) -> None:
    await ended(await start(tmp_path, hear=asks("r", 2)))
    for point in ("after raise_generation", "before forget", "after forget"):
        hear = [(f"reset {point}", None, "", "reset")]
        await killed(await start(tmp_path, hear=hear, die_at=point))
        await ended(await start(tmp_path))
        (state,) = rows(tmp_path, f"SELECT state FROM turns WHERE message_id = 'reset {point}'")
        assert state == ("answered",)
    assert rows(tmp_path, "SELECT count(*) FROM messages") == [(0,)]
    assert rows(tmp_path, "SELECT generation FROM rooms") == [(3,)]
