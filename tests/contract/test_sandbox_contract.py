"""What any sandbox does, asked of the real engine and of the fake that stands in for it elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.conversation import Command, Ended
from bot.errors import BadInput
from tests.fake_sandbox import FakeSandbox
from tests.sandbox_engine import begun, bench, closing, room, run, stopwatch


@contextlib.asynccontextmanager
async def made(kind: str, home: Path, *, timeout_s: float) -> AsyncIterator[Any]:
    if kind == "fake":
        yield FakeSandbox(timeout_s=timeout_s)
        return
    with bench(home) as place:
        async with closing(place.sandbox(timeout_s=timeout_s)) as real:
            yield real


@pytest.fixture(params=["fake", "docker"])
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with made(request.param, tmp_path, timeout_s=60.0) as one:
        yield one


@pytest.fixture(params=["fake", "docker"])
async def hasty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Give a sandbox whose commands have two seconds."""
    async with made(request.param, tmp_path, timeout_s=2.0) as one:
        yield one


async def test_a_command_gives_its_exit_code_and_its_streams_apart(sandbox: Any) -> None:
    result = await run(sandbox, "echo out; echo err >&2; exit 3")
    assert (result.ended, result.exit_code) == (Ended.EXIT, 3)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert result.duration_ms >= 0
    assert not result.truncated
    assert result.note == ""


async def test_colours_are_kept_beside_the_plain_output(sandbox: Any) -> None:
    result = await run(sandbox, "printf '\\033[32mok\\033[0m'")
    assert (result.output, result.painted) == ("ok", "\x1b[32mok\x1b[0m")


async def test_files_stay_for_the_next_command_of_the_room_and_no_other(sandbox: Any) -> None:
    await run(sandbox, "echo kept > notes.txt")
    assert (await run(sandbox, "cat notes.txt")).stdout == "kept\n"
    elsewhere = await run(sandbox, "cat notes.txt", where=room("b"))
    assert elsewhere.exit_code == 1
    assert "No such file" in elsewhere.stderr


async def test_a_command_that_takes_too_long_is_stopped_and_says_so(hasty: Any) -> None:
    async with stopwatch() as seconds:
        result = await run(hasty, "echo before; sleep 30; echo after")
        assert seconds() < 6
    assert (result.ended, result.exit_code, result.stdout) == (Ended.TIMEOUT, None, "before\n")
    assert result.note == "Stopped after 2 s."


async def test_a_killed_command_has_no_exit_code(sandbox: Any) -> None:
    result = await run(sandbox, "kill -9 $$")
    assert (result.ended, result.exit_code) == (Ended.KILLED, None)
    assert result.note


async def test_long_output_keeps_its_head_and_is_marked(sandbox: Any) -> None:
    result = await run(sandbox, "yes")
    assert result.truncated
    assert result.ended is Ended.KILLED
    assert result.stdout.startswith("y\ny\n")
    assert "bytes left out" in result.stdout
    assert len(result.stdout) < 70_000


async def test_an_unknown_program_is_a_result_and_no_exception(sandbox: Any) -> None:
    result = await run(sandbox, "no-such-program")
    assert result.exit_code == 127
    assert "not found" in result.stderr


@pytest.mark.parametrize(
    ("code", "why"),
    [("", "empty"), ("  \n", "empty"), ("echo a\0b", "NUL"), ("x" * 131_072, "131,072 bytes"), ("\ud800", "valid")],
)
async def test_what_cannot_be_run_is_not_started_and_says_why(sandbox: Any, code: str, why: str) -> None:
    result = await run(sandbox, code)
    assert result.ended is Ended.NOT_STARTED
    assert why in result.note


async def test_output_is_told_while_the_command_runs(sandbox: Any) -> None:
    told: list[tuple[float, str]] = []
    began = time.monotonic()
    code = "echo one; sleep 0.7; echo two"
    await sandbox.run(
        Command("k", room(), 0, code), on_output=lambda text: told.append((time.monotonic() - began, text))
    )
    assert "".join(text for _, text in told) == "one\ntwo\n"
    assert told[-1][0] - told[0][0] > 0.4


async def test_cancelling_ends_the_command_and_the_next_one_works(sandbox: Any) -> None:
    task = await begun(sandbox, "echo in; sleep 1.5; echo late > late.txt")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(1.5)  # by now it would have written
    assert (await run(sandbox, "cat late.txt")).exit_code == 1


async def test_commands_of_one_room_take_turns(sandbox: Any) -> None:
    code = "echo x >> log; sleep 0.4; cat log"
    one, two = await asyncio.gather(run(sandbox, code), run(sandbox, code))
    assert sorted([one.stdout, two.stdout]) == ["x\n", "x\nx\n"]


async def test_rooms_run_side_by_side(sandbox: Any) -> None:
    elsewhere = await begun(sandbox, "echo in; sleep 50", where=room("b"))
    assert (await run(sandbox, "echo out")).stdout == "out\n"
    assert not elsewhere.done(), "it was not waited for"
    elsewhere.cancel()
    await asyncio.wait({elsewhere})


async def test_a_file_put_in_can_be_read_and_got_out_again(sandbox: Any) -> None:
    data = bytes(range(256)) * 10
    await sandbox.put(room(), 0, "../../etc/data.bin", data)
    assert await sandbox.get(room(), 0, "data.bin") == data
    assert await sandbox.get(room(), 0, "/workspace/data.bin") == data
    assert "data.bin" in (await run(sandbox, "ls")).stdout


async def test_getting_what_is_not_there_says_so(sandbox: Any) -> None:
    with pytest.raises(BadInput, match=r"no file nothing\.txt"):
        await sandbox.get(room(), 0, "nothing.txt")


async def test_destroying_takes_the_files_and_voids_the_generation(sandbox: Any) -> None:
    await run(sandbox, "echo secret > f")
    await sandbox.destroy(room(), through=0)
    late = await run(sandbox, "cat f", generation=0)
    assert (late.ended, late.note) == (Ended.NOT_STARTED, "The room was reset before this command began.")
    assert (await run(sandbox, "cat f", generation=1)).exit_code == 1
    with pytest.raises(BadInput, match="reset"):
        await sandbox.put(room(), 0, "f", b"")


async def test_destroying_an_older_generation_again_leaves_the_newer_one(sandbox: Any) -> None:
    await sandbox.destroy(room(), through=0)
    await run(sandbox, "echo new > f", generation=1)
    await sandbox.destroy(room(), through=0)
    assert (await run(sandbox, "cat f", generation=1)).stdout == "new\n"


async def test_interrupting_never_raises(sandbox: Any) -> None:
    await sandbox.interrupt(room())
    await run(sandbox, "true")
    await sandbox.interrupt(room())
    assert (await run(sandbox, "echo on")).stdout == "on\n"
