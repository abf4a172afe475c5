"""Faults of the core, each named after what went wrong: through the door where there is one, over a real store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database as SqliteUtils

from bot.conversation import (
    Answer,
    Author,
    Body,
    FileData,
    Outcome,
    Part,
    RoomKey,
    SessionKey,
    Standing,
    Surroundings,
    Turn,
    TurnKind,
    Verdict,
)
from bot.drivers.database import Database, is_locked
from bot.drivers.schema import migrations
from bot.drivers.store import SqliteStore
from bot.errors import BadInput, ModelBusy, OutletUnavailable, StoreUnavailable
from bot.lanes import TURNS_AT_ONCE
from bot.policy import Policy
from bot.records import NewPart
from tests.conftest import Build, World
from tests.fakes import ANN, BOB, ROOM, FakeModel, FakeOutlet, turn

THREAD = SessionKey(ROOM, "t1")


# Who they are must be looked up first, which is when a reset waits.
UNKNOWN = Author("U1", "Ann")


def reset(session: SessionKey | None = None, **more: Any) -> Turn:
    return turn("", kind=TurnKind.RESET, session=session, **more)


# Commits that are shared.


def _insert(number: int) -> Callable[[sqlite3.Connection], object]:
    return lambda c: c.execute("INSERT INTO feedback VALUES(?, 'u', 'v', 0)", (number,))


async def test_a_write_behind_many_cancelled_ones_is_committed_before_it_returns(tmp_path: Path) -> None:
    db = Database(tmp_path)
    await db.open()
    blocking = asyncio.create_task(db.read(lambda c: time.sleep(0.2)))
    await asyncio.sleep(0.02)
    left = [asyncio.create_task(db.write(_insert(n))) for n in range(150)]
    await asyncio.sleep(0)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await blocking
    await db.write(_insert(999))
    with sqlite3.connect(tmp_path / "duet.db") as other:
        assert other.execute("SELECT count(*) FROM feedback WHERE turn = 999").fetchone() == (1,)
    await db.close()


async def test_a_write_that_was_committed_is_not_said_to_have_failed_with_the_next_ones(tmp_path: Path) -> None:
    db = Database(tmp_path)
    await db.open()

    def fail_later(c: sqlite3.Connection) -> None:
        c.execute("PRAGMA max_page_count=1")  # what the file has now is the most
        c.execute("CREATE TABLE IF NOT EXISTS filler(x)")
        c.execute("INSERT INTO filler VALUES(zeroblob(1000000))")

    def slow(c: sqlite3.Connection) -> None:
        time.sleep(0.2)
        _insert(1)(c)

    gate = asyncio.create_task(db.read(lambda c: time.sleep(0.1)))
    await asyncio.sleep(0.02)
    first = [asyncio.create_task(db.write(work)) for work in (slow, _insert(2))]
    await gate
    await asyncio.sleep(0.05)  # both are in one commit now, and the second's own call has still to come
    late = asyncio.create_task(db.write(fail_later))
    results = await asyncio.gather(*first, late, return_exceptions=True)
    assert [isinstance(result, StoreUnavailable) for result in results] == [False, False, True]
    await db.close()


async def test_a_big_file_that_is_checked_at_the_start_keeps_nobody_from_writing(tmp_path: Path) -> None:
    held = []

    class Checked(Database):
        def _check(self, conn: sqlite3.Connection) -> None:
            held.append(is_locked(tmp_path / "write.lock"))
            super()._check(conn)

    db = Checked(tmp_path)
    await db.open()
    await db.close()
    assert held == [False]


async def test_a_turn_that_was_just_taken_up_when_duet_closes_is_given_back(build: Build, tmp_path: Path) -> None:
    world = await build(home=tmp_path, start=False, model=FakeModel(lambda call: [0.5, "Named [1]."]))
    inner, is_in = world.store.begin, asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        begun = await inner(*args, **more)
        if begun is not None and begun.turn.id == asked.id:
            is_in.set()
            await asyncio.sleep(0.2)
        return begun

    world.store.begin = slow
    before, asked = turn(), turn(session=THREAD)
    await world.duet.hear(before)
    await world.duet.hear(asked)
    world.duet.start()
    await is_in.wait()
    await world.duet.close(drain_s=2.0)
    assert await world.duet.state(ROOM, before.id) == "answered"
    assert await world.duet.state(ROOM, asked.id) == "heard"


# A database that cannot be written for a while.


class Full:
    """Lets named store verbs fail with StoreUnavailable until `is_over`."""

    def __init__(self, store: SqliteStore, *verbs: str) -> None:
        self.hits = 0
        self.is_over = False
        for verb in verbs:
            setattr(store, verb, self._failing(getattr(store, verb)))

    def _failing(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self.is_over:
                self.hits += 1
                raise StoreUnavailable("The database cannot be used now: database or disk is full.")
            return await inner(*args, **kwargs)

        return wrapped


@pytest.mark.parametrize("verb", ["settle", "settle_ended", "forget"])
async def test_a_turn_whose_end_could_not_be_written_is_ended_when_it_can(build: Build, verb: str) -> None:
    world = await build(model=FakeModel(lambda call: "Named [1]." if verb == "settle" else ["OLD", 30.0]))
    full = Full(world.store, verb)
    asked = turn()
    await world.duet.hear(asked)
    if verb != "settle":
        await world.until(lambda: world.model.calls)
        await world.duet.hear(reset())
    await world.until(lambda: full.hits)
    full.is_over = True
    answer = await world.settled(asked)
    assert answer.outcome is (Outcome.ANSWERED if verb == "settle" else Outcome.CANCELLED)
    world.model.script = lambda call: "Named [1]."
    (after,) = await world.hear(turn())
    assert after.outcome is Outcome.ANSWERED


async def test_a_stop_whose_end_could_not_be_written_frees_the_lane_when_it_can(build: Build) -> None:
    world = await build(model=FakeModel(lambda call: ["slow", 30.0]))
    full = Full(world.store, "settle_ended")
    asked, behind = turn(), turn()
    await world.duet.hear(asked)
    await world.until(lambda: world.model.calls)
    world.model.script = lambda call: "Named [1]."
    await world.duet.hear(behind)
    await world.duet.stop(ROOM, asked.id, by=BOB, id="stop-1")
    await world.until(lambda: full.hits >= 2)
    full.is_over = True
    assert (await world.settled(asked)).outcome is Outcome.CANCELLED
    assert (await world.settled(behind)).outcome is Outcome.ANSWERED


@pytest.mark.parametrize("is_down", [False, True])
async def test_a_part_whose_post_could_not_be_written_down_does_not_block_its_session(
    build: Build, is_down: bool
) -> None:
    outlet = FakeOutlet()
    world = await build(outlet=outlet, model=FakeModel(lambda call: "Named [1]."))
    full = Full(world.store, "posted", "put_back")
    if is_down:
        outlet.faults = [("before", OutletUnavailable("down"))] * 3
    asked = turn()
    await world.duet.hear(asked)
    await world.until(lambda: full.hits >= 2)
    await asyncio.sleep(0.1)
    full.is_over = True
    await world.settled(asked)
    assert len(outlet.messages) == 1
    await world.hear(turn())
    assert len(outlet.messages) == 2


# Commands.


async def test_a_command_that_was_cancelled_just_as_it_started_does_not_keep_its_room(build: Build) -> None:
    world = await build()
    inner, is_in = world.store.start_command, asyncio.Event()

    async def slow(*args: Any) -> Any:
        started = await inner(*args)
        is_in.set()
        await asyncio.sleep(0.3)
        return started

    world.store.start_command = slow
    asked = turn("echo one", kind=TurnKind.RUN)
    await world.duet.hear(asked)
    await is_in.wait()
    await world.duet.stop(ROOM, asked.id, by=BOB, id="stop-2")
    await world.settled(asked)
    world.store.start_command = inner
    (after,) = await world.hear(turn("echo two", kind=TurnKind.RUN))
    assert after.commands[0].output == "two"


async def test_a_command_whose_end_could_not_be_written_does_not_keep_its_room(build: Build) -> None:
    world = await build()
    full = Full(world.store, "end_command")
    (failed,) = await world.hear(turn("echo one", kind=TurnKind.RUN))
    assert failed.outcome is Outcome.FAILED
    full.is_over = True
    (after,) = await world.hear(turn("echo two", kind=TurnKind.RUN))
    assert after.commands[0].output == "two"
    assert len(world.sandbox.ran) == 2


# Drafts and what is taken back.


async def test_a_voided_draft_that_could_not_be_edited_is_edited_later(build: Build) -> None:
    outlet = FakeOutlet()
    world = await build(outlet=outlet, model=FakeModel(lambda call: ["Branches are OLD", 30.0]))
    asked = turn()
    await world.duet.hear(asked)
    await world.until(lambda: outlet.messages)
    outlet.faults = [("before", OutletUnavailable("503"))]
    await world.hear(reset())
    await world.until(lambda: not any("OLD" in text for text in outlet.texts))
    assert "*Cancelled by a reset.*" in outlet.texts


async def test_a_draft_that_was_never_posted_still_tells_its_asker_of_the_reset(build: Build) -> None:
    outlet = FakeOutlet(faults=[("before", OutletUnavailable("503"))])
    world = await build(outlet=outlet, model=FakeModel(lambda call: ["Branches are OLD", 30.0]))
    await world.duet.hear(turn())
    await world.until(lambda: not outlet.faults)
    await asyncio.sleep(0.05)
    await world.hear(reset())
    await world.until(lambda: "*Cancelled by a reset.*" in outlet.texts)


async def test_an_answer_that_cannot_be_rendered_is_said_plainly(build: Build) -> None:
    class Broken(FakeOutlet):
        def render(self, answer: Answer) -> tuple[Body, ...]:
            if answer.outcome is Outcome.ANSWERED:
                raise ValueError("a table of no columns")
            return super().render(answer)

    outlet = Broken()
    world = await build(outlet=outlet)
    (answer,) = await world.hear(turn())
    assert answer.incident
    assert len(outlet.messages) == 1
    assert "went wrong" in outlet.texts[0]
    (cleared,) = await build_reset(world)
    assert not cleared.notes


async def build_reset(world: World) -> list[Answer]:
    world.outlet.render = FakeOutlet().render
    return await world.hear(reset())


# What is asked after a reset belongs to the time after it.


async def test_a_question_behind_a_reset_that_is_still_looked_up_is_answered_afterwards(build: Build) -> None:
    class Slow(FakeOutlet):
        async def surroundings(self, turn: Turn) -> Surroundings:
            if turn.kind is TurnKind.RESET:
                await asyncio.sleep(0.2)
            return await super().surroundings(turn)

    world = await build(outlet=Slow(), model=FakeModel(lambda call: [0.3, "Named [1]."]))
    cleared, after = reset(author=UNKNOWN), turn("Which new branch?")
    beside = turn("Which branch in the thread?", session=THREAD)
    for heard in (cleared, after, beside):
        await world.duet.hear(heard)
    assert (await world.settled(after)).outcome is Outcome.ANSWERED
    assert (await world.settled(beside)).outcome is Outcome.ANSWERED
    assert "cleared" in (await world.settled(cleared)).text


async def test_trying_again_what_a_reset_cleared_meanwhile_is_void(build: Build) -> None:
    class Slow(FakeOutlet):
        async def surroundings(self, turn: Turn) -> Surroundings:
            if turn.kind is TurnKind.RESET:
                await asyncio.sleep(0.2)
            return await super().surroundings(turn)

    replies = iter([ModelBusy("Busy."), "OLD answered [1]."])
    model = FakeModel(lambda call: next(replies))
    world = await build(outlet=Slow(), model=model)
    asked = turn("Which OLD branch?")
    await world.hear(asked)
    cleared, again = reset(author=UNKNOWN), turn("", kind=TurnKind.PRESS, target=asked.id, verdict=Verdict.RETRY)
    await world.duet.hear(cleared)
    await world.duet.hear(again)
    await world.settled(cleared)
    assert (await world.settled(again)).outcome is Outcome.CANCELLED
    assert len(world.model.calls) == 1
    assert await world.duet.history(SessionKey(ROOM)) == []


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("scope", [SessionKey(ROOM), THREAD])
async def test_what_is_asked_between_two_resets_is_cleared_whichever_is_done_first(
    build: Build, slow: int, scope: SessionKey
) -> None:
    gates: dict[str, asyncio.Event] = {}

    class Slow(FakeOutlet):
        async def surroundings(self, turn: Turn) -> Surroundings:
            if turn.kind is TurnKind.RESET:
                await gates.setdefault(turn.id, asyncio.Event()).wait()
            return await super().surroundings(turn)

    world = await build(outlet=Slow(), model=FakeModel(lambda call: [0.05, "Named [1]."]))
    before, between, after = (turn(f"Which {which} branch?", session=THREAD) for which in ("OLD", "OLDER", "new"))
    resets = [reset(scope, author=UNKNOWN), reset(THREAD, author=UNKNOWN)]
    for heard in (before, resets[0], between, resets[1], after):
        await world.duet.hear(heard)
    await world.until(lambda: len(gates) == 2)  # both are at work
    for cleared in (resets[1 - slow], resets[slow]):
        gates[cleared.id].set()
        assert "cleared" in (await world.settled(cleared)).text
    assert (await world.settled(after)).outcome is Outcome.ANSWERED
    assert (await world.settled(between)).text in ("", "*Cancelled by a reset.*")
    said = [message.text for message in await world.duet.history(THREAD) if message.role == "user"]
    assert said == ["Which new branch?"]
    assert sum("cleared" in text for text in world.outlet.texts) == 2


# Texts and times from outside.


@pytest.mark.parametrize("where", ["question", "reply", "name", "output"])
async def test_half_a_surrogate_pair_is_answered_like_any_text(build: Build, where: str) -> None:
    half = "\ud83d"
    world = await build(model=FakeModel(lambda call: f"Named {half if where == 'reply' else ''} [1]."))
    author = ANN if where != "name" else type(ANN)("U9", f"Ann {half}", Standing.MEMBER)
    if where == "output":
        world.sandbox.output = f"a {half} b"
        (answer,) = await world.hear(turn("echo x", kind=TurnKind.RUN))
        assert answer.commands[0].output.startswith("a ")
    else:
        text = f"Which branch {half if where == 'question' else ''}?"
        (answer,) = await world.hear(turn(text, author=author))
    assert answer.outcome is Outcome.ANSWERED


async def test_a_time_limit_of_the_platform_is_not_called_the_turns_own(build: Build) -> None:
    def around(asked: Turn) -> Surroundings:
        raise TimeoutError("the platform did not answer")

    world = await build(outlet=FakeOutlet(around=around), turn_timeout_s=30.0)
    (answer,) = await world.hear(turn())
    assert answer.outcome is Outcome.FAILED
    assert "longer than" not in answer.text


async def test_a_ticket_pressed_while_its_message_is_still_being_posted_shows_who_decided(build: Build) -> None:
    outlet = FakeOutlet(latency_s=0.2)
    world = await build(policy=Policy(commands="ask"), outlet=outlet)
    asked = turn("echo hi", kind=TurnKind.RUN)
    await world.duet.hear(asked)
    while (answer := await world.duet.answer(ROOM, asked.id)) is None:
        await asyncio.sleep(0.005)
    assert answer.ticket
    await world.until(lambda: any(part for part in [world.duet._delivery._posting] if part))
    pressed = turn("", kind=TurnKind.PRESS, target=answer.ticket.id, verdict=Verdict.APPROVE, author=BOB)
    await world.hear(pressed)
    assert "approved Bob" in outlet.texts[0]


# Trying again.


def again(asked: Turn, **more: Any) -> Turn:
    return turn("", kind=TurnKind.PRESS, target=asked.id, verdict=Verdict.RETRY, **more)


async def test_what_fails_twice_can_be_tried_a_third_time(build: Build) -> None:
    replies = iter([ModelBusy("Busy."), ModelBusy("Busy."), "Named `feature/x` [1]."])
    world = await build(model=FakeModel(lambda call: next(replies)))
    asked = turn()
    await world.hear(asked)
    second = again(asked)
    await world.hear(second)
    (third,) = await world.hear(again(second))  # the button below the second answer names the second
    assert third.outcome is Outcome.ANSWERED
    assert "Named" in third.text


async def test_a_question_that_was_tried_again_stands_in_the_transcript_once_with_its_last_answer(build: Build) -> None:
    replies = iter([ModelBusy("Busy."), "Named so [1].", ModelBusy("Busy."), "Named `feature/x` [1]."])
    world = await build(model=FakeModel(lambda call: next(replies)))
    asked, between = turn("Which branch?"), turn("Which hotfix?")
    await world.hear(asked, between, again(asked), again(asked))
    said = [(m.role, m.turn, m.text) for m in await world.duet.history(SessionKey(ROOM))]
    assert [(role, of) for role, of, _ in said] == [
        ("user", asked.id),
        ("agent", asked.id),
        ("user", between.id),
        ("agent", between.id),
    ]
    answer = await world.duet.answer(ROOM, asked.id)
    assert answer is not None
    assert (answer.outcome, answer.text) == (Outcome.ANSWERED, said[1][2])
    assert answer.sources


async def test_what_a_failed_turn_had_done_is_not_said_twice_when_it_is_tried_again(build: Build) -> None:
    replies = iter(["I look. <run>echo one</run>", ModelBusy("Busy."), "Seen."])
    world = await build(model=FakeModel(lambda call: next(replies)))
    asked = turn("run this on a branch")
    await world.hear(asked, again(asked))
    said = [m.text for m in await world.duet.history(SessionKey(ROOM))]
    assert [text.split("\n")[0] for text in said] == ["run this on a branch", "I look.", "$ echo one", "Seen."]
    assert len(world.sandbox.ran) == 1


async def test_trying_again_what_was_answered_meanwhile_is_refused_and_leaves_no_trace(build: Build) -> None:
    replies = iter([ModelBusy("Busy."), "Named [1]."])
    world = await build(model=FakeModel(lambda call: next(replies)))
    asked = turn()
    *_, late = await world.hear(asked, again(asked), again(asked, author=BOB))
    assert late.outcome is Outcome.REFUSED
    assert [m.role for m in await world.duet.history(SessionKey(ROOM))] == ["user", "agent"]


async def test_an_approved_command_whose_answer_failed_is_told_again_and_not_run_again(build: Build) -> None:
    replies = iter(["I look. <run>echo one</run>", ModelBusy("Busy."), "Seen."])
    model = FakeModel(lambda call: next(replies))
    world = await build(policy=Policy(commands="ask"), model=model)
    (asking,) = await world.hear(turn("run this on a branch"))
    assert asking.ticket
    press = turn("", kind=TurnKind.PRESS, target=asking.ticket.id, verdict=Verdict.APPROVE)
    (failed,) = await world.hear(press)
    (last,) = await world.hear(again(press))
    assert (failed.outcome, last.outcome) == (Outcome.FAILED, Outcome.ANSWERED)
    assert last.text.endswith("Seen.")
    assert len(world.sandbox.ran) == 1
    said = [m.text.split("\n")[0] for m in await world.duet.history(SessionKey(ROOM))]
    assert said == ["run this on a branch", "I look.", "$ echo one", "Seen."]


# What must leave nothing behind.


KEPT = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM calls), (SELECT count(*) FROM commands)"


class StuckDrafts(FakeOutlet):
    """Drafts hang on their way until `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in, self.go_on = asyncio.Event(), asyncio.Event()

    async def show(self, part: Part, *, draft: bool) -> str:
        if draft:
            self.is_in.set()
            await self.go_on.wait()
        return await super().show(part, draft=draft)


async def test_a_turn_that_outlasts_its_reset_leaves_nothing_behind(build: Build) -> None:
    outlet = StuckDrafts()
    world = await build(outlet=outlet, reset_wait_s=0.2, model=FakeModel(lambda call: ["OLD <run>echo OLD</run>"]))
    asked = turn("Which OLD branch?")
    await world.duet.hear(asked)
    await outlet.is_in.wait()
    await world.until(lambda: world.sandbox.ran)
    (cleared,) = await build_reset(world)
    assert "may still appear" in "".join(cleared.notes)
    outlet.go_on.set()
    assert (await world.settled(asked)).outcome is Outcome.CANCELLED
    await world.until(lambda: not any("OLD" in text for text in world.outlet.texts))
    assert tuple(await world.store.database.read(lambda c: c.execute(KEPT).fetchone())) == (0, 0, 0)
    dump = await world.store.database.read(lambda c: "\n".join(c.iterdump()))
    assert "OLD" not in dump


async def test_a_reset_that_cuts_off_the_wait_for_the_last_draft_waits_for_it_itself(build: Build) -> None:
    outlet = StuckDrafts()
    world = await build(outlet=outlet, model=FakeModel(lambda call: "OLD [1]."))
    await world.duet.hear(turn())
    await outlet.is_in.wait()
    scenes = world.duet._answering._scenes
    await world.until(lambda: all(scene.draft and scene.draft._is_over for scene in scenes.values()))
    cleared = reset()
    await world.duet.hear(cleared)
    await asyncio.sleep(0.3)
    assert await world.duet.answer(ROOM, cleared.id) is None
    outlet.go_on.set()
    assert not (await world.settled(cleared)).notes
    texts = [text for _, text in world.outlet.acts]
    last = max(number for number, text in enumerate(texts) if "OLD" in text)
    assert last < next(number for number, text in enumerate(texts) if "cleared" in text)


async def test_a_deleted_question_is_not_read_back_as_history(build: Build) -> None:
    world = await build(model=FakeModel(lambda call: ["Branches are", 30.0]))
    asked = turn("Which SECRET branch?")
    await world.duet.hear(asked)
    await world.until(lambda: world.outlet.messages)
    await world.duet.withdraw(asked)
    await world.settled(asked)
    assert await world.duet.history(SessionKey(ROOM)) == []
    assert "SECRET" not in await world.store.database.read(lambda c: "\n".join(c.iterdump()))


async def test_files_that_killed_processes_left_are_removed_by_the_next(tmp_path: Path) -> None:
    here = Database(tmp_path)
    await here.open()
    (tmp_path / "alive" / "dead-1").touch()
    there = Database(tmp_path)
    await there.open()
    assert {path.name for path in (tmp_path / "alive").iterdir()} == {here.owner, there.owner}
    await there.close()
    await here.close()


# Rooms beside one another.


async def test_a_room_with_many_busy_threads_starves_no_other_room(build: Build) -> None:
    gate = asyncio.Event()
    world = await build(model=FakeModel(lambda call: [gate, "Named [1]."]))
    busy = [turn(f"Which branch {n}?", session=SessionKey(ROOM, f"t{n}")) for n in range(40)]
    for asked in busy:
        await world.duet.hear(asked)
    await world.until(lambda: len(world.model.calls) == TURNS_AT_ONCE // 2)
    others = [turn(session=SessionKey(RoomKey("fake", "T1", f"other{n}"))) for n in range(4)]
    for asked in others:
        await world.duet.hear(asked)
    await world.until(lambda: len(world.model.calls) == TURNS_AT_ONCE // 2 + len(others))
    gate.set()
    for asked in (*busy, *others):
        assert (await world.settled(asked, timeout_s=10)).outcome is Outcome.ANSWERED


# A folder that cannot be used.


async def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    db = Database(tmp_path)
    await db.open()
    await db.close()
    with sqlite3.connect(tmp_path / "duet.db") as other:
        other.execute("UPDATE _sqlite_migrations SET name = 'm999_later' WHERE id = 2")
    with pytest.raises(BadInput, match="newer version"):
        await Database(tmp_path).open()


async def test_a_database_of_an_earlier_version_keeps_its_prompt_log(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "duet.db") as earlier:
        migrations.apply(SqliteUtils(earlier), stop_before="m004_failed_calls_stay")
        earlier.execute(
            "INSERT INTO calls(turn, step, state, model, request_json, findings_json, at)"
            " VALUES (1, 0, 'failed', 'm', '[]', '{}', 7)"
        )
    earlier.close()
    db = Database(tmp_path)
    await db.open()
    again = (
        "INSERT INTO calls(turn, step, state, model, request_json, findings_json, at) SELECT 1, 0, ?, 'm', '', '', 8"
    )
    await db.write(lambda c: c.execute(again, ("sent",)))
    kept = await db.read(lambda c: [tuple(row) for row in c.execute("SELECT state, at FROM calls ORDER BY id")])
    await db.close()
    assert kept == [("failed", 7), ("sent", 8)]


async def test_a_data_folder_that_cannot_be_written_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "write.lock").mkdir()  # as read-only to root too
    with pytest.raises(BadInput, match=r"^The data folder .* cannot be used \(Is a directory\)\. Set DUET_HOME"):
        await Database(tmp_path).open()


async def test_what_is_damaged_is_said_on_one_line(tmp_path: Path) -> None:
    db = Database(tmp_path)
    await db.open()
    await db.close()
    with open(tmp_path / "duet.db", "r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096 * 4)
    with pytest.raises(BadInput, match="is damaged") as raised:
        await Database(tmp_path).open()
    assert "\n" not in str(raised.value)


async def test_the_files_of_what_was_posted_or_cleared_do_not_stay_for_ever(build: Build, tmp_path: Path) -> None:
    world = await build(home=tmp_path, start=False)
    asked = turn()
    await world.duet.hear(asked)
    begun = await world.store.begin(["fake"])
    assert begun is not None
    bodies = [Body({"text": "x"}, (FileData("output.txt", data),)) for data in (b"waits", b"no row yet", b"over")]
    for body in bodies:
        await world.store.keep_files(body)
    await world.store.settle(begun, Answer(asked.id, "x"), said=(), parts=(NewPart("k-0", 0, bodies[0]),))
    waits, fresh, over = (tmp_path / "files" / sha256(body.files[0].data).hexdigest() for body in bodies)
    for path in (waits, over):
        os.utime(path, (0, 0))
    await world.store.sweep_files()
    assert (waits.exists(), fresh.exists(), over.exists()) == (True, True, False)
    world.duet.start()
    await world.settled(asked)
    await world.store.sweep_files()
    assert not waits.exists()
