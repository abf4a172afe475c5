"""Resets: after "cleared" nothing of before is written, shown or run."""

from __future__ import annotations

import asyncio

import pytest

from bot.conversation import Outcome, SessionKey, TurnKind, Verdict
from bot.errors import OutletUnavailable
from bot.policy import Policy
from tests.conftest import Build, World
from tests.fakes import ANN, BOB, ROOM, FakeModel, FakeOutlet, FakeSandbox, turn

THREAD = SessionKey(ROOM, "t1")
SIBLING = SessionKey(ROOM, "t2")


def reset(session: SessionKey | None = None, **more: object) -> object:
    return turn("", kind=TurnKind.RESET, session=session, **more)


async def test_a_reset_while_the_model_answers_discards_the_turn(build: Build) -> None:
    world = await build(model=FakeModel(lambda call: ["Branches are OLD", 30.0]))
    asked = turn()
    await world.duet.hear(asked)
    await world.until(lambda: world.outlet.messages)
    (cleared,) = await world.hear(reset())
    assert cleared.text == "Ann cleared this channel: every conversation and the sandbox."
    assert world.outlet.texts == ["*Cancelled by a reset.*", cleared.text]
    acts = [text for _, text in world.outlet.acts]
    assert acts.index(cleared.text) == len(acts) - 1
    assert await world.duet.history(SessionKey(ROOM)) == []
    assert await world.duet.prompt_log(SessionKey(ROOM)) == []
    assert world.sandbox.destroyed == [(ROOM, 0)]


async def test_a_reset_while_a_command_runs_kills_it(build: Build) -> None:
    world = await build()
    await world.duet.hear(turn("sleep 30", kind=TurnKind.RUN))
    await world.until(lambda: world.sandbox.ran)
    await world.hear(reset())
    assert [command.code for command in world.sandbox.killed] == ["sleep 30"]
    (after,) = await world.hear(turn("echo new", kind=TurnKind.RUN))
    assert after.commands[0].output == "new"
    assert world.sandbox.ran[-1].generation == 1


async def test_turns_that_waited_are_cancelled_and_their_askers_told(build: Build) -> None:
    world = await build(model=FakeModel(lambda call: ["OLD", 30.0]))
    running, waiting = turn(), turn("And this branch?", author=BOB)
    await world.duet.hear(running)
    await world.duet.hear(waiting)
    await world.until(lambda: world.model.calls)
    await world.hear(reset())
    answer = await world.settled(waiting)
    assert answer.outcome is Outcome.CANCELLED
    assert len(world.model.calls) == 1
    await world.until(lambda: world.outlet.texts.count("*Cancelled by a reset.*") == 2)


async def test_the_next_turn_starts_clean(world: World) -> None:
    await world.hear(turn("Is this OLD branch fine?"), reset(), turn("And this new branch?"))
    assert "OLD" not in world.model.sent()
    assert [m.text for m in await world.duet.history(SessionKey(ROOM)) if m.role == "user"] == ["And this new branch?"]


async def test_a_threads_reset_clears_that_thread_alone_and_says_so(world: World) -> None:
    await world.hear(turn(session=THREAD), turn(session=SIBLING))
    (cleared,) = await world.hear(reset(THREAD))
    assert cleared.text == "Ann cleared this conversation."
    assert await world.duet.history(THREAD) == []
    assert len(await world.duet.history(SIBLING)) == 2
    assert world.sandbox.destroyed == []
    assert not await world.duet.is_joined(THREAD)
    assert await world.duet.is_joined(SIBLING)


async def test_a_channels_reset_clears_every_thread(world: World) -> None:
    await world.hear(turn(session=THREAD), turn(session=SIBLING), reset())
    assert await world.duet.history(THREAD) == []
    assert await world.duet.history(SIBLING) == []


async def test_a_press_after_a_reset_is_void(build: Build) -> None:
    world = await build(policy=Policy(commands="ask"))
    (asking,) = await world.hear(turn("echo OLD", kind=TurnKind.RUN))
    assert asking.ticket
    await world.hear(reset())
    late = turn("", kind=TurnKind.PRESS, target=asking.ticket.id, verdict=Verdict.APPROVE)
    (answer,) = await world.hear(late)
    assert answer.outcome in (Outcome.CANCELLED, Outcome.REFUSED)
    assert world.sandbox.ran == []


async def test_two_resets_at_once_are_both_confirmed_and_raise_the_generation_once_each_at_most(world: World) -> None:
    await world.hear(turn())
    one, two = await world.hear(reset(author=ANN), reset(author=BOB))
    assert "Ann cleared" in one.text
    assert "Bob cleared" in two.text
    assert await world.store.room_generation(ROOM) in (1, 2)


async def test_the_same_words_after_a_reset_are_a_new_turn(world: World) -> None:
    await world.hear(turn("Which branch?"))
    await world.hear(reset())
    (answer,) = await world.hear(turn("Which branch?"))
    assert answer.outcome is Outcome.ANSWERED
    assert len(world.model.calls) == 2


async def test_an_engine_that_is_down_is_said_and_history_is_cleared_all_the_same(build: Build) -> None:
    world = await build(sandbox=FakeSandbox(away=True))
    await world.hear(turn())
    (cleared,) = await world.hear(reset())
    assert cleared.outcome is Outcome.ANSWERED
    assert any("could not be removed yet" in note for note in cleared.notes)
    assert await world.duet.history(SessionKey(ROOM)) == []


async def test_a_post_in_flight_when_the_reset_comes_is_waited_for_and_taken_back(build: Build) -> None:
    world = await build(outlet=FakeOutlet(latency_s=0.3), model=FakeModel(lambda call: "OLD branch [1]."))
    asked = turn()
    await world.duet.hear(asked)
    while await world.duet.answer(ROOM, asked.id) is None:
        await asyncio.sleep(0.005)
    await world.hear(reset())
    assert not any("OLD" in text for text in world.outlet.texts)
    texts = [text for _, text in world.outlet.acts]
    last_old = max((i for i, text in enumerate(texts) if "OLD" in text), default=-1)
    assert last_old < next(i for i, text in enumerate(texts) if "cleared" in text)


async def test_parts_that_wait_to_be_posted_are_dropped_by_a_reset(build: Build) -> None:
    outlet = FakeOutlet(part_chars=40)
    outlet.faults = [("before", OutletUnavailable("429", retry_after_s=0.3))] * 2
    world = await build(outlet=outlet, model=FakeModel(lambda call: "OLD branch answer [1]. " * 20))
    asked = turn()
    await world.duet.hear(asked)
    while await world.duet.answer(ROOM, asked.id) is None:
        await asyncio.sleep(0.005)
    await world.hear(reset())
    await asyncio.sleep(0.5)
    assert not any("OLD" in text for text in world.outlet.texts)


async def test_only_listed_people_reset(build: Build) -> None:
    world = await build(policy=Policy(resetters=("U1",)))
    await world.hear(turn())
    (refused,) = await world.hear(reset(author=BOB))
    assert refused.outcome is Outcome.REFUSED
    assert await world.duet.history(SessionKey(ROOM)) != []


async def test_a_channel_that_is_gone_ends_as_by_reset_and_nothing_is_posted(world: World) -> None:
    await world.hear(turn())
    before = len(world.outlet.acts)
    await world.duet.end(ROOM)
    await world.until(lambda: world.sandbox.destroyed)
    await asyncio.sleep(0.1)
    assert await world.duet.history(SessionKey(ROOM)) == []
    assert len(world.outlet.acts) == before


@pytest.mark.parametrize("at", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13])
async def test_whenever_a_reset_comes_nothing_old_follows_cleared(build: Build, at: float) -> None:
    """A turn with drafts, a command, a second call and three parts, and a reset after `at` seconds."""

    def script(call: object) -> list[object]:
        messages = call.messages
        if "Output of the commands" in messages[-1].content:
            return ["OLD " * 30, 0.01, "OLD " * 30]
        return ["OLD ", 0.01, "OLD <run>sleep 0.02</run>"]

    world = await build(outlet=FakeOutlet(latency_s=0.01, part_chars=100), model=FakeModel(script))
    await world.duet.hear(turn("run this on a branch"))
    await asyncio.sleep(at)
    (cleared,) = await world.hear(reset())
    assert not cleared.notes
    ran = len(world.sandbox.ran)
    await asyncio.sleep(0.15)
    texts = [text for _, text in world.outlet.acts]
    after = texts[texts.index(cleared.text) :]
    assert not any("OLD" in text for text in after)
    assert len(world.sandbox.ran) == ran
    assert await world.duet.history(SessionKey(ROOM)) == []
