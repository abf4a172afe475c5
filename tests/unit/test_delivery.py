"""The outbox: each part posted once, in order, whatever the platform does."""

from __future__ import annotations

import asyncio

from bot.conversation import Outcome, RoomKey, SessionKey
from bot.errors import OutletRefused, OutletUnavailable
from tests.conftest import Build
from tests.fakes import ROOM, FakeModel, FakeOutlet, turn

LONG = "Branch names: " + " ".join(f"word{n}" for n in range(60)) + " [1]."


async def test_parts_go_out_in_order(build: Build) -> None:
    world = await build(outlet=FakeOutlet(part_chars=100), model=FakeModel(lambda call: LONG))
    await world.hear(turn())
    assert len(world.outlet.messages) > 3
    assert [posted.key for posted in world.outlet.messages.values()] == sorted(
        posted.key for posted in world.outlet.messages.values()
    )
    assert "".join(world.outlet.texts).startswith("Branch names: word0")


async def test_a_post_that_was_taken_in_before_the_connection_broke_is_not_posted_again(build: Build) -> None:
    """What a platform's own client would do by itself: send once more."""
    outlet = FakeOutlet(part_chars=100)
    outlet.faults = [("after", OutletUnavailable("connection lost")) for _ in range(6)]
    world = await build(outlet=outlet, model=FakeModel(lambda call: LONG))
    await world.hear(turn())
    keys = [posted.key for posted in outlet.messages.values()]
    assert len(keys) == len(set(keys)) > 3
    assert [kind for kind, _ in outlet.acts].count("post") == len(keys)


async def test_a_post_that_never_arrived_is_made(build: Build) -> None:
    outlet = FakeOutlet()
    outlet.faults = [("before", OutletUnavailable("connection refused")) for _ in range(3)]
    world = await build(outlet=outlet)
    await world.hear(turn())
    assert len(outlet.messages) == 1


async def test_a_busy_room_does_not_hold_up_another(build: Build) -> None:
    outlet = FakeOutlet()
    world = await build(outlet=outlet)
    slow, quick = (SessionKey(RoomKey("fake", "T1", name)) for name in ("slow", "quick"))
    outlet.faults = [("before", OutletUnavailable("429", retry_after_s=2.0))] * 2
    held = turn(session=slow)
    await world.duet.hear(held)
    await world.until(lambda: not outlet.faults)
    free = turn(session=quick)
    await world.duet.hear(free)
    await world.until(lambda: any(posted.session == quick for posted in outlet.messages.values()), timeout_s=1.5)
    assert not any(posted.session == slow for posted in outlet.messages.values())
    await world.settled(held)


async def test_what_the_platform_refuses_for_good_is_given_up_and_the_next_answer_comes(build: Build) -> None:
    outlet = FakeOutlet()
    outlet.faults = [("before", OutletRefused("msg_too_long"))] * 2
    world = await build(outlet=outlet)
    await world.hear(turn(), turn())
    assert len(outlet.messages) == 1


async def test_a_room_that_is_gone_ends_as_by_reset(build: Build) -> None:
    outlet = FakeOutlet()
    outlet.faults = [("before", OutletRefused("channel_not_found", room_is_gone=True))] * 2
    world = await build(outlet=outlet)
    await world.hear(turn())
    await world.until(lambda: outlet.messages == {})
    async with asyncio.timeout(5):
        while await world.duet.history(SessionKey(ROOM)):
            await asyncio.sleep(0.01)


async def test_a_draft_that_may_have_been_posted_is_found_and_edited(build: Build) -> None:
    """The draft's post was taken in and the reply lost: the answer must edit it, not stand beside it."""
    outlet = FakeOutlet()
    outlet.faults = [("after", OutletUnavailable("reply lost"))]
    world = await build(outlet=outlet, model=FakeModel(lambda call: ["Branches ", 0.1, "are `feature/…` [1]."]))
    (answer,) = await world.hear(turn())
    assert answer.outcome is Outcome.ANSWERED
    (posted,) = outlet.messages.values()
    assert posted.text.startswith("Branches are")


async def test_the_second_answers_draft_waits_for_the_first_answers_parts(build: Build) -> None:
    outlet = FakeOutlet(part_chars=100, latency_s=0.05)
    world = await build(outlet=outlet, model=FakeModel(lambda call: [LONG, 0.05, " end."]))
    first, second = turn(), turn()
    await world.hear(first, second)
    order = [posted.key[:21] for posted in outlet.messages.values()]
    assert order == sorted(order, key=order.index)
    assert len(set(order)) == 2
    assert order.index(order[-1]) == order.count(order[0])


async def test_an_outlet_with_a_bug_does_not_stop_the_loop(build: Build) -> None:
    outlet = FakeOutlet()
    outlet.faults = [("before", KeyError("a bug"))] * 2
    world = await build(outlet=outlet)
    await world.hear(turn(), turn())
    assert len(outlet.messages) == 2
