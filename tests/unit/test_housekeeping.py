"""What is kept for a time only: the prompt log."""

import asyncio

import pytest

from bot.conversation import SessionKey
from bot.drivers import step_rows
from bot.housekeeping import DAY_MS, Housekeeping
from tests.conftest import Build
from tests.fakes import ROOM, FakeModel, turn

QUESTION = "What is our branch naming convention?"


async def nothing(*_: object) -> None:
    """Stands for the sandboxes' upkeep."""


@pytest.mark.parametrize(
    ("keep_days", "kept"), [(30, ["and hotfix branches?"]), (0, [QUESTION, "and hotfix branches?"])]
)
async def test_the_prompt_log_keeps_nothing_for_ever(build: Build, monkeypatch, keep_days: int, kept: list[str]):
    monkeypatch.setattr(step_rows, "FORGOTTEN_AT_ONCE", 1)
    at = 1_000 * DAY_MS
    world = await build(clock=lambda: at)
    await world.hear(turn(QUESTION))
    at += 31 * DAY_MS
    await world.hear(turn("and hotfix branches?"))

    looked = asyncio.Event()

    async def sweep(_: int) -> None:
        looked.set()

    house = Housekeeping(world.store, sweep=sweep, reconcile=nothing, now=lambda: at, keep_days=keep_days)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(house.run())
        await looked.wait()
        keeping.cancel()
    session = SessionKey(ROOM)
    assert [call.question for call in await world.duet.prompt_log(session)] == kept
    assert [m.text for m in await world.duet.history(session) if m.role == "user"] == [QUESTION, "and hotfix branches?"]


async def test_an_open_turns_calls_are_kept_however_old(build: Build):
    world = await build(model=FakeModel(lambda call: ["Branches are", 30.0]))
    asked = turn(QUESTION)
    await world.duet.hear(asked)
    await world.until(lambda: world.model.calls)
    assert await world.store.forget_calls(2**62) == 0
    assert len(await world.duet.prompt_log(SessionKey(ROOM))) == 1
