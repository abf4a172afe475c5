"""A Discord that is not there (simcord) with the real core behind Discord's front: what the tests here stand on."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import discord
import simcord

from adapters.discord.app import Front
from bot.conversation import Command, CommandResult, Ended, RoomKey
from bot.drivers.codex import Codex
from bot.drivers.store import SqliteStore
from bot.duet import Duet
from bot.errors import BadInput, SandboxUnavailable
from bot.policy import Policy
from bot.ports import Finished, ModelCall, Piece, Profile, Text
from bot.redaction import Redactor
from bot.settings import Settings, sample_codex

QUESTION = "What is our branch naming convention?"
ACTION = "list the files here and write me a long text about them"  # not about the standards, so nothing is checked
PATIENCE_S = 30.0  # a busy machine takes its time
REPLY = "Branches are named `type/short-description` [1]."


@dataclass
class Model:
    """Says what it is told to, in pieces; `hold` makes it wait before the last one."""

    replies: list[str | Exception] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    hold: asyncio.Event | None = None
    pieces: int = 2
    name: str = "scripted"
    profile: Profile = field(default_factory=Profile)

    async def stream(self, call: ModelCall) -> AsyncIterator[Piece]:
        self.calls.append(call)
        reply = self.replies.pop(0) if self.replies else REPLY
        if isinstance(reply, Exception):
            raise reply
        size = max(1, len(reply) // self.pieces)
        cuts = [reply[at : at + size] for at in range(0, len(reply), size)]
        for number, cut in enumerate(cuts):
            if number == len(cuts) - 1 and self.hold is not None:
                await self.hold.wait()
            yield Text(cut)
            await asyncio.sleep(0)
        from bot.conversation import Usage

        yield Finished("stop", Usage(1, 1), self.name)


@dataclass
class Shell:
    """A sandbox that only notes what it was asked to run."""

    output: Callable[[str], str] = lambda code: f"ran {code}\n"
    ran: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    destroyed: list[RoomKey] = field(default_factory=list)
    hold: asyncio.Event | None = None
    unavailable: SandboxUnavailable | None = None

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        self.ran.append(command.code)
        if self.hold is not None:
            await self.hold.wait()
        return CommandResult(command.code, Ended.EXIT, 0, stdout=self.output(command.code), duration_ms=120)

    async def put(self, room: RoomKey, generation: int, name: str, data: bytes) -> None:
        self.files[name] = data

    async def get(self, room: RoomKey, generation: int, path: str) -> bytes:
        if self.unavailable is not None:
            raise self.unavailable
        if path not in self.files:
            raise BadInput(f"There is no file {path} that can be read in this room's workspace.")
        return self.files[path]

    async def interrupt(self, room: RoomKey) -> None:
        return None

    async def destroy(self, room: RoomKey, *, through: int) -> None:
        self.destroyed.append(room)


class World:
    """One guild with a channel and a member, and everything behind."""

    def __init__(self, home: Path, index: Path, *, policy: Policy, settings: dict[str, Any]) -> None:
        self.home = home
        self.model = Model()
        self.shell = Shell()
        self.policy = policy
        self.settings = Settings(home=home, discord_token="t", **settings)
        self._index = index
        self.env: Any = None
        self.clock_offset_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def discord_now_ms(self) -> int:
        """Give the time of the simulated Discord, whose clock the tests move."""
        return int(self.env.now().timestamp() * 1000)

    async def build(self) -> Front:
        self.store = SqliteStore(self.home, now=self.now_ms)
        await self.store.open()
        self.codex = await Codex.open(sample_codex(), self._index, base_url="https://codex.example/")
        self.duet = Duet(
            self.store,
            self.model,
            self.codex,
            self.shell,
            policy=self.policy,
            redact=Redactor(()),
            now=self.now_ms,
            new_id=lambda: uuid.uuid4().hex,
            turn_timeout_s=30,
            reset_wait_s=3,
            find_after_s=0.0,
        )
        self.front = Front(
            self.settings,
            self.duet,
            now_ms=self.discord_now_ms,
            draft_period_s=0.01,
            file_hosts=frozenset({"cdn.simcord.invalid"}),
        )
        return self.front

    async def tear_down(self) -> None:
        await self.front.close()
        await self.duet.close()
        await self.codex.close()
        await self.store.close()

    async def restart(self) -> None:
        """End the process's parts as a crash would leave them, and begin anew on the same folder."""
        await self.duet.close()
        await self.codex.close()
        await self.store.close()
        await self.build()
        await self.env.restart_bot(self.front.client)
        self.duet.start()

    async def go_away(self) -> None:
        """End the process as a person would; what is said from now on is not told to it."""
        await self.tear_down()
        self.front.client.dispatch = lambda *_, **__: None

    async def come_back(self) -> None:
        await self.build()
        await self.env.restart_bot(self.front.client)
        self.duet.start()

    def people(self) -> None:
        self.guild = self.env.create_guild()
        self.channel = self.guild.create_text_channel("general")
        self.alice = self.guild.add_member(self.env.create_user("alice"))
        self.bob = self.guild.add_member(self.env.create_user("bob"))

    @property
    def me(self) -> str:
        return f"<@{self.env.bot.user.id}>"

    async def until(self, told: Callable[[], Any], *, timeout_s: float = PATIENCE_S) -> Any:
        """Wait until `told` gives something true, and give that."""
        end = time.monotonic() + timeout_s
        while not (found := told()):
            if time.monotonic() > end:
                raise AssertionError(f"it never came; Discord saw:\n{self.env.transcript()[-6000:]}")
            await asyncio.sleep(0.01)
        return found

    def mine(self, channel: Any | None = None) -> list[discord.Message]:
        """Give Duet's messages in a channel, oldest first."""
        said = (channel or self.channel).history()
        return [message for message in said if message.author.id == self.env.bot.user.id and not message.is_system()]

    async def settled(self, count: int = 1, channel: Any | None = None) -> list[discord.Message]:
        """Wait until so many of Duet's messages are there and none of them is a draft any more."""
        where = channel or self.channel

        def done() -> list[discord.Message]:
            mine = self.mine(where)
            is_done = len(mine) >= count and not any(is_draft(message) for message in mine)
            return mine if is_done else []

        found: list[discord.Message] = await self.until(done)
        await self.quiet()
        return found

    async def quiet(self) -> None:
        """Wait until nothing is left to do or to post."""

        async def is_quiet() -> bool:
            status = await self.duet.status()
            return status.queue_age_ms is None and status.outbox_age_ms is None and status.turns_running == 0

        end = time.monotonic() + PATIENCE_S
        while not await is_quiet():
            if time.monotonic() > end:
                raise AssertionError("it never became quiet")
            await asyncio.sleep(0.01)

    async def ask(self, text: str = QUESTION, *, who: Any | None = None, channel: Any | None = None) -> discord.Message:
        return await (who or self.alice).send(channel or self.channel, f"{self.me} {text}")

    def sent(self, method: str = "POST", path: str = "/messages") -> list[Any]:
        return [r for r in self.env.http_requests if r.method == method and r.path.endswith(path)]


def is_draft(message: discord.Message) -> bool:
    return "thinking…" in message.content or "-# …" in message.content or message.flags.loading


@contextlib.asynccontextmanager
async def discord_world(
    home: Path, index: Path, *, policy: Policy | None = None, check_errors: bool = True, **settings: Any
) -> AsyncIterator[World]:
    world = World(home, index, policy=policy or Policy(), settings=settings)
    front = await world.build()
    simulation = simcord.run(front.client, check_errors=check_errors, settle_timeout=PATIENCE_S)
    world.env = simulation._env  # its clock is needed before it starts
    async with simulation:
        world.people()
        world.duet.start()
        try:
            yield world
        finally:
            await world.tear_down()
    shutil.rmtree(home, ignore_errors=True)


def asking(policy: Policy) -> Policy:
    return replace(policy, commands="ask")
