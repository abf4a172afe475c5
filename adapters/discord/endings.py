"""What goes away: a channel, a thread, a server, or Duet's place in it. Room or conversation end as by a reset.

The gateway tells what goes; what went while Duet was away is found at the next ready. Only what is surely gone ends: a
server that has an outage, an archived thread and a hidden channel are not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import discord

from adapters.discord import faults
from adapters.discord.inbound import PLATFORM, thread_of
from bot.conversation import RoomKey, SessionKey
from bot.errors import attempt

if TYPE_CHECKING:
    from bot.duet import Duet

log = logging.getLogger(__name__)

LOOKED_UP = 100  # archived threads are not told at a ready either, so each costs a request
LOOK_AHEAD = 50


class Endings:
    """End what goes away, and remember in `file` which servers Duet is in."""

    def __init__(self, client: discord.Client, duet: Duet, *, file: Path) -> None:
        self._client = client
        self._duet = duet
        self._file = file

    async def on_guild_channel_delete(self, channel: Any) -> None:
        room = RoomKey(PLATFORM, str(channel.guild.id), str(channel.id))
        await attempt(self._end_room(room), where=f"ending {room}")

    async def on_raw_thread_delete(self, payload: discord.RawThreadDeleteEvent) -> None:
        room = RoomKey(PLATFORM, str(payload.guild_id), str(payload.parent_id))
        await attempt(self._end_thread(room, str(payload.thread_id)), where=f"ending a thread of {room}")

    async def on_guild_join(self, guild: discord.Guild) -> None:
        self._remember(self._remembered() | {str(guild.id)})

    async def on_guild_remove(self, guild: discord.Guild) -> None:
        """End every room of a server that Duet was removed from, or that is gone."""
        await attempt(self._end_servers({str(guild.id)}), where=f"ending the rooms of server {guild.id}")

    async def run(self) -> None:
        """End what went while Duet was away, once Discord has told which servers there are."""
        present = {str(guild.id) for guild in self._client.guilds}
        # Only of servers that Duet was in: people may use it in others, and those rooms stay.
        missing = self._remembered() - present
        await self._end_servers({server for server in missing if await self._is_left(server)})
        self._remember(self._remembered() | present)
        looked_up = 0
        async for session, channel in self._unseen():
            if looked_up == LOOKED_UP:
                log.warning("Did not look whether more than %s threads are gone", looked_up, extra={"action": "gone"})
                return
            looked_up += 1
            if await self._is_gone(session, channel):
                log.info("%s went while Duet was away", session, extra={"action": "gone"})
                await self._duet.end(session if session.thread else session.room)

    async def _unseen(self) -> AsyncIterator[tuple[SessionKey, int]]:
        """Give the conversations whose channel or thread the servers do not show, the last active first."""
        for room in [known.key for known in await self._duet.rooms() if known.key.platform == PLATFORM]:
            guild = self._client.get_guild(int(room.space)) if room.space.isdigit() else None
            if guild is None or guild.unavailable:
                continue
            is_shown = guild.get_channel_or_thread(int(room.channel)) is not None
            for session in [s for s in await self._duet.sessions(room) if await self._duet.is_joined(s)]:
                thread = thread_of(session)
                if not is_shown:
                    yield SessionKey(room), int(room.channel)
                    break
                if thread and guild.get_thread(int(thread)) is None:
                    yield session, int(thread)

    async def _is_left(self, server: str) -> bool:
        """Ask Discord whether Duet is not in a server that it was in; whatever is no plain answer is a no."""
        try:
            await self._client.fetch_guild(int(server), with_counts=False)
        except faults.RequestFailed as error:
            return faults.code_of(error) in (faults.UNKNOWN_GUILD, faults.MISSING_ACCESS)
        return False

    async def _is_gone(self, session: SessionKey, channel: int) -> bool:
        """Ask Discord whether there is no such channel any more, in the same way."""
        try:
            await self._client.fetch_channel(channel)
        except discord.NotFound as error:
            return error.code == faults.UNKNOWN_CHANNEL and not await self._is_in_channel(session, channel)
        except faults.RequestFailed as error:
            log.info("Could not look up a channel: %s", error, extra={"action": "channel"})
        return False

    async def _is_in_channel(self, session: SessionKey, thread: int) -> bool:
        """Tell whether the thread that was to be opened for a question never was, so that its answer stands in the
        channel."""
        if not session.thread or await self._duet.state(session.room, str(thread)) is None:
            return False
        channel = self._client.get_partial_messageable(int(session.room.channel))
        said = channel.history(limit=LOOK_AHEAD, after=discord.Object(thread), oldest_first=True)
        return any([m.reference is not None and m.reference.message_id == thread async for m in said])

    async def _end_room(self, room: RoomKey) -> None:
        if any(known.key == room for known in await self._duet.rooms()):
            await self._duet.end(room)

    async def _end_thread(self, room: RoomKey, thread: str) -> None:
        """End a thread's conversations: that of all, and those that were private."""
        for session in await self._duet.sessions(room):
            if thread_of(session) == thread:
                await self._duet.end(session)

    async def _end_servers(self, gone: set[str]) -> None:
        for room in await self._duet.rooms() if gone else ():
            if room.key.platform == PLATFORM and room.key.space in gone:
                await self._duet.end(room.key)
        self._remember(self._remembered() - gone)

    def _remembered(self) -> set[str]:
        """Give the servers that this application was in; none where that is not known."""
        try:
            noted = json.loads(self._file.read_text("utf-8"))
            return set(noted["servers"]) if noted["application"] == str(self._client.application_id) else set()
        except (OSError, ValueError, KeyError, TypeError):
            return set()

    def _remember(self, servers: set[str]) -> None:
        if servers == self._remembered():
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        noted = {"application": str(self._client.application_id), "servers": sorted(servers)}
        self._file.write_text(json.dumps(noted), "utf-8")
