"""What was said while Duet was away: after a restart or a lost session, Discord repeats nothing by itself.

Mentions of the last hour are heard, in bounds; older ones are named in their channel. The claim makes this safe: what
was heard before is not heard again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import discord

from adapters.discord import faults
from adapters.discord.inbound import DIRECT, PLATFORM, is_addressed, is_spoken, place_of

if TYPE_CHECKING:
    from bot.duet import Duet

log = logging.getLogger(__name__)

CHANNELS = 50
DIRECT_CHANNELS = 20
MESSAGES = 100
NOTE_EVERY_MS = 30_000
SKEW_MS = 5_000  # ids of different channels are not told in the order of their times


class CatchUp:
    """Know until when Duet listened, and fetch what it missed."""

    def __init__(
        self,
        client: discord.Client,
        duet: Duet,
        *,
        file: Path,
        hear: Callable[[discord.Message], Awaitable[None]],
        now_ms: Callable[[], int],
        window_ms: int,
    ) -> None:
        self._client = client
        self._duet = duet
        self._file = file
        self._hear = hear
        self._now_ms = now_ms
        self._window_ms = window_ms
        self._seen_ms: int | None = None
        self._written_ms = 0

    def note(self, message: discord.Message) -> None:
        """Note that Discord told Duet of this message: whatever came before it was told, too."""
        self._seen_ms = max(self._seen_ms or 0, int(message.created_at.timestamp() * 1000))
        if self._seen_ms - self._written_ms >= NOTE_EVERY_MS:
            self.write()

    def write(self) -> None:
        """Keep until when Duet listened."""
        if self._seen_ms is None:
            return
        self._written_ms = self._seen_ms
        self._file.parent.mkdir(parents=True, exist_ok=True)
        noted = {"application": str(self._client.application_id), "seen_ms": self._seen_ms}
        self._file.write_text(json.dumps(noted), "utf-8")

    def _since(self) -> int | None:
        """Give until when Duet surely listened, as this application; None when it never did."""
        if self._seen_ms is not None:
            return self._seen_ms - SKEW_MS
        try:
            noted = json.loads(self._file.read_text("utf-8"))
            is_ours = noted["application"] == str(self._client.application_id)
            return int(noted["seen_ms"]) - SKEW_MS if is_ours else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    async def run(self) -> int:
        """Hear the mentions that were missed; give how many were looked at. Faults of one channel skip that channel."""
        since, now = self._since(), self._now_ms()
        self._seen_ms = max(now, since or 0)
        self.write()
        if since is None or self._window_ms <= 0:
            return 0
        missed = 0
        for channel in [*self._channels(since), *await self._direct_channels(since)]:
            try:
                missed += await self._fetch(channel, since=since, now=now)
            except faults.RequestFailed as error:
                log.info("Could not catch up in %s: %s", channel.id, error, extra={"action": "catch up"})
        if missed:
            log.info("Caught up with %s missed mentions", missed, extra={"action": "catch up"})
        return missed

    def _channels(self, since: int) -> list[Any]:
        """Give the channels and threads in which something was said since, the latest first."""
        found: list[tuple[int, Any]] = []
        for guild in self._client.guilds:
            for channel in [*guild.channels, *guild.threads]:
                last = getattr(channel, "last_message_id", None)
                if last is not None and _time_of(last) > since and _is_readable(channel, guild.me):
                    found.append((last, channel))
        found.sort(key=lambda pair: pair[0], reverse=True)
        if len(found) > CHANNELS:
            log.warning("Did not look into %s channels for missed mentions", len(found) - CHANNELS)
        return [channel for _, channel in found[:CHANNELS]]

    async def _direct_channels(self, since: int) -> list[discord.PartialMessageable]:
        """Give the direct messages that were in use; Discord lists none."""
        rooms = [room for room in await self._duet.rooms() if (room.key.platform, room.key.space) == (PLATFORM, DIRECT)]
        rooms.sort(key=lambda room: room.last_active_at, reverse=True)
        return [self._client.get_partial_messageable(int(room.key.channel)) for room in rooms[:DIRECT_CHANNELS]]

    async def _fetch(self, channel: Any, *, since: int, now: int) -> int:
        me = self._client.user
        after = discord.Object(discord.utils.time_snowflake(_moment(since), high=True))
        found = [message async for message in channel.history(limit=MESSAGES, after=after, oldest_first=False)]
        asked = [m for m in reversed(found) if me is not None and is_spoken(m) and is_addressed(m, me)]
        first = now - self._window_ms
        for message in asked:
            if message.created_at.timestamp() * 1000 >= first:
                await self._hear(message)
        old = [m for m in asked if m.created_at.timestamp() * 1000 < first and not await self._is_answered(m)]
        if old:
            await self._name(channel, len(old), since)
        return len(asked)

    async def _is_answered(self, message: discord.Message) -> bool:
        room = place_of(message.channel, message.guild.id if message.guild else None).room
        return await self._duet.answer(room, str(message.id)) is not None

    async def _name(self, channel: Any, count: int, since: int) -> None:
        """Say in the channel that some questions were missed for good."""
        questions = "a question" if count == 1 else f"{count} questions"
        text = f"I was away since <t:{since // 1000}:f> and missed {questions} here. Ask again if it still matters."
        await channel.send(text, nonce=f"away-{channel.id}"[:25], suppress_embeds=True)


def _is_readable(channel: Any, me: discord.Member | None) -> bool:
    if me is None:
        return False
    has = channel.permissions_for(me)
    return bool(has.view_channel and has.read_message_history)


def _time_of(snowflake: int) -> int:
    return int(discord.utils.snowflake_time(snowflake).timestamp() * 1000)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
