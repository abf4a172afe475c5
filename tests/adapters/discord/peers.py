"""Discord as `Peer`s of the scenario suite: the wire double with and without threads, and simcord, played by others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import discord
import simcord

from adapters.discord.app import Front
from bot.app import open_duet
from bot.settings import Settings
from tests.doubles.discord import FakeDiscord, until
from tests.doubles.discord_people import People
from tests.scenario import Peer, Seen
from tests.served import serve


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

    async def seen(self, thread: str | None = None) -> list[Seen]:
        mine = [m for channel in self._world.channels for m in self._world.mine(channel) if not m["flags"] & 64]
        if thread is not None:
            asked = self._said[thread]
            mine = [m for m in mine if m["channel_id"] == thread or _reference(m) in asked]
        mine.sort(key=lambda m: int(m["id"]))
        return [Seen(m["id"], m["content"], _labels(m["components"])) for m in mine]


def _reference(message: dict[str, Any]) -> str:
    return str((message.get("message_reference") or {}).get("message_id", ""))


def _labels(rows: list[Any]) -> tuple[str, ...]:
    return tuple(button["label"] for row in rows for button in row["components"])


@asynccontextmanager
async def open_wire(folder: Path, *, threads: bool) -> AsyncIterator[Peer]:
    async with FakeDiscord() as world:
        settings = {"DUET_DISCORD_THREADS": str(threads).lower(), "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
        async with serve(folder, world.environment | settings):
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

    async def seen(self, thread: str | None = None) -> list[Seen]:
        mine = [m for m in self._channel.history() if m.author.id == self._env.bot.user.id and not m.flags.ephemeral]
        if thread is not None:
            mine = [m for m in mine if m.reference and m.reference.message_id in self._said[thread]]
        return [Seen(str(m.id), m.content, tuple(_shown(m))) for m in mine]


def _shown(message: discord.Message) -> list[str]:
    return [button.label or "" for row in message.components for button in getattr(row, "children", [])]


@asynccontextmanager
async def open_simcord(folder: Path) -> AsyncIterator[Peer]:
    settings = Settings(home=folder / "home", discord_token="t", docker_host="unix:///nonexistent/docker.sock")
    async with open_duet(settings, drain_s=1.0) as parts:
        front = Front(settings, parts.duet)
        env = simcord.Env(front.client)
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
