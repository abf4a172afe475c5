"""A day's tokens: counted by person and room, and refused politely when they are used up."""

from bot.budget import Caps, day_of
from bot.conversation import Outcome, RoomKey, SessionKey, TurnKind
from bot.policy import Policy
from tests.conftest import Build
from tests.fakes import ANN, BOB, ROOM, FakeModel, turn

OTHER = SessionKey(RoomKey("fake", "T1", "C2"))
DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.at = 1_796_083_200_000

    def __call__(self) -> int:
        return self.at


async def test_tokens_are_counted_by_person_room_and_day(build: Build):
    clock = Clock()
    world = await build(clock=clock)
    await world.hear(turn("branch naming?", author=ANN), turn("branch naming?", author=BOB))
    await world.hear(turn("branch naming?", author=ANN, session=OTHER))
    rows = await world.duet.usage(day_of(clock.at))
    assert {(row.user, str(row.room)) for row in rows} == {
        ("U1", str(ROOM)),
        ("U2", str(ROOM)),
        ("U1", str(OTHER.room)),
    }
    assert all(row.used.turns == 1 and row.used.tokens > 0 for row in rows)
    assert await world.duet.usage(day_of(clock.at + DAY_MS)) == []


async def test_a_person_over_the_daily_cap_is_refused_until_the_next_day_and_others_are_not(build: Build):
    clock = Clock()
    world = await build(clock=clock, policy=Policy(caps=Caps(user_tokens=1)))
    (first,) = await world.hear(turn("branch naming?", author=ANN))
    (second,) = await world.hear(turn("branch naming?", author=ANN))
    (other,) = await world.hear(turn("branch naming?", author=BOB))
    (command,) = await world.hear(turn("ls", author=ANN, kind=TurnKind.RUN))
    assert [first.outcome, second.outcome, other.outcome] == [Outcome.ANSWERED, Outcome.REFUSED, Outcome.ANSWERED]
    assert "renewed at midnight UTC" in second.text
    assert command.outcome is Outcome.ANSWERED, "a command costs no tokens"
    clock.at += DAY_MS
    (tomorrow,) = await world.hear(turn("branch naming?", author=ANN))
    assert tomorrow.outcome is Outcome.ANSWERED


async def test_a_refused_question_reaches_no_model(build: Build):
    model = FakeModel()
    world = await build(model=model, policy=Policy(caps=Caps(room_tokens=1)))
    await world.hear(turn("branch naming?", author=ANN))
    asked = len(model.calls)
    (refused,) = await world.hear(turn("branch naming?", author=BOB))
    assert refused.text.startswith("This channel's allowance")
    assert len(model.calls) == asked
