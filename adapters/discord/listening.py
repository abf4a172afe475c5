"""What the gateway tells of messages, told on to Duet: what is said, edited and deleted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import discord

from adapters.discord import faults
from adapters.discord.catchup import CatchUp
from adapters.discord.commands import HELP
from adapters.discord.entry import NOT_STORED
from adapters.discord.gate import Gate
from adapters.discord.inbound import (
    is_addressed,
    is_help,
    is_role_addressed,
    is_spoken,
    place_of,
    to_turn,
)
from bot.conversation import Author, Turn
from bot.errors import Incident, StoreUnavailable, attempt

if TYPE_CHECKING:
    from bot.duet import Duet

log = logging.getLogger(__name__)

Deleted: TypeAlias = discord.RawMessageDeleteEvent | discord.RawBulkMessageDeleteEvent

# A mention added to a message later than this is no question any more.
EDIT_COUNTS_MS = 15 * 60 * 1000
PICK_ME = "You mentioned my role. Discord shows me your words only if you mention me, the one named below **Apps**."


class Listener:
    """The handlers of gateway events. Each is done when the turn is stored; the work happens elsewhere."""

    def __init__(
        self, client: discord.Client, duet: Duet, gate: Gate, *, opens_threads: bool, reads_threads: bool
    ) -> None:
        self._client = client
        self._duet = duet
        self._gate = gate
        self._opens_threads = opens_threads
        self._reads_threads = reads_threads
        self.catch_up: CatchUp | None = None

    async def on_message(self, message: discord.Message) -> None:
        """Hear a message that addresses Duet."""
        if self.catch_up is not None:
            self.catch_up.note(message)
        if is_spoken(message):
            await attempt(self.hear(message), where=f"hearing message {message.id}")

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Hear a message into which Duet's mention was written later; one heard before counts once."""
        message = payload.message
        edited = message.edited_at
        if edited is None or not is_spoken(message):
            return
        if (edited - message.created_at).total_seconds() * 1000 <= EDIT_COUNTS_MS:
            await attempt(self.hear(message), where=f"hearing edited message {message.id}")

    async def hear(self, message: discord.Message) -> None:
        """Claim the turn of a message, if it is one."""
        me = self._client.user
        if me is None or _is_foreign(message):
            return
        message = await self._placed(message)
        is_role = is_role_addressed(message)
        if not (is_addressed(message, me) or is_role or await self._is_follow_up(message)):
            return
        turn = to_turn(message, me, opens_threads=self._opens_threads)
        if not turn.text:
            await self._hint(message, me, is_role=is_role)
        elif is_help(turn.text):
            await self._help(message, HELP)
        else:
            await self._take(message, turn)

    async def _hint(self, message: discord.Message, me: discord.abc.User, *, is_role: bool) -> None:
        """Say what can be asked, and how. A reply with its ping off comes without words: it is not meant for Duet."""
        if message.guild is None or any(user.id == me.id for user in message.mentions):
            await self._help(message, HELP)
        elif is_role:
            await self._help(message, PICK_ME)

    async def _help(self, message: discord.Message, text: str) -> None:
        await self._reply(message, await self._gate.hears(message) or text)

    async def _take(self, message: discord.Message, turn: Turn) -> None:
        try:
            await self._duet.hear(turn)
        except StoreUnavailable as error:
            log.warning("Did not take a turn: %s", error, extra={"action": "not stored"})
            await self._reply(message, NOT_STORED)

    async def _placed(self, message: discord.Message) -> discord.Message:
        """Give the message with its channel known: a thread that was archived before Duet came is not at first."""
        if isinstance(message.channel, discord.PartialMessageable) and message.guild is not None:
            message.channel = await self._looked_up(message.channel, message.guild.id)
        return message

    async def _looked_up(self, channel: discord.PartialMessageable, guild_id: int | None) -> Any:
        """Give a server's channel as Discord knows it, or as it was given where that cannot be had."""
        try:
            return await self._client.fetch_channel(channel.id) if guild_id else channel
        except faults.RequestFailed as error:
            log.info("Could not look up a channel: %s", error, extra={"action": "channel"})
            return channel

    async def _is_follow_up(self, message: discord.Message) -> bool:
        """Tell whether it is said, without a mention, in a thread that Duet takes part in."""
        if not self._reads_threads or not isinstance(message.channel, discord.Thread) or message.mention_everyone:
            return False
        if message.mentions or (message.reference is not None and message.reference.message_id):
            return False  # said to somebody else
        guild_id = message.guild.id if message.guild else None
        return await self._duet.is_joined(place_of(message.channel, guild_id).session)

    async def _reply(self, message: discord.Message, text: str) -> None:
        """Say something that is no answer; a repeated event says it once."""
        try:
            await message.channel.send(
                text,
                reference=message.to_reference(fail_if_not_exists=False),
                mention_author=False,
                nonce=f"r{message.id}",
                suppress_embeds=True,
            )
        except faults.RequestFailed as error:
            log.info("Could not reply: %s", error, extra={"action": "reply", "code": faults.code_of(error)})

    # ── What is deleted ───────────────────────────────────────────────────────────────────────────────────────────

    async def on_raw_message_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        known = [payload.cached_message] if payload.cached_message else []
        await self._withdraw(payload, {payload.message_id}, known)

    async def on_raw_bulk_message_delete(self, payload: discord.RawBulkMessageDeleteEvent) -> None:
        await self._withdraw(payload, payload.message_ids, payload.cached_messages)

    async def _withdraw(self, where: Deleted, ids: set[int], known: Sequence[discord.Message]) -> None:
        """Take back the questions among deleted messages.

        One that discord.py still knows may be about to be heard, so it is taken back in any case; of all others only
        the id is told, and those are taken back that were heard.
        """
        for message in known:
            me = self._client.user
            if me is not None and is_spoken(message) and is_addressed(message, me):
                turn = to_turn(message, me, opens_threads=self._opens_threads)
                await attempt(self._duet.withdraw(turn), where=f"withdrawing {turn.id}")
        if forgotten := ids - {message.id for message in known}:
            await attempt(self._withdraw_heard(where, forgotten), where="withdrawing what was deleted")

    async def _withdraw_heard(self, where: Deleted, ids: set[int]) -> None:
        channel: Any = self._client.get_channel(where.channel_id)
        if channel is None:
            channel = await self._looked_up(self._client.get_partial_messageable(where.channel_id), where.guild_id)
        session = place_of(channel, where.guild_id).session
        for id in map(str, ids):
            if await self._duet.state(session.room, id) in ("heard", "running"):
                await self._duet.withdraw(Turn(id, session, Author("", ""), "", 0))

    # ── The connection ────────────────────────────────────────────────────────────────────────────────────────────

    async def on_ready(self) -> None:
        """Catch up. Discord calls this again whenever a session is lost, so nothing that counts once stands here."""
        log.info("Discord is ready: %s servers", len(self._client.guilds), extra={"action": "ready"})
        if self.catch_up is not None:
            done = await attempt(self.catch_up.run(), where="catching up in Discord")
            if isinstance(done, Incident):
                log.warning("Missed mentions may be unanswered", extra={"action": "catch up"})

    async def on_resumed(self) -> None:
        log.info("Discord's session was resumed", extra={"action": "resumed"})

    async def on_error(self, event: str, /, *args: object, **kwargs: object) -> None:
        """Log what a handler let through; nothing of the event itself, which holds what people said."""
        log.exception("A handler of %s failed", event, extra={"action": "handler"})


def _is_foreign(message: discord.Message) -> bool:
    """Tell whether it was said in a server that Duet does not know (any more); it would pass for a direct message."""
    return message.guild is None and getattr(message.channel, "guild_id", None) is not None
