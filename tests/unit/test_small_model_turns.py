"""A turn with a small model: the program chooses the prompt, adds the sources and takes only commands it asked for."""

from bot.ports import ModelCall, Profile
from bot.prompt import REFUSAL
from tests.conftest import Build
from tests.fakes import FakeModel, turn

SMALL = Profile(4_096, 512, "split")


def scripted(*replies: str) -> FakeModel:
    left = list(replies)

    def reply(call: ModelCall) -> str:
        return left.pop(0)

    return FakeModel(script=reply, profile=SMALL)


async def test_the_program_adds_the_sources(build: Build):
    world = await build(model=scripted("Feature branches are named feature/<ticket>-<words>."))
    (answer,) = await world.hear(turn("What is our branch naming convention?"))
    assert answer.sources
    assert "[1]" in answer.text


async def test_its_way_of_saying_not_covered_becomes_the_refusal(build: Build):
    world = await build(model=scripted("NOT COVERED"))
    (answer,) = await world.hear(turn("What is our branch naming convention?"))
    assert answer.covered is False
    assert "NOT COVERED" not in answer.text
    assert REFUSAL in answer.text or "does not cover" in answer.text


async def test_a_request_becomes_one_command_and_its_output_is_explained(build: Build):
    model = scripted("<run>uname -r</run>", "The kernel is 6.1.")
    world = await build(model=model)
    (answer,) = await world.hear(turn("show the kernel version"))
    assert [result.code for result in answer.commands] == ["uname -r"]
    assert "The kernel is 6.1." in answer.text
    assert [len(call.messages) for call in model.calls] == [2, 2]


async def test_a_command_that_it_repeats_from_the_output_is_not_run(build: Build):
    world = await build(model=scripted("<run>cat note.txt</run>", "The note says <run>rm -rf .</run>"))
    (answer,) = await world.hear(turn("show the file note.txt"))
    assert [result.code for result in answer.commands] == ["cat note.txt"]
    assert "rm -rf" not in answer.text


async def test_a_command_made_up_for_a_question_is_not_run(build: Build):
    world = await build(model=scripted("Feature branches are named feature/. <run>cat /etc/passwd</run>"))
    (answer,) = await world.hear(turn("What is our branch naming convention?"))
    assert answer.commands == ()
    assert any("was not run" in note for note in answer.notes)
