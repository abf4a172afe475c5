"""A Duet that dies at a chosen moment, in one process: what stands on the platform and in the rows afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.conversation import Outcome, Part, TurnKind
from bot.errors import OutletUnavailable
from tests.conftest import Build
from tests.crashing import crash
from tests.fakes import ROOM, FakeModel, FakeOutlet, turn


async def test_a_draft_that_a_dead_process_posted_is_not_posted_again(build: Build, tmp_path: Path) -> None:
    outlet = FakeOutlet()
    first = await build(home=tmp_path, outlet=outlet, model=FakeModel(lambda call: ["Branches", 30.0]))

    async def never(key: str, ref: str) -> None:
        await asyncio.sleep(30)

    first.store.note_ref = never
    asked = turn()
    await first.duet.hear(asked)
    await first.until(lambda: outlet.messages)
    await crash(first.duet, first.store)
    pieces = ["Branches ", 0.1, "are named ", 0.1, "`feature/<ticket>-<words>` [1]."]
    second = await build(home=tmp_path, outlet=outlet, model=FakeModel(lambda call: pieces))
    assert (await second.settled(asked)).outcome is Outcome.ANSWERED
    (text,) = outlet.texts
    assert "feature" in text


async def test_a_reset_that_died_between_taking_back_a_draft_and_ending_its_turn_goes_on(
    build: Build, tmp_path: Path
) -> None:
    outlet = FakeOutlet()
    first = await build(home=tmp_path, outlet=outlet, model=FakeModel(lambda call: ["Branches are OLD", 30.0]))
    is_taken_back = asyncio.Event()
    inner = first.store.end_part

    async def then_die(key: str, **more: Any) -> None:
        await inner(key, **more)
        is_taken_back.set()
        await asyncio.sleep(30)

    first.store.end_part = then_die
    asked, cleared = turn(), turn("", kind=TurnKind.RESET)
    await first.duet.hear(asked)
    await first.until(lambda: outlet.messages)
    await first.duet.hear(cleared)
    await is_taken_back.wait()
    await crash(first.duet, first.store)
    second = await build(home=tmp_path, outlet=outlet)
    assert (await second.settled(asked)).outcome is Outcome.CANCELLED
    assert "cleared" in (await second.settled(cleared)).text
    assert not (await second.settled(cleared)).notes
    assert len(outlet.messages) == 2
    assert (await second.hear(turn()))[0].outcome is Outcome.ANSWERED


async def test_a_three_part_answer_that_failed_after_its_first_part_is_finished_with_the_other_two(
    build: Build, tmp_path: Path
) -> None:
    outlet = FakeOutlet(part_chars=60)
    first = await build(home=tmp_path, outlet=outlet, model=FakeModel(lambda call: "Branches are named so [1]. " * 5))
    inner = outlet.show

    async def once(part: Part, *, draft: bool) -> str:
        if not draft and part.ordinal:
            raise OutletUnavailable("502", retry_after_s=30.0)
        return await inner(part, draft=draft)

    outlet.show = once
    asked = turn()
    await first.duet.hear(asked)
    while await first.duet.answer(ROOM, asked.id) is None or not outlet.messages:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    await crash(first.duet, first.store)
    outlet.show = inner
    await asyncio.sleep(0.01)
    later = await build(home=tmp_path, outlet=outlet, clock=lambda: first.clock() + 60_000)
    await later.settled(asked)
    keys = [posted.key for posted in outlet.messages.values()]
    assert len(keys) == len(set(keys)) >= 3
    assert [key.rsplit("-")[-1] for key in keys] == [str(n) for n in range(len(keys))]


@pytest.mark.parametrize("at", [0.0, 0.01, 0.03, 0.06, 0.1])
async def test_a_stop_that_meets_a_crash_ends_the_turn_all_the_same(build: Build, tmp_path: Path, at: float) -> None:
    outlet = FakeOutlet()
    first = await build(home=tmp_path, outlet=outlet, model=FakeModel(lambda call: ["Branches", 30.0]))
    asked = turn()
    await first.duet.hear(asked)
    await first.until(lambda: outlet.messages)
    await first.duet.stop(ROOM, asked.id, by=asked.author, id="stop-9")
    await asyncio.sleep(at)
    await crash(first.duet, first.store)
    second = await build(home=tmp_path, outlet=outlet)
    assert (await second.settled(asked)).outcome is Outcome.CANCELLED
    assert len(outlet.messages) == 1
    assert "Stopped by Ann" in outlet.texts[0]
