"""Discord as `Peer`s of the scenario suite: the wire double with and without threads, and simcord, played by others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import discord
import pytest
import simcord

from adapters.discord.app import Front
from bot.app import Parts, open_duet
from bot.settings import Settings, load_settings
from tests.doubles.discord import FakeDiscord, until
from tests.doubles.discord_people import People
from tests.fake_sandbox import FakeSandbox
from tests.scenario import COUNT, COUNTED, Peer, Seen
from tests.served import serve

NOTHING: Mapping[str, str] = {}
PATIENCE_S = 30.0


class WirePeer:
    """The wire double, with the shipped program against it. A thread is the question that began it."""

    def __init__(self, world: FakeDiscord, name: str) -> None:
        self.name = name
        self._world = world
        self._people = People(world)
        self._said: dict[str, list[str]] = {}  # thread -> ids of the questions in it

    def _who(self, name: str) -> str:
        who: str = getattr(self._people, name)
        return who

    async def mention(self, text: str, *, by: str = "alice", thread: str | None = None) -> str:
        where = thread if thread in self._world.channels else ""
        asked = await self._people.ask(text, who=self._who(by), channel=where)
        self._said.setdefault(thread or asked["id"], []).append(asked["id"])
        return thread or str(asked["id"])

    async def again(self) -> None:
        await self._world.replay()

    async def command(self, words: str, *, by: str = "alice") -> str:
        name, _, rest = words.partition(" ")
        options = {"run": {"command": rest}, "ask": {"question": rest}}.get(name, {})
        made = await self._people.slash(f"duet {name}", who=self._who(by), **options)
        await until(lambda: made.get("acknowledged"))
        return str(made["data"].get("content", ""))

    async def press(self, message: Seen, label: str, *, by: str = "alice") -> None:
        raw = next(m for said in self._world.messages.values() for m in said if m["id"] == message.id)
        made = await self._people.press(raw, label, who=self._who(by))
        await until(lambda: made.get("acknowledged"))

    async def read_file(self, message: Seen, name: str) -> str:
        raw = next(m for said in self._world.messages.values() for m in said if m["id"] == message.id)
        file = next(file for file in raw["attachments"] if file["filename"] == name)
        return self._world.blobs[f"{file['id']}/{name}"].decode()

    async def seen(self, thread: str | None = None) -> list[Seen]:
        mine = [m for channel in self._world.channels for m in self._world.mine(channel) if not m["flags"] & 64]
        if thread is not None:
            asked = self._said[thread]
            mine = [m for m in mine if m["channel_id"] == thread or _reference(m) in asked]
        mine.sort(key=lambda m: int(m["id"]))
        return [Seen(m["id"], m["content"], _labels(m["components"]), _names(m["attachments"])) for m in mine]


def _reference(message: dict[str, Any]) -> str:
    return str((message.get("message_reference") or {}).get("message_id", ""))


def _labels(rows: list[Any]) -> tuple[str, ...]:
    return tuple(button["label"] for row in rows for button in row["components"])


def _names(attachments: list[Any]) -> tuple[str, ...]:
    return tuple(file["filename"] for file in attachments)


@asynccontextmanager
async def open_wire(folder: Path, *, threads: bool, more: Mapping[str, str] = NOTHING) -> AsyncIterator[Peer]:
    async with FakeDiscord() as world:
        settings = {"DUET_DISCORD_THREADS": str(threads).lower(), "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
        async with serve(folder, world.environment | settings | dict(more)):
            await until(lambda: world.identifies and world.commands.get(""), timeout_s=30)
            yield WirePeer(world, f"the wire double {'with' if threads else 'without'} threads")
        assert world.violations == []


class SimcordPeer:
    """simcord, with the program's parts in this process."""

    name = "simcord"

    def __init__(self, env: simcord.Env) -> None:
        self._env = env
        self._guild = env.create_guild()
        self._channel = self._guild.create_text_channel("general")
        self._people = {name: self._guild.add_member(env.create_user(name)) for name in ("alice", "bob")}
        self._said: dict[str, list[int]] = {}
        self._turn = asyncio.Lock()  # simcord lets people act one after the other

    async def mention(self, text: str, *, by: str = "alice", thread: str | None = None) -> str:
        async with self._turn:
            asked = await self._people[by].send(self._channel, f"<@{self._env.bot.user.id}> {text}")
        self._said.setdefault(thread or str(asked.id), []).append(asked.id)
        return thread or str(asked.id)

    async def again(self) -> None:
        told = [p for kind, name, p in self._env.backend.transcript if (kind, name) == ("GATEWAY", "MESSAGE_CREATE")]
        person = [p for p in told if not p["author"].get("bot")][-1]
        self._env.backend.emit("MESSAGE_CREATE", person)
        await self._env.settle()

    async def command(self, words: str, *, by: str = "alice") -> str:
        name, _, rest = words.partition(" ")
        options = {"run": {"command": rest}, "ask": {"question": rest}}.get(name, {})
        async with self._turn:
            result = await self._people[by].slash(self._channel, f"duet {name}", **options)
        return result.response.content if result.response and not result.deferred else ""

    async def press(self, message: Seen, label: str, *, by: str = "alice") -> None:
        raw = next(m for m in self._channel.history() if str(m.id) == message.id)
        async with self._turn:
            result = await self._people[by].click(raw, label=label)
        assert result.acknowledged

    async def read_file(self, message: Seen, name: str) -> str:
        raw = next(m for m in self._channel.history() if str(m.id) == message.id)
        file = next(file for file in raw.attachments if file.filename == name)
        async with self._turn:
            return (await file.read()).decode()

    async def seen(self, thread: str | None = None) -> list[Seen]:
        mine = [m for m in self._channel.history() if m.author.id == self._env.bot.user.id and not m.flags.ephemeral]
        if thread is not None:
            mine = [m for m in mine if m.reference and m.reference.message_id in self._said[thread]]
        return [
            Seen(str(m.id), m.content, tuple(_shown(m)), tuple(file.filename for file in m.attachments)) for m in mine
        ]


def _shown(message: discord.Message) -> list[str]:
    return [button.label or "" for row in message.components for button in getattr(row, "children", [])]


@asynccontextmanager
async def _open_duet_without_engine(settings: Settings) -> AsyncIterator[Parts]:
    """Build Duet as the program does, but over the sandbox that needs no engine."""
    sandbox = FakeSandbox(outputs={COUNT: COUNTED})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.drivers.sandbox.DockerSandbox", lambda *_, **__: sandbox)
        async with open_duet(settings, drain_s=1.0) as parts:
            yield parts


@asynccontextmanager
async def open_simcord(folder: Path, *, more: Mapping[str, str] = NOTHING) -> AsyncIterator[Peer]:
    environ = {"DUET_HOME": str(folder / "home"), "DISCORD_TOKEN": "t"} | dict(more)
    settings = load_settings(environ=environ, folder=folder)
    async with _open_duet_without_engine(settings) as parts:
        env: simcord.Env
        # How long an interaction may still be answered is a matter of the simulated Discord's clock.
        front = Front(settings, parts.duet, now_ms=lambda: int(env.now().timestamp() * 1000))
        env = simcord.Env(front.client, settle_timeout=PATIENCE_S)
        await env.start()
        try:
            peer = SimcordPeer(env)
            with env.time_context():  # what answers an interaction reaches simcord only from inside
                parts.duet.start()
            yield peer
        finally:
            await front.close()
            await env.shutdown()
        env.raise_errors()
