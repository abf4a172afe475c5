"""Commands of a turn: asked by the model or a person, waited for, decided, interrupted; never run twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.conversation import Answer, Body, Ended, FileData, Outcome, Part, SessionKey, Standing, TurnKind, Verdict
from bot.policy import Policy
from bot.ports import ModelCall
from tests.conftest import Build, World
from tests.fakes import ANN, BOB, ROOM, FakeModel, FakeOutlet, FakeSandbox, turn

ASK = Policy(commands="ask")


def runs_then_tells(call: ModelCall) -> str:
    """Ask for two commands, then tell what their output was."""
    if "Output of the commands" in call.messages[-1].content:
        return "The output says what it says."
    return "I will look.\n<run>echo one</run>\n<run>echo two</run>"


def press(ticket: str, verdict: Verdict = Verdict.APPROVE, *, id: str = "", author: object = BOB) -> object:
    return turn("", kind=TurnKind.PRESS, target=ticket, verdict=verdict, id=id, author=author)


async def test_two_run_tags_run_in_order_and_the_next_call_sees_both_outputs(build: Build) -> None:
    world = await build(model=FakeModel(runs_then_tells))
    (answer,) = await world.hear(turn("list the files here and show the kernel version of this branch"))
    assert [command.code for command in world.sandbox.ran] == ["echo one", "echo two"]
    assert [result.output for result in answer.commands] == ["one", "two"]
    assert "<run>" not in answer.text
    assert "one" in world.model.calls[1].messages[-1].content
    assert "two" in world.model.calls[1].messages[-1].content
    assert "I will look." in answer.text
    assert "what it says" in answer.text


async def test_the_model_may_go_on_four_steps_and_no_further(build: Build) -> None:
    world = await build(model=FakeModel(lambda call: "Again. <run>echo x</run>"))
    (answer,) = await world.hear(turn("run things for this branch"))
    assert len(world.model.calls) == 4
    assert len(world.sandbox.ran) == 4
    assert "Stopped after 4 steps." in answer.notes


async def test_a_persons_own_command_runs_and_stands_in_the_conversation(world: World) -> None:
    (answer,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    assert answer.commands[0].output == "hi"
    assert world.model.calls == []
    said = [(m.role, m.author, m.text) for m in await world.duet.history(SessionKey(ROOM))]
    assert said[0] == ("user", "Ann", "run echo hi")
    assert said[1][:2] == ("command", "Ann")
    assert "hi" in said[1][2]


async def test_an_unclosed_tag_is_hidden_and_named(build: Build) -> None:
    world = await build(model=FakeModel(lambda call: "Let me see <run>rm -rf /"))
    (answer,) = await world.hear(turn("look at this branch"))
    assert "<run>" not in answer.text
    assert "rm -rf" not in answer.text
    assert any("did not end it" in note for note in answer.notes)
    assert world.sandbox.ran == []


async def test_without_an_engine_the_answer_still_comes_and_says_how_to_get_commands(build: Build) -> None:
    world = await build(model=FakeModel(runs_then_tells), sandbox=FakeSandbox(away=True))
    (answer,) = await world.hear(turn("run something on this branch"))
    assert answer.outcome is Outcome.ANSWERED
    assert {result.ended for result in answer.commands} == {Ended.NOT_STARTED}
    assert "No Docker engine answers. Start one." in answer.commands[0].note


async def test_commands_that_are_off_are_refused_for_model_and_person(build: Build) -> None:
    world = await build(model=FakeModel(runs_then_tells), policy=Policy(commands="off"))
    asked, ran = await world.hear(turn("run something on this branch"), turn("echo hi", kind=TurnKind.RUN))
    assert ran.outcome is Outcome.REFUSED
    assert world.sandbox.ran == []
    assert all("switched off" in result.note for result in asked.commands)


async def test_pressing_approve_twice_runs_the_command_once(build: Build) -> None:
    world = await build(policy=ASK)
    asked = turn("echo hi", kind=TurnKind.RUN)
    (asking,) = await world.hear(asked)
    assert asking.ticket
    assert world.sandbox.ran == []
    first, second = press(asking.ticket.id, author=BOB), press(asking.ticket.id, author=ANN)
    won, lost = await world.hear(first, second)
    assert [command.code for command in world.sandbox.ran] == ["echo hi"]
    assert won.commands[0].output == "hi"
    assert lost.text == "This was already approved by Bob."
    assert "approved Bob" in world.outlet.texts[0]


async def test_a_denied_command_never_runs_and_the_message_says_who_decided(build: Build) -> None:
    world = await build(policy=ASK)
    (asking,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    assert asking.ticket
    (denied,) = await world.hear(press(asking.ticket.id, Verdict.DENY))
    assert world.sandbox.ran == []
    assert denied.commands[0].note == "denied by Bob"
    assert "denied Bob" in world.outlet.texts[0]


async def test_denying_changes_the_message_that_asked_and_posts_no_second(build: Build) -> None:
    world = await build(policy=ASK)
    (asking,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    await world.hear(press(asking.ticket.id, Verdict.DENY))
    (shown,) = world.outlet.texts
    assert "denied Bob" in shown
    said = await world.duet.history(SessionKey(ROOM))
    assert "not started, denied by Bob" in said[-1].text


async def test_denying_is_told_anew_where_no_message_asks_any_more(build: Build) -> None:
    world = await build(policy=ASK)
    asked = turn("echo hi", kind=TurnKind.RUN)
    (asking,) = await world.hear(asked)
    await world.store.database.write(lambda c: c.execute("UPDATE outbox SET state = 'failed'"))
    await world.hear(press(asking.ticket.id, Verdict.DENY))
    assert "denied by Bob" in world.outlet.texts[-1]


async def test_a_message_that_is_redrawn_does_not_bring_its_files_again(build: Build) -> None:
    attached: list[str] = []

    class WithFile(FakeOutlet):
        def render(self, answer: Answer) -> tuple[Body, ...]:
            (body,) = super().render(answer)
            return (replace(body, files=(FileData("output.txt", b"long"),)),)

        async def show(self, part: Part, *, draft: bool) -> str:
            attached.extend(file.name for file in part.body.files)
            return await super().show(part, draft=draft)

    world = await build(policy=ASK, outlet=WithFile())
    (asking,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    await world.hear(press(asking.ticket.id, Verdict.DENY))
    assert "denied Bob" in world.outlet.texts[0]
    assert attached == ["output.txt"]


async def test_after_approval_the_model_goes_on_with_the_output_under_the_asking_turn(build: Build) -> None:
    world = await build(model=FakeModel(runs_then_tells), policy=ASK)
    (asking,) = await world.hear(turn("show the kernel version of this branch"))
    assert asking.ticket
    assert asking.ticket.code == "echo one"
    (second,) = await world.hear(press(asking.ticket.id))
    assert second.ticket
    assert second.ticket.code == "echo two"
    (told,) = await world.hear(press(second.ticket.id))
    assert told.ticket is None
    assert "what it says" in told.text
    assert [command.code for command in world.sandbox.ran] == ["echo one", "echo two"]
    assert len(world.model.calls) == 2
    assert "approved Bob" in world.outlet.texts[1]
    log = await world.duet.prompt_log(SessionKey(ROOM))
    assert [call.step for call in log] == [0, 1]
    assert len({call.turn for call in log}) == 1


async def test_only_listed_people_approve(build: Build) -> None:
    world = await build(policy=Policy(commands="ask", approvers=("U1",)))
    (asking,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    assert asking.ticket
    (refused,) = await world.hear(press(asking.ticket.id, author=BOB))
    assert refused.outcome is Outcome.REFUSED
    assert world.sandbox.ran == []


async def test_a_ticket_expires(build: Build) -> None:
    at = [1_000_000]
    world = await build(policy=ASK, clock=lambda: at[0])
    (asking,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    assert asking.ticket
    at[0] = asking.ticket.expires_at
    (late,) = await world.hear(press(asking.ticket.id))
    assert late.text == "The time to decide this is over."
    assert "expired" in world.outlet.texts[0]
    assert world.sandbox.ran == []


async def test_a_looser_sandbox_makes_every_command_wait(build: Build) -> None:
    world = await build(policy=Policy(loosened=("network is 'bridge'",)))
    (asking,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    assert asking.ticket
    assert world.sandbox.ran == []


async def test_the_lane_is_free_while_a_ticket_waits(build: Build) -> None:
    world = await build(policy=ASK)
    await world.hear(turn("echo hi", kind=TurnKind.RUN))
    (answer,) = await world.hear(turn())
    assert answer.outcome is Outcome.ANSWERED


async def test_stopping_a_turn_kills_its_command(build: Build) -> None:
    world = await build()
    asked = turn("sleep 30", kind=TurnKind.RUN)
    await world.duet.hear(asked)
    await world.until(lambda: world.sandbox.ran)
    await world.duet.stop(ROOM, asked.id, by=ANN, id="s1")
    answer = await world.settled(asked)
    assert answer.outcome is Outcome.CANCELLED
    assert [command.code for command in world.sandbox.killed] == ["sleep 30"]
    assert [(result.code, result.note) for result in answer.commands] == [("sleep 30", "stopped before it ended")]


async def test_live_output_reaches_the_draft(build: Build) -> None:
    class Slow(FakeSandbox):
        async def run(self, command, *, on_output=None):
            on_output("first line\n")
            await asyncio.sleep(0.2)
            return await super().run(command, on_output=on_output)

    world = await build(sandbox=Slow())
    asked = turn("echo hi", kind=TurnKind.RUN)
    await world.duet.hear(asked)
    await world.until(lambda: any("first line" in text for text in world.outlet.texts))
    await world.settled(asked)


async def test_a_command_that_prints_a_token_never_shows_it(build: Build) -> None:
    token = "xoxb-123456789012-1234567890123-abcdefghijklmnopqrstuvwx"
    world = await build(sandbox=FakeSandbox(output=token))
    (answer,) = await world.hear(turn("echo x", kind=TurnKind.RUN))
    assert token not in repr(answer)
    assert token not in repr(world.outlet.messages)


@pytest.mark.parametrize("standing", [Standing.OUTSIDER, Standing.GUEST, Standing.BOT])
async def test_outsiders_run_nothing(build: Build, standing: Standing) -> None:
    world = await build(outlet=FakeOutlet(standing=standing))
    (answer,) = await world.hear(turn("echo hi", kind=TurnKind.RUN))
    assert answer.outcome is Outcome.REFUSED
    assert world.sandbox.ran == []


async def test_a_token_that_colours_were_put_into_is_masked_and_loses_its_colours(build: Build) -> None:
    secret = "sk-own-key-1234567890abcdef"
    world = await build(sandbox=FakeSandbox(output="sk-own-\x1b[31mkey-1234\x1b[0m567890abcdef\n"), secrets=(secret,))
    (answer,) = await world.hear(turn("echo x", kind=TurnKind.RUN))
    assert answer.commands[0].painted == ""
    assert secret not in answer.commands[0].output


async def test_colours_of_the_output_reach_the_answer(build: Build) -> None:
    world = await build(sandbox=FakeSandbox(output="\x1b[32mok\x1b[0m\n"))
    (answer,) = await world.hear(turn("echo x", kind=TurnKind.RUN))
    assert answer.commands[0].output == "ok"
    assert answer.commands[0].painted == "\x1b[32mok\x1b[0m"
