"""`docs/example-log.md` is what `duet log` prints of a conversation that is held here, on the sample Codex.

`DUET_TEST_WRITE=1 pytest tests/adapters/test_terminal_example_log.py` writes it anew.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from adapters.terminal.app import Terminal
from adapters.terminal.inbound import Keyboard, session_named
from adapters.terminal.once import Once
from bot.conversation import Outcome
from bot.drivers.codex import Codex
from bot.ports import ModelCall
from tests.conftest import Build
from tests.fake_sandbox import FakeSandbox
from tests.fakes import FakeModel

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "example-log.md"
NINE_O_CLOCK = 1_796_115_600_000  # 1 December 2026, 09:00 UTC

QUESTIONS = (
    "What is our branch naming convention?",
    "what about for hotfixes?",
    "Please run git --version in the sandbox, so that I know which one I have.",
)
REPLIES = (
    "Every branch is named `<type>/<ticket>-<short-description>`, for example `feature/LF-1482-rate-card-import` [1].",
    "A hotfix branch is named `hotfix/<ticket>-<short-description>` and is cut from the tag in production, never from "
    "`main` [1].",
    "I will ask git for its version.\n\n<run>git --version</run>",
    "The sandbox has git 2.39.5.",
)

# What differs from run to run: how long it took.
TIMES = re.compile(r"\d+ ms")


def pieces(replies: Iterator[str]) -> Iterator[str | float]:
    reply = next(replies)
    yield 0.02
    yield reply[:20]
    yield 0.03
    yield reply[20:]


async def held(build: Build, folder: Path) -> str:
    """Hold the conversation and give its log."""
    replies = iter(REPLIES)

    def script(_: ModelCall) -> Iterator[str | float]:
        return pieces(replies)

    codex = await Codex.open(ROOT / "corpus", folder / "codex.db")
    now = [NINE_O_CLOCK]  # goes on a minute with each question
    numbers = itertools.count(1)
    try:
        world = await build(
            model=FakeModel(script=script, name="example-model"),
            retriever=codex,
            sandbox=FakeSandbox(outputs={"git --version": "git version 2.39.5\n"}),
            clock=lambda: now[0],
        )
        out = io.StringIO()
        terminal = Terminal(
            world.duet, Keyboard("ines", lambda: f"{next(numbers):032x}", world.clock), out, io.StringIO()
        )
        for question in QUESTIONS:
            now[0] += 60_000
            answer = await terminal.answer(terminal.keyboard.ask(session_named("main"), question), shown=False)
            assert answer.outcome is Outcome.ANSWERED
        await Once(terminal, as_json=False).log("main")
        return out.getvalue()
    finally:
        await codex.close()


async def test_the_example_log_is_what_duet_log_prints(build: Build, tmp_path: Path) -> None:
    log = await held(build, tmp_path)
    if os.environ.get("DUET_TEST_WRITE"):
        EXAMPLE.parent.mkdir(exist_ok=True)
        EXAMPLE.write_text(log, "utf-8")
    assert TIMES.sub("… ms", log) == TIMES.sub("… ms", EXAMPLE.read_text("utf-8")), (
        "The log is not the one in docs/example-log.md; write it anew with DUET_TEST_WRITE=1 if that is meant."
    )


async def test_the_example_log_holds_what_a_log_must_show(build: Build, tmp_path: Path) -> None:
    log = await held(build, tmp_path)
    assert log.count("## Turn ") == len(REPLIES)
    assert "| branch-naming.md | The convention | 8 |" in log
    assert all(reply.split("\n")[0] in log for reply in REPLIES)
    assert "git version 2.39.5" in log
    assert "ines: what about for hotfixes?" in log
