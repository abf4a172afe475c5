"""What an event costs from discord.py's parser to a claimed turn, as a ratio to discord.py with an empty handler."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import discord

from adapters.discord.app import Front
from bot.policy import Policy
from bot.settings import Settings

EVENTS = 1_500
MOST = 5.0  # measured: 2.4

ME, GUILD, CHANNEL = "111111111111111111", "222222222222222222", "333333333333333333"


class Counting:
    """A Duet whose store costs nothing."""

    policy = Policy()

    def __init__(self) -> None:
        self.heard = 0

    def attach(self, platform: str, outlet: object) -> None:
        return None

    async def cleared_at(self, session: object) -> int:
        return 0

    async def hear(self, turn: object) -> bool:
        self.heard += 1
        return True


def payload(n: int) -> dict[str, object]:
    user = {"id": "444444444444444444", "username": "a", "discriminator": "0", "avatar": None, "global_name": "Alice"}
    me = {"id": ME, "username": "duet", "discriminator": "0", "avatar": None, "bot": True}
    return {
        "id": str(555555555555550000 + n),
        "channel_id": CHANNEL,
        "guild_id": GUILD,
        "author": user,
        "member": {"roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0},
        "content": f"<@{ME}> what is our branch naming convention? {n}",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "edited_timestamp": None,
        "tts": False,
        "mention_everyone": False,
        "mentions": [me],
        "mention_roles": [],
        "attachments": [],
        "embeds": [],
        "pinned": False,
        "type": 0,
        "flags": 0,
    }


def prepared(client: discord.Client) -> discord.Client:
    """Give the client as it is after READY, with one server and channel."""
    state = client._connection
    state.user = discord.ClientUser(
        state=state, data={"id": ME, "username": "duet", "discriminator": "0", "avatar": None, "bot": True}
    )
    guild = {"id": GUILD, "name": "g", "roles": [], "owner_id": ME, "channels": [], "members": [], "emojis": []}
    channel = {"id": CHANNEL, "type": 0, "name": "c", "position": 0, "permission_overwrites": [], "guild_id": GUILD}
    state._add_guild_from_data(guild | {"channels": [channel], "features": [], "stickers": []})
    return client


async def cost_s(client: discord.Client, counter: Bare | Counting) -> float:
    """Give the CPU time of telling the client so many mentions, until each was heard."""
    client.loop = asyncio.get_running_loop()
    prepared(client)
    parse = client._connection.parsers["MESSAGE_CREATE"]
    events = [payload(n) for n in range(EVENTS)]
    started = time.process_time()
    for event in events:
        parse(event)
        await asyncio.sleep(0)
    while counter.heard < EVENTS:
        await asyncio.sleep(0)
    return time.process_time() - started


class Bare:
    """discord.py with a handler that counts."""

    def __init__(self) -> None:
        self.heard = 0
        self.client = discord.Client(intents=discord.Intents.all())
        self.client.event(self.on_message)

    async def on_message(self, message: discord.Message) -> None:
        self.heard += 1


async def test_an_event_costs_little_more_than_discord_py_itself(tmp_path: Path):
    floor, ours = [], []
    for _ in range(3):
        bare = Bare()
        floor.append(await cost_s(bare.client, bare))
        duet = Counting()
        front = Front(Settings(home=tmp_path), duet)
        ours.append(await cost_s(front.client, duet))
    ratio = min(ours) / min(floor)
    assert ratio < MOST, f"{ratio:.2f} times"
