"""What Discord adds to a turn after the claim: who the author is here, what was quoted, what the files say."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import discord

from adapters.discord import faults
from adapters.discord.inbound import ASKED_IN_FILE, named
from bot.conversation import Attachment, Author, Quoted, SessionKey, Standing, Surroundings, Turn

log = logging.getLogger(__name__)

# Signed and short-lived addresses; the bot's token is never sent to them.
# https://docs.discord.com/developers/reference#signed-attachment-cdn-urls
CDN_HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})

MAX_FILES = 10
MAX_TEXT_BYTES = 256 * 1024
MAX_UPLOAD_BYTES = 8 * 1024 * 1024
MAX_QUOTED = 30
QUOTED_CHARS = 2_000
GUILDS_ASKED = 50
CONNECT_S = 60.0

_TEXT_ENDING = re.compile(
    r"\.(?:c|cc|cfg|conf|cpp|cs|css|csv|diff|env|go|h|hpp|html|ini|java|js|jsonl?|kt|log|lua|md|php|patch|pl|ps1|py|rb|rs"
    r"|rst|sh|sql|svg|swift|tex|toml|tsx?|tsv|txt|xml|ya?ml)",
    re.IGNORECASE,
)
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")


class Looker:
    """Look up what a turn came with; whatever cannot be had becomes a note, never a fault of the turn."""

    def __init__(
        self,
        client: discord.Client,
        *,
        cleared_at: Callable[[SessionKey], Awaitable[int]],
        reads_threads: bool,
        connected: asyncio.Event,
        hosts: Collection[str] = CDN_HOSTS,
    ) -> None:
        """`reads_threads`: Discord shows what others said (message content intent). `hosts`: where files may lie."""
        self._client = client
        self._cleared_at = cleared_at
        self._reads_threads = reads_threads
        self._connected = connected
        self._hosts = frozenset(hosts)

    async def surroundings(self, turn: Turn) -> Surroundings:
        """Give author, quotes, files and notes of a turn."""
        author = await self.known(turn.author)
        if author.standing not in (Standing.MEMBER, Standing.GUEST):
            return Surroundings(author)
        notes: list[str] = []
        files, uploads = await self._files(turn.files, notes)
        text = turn.text
        if text == ASKED_IN_FILE and files:
            text = files[0][1].strip() or text
            files = files[1:]
        return Surroundings(
            author,
            text=text if text != turn.text else None,
            thread=tuple(await self._quoted(turn)),
            files=tuple(files),
            uploads=tuple(uploads),
            notes=tuple(notes),
        )

    # ── Who ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def known(self, author: Author) -> Author:
        """Give the author with a standing: a member of some server that Duet is in, or an outsider."""
        if author.standing is not Standing.UNKNOWN:
            return author
        try:
            # Before Discord has told its servers, everybody would be an outsider.
            async with asyncio.timeout(CONNECT_S):
                await self._connected.wait()
            member = await self._member(int(author.id))
        except faults.RequestFailed as error:
            log.warning("Could not look up a person: %s", error, extra={"action": "standing"})
            return author
        if member is None:
            return replace(author, standing=Standing.OUTSIDER)
        # Roles count in their own server only: outside it, whoever needs one is refused.
        return replace(author, standing=Standing.GUEST if member.flags.guest else Standing.MEMBER)

    async def _member(self, user_id: int) -> discord.Member | None:
        """Give the person as a member of the first server that knows them, the cache before the network."""
        guilds = [guild for guild in self._client.guilds if not guild.unavailable]
        cached = next((member for guild in guilds if (member := guild.get_member(user_id))), None)
        if cached is not None:
            return cached
        for guild in guilds[:GUILDS_ASKED]:
            try:
                return await guild.fetch_member(user_id)
            except discord.NotFound:
                continue
            except discord.Forbidden:
                continue
        return None

    # ── What was quoted ───────────────────────────────────────────────────────────────────────────────────────────

    async def _quoted(self, turn: Turn) -> list[Quoted]:
        """Give what the question replies to, behind what was said in the thread, oldest first."""
        try:
            said = await self._thread(turn) if self._reads_threads and turn.session.thread else []
            replied = await self._replied_to(turn)
        except faults.RequestFailed as error:
            log.info("Could not read what was quoted: %s", error, extra={"action": "quoted"})
            return []
        if replied is not None and replied not in said:
            said.append(replied)
        return said

    async def _replied_to(self, turn: Turn) -> Quoted | None:
        channel, _, message = turn.reply_to.get("quoted", "").partition("/")
        if not message:
            return None
        said = await self._client.get_partial_messageable(int(channel)).fetch_message(int(message))
        return self._quote(said)

    async def _thread(self, turn: Turn) -> list[Quoted]:
        """Give what others said in the turn's thread since its last reset; Duet's own turns are in the transcript."""
        if turn.reply_to.get("way") != "message" or turn.reply_to.get("opens"):
            return []
        cleared_at = await self._cleared_at(turn.session)
        channel = self._client.get_partial_messageable(int(turn.reply_to["channel"]))
        before = discord.Object(int(turn.reply_to["message"]))
        found = [message async for message in channel.history(limit=MAX_QUOTED, before=before)]
        kept = [m for m in reversed(found) if m.created_at.timestamp() * 1000 > cleared_at and self._is_others(m)]
        return [quote for message in kept if (quote := self._quote(message))]

    def _is_others(self, message: discord.Message) -> bool:
        me = self._client.user
        return me is not None and message.author.id != me.id and all(user.id != me.id for user in message.mentions)

    def _quote(self, message: discord.Message) -> Quoted | None:
        me = self._client.user
        text = named(message, me) if me else message.content
        if not text:
            return None
        is_mine = me is not None and message.author.id == me.id
        return Quoted("Duet" if is_mine else message.author.display_name, text[:QUOTED_CHARS])

    # ── Files ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _files(
        self, files: Iterable[Attachment], notes: list[str]
    ) -> tuple[list[tuple[str, str]], list[tuple[str, bytes]]]:
        """Give what could be read as text, and every file's bytes for the sandbox."""
        wanted = list(files)
        if len(wanted) > MAX_FILES:
            notes.append(f"Only the first {MAX_FILES} files were read.")
        fetched = await asyncio.gather(*(self._fetched(file, notes) for file in wanted[:MAX_FILES]))
        texts: list[tuple[str, str]] = []
        uploads: list[tuple[str, bytes]] = []
        for file, data in zip(wanted, fetched, strict=False):
            if data is None:
                continue
            uploads.append((file.name, data))
            if not is_text(file):
                notes.append(f"{file.name} was not read: it is not text.")
            elif len(data) > MAX_TEXT_BYTES:
                notes.append(f"{file.name} was read only up to {MAX_TEXT_BYTES // 1024} KB.")
                texts.append((file.name, data[:MAX_TEXT_BYTES].decode("utf-8", "ignore")))
            else:
                texts.append((file.name, data.decode("utf-8", "replace")))
        return texts, uploads

    async def _fetched(self, file: Attachment, notes: list[str]) -> bytes | None:
        if file.size_bytes > MAX_UPLOAD_BYTES:
            notes.append(f"{file.name} was not read: it is larger than {MAX_UPLOAD_BYTES // 1024 // 1024} MB.")
            return None
        if urlsplit(file.where).hostname not in self._hosts:
            notes.append(f"{file.name} was not read: it does not lie with Discord.")
            return None
        try:
            return await self._client.http.get_from_cdn(file.where)
        except faults.RequestFailed as error:
            log.info("Could not fetch a file: %s", type(error).__name__, extra={"action": "file"})
            notes.append(f"{file.name} could not be fetched.")
            return None


def is_text(file: Attachment) -> bool:
    """Tell by type and name whether a file can be read as text."""
    return (
        file.media_type.startswith(_TEXT_TYPES) or _TEXT_ENDING.fullmatch(PurePosixPath(file.name).suffix) is not None
    )
