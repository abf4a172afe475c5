"""Several models in order: who answers when one is down, and how long a dead one is left alone."""

from collections.abc import AsyncGenerator

import pytest

from bot.checks import Check, Health
from bot.conversation import Usage
from bot.drivers.fallback import FIRST_REST_S, LONGEST_REST_S, QUOTA_REST_S, Fallback
from bot.errors import (
    ContextTooLong,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelQuota,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
)
from bot.ports import ChatMessage, Findings, Finished, ModelCall, Piece, Profile, Text

ONE = Profile()
SPLIT = Profile(4_096, 512, "split")


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


class Model:
    """Gives what it is told to give: an answer, or a fault, perhaps after some text."""

    def __init__(self, name: str, *faults: ModelError | None, profile: Profile = ONE, says: str = "") -> None:
        self.name = name
        self.profile = profile
        self.asked = 0
        self._faults = list(faults)
        self._says = says

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece, None]:
        self.asked += 1
        fault = self._faults.pop(0) if self._faults else None
        if self._says or fault is None:
            yield Text(self._says or self.name)
        if fault is not None:
            fault.partial = self._says
            raise fault
        yield Finished("stop", Usage(), self.name)

    async def checks(self) -> list[Check]:
        bad = bool(self._faults)
        return [Check("language model", Health.FAIL if bad else Health.OK, self.name, "mend it" if bad else "")]


def call(built_for: Profile | None = None, text: str = "hi") -> ModelCall:
    return ModelCall((ChatMessage("user", text),), "hi", Findings(), 100, built_for)


async def answer(model: Fallback, asked: ModelCall | None = None) -> tuple[str, str]:
    text, who = "", ""
    async for piece in model.stream(asked or call()):
        if isinstance(piece, Text):
            text += piece.text
        else:
            who = piece.model
    return text, who


FAULTS = [
    ModelUnreachable("x"),
    ModelTimeout("x"),
    ModelBusy("x"),
    ModelQuota("x"),
    ModelRefused("x"),
    ModelGarbled("x"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_when_one_is_down_the_next_answers_and_says_so(fault):
    first, second = Model("first", fault), Model("second")
    assert await answer(Fallback([first, second])) == ("second", "second")


async def test_the_answer_says_in_whose_place_another_model_gave_it():
    both = Fallback([Model("first", ModelUnreachable("x")), Model("second")])
    finished = [piece async for piece in both.stream(call()) if isinstance(piece, Finished)]
    assert finished[0].note == "Answered by second, because first does not answer just now."
    alone = [piece async for piece in Fallback([Model("first")]).stream(call()) if isinstance(piece, Finished)]
    assert alone[0].note == ""


async def test_a_dead_model_is_not_asked_by_every_turn():
    clock = Clock()
    first, second = Model("first", *[ModelTimeout("x")] * 9), Model("second")
    both = Fallback([first, second], now=clock)
    for _ in range(5):
        assert (await answer(both))[1] == "second"
    assert first.asked == 1
    assert both.name == "second"


async def test_after_a_rest_one_call_is_let_through_and_its_success_brings_the_first_back():
    clock = Clock()
    first, second = Model("first", ModelUnreachable("x")), Model("second")
    both = Fallback([first, second], now=clock)
    await answer(both)
    clock.at += FIRST_REST_S
    assert both.name == "first"
    assert (await answer(both))[1] == "first"
    assert (await answer(both))[1] == "first"


async def test_the_rest_doubles_with_each_failure_up_to_a_limit():
    clock = Clock()
    first = Model("first", *[ModelUnreachable("x")] * 20)
    both = Fallback([first, Model("second")], now=clock)
    rests = []
    for _ in range(8):
        await answer(both)
        began = clock.at
        while both.name != "first":
            clock.at += 1
        rests.append(clock.at - began)
    assert rests == [15, 30, 60, 120, 240, 300, 300, 300]
    assert LONGEST_REST_S == 300


async def test_a_used_up_allowance_is_left_alone_for_long_and_a_busy_one_as_long_as_it_asks():
    clock = Clock()
    both = Fallback([Model("first", ModelQuota("x")), Model("second")], now=clock)
    await answer(both)
    clock.at += QUOTA_REST_S - 1
    assert both.name == "second"
    both = Fallback([Model("first", ModelBusy("x", retry_after_s=90)), Model("second")], now=clock)
    await answer(both)
    clock.at += 89
    assert both.name == "second"
    clock.at += 1
    assert both.name == "first"


async def test_only_one_call_at_a_time_tries_a_model_that_was_down():
    clock = Clock()
    first, second = Model("first", ModelUnreachable("x"), says=""), Model("second")
    both = Fallback([first, second], now=clock)
    await answer(both)
    clock.at += FIRST_REST_S
    probing = both.stream(call())
    assert await anext(probing) == Text("first")
    assert (await answer(both))[1] == "second"
    await probing.aclose()
    assert both.name == "first", "a call that was given up says nothing about the model"


async def test_text_that_was_shown_is_not_answered_over_by_another_model():
    second = Model("second")
    both = Fallback([Model("first", ModelUnreachable("cut"), says="Half an "), second])
    with pytest.raises(ModelUnreachable) as fault:
        await answer(both)
    assert fault.value.partial == "Half an "
    assert second.asked == 0
    assert (await answer(both))[1] == "second", "but the next turn goes to the next model"


async def test_a_prompt_that_is_too_long_says_nothing_against_the_model():
    first, second = Model("first", ContextTooLong("x", context_tokens=4_096)), Model("second")
    both = Fallback([first, second])
    with pytest.raises(ContextTooLong):
        await answer(both)
    assert (await answer(both))[1] == "first"
    assert second.asked == 0


async def test_a_small_model_asks_for_its_own_prompt_and_then_answers():
    small = Model("small", profile=SPLIT)
    both = Fallback([Model("first", ModelUnreachable("x")), small])
    with pytest.raises(ContextTooLong) as misfit:
        await answer(both, call(built_for=both.profile))
    assert misfit.value.build_for == SPLIT
    assert small.asked == 0
    assert both.profile == SPLIT
    assert (await answer(both, call(built_for=both.profile)))[1] == "small"


async def test_a_prompt_for_a_larger_context_is_built_again_only_where_it_does_not_fit():
    narrow = Profile(2_000, 500)
    both = Fallback([Model("first", *[ModelUnreachable("x")] * 2), Model("narrow", profile=narrow)])
    with pytest.raises(ContextTooLong) as misfit:
        await answer(both, call(built_for=ONE, text="x" * 9_000))
    assert misfit.value.build_for == narrow
    assert (await answer(both, call(built_for=ONE, text="short")))[1] == "narrow"


async def test_a_capable_model_takes_a_small_ones_prompt():
    both = Fallback([Model("small", ModelUnreachable("x"), profile=SPLIT), Model("second")])
    assert (await answer(both, call(built_for=SPLIT)))[1] == "second"


async def test_when_all_are_down_the_last_fault_is_told_and_then_that_nobody_can_be_asked():
    both = Fallback([Model("a", ModelUnreachable("A is off.")), Model("b", ModelQuota("B is used up."))])
    with pytest.raises(ModelQuota):
        await answer(both)
    with pytest.raises(ModelBusy) as fault:
        await answer(both)
    assert "A is off." in fault.value.room_text
    assert "B is used up." in fault.value.room_text
    assert 0 < (fault.value.retry_after_s or 0) <= FIRST_REST_S


async def test_a_fault_is_a_warning_while_another_model_stands_behind_it():
    both = Fallback([Model("a", ModelUnreachable("x")), Model("b")])
    assert [check.verdict for check in await both.checks()] == [Health.WARN, Health.OK]
    alone = Fallback([Model("a", ModelUnreachable("x"))])
    assert [check.verdict for check in await alone.checks()] == [Health.FAIL]
