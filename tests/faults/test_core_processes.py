"""Two processes on one folder: pressing, stopping, resetting across them, and an owner that is only slow."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.conversation import Outcome, SessionKey, Turn, TurnKind, Verdict
from bot.errors import StoreUnavailable
from bot.policy import Policy
from tests.conftest import Build
from tests.fakes import ANN, BOB, ROOM, FakeModel, FakeOutlet, FakeSandbox, turn
from tests.faults.process import Wall

HERE = Path(__file__).parent.parent.parent


async def start(home: Path, **what: Any) -> asyncio.subprocess.Process:
    arguments = json.dumps({"home": str(home), **what})
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.process", arguments, cwd=HERE, stderr=asyncio.subprocess.PIPE
    )


async def until(condition: Callable[[], object], *, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def ended(*processes: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(40):
        for process in processes:
            _, said = await process.communicate()
            assert process.returncode == 0, said.decode()


def lines(home: Path, do: str = "") -> list[dict[str, Any]]:
    return [line for line in Wall(home / "wall").lines() if not do or line["do"] == do]


async def test_a_turn_whose_owner_is_only_slow_is_not_taken_over(tmp_path: Path) -> None:
    slow = await start(tmp_path, hear=[("s-0", None, "Which branch?", "ask")], delay_s=0.5)
    await until(lambda: lines(tmp_path, "heard"))
    await asyncio.sleep(0.2)
    slow.send_signal(signal.SIGSTOP)
    other = await start(tmp_path, stay_s=1.5, must_stay=True)
    await asyncio.sleep(1.2)
    assert lines(tmp_path, "post") == []
    slow.send_signal(signal.SIGCONT)
    await ended(slow, other)
    assert len({line["key"] for line in lines(tmp_path, "post")}) == len(lines(tmp_path, "post")) == 1
    with sqlite3.connect(tmp_path / "duet.db") as c:
        assert c.execute("SELECT state, attempts FROM turns").fetchall() == [("answered", 1)]


async def test_a_reset_here_during_each_part_of_a_three_part_answer_there(build: Build, tmp_path: Path) -> None:
    """The other process posts slowly; the reset comes while it posts part 1, 2 and 3."""
    for number in range(3):
        (home := tmp_path / str(number)).mkdir()
        hear = [(f"p-{number}", None, "Which OLD branch?", "ask")]
        other = await start(home, hear=hear, model="OLD words stand here.\n\n" * 480, latency_s=0.15)
        while len([line for line in lines(home) if line["key"] and not line["draft"]]) <= number:
            await asyncio.sleep(0.01)
        outlet = FakeOutlet()
        world = await build(home=home, outlet=outlet)
        cleared = turn("", kind=TurnKind.RESET)
        await world.duet.hear(cleared)
        answer = await world.settled(cleared, timeout_s=15)
        assert not answer.notes
        stood = lines(home)
        await asyncio.sleep(0.5)
        assert lines(home) == stood  # nothing was posted after "cleared"
        shown = [line for line in stood if line["do"] in ("post", "edit") and not line["draft"]]
        posted = [line["key"] for line in shown if line["turn"] != cleared.id]  # either process may say "cleared"
        assert len(set(posted)) == number + 1
        assert [line["key"] for line in stood if line["do"] == "delete"] == posted[-1:]
        assert await world.duet.history(SessionKey(ROOM)) == []
        await ended(other)


async def test_a_stop_here_ends_a_turn_there(build: Build, tmp_path: Path) -> None:
    other = await start(tmp_path, hear=[("x-0", None, "Which branch?", "ask")], delay_s=20.0, stay_s=30)
    await until(lambda: lines(tmp_path, "heard"))
    world = await build(home=tmp_path)
    assert await world.duet.stop(ROOM, "x-0", by=BOB, id="stop-x")
    asked = turn(id="x-0")
    answer = await world.settled(asked, timeout_s=10)
    assert answer.outcome is Outcome.CANCELLED
    assert "Stopped by Bob" in answer.text
    await ended(other)


async def test_two_processes_pressing_one_ticket_run_its_command_once(build: Build, tmp_path: Path) -> None:
    sandbox, outlet = FakeSandbox(), FakeOutlet()
    shared: dict[str, Any] = {
        "home": tmp_path,
        "policy": Policy(commands="ask"),
        "sandbox": sandbox,
        "outlet": outlet,
    }
    one, two = await build(**shared), await build(**shared)
    (asking,) = await one.hear(turn("echo once", kind=TurnKind.RUN))
    assert asking.ticket
    presses = [
        turn("", kind=TurnKind.PRESS, target=asking.ticket.id, verdict=verdict, author=who)
        for who, verdict in ((ANN, Verdict.APPROVE), (BOB, Verdict.APPROVE), (BOB, Verdict.DENY))
    ]
    worlds = (one, two, two)
    await asyncio.gather(*(world.duet.hear(press) for world, press in zip(worlds, presses, strict=True)))
    answers = [await one.settled(press) for press in presses]
    assert len(sandbox.ran) <= 1
    assert sum(answer.outcome is Outcome.ANSWERED for answer in answers) == 1
    assert all("already" in a.text for a in answers if a.outcome is Outcome.REFUSED)


async def test_history_keeps_each_sessions_order_while_many_talk_at_once(build: Build, tmp_path: Path) -> None:
    shared: dict[str, Any] = {"home": tmp_path, "outlet": FakeOutlet()}
    worlds = [await build(**shared, model=FakeModel(lambda call: [0.002, "Named [1]."])) for _ in range(2)]
    sessions = [SessionKey(ROOM, f"t{n}") for n in range(5)]
    asked: dict[SessionKey, list[str]] = {session: [] for session in sessions}
    last: list[Turn] = []
    for number in range(40):
        session = sessions[number % 5]
        said = turn(f"Which branch {number}?", session=session)
        asked[session].append(said.text)
        await worlds[number % 2].duet.hear(said)
        last = [*last[-4:], said]
    for said in last:
        await worlds[0].settled(said, timeout_s=20)
    for session in sessions:
        history = await worlds[1].duet.history(session)
        assert [m.text for m in history if m.role == "user"] == asked[session]
        assert [m.role for m in history] == ["user", "agent"] * len(asked[session])


# The database, full and held.


@pytest.mark.parametrize("pages", [0, 1, 2, 4, 8, 16])
async def test_a_full_database_loses_nothing_silently_and_goes_on_when_there_is_space(
    build: Build, tmp_path: Path, pages: int
) -> None:
    """SQLITE_FULL at another write each time: what was heard is answered once there is space, what was not says so."""
    world = await build(home=tmp_path, model=FakeModel(lambda call: [0.01, "Named `feature/<ticket>-<words>` [1]."]))
    await world.hear(turn())
    conn = world.store.database._conn

    def limit(more: int | None) -> int:
        have = conn.execute("PRAGMA page_count").fetchone()[0]
        wanted = 1_073_741_823 if more is None else have + more
        return int(conn.execute(f"PRAGMA max_page_count={wanted}").fetchone()[0])

    await world.store.database.read(lambda c: limit(pages))
    heard, refused = [], 0
    for number in range(12):
        said = turn(f"Which branch {number}? " + "x" * 3_000)
        try:
            await world.duet.hear(said)
            heard.append(said)
        except StoreUnavailable:
            refused += 1
    await asyncio.sleep(0.2)
    assert refused
    await world.store.database.read(lambda c: limit(None))
    for said in heard:
        assert (await world.settled(said, timeout_s=20)).outcome in (Outcome.ANSWERED, Outcome.FAILED)
    assert (await world.hear(turn()))[0].outcome is Outcome.ANSWERED
    history = [m.text for m in await world.duet.history(SessionKey(ROOM)) if m.role == "user"]
    assert [said.text for said in heard] == history[1:-1]
    assert await world.store.database.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()[0]) == "ok"
    keys = [posted.key for posted in world.outlet.messages.values()]
    assert len(keys) == len(set(keys)) == len(heard) + 2


async def test_a_foreign_writer_is_waited_for_and_one_that_stays_is_said(build: Build, tmp_path: Path) -> None:
    world = await build(home=tmp_path)
    await world.hear(turn())
    foreign = sqlite3.connect(tmp_path / "duet.db", isolation_level=None, check_same_thread=False)
    foreign.execute("BEGIN IMMEDIATE")
    short = turn("Which branch, shortly?")
    hearing = asyncio.create_task(world.duet.hear(short))
    await asyncio.sleep(0.5)
    assert not hearing.done()
    foreign.execute("COMMIT")
    assert await hearing is True
    await world.settled(short)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await world.duet.hear(turn("Which branch, long?"))
    foreign.execute("COMMIT")
    foreign.close()
    (answer,) = await world.hear(turn("Which branch, after?"))
    assert answer.outcome is Outcome.ANSWERED
