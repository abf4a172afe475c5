"""The shipped program as a process of its own, speaking to the Discord double and to a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.doubles.discord import FakeDiscord, until
from tests.doubles.discord_people import People
from tests.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[3]
QUESTION = "What is our branch naming convention?"
ACTION = "list the files here and write me a long text about them"
REPLY = "Branches are named `type/short-description` [1]."


class Program:
    """`duet serve` on one data folder; killed and begun anew at will."""

    def __init__(self, home: Path, discord: FakeDiscord, model: ScriptedModel, **settings: str) -> None:
        self.log = home.parent / f"{home.name}.log"
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith(("DUET_", "SLACK_"))}
        self._environ |= discord.environment | {
            "DUET_HOME": str(home),
            "DUET_HTTP_PORT": "0",
            "DUET_MODEL_URL": model.url,
            "DUET_MODEL": "scripted",
            "DOCKER_HOST": "unix:///nonexistent/docker.sock",
            "PYTHONWARNINGS": "default",
        }
        self._environ |= settings
        self._discord = discord
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        ready = self._discord.identifies + 1
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bot", "serve", cwd=ROOT, env=self._environ, stdout=log, stderr=log
            )
        await until(lambda: self._discord.identifies >= ready or self.process.returncode is not None, timeout_s=30)
        assert self.process.returncode is None, self.log.read_text()

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def _end(self, how: int) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(how)
            await asyncio.wait_for(self.process.wait(), 30)


class Wire:
    def __init__(self, discord: FakeDiscord, model: ScriptedModel, program: Program) -> None:
        self.discord, self.model, self.program = discord, model, program
        self.people = People(discord)
        self.owed: list[str] = []  # channels in which an answer is still to come

    def answers_to(self, asked: Any, channel: str = "") -> list[Any]:
        mine = self.discord.mine(channel)
        return [m for m in mine if (m.get("message_reference") or {}).get("message_id") == asked["id"]]

    async def answers(self, count: int = 1, channel: str = "", *, timeout_s: float = 40.0) -> list[Any]:
        """Wait until so many of Duet's messages are there and none is a draft any more."""

        def done() -> list[Any]:
            mine = self.discord.mine(channel)
            return mine if len(mine) >= count and not any(map(is_draft, mine)) else []

        try:
            return await until(done, timeout_s=timeout_s)
        except AssertionError as error:
            seen = "\n".join(f"{r.status} {r.method} {r.path} {str(r.body)[:200]}" for r in self.discord.requests[-30:])
            raise AssertionError(f"{seen}\n{self.program.log.read_text()[-4000:]}") from error


def is_draft(message: Any) -> bool:
    return bool(message["flags"] & 128) or "-# …" in message["content"] or "thinking…" in message["content"]


@contextlib.asynccontextmanager
async def on_the_wire(
    home: Path, *, replies: Any = None, heartbeat_s: float = 41.0, **settings: str
) -> AsyncIterator[Wire]:
    """Give the program, started; at the end nothing may have broken Discord's contract, or the loop's patience."""
    async with (
        FakeDiscord(heartbeat_s=heartbeat_s) as discord,
        ScriptedModel(replies or (lambda _: REPLY)) as model,
    ):
        wire = Wire(discord, model, Program(home, discord, model, **settings))
        try:
            await wire.program.start()
            await until(lambda: discord.commands.get("", []))
            yield wire
        finally:
            await wire.program.kill()
        assert discord.violations == []
        log = wire.program.log.read_text()
        assert "heartbeat blocked" not in log, log
        assert "Traceback" not in log, log
