"""A conversation at the terminal, over the real core with a scripted model."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator

import pytest

from adapters.terminal.app import Chat, Terminal
from adapters.terminal.inbound import Keyboard, name_of, read_line, room_named, session_named
from bot.conversation import RoomKey
from bot.errors import BadInput, ModelBusy
from bot.policy import Policy
from tests.conftest import Build, World
from tests.fakes import FakeModel


def said(*lines: str) -> AsyncIterator[str]:
    async def typed() -> AsyncIterator[str]:
        for line in lines:
            yield line

    return typed()


def at(world: World) -> Terminal:
    ids = itertools.count(1)
    keyboard = Keyboard("ann", lambda: f"key{next(ids)}-{id(ids)}", world.clock)
    return Terminal(world.duet, keyboard, io.StringIO(), io.StringIO())


async def talk(world: World, *lines: str) -> tuple[str, str]:
    """Hold a conversation; give what was printed as results and as remarks."""
    terminal = at(world)
    async with asyncio.timeout(20):
        await Chat(terminal, session_named("main"), said(*lines)).hold()
    assert isinstance(terminal.out, io.StringIO)
    assert isinstance(terminal.err, io.StringIO)
    return terminal.out.getvalue(), terminal.err.getvalue()


async def test_a_question_is_answered_with_its_source(world: World) -> None:
    out, err = await talk(world, "What is our branch naming convention?", "/sources")
    assert "Branches are named `feature/<ticket>-<words>` [1]." in out
    assert out.count("[1] naming.md › Naming (line 1)") == 2
    assert "fake-model · 1 document · room main" in err


async def test_the_second_question_is_sent_with_the_first(world: World) -> None:
    await talk(world, "What is our branch naming convention?", "what about for hotfixes?")
    assert "What is our branch naming convention?" in world.model.sent()
    assert "ann: what about for hotfixes?" in world.model.sent()


async def test_the_next_conversation_in_the_room_remembers_the_last(world: World) -> None:
    await talk(world, "What is our branch naming convention?")
    out, err = await talk(world, "/sources")
    assert "1 earlier question remembered" in err
    assert "[1] naming.md" in out


async def test_a_command_of_ones_own_is_run_and_recorded(world: World) -> None:
    out, _ = await talk(world, "/run echo hello")
    assert "$ echo hello\nhello\n[exit code 0" in out
    assert any("echo hello" in message.text for message in await world.duet.history(session_named("main")))


async def test_a_failed_question_is_asked_again_by_retry(build: Build) -> None:
    replies = iter([ModelBusy("The model is busy."), "Now it works."])
    world = await build(model=FakeModel(script=lambda call: next(replies)))
    out, err = await talk(world, "What is our branch naming convention?", "/retry")
    assert "The model is busy." in out
    assert "The question is kept: /retry asks it again." in err
    assert out.rstrip().endswith("Now it works.")


async def test_retry_after_an_answer_asks_anew(world: World) -> None:
    await talk(world, "What is our branch naming convention?", "/retry")
    assert len(world.model.calls) == 2


async def test_reset_forgets(world: World) -> None:
    out, _ = await talk(world, "What is our branch naming convention?", "/reset", "/sources", "/log")
    assert "cleared" in out
    assert "The last answer rests on no section." in out
    assert "Nothing was sent to a model in this room." in out
    assert await world.duet.history(session_named("main")) == []


async def test_log_shows_what_was_sent_for_the_last_answer_only(world: World) -> None:
    out, _ = await talk(world, "What is our branch naming convention?", "and for hotfix branches?", "/log")
    log = out[out.index("# Prompt log") :]
    assert log.count("## Turn") == 1
    assert "ann: and for hotfix branches?" in log
    assert "| naming.md | Naming | 1 | 1.0 |" in log


@pytest.mark.parametrize(("typed", "shown"), [("/approve", "hello\n[exit code 0"), ("/deny", "denied by ann")])
async def test_a_waiting_command_is_decided_by_the_person(build: Build, typed: str, shown: str) -> None:
    replies = iter(["<run>echo hello</run>", "Done."])
    world = await build(policy=Policy(commands="ask"), model=FakeModel(script=lambda call: next(replies, "Done.")))
    out, err = await talk(world, "run `echo hello` in the sandbox", typed)
    assert "This command waits for a yes or no:\n$ echo hello" in out
    assert "/approve" in err
    assert shown in out


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/frob", "There is no /frob"),
        ("/approve", "No command waits"),
        ("/retry", "There is nothing to ask again"),
        ("/run", "The command is empty"),
        ("/help", "/sources"),
        ("/", "/sources"),
        ("x" * 100_000, "characters; the most is"),
    ],
    ids=["unknown", "no ticket", "nothing asked", "no command", "help", "bare slash", "too long"],
)
async def test_what_cannot_be_done_is_told_and_the_conversation_goes_on(world: World, typed: str, told: str) -> None:
    out, err = await talk(world, typed, "What is our branch naming convention?")
    assert told in err
    assert "Branches are named" in out


async def test_empty_lines_are_passed_over_and_quit_leaves(world: World) -> None:
    await talk(world, "", "   ", "/quit", "What is our branch naming convention?")
    assert world.model.calls == []


async def test_a_question_may_begin_with_a_slash(world: World) -> None:
    await talk(world, "//etc/branch is named how?")
    assert "ann: /etc/branch is named how?" in world.model.sent()


def test_slash_commands_are_read_without_regard_to_case() -> None:
    assert (read_line(" /RUN ls -la ").name, read_line("/RUN ls -la").rest) == ("run", "ls -la")


@pytest.mark.parametrize(
    "name", ["demo", "a/b", "web/local/demo", "x/y/z", "slack/T1/C1", "Ünï cödé", "terminal/local/x"]
)
def test_a_rooms_name_leads_back_to_the_room(name: str) -> None:
    assert room_named(name_of(room_named(name))) == room_named(name)


def test_two_rooms_of_the_same_name_in_two_spaces_are_two() -> None:
    assert room_named("slack/T1/demo") != room_named("slack/T2/demo")
    assert room_named("demo") == room_named("terminal/local/demo") == RoomKey("terminal", "local", "demo")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201, "a\x1b[2J"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="A room's name"):
        room_named(name)


def test_a_channel_of_slack_is_not_asked_in_from_here() -> None:
    keyboard = Keyboard("ann", lambda: "k", lambda: 0)
    with pytest.raises(BadInput, match="channel of Slack"):
        keyboard.ask(session_named("slack/T1/C1"), "hello")
    assert keyboard.reset(session_named("slack/T1/C1")).room.platform == "slack"
