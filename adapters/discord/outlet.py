"""Discord as an `Outlet`: show, find and delete parts; say that work goes on."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

import discord

from adapters.discord import faults, outbound
from adapters.discord.drafts import Drafts
from adapters.discord.permissions import missing
from adapters.discord.posting import LATE, LATE_PRIVATE, TOO_LATE, Poster
from adapters.discord.surroundings import Looker
from adapters.discord.tokens import Tokens
from adapters.pacing import Pacer
from bot.conversation import Answer, Body, Part, Surroundings, Turn
from bot.errors import OutletUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TYPING_S = (
    8.0  # Discord shows it for ten: https://docs.discord.com/developers/resources/channel#trigger-typing-indicator
)
LOOK_BACK = 200
CONNECT_S = 15.0
TELL_AGAIN_MS = 60 * 60 * 1000


class DiscordOutlet:
    """Everything that the core wants shown in Discord. Implements `bot.ports.Outlet`."""

    def __init__(
        self,
        client: discord.Client,
        poster: Poster,
        looker: Looker,
        tokens: Tokens,
        *,
        draft_period_s: float,
        now_ms: Callable[[], int],
        connected: asyncio.Event,
    ) -> None:
        self._client = client
        self._connected = connected
        self._poster = poster
        self._looker = looker
        self._tokens = tokens
        self._draft_period_s = draft_period_s
        self._pacer = Pacer(period_s=draft_period_s)
        self._now_ms = now_ms
        self._drafts = Drafts(self._pacer, self._redrafted)
        self._is_closed = False
        self._typing: dict[str, asyncio.Task[None]] = {}
        self._told: OrderedDict[tuple[str, str], int] = OrderedDict()

    def render(self, answer: Answer) -> tuple[Body, ...]:
        """Give the messages of an answer; pure."""
        return outbound.render(answer)

    async def surroundings(self, turn: Turn) -> Surroundings:
        """Give who the author is here, what was quoted and what the files say."""
        return await self._looker.surroundings(turn)

    async def status(self, turn: Turn, text: str | None) -> None:
        """Show "typing…" while work goes on; an interaction shows "thinking…" by itself. Never raises."""
        if (running := self._typing.pop(turn.id, None)) is not None:
            running.cancel()
            await asyncio.wait({running})
        is_seen = turn.reply_to.get("member") and not turn.reply_to.get("private")
        if text is not None and turn.reply_to.get("way") != "interaction" and is_seen:
            name = f"typing {turn.session}"
            self._typing[turn.id] = asyncio.create_task(self._type(int(turn.reply_to["channel"])), name=name)

    async def _type(self, channel_id: int) -> None:
        channel = self._client.get_partial_messageable(channel_id)
        try:
            while True:
                await channel.typing()
                await asyncio.sleep(TYPING_S)
        except faults.RequestFailed as error:
            log.debug("Could not show typing: %s", error)

    async def close(self) -> None:
        """Stop showing that anything goes on."""
        self._is_closed = True
        await self._drafts.close()
        running = set(self._typing.values())
        self._typing.clear()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def show(self, part: Part, *, draft: bool) -> str:
        """Edit `part.ref`, else create under `part.key`. Drafts of one channel are a second apart."""
        if not draft:
            await self._drafts.end(part.key)
            return await self._asked(part, lambda: self._shown(part), is_final=True)
        if part.ref:
            self._drafts.put(part)
            return part.ref
        # The first one comes at once, whatever else is edited in the channel; the next a period after it.
        ref = await self._asked(part, lambda: self._shown(part), is_final=False)
        self._pacer.rest(part.reply_to["channel"], self._draft_period_s)
        return ref

    async def _shown(self, part: Part) -> str:
        return await (self._poster.edit(part, draft=False) if part.ref else self._poster.create(part))

    async def _redrafted(self, part: Part) -> str:
        return await self._asked(part, lambda: self._poster.edit(part, draft=True), is_final=False)

    async def delete(self, part: Part) -> None:
        """Take away what stands there."""
        await self._drafts.end(part.key)
        if part.ref:
            await self._asked(part, lambda: self._poster.delete(part), is_final=False)

    async def _asked(self, part: Part, request: Callable[[], Awaitable[T]], *, is_final: bool) -> T:
        """Make a request to Discord and tell its refusal in the words of the outlet."""
        if self._is_closed:
            raise OutletUnavailable("Duet is leaving Discord.")
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connected.wait()
        except TimeoutError as error:
            raise OutletUnavailable("Discord is not connected.", retry_after_s=CONNECT_S) from error
        try:
            return await request()
        except faults.RequestFailed as error:
            known = faults.to_outlet_error(error)
            if isinstance(known, OutletUnavailable) and known.retry_after_s:
                self._pacer.rest(part.reply_to["channel"], known.retry_after_s)
            if is_final and faults.code_of(error) in faults.CLOSED_TO_US:
                await self._tell(part, str(known))
            raise known from error

    async def _tell(self, part: Part, reason: str) -> None:
        """Tell the asker, once an hour and channel, why nothing can be shown there; silent if that fails too."""
        key = (part.reply_to.get("author", ""), part.reply_to["channel"])
        if self._now_ms() - self._told.get(key, -TELL_AGAIN_MS) < TELL_AGAIN_MS:
            return
        self._told[key] = self._now_ms()
        if len(self._told) > 1_000:
            self._told.popitem(last=False)
        lacks = missing(self._client, int(part.reply_to["channel"]), with_files=bool(part.body.files))
        names = f" Missing: {', '.join(lacks)}." if lacks else ""
        text = f"I have an answer for you in <#{part.reply_to['channel']}> but cannot post it. {reason}{names}"
        try:
            await self._poster.tell_one(part, text)
        except faults.RequestFailed as error:
            log.info("Could not tell a person either: %s", error, extra={"action": "tell"})

    async def tell_late(self, turn: Turn) -> None:
        """Say, shortly before a token ends, where the answer will come. Never raises."""
        await self._notice(turn, LATE_PRIVATE if turn.reply_to.get("private") else LATE)

    async def tell_too_late(self, turn: Turn) -> None:
        """Say, shortly before a token ends, that nothing can come after it. Never raises."""
        await self._notice(turn, TOO_LATE)

    async def _notice(self, turn: Turn, text: str) -> None:
        part = Part("", turn.id, turn.session, 0, turn.reply_to, Body({"content": text}))
        try:
            await self._poster.replace_original(part, text)
        except faults.RequestFailed as error:
            log.info("Could not say that an answer is late: %s", error, extra={"action": "late"})

    # ── Find ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, part: Part) -> str | None:
        """Look for a part that may have been posted: Duet's messages that answer the turn, the k-th in order.

        Fetched messages carry no nonce, so the order is all there is. What only a token shows cannot be listed, and
        showing its first part again changes nothing.
        """
        if part.reply_to.get("private") or not part.reply_to.get("member"):
            return None
        return await self._asked(part, lambda: self._found(part), is_final=False)

    async def _found(self, part: Part) -> str | None:
        channel_id = int(part.reply_to["message"] if part.reply_to.get("opens") else part.reply_to["channel"])
        after = discord.Object(int(part.turn))
        channel = self._poster.channel(part, channel_id)
        try:
            history = [m async for m in channel.history(limit=LOOK_BACK, after=after, oldest_first=True)]
        except discord.HTTPException as error:
            no_thread = error.code == faults.UNKNOWN_CHANNEL and bool(part.reply_to.get("opens"))
            if no_thread or error.code in faults.CLOSED_TO_US:
                return None  # the nonce still holds for some minutes
            raise
        mine = [m for m in history if self._client.user is not None and m.author.id == self._client.user.id]
        answers = self._answers(part, mine)
        return f"{channel_id}/{answers[part.ordinal].id}" if part.ordinal < len(answers) else None

    def _answers(self, part: Part, mine: list[discord.Message]) -> list[discord.Message]:
        """Give the messages among `mine` that answer the part's turn, in order."""
        if part.reply_to.get("opens"):
            return [m for m in mine if _replies_to(m) is None and m.type is discord.MessageType.default]
        if part.reply_to["way"] != "interaction":
            return [m for m in mine if _replies_to(m) == int(part.reply_to["message"])]
        first = next((m for m in mine if _made_by(m) == int(part.turn)), None)
        if first is None:
            return []
        is_filled = not first.flags.loading and first.content != LATE
        return [*([first] if is_filled else []), *(m for m in mine if _replies_to(m) == first.id)]


def _replies_to(message: discord.Message) -> int | None:
    return message.reference.message_id if message.reference else None


def _made_by(message: discord.Message) -> int | None:
    """Give the id of the interaction that made the message."""
    made = message.interaction_metadata
    return made.id if made else None
