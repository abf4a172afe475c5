"""`duet chat` at a real terminal: a pseudo-terminal that answers as one does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.terminal_program import Program
from tests.scripted_model import Reply, ScriptedModel

CONVENTION = "What is our branch naming convention?"
WHERE = b"\x1b[6n"  # the program asks where the cursor is


class Keyboard:
    """The person's side of a pseudo-terminal."""

    def __init__(self, program: Program, env: dict[str, str] | None = None, command: str = "chat") -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bot", command],
            cwd=program.folder,
            env=program.env({"TERM": "xterm-256color"} | (env or {})),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, words: str, *, timeout_s: float = 30) -> str:
        """Read until the words stand in what came since the last call; give that."""
        ends, came = time.monotonic() + timeout_s, ""
        while words not in came:
            assert time.monotonic() < ends, f"{words!r} did not come; there was {came!r}"
            came += self._read()
        self.seen += came
        return came

    def _read(self) -> str:
        if not select.select([self._master], [], [], 0.1)[0]:
            return ""
        with contextlib.suppress(OSError):  # the other side has gone
            data = os.read(self._master, 65_536)
            if WHERE in data:
                os.write(self._master, b"\x1b[10;1R")
            return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", data.decode("utf-8", "replace"))
        return ""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def duet(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def keyboard(duet: Program) -> Iterator[Keyboard]:
    made = Keyboard(duet)
    yield made
    made.close()


def test_a_conversation_is_held_and_left_with_ctrl_d(duet: Program, keyboard: Keyboard) -> None:
    keyboard.wait_for("you>")
    keyboard.type(f"{CONVENTION}\r")
    keyboard.wait_for("[1] branch-naming.md")
    keyboard.wait_for("you>")
    keyboard.type("thrown away\x03")
    keyboard.wait_for("you>")
    keyboard.type("my token is ghp_" + "a1B2" * 9 + "\x03")
    keyboard.wait_for("you>")
    keyboard.type("/run my token is ghp_" + "a1B2" * 9 + "\r")
    keyboard.wait_for("not run")
    keyboard.wait_for("you>")
    keyboard.type("\x04")
    assert keyboard.process.wait(timeout=20) == 0
    history = (duet.folder / "home" / "chat-history").read_text()
    assert CONVENTION in history
    assert "thrown away" not in history
    assert "a1B2a1B2" not in history


async def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(duet: Program) -> None:
    import asyncio

    slow = Reply("A branch is named after the ticket and the hotfix too. " * 20, piece_chars=8, between_s=0.2)
    async with ScriptedModel([slow, "Named by ticket."], repeat_last=True) as model:
        keyboard = Keyboard(duet, {"DUET_MODEL_URL": model.url, "DUET_MODEL": "m"})
        try:
            await asyncio.to_thread(keyboard.wait_for, "you>")
            keyboard.type(f"{CONVENTION}\r")
            await asyncio.to_thread(keyboard.wait_for, "A branch is named")
            keyboard.process.send_signal(signal.SIGINT)
            await asyncio.to_thread(keyboard.wait_for, "topped by")
            await asyncio.to_thread(keyboard.wait_for, "you>")
            keyboard.type("\x04")
            assert await asyncio.to_thread(keyboard.process.wait, 20) == 0
            assert "Traceback" not in keyboard.seen
        finally:
            keyboard.close()


def test_where_nothing_can_be_drawn_there_is_a_prompt_all_the_same_and_ctrl_c_leaves(duet: Program) -> None:
    with contextlib.closing(Keyboard(duet, {"TERM": "dumb"})) as keyboard:
        keyboard.wait_for("you>")
        keyboard.type("/help\n")
        assert "Ctrl-C stops an answer" in keyboard.wait_for("you>")
        keyboard.type("\x03")
        keyboard.wait_for("duet: Stopped.")
        assert keyboard.process.wait(timeout=20) == 130


def test_a_reset_that_is_declined_clears_nothing_and_says_so(duet: Program) -> None:
    with contextlib.closing(Keyboard(duet, command="reset")) as keyboard:
        keyboard.wait_for("Clear room main: every conversation in it and its sandbox?")
        keyboard.type("n\n")
        keyboard.wait_for("duet: Nothing was cleared.")
        assert keyboard.process.wait(timeout=20) == 1
    assert not (duet.folder / "home").exists()
