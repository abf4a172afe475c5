"""Discord's front: the client, wired to Duet.

Make a `Front` before `duet.start()` (it attaches the outlet), `start` it after, `close` it at last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import discord
import yarl

from adapters.discord import faults
from adapters.discord.catchup import CatchUp
from adapters.discord.commands import build_tree
from adapters.discord.endings import Endings
from adapters.discord.entry import Entry
from adapters.discord.gate import Gate
from adapters.discord.inbound import PLATFORM
from adapters.discord.listening import Listener
from adapters.discord.outlet import DiscordOutlet
from adapters.discord.posting import Poster
from adapters.discord.surroundings import CDN_HOSTS, Looker
from adapters.discord.sync import Sync
from adapters.discord.tokens import Tokens
from bot.checks import Link
from bot.conversation import Answer
from bot.errors import BadInput, attempt

if TYPE_CHECKING:
    from bot.duet import Duet
    from bot.settings import Settings

log = logging.getLogger(__name__)

LONGEST_REST_S = 60.0
LOGIN_AGAIN_S = 30.0
GUILDS_TOLD_S = 0.5  # after the last server was told, Discord counts as ready


def now_ms() -> int:
    """Give the time of now in UTC milliseconds."""
    return time.time_ns() // 1_000_000


class Front:
    """Discord, attached to one process's Duet."""

    def __init__(
        self,
        settings: Settings,
        duet: Duet,
        *,
        now_ms: Callable[[], int] = now_ms,
        draft_period_s: float = 1.0,
        file_hosts: frozenset[str] = CDN_HOSTS,
    ) -> None:
        """Wire everything and attach the outlet; nothing is sent before `start`."""
        folder = settings.home_dir / "discord"
        self._settings = settings
        self._connected = asyncio.Event()
        self._reconnects = 0
        self._tasks: set[asyncio.Task[object]] = set()
        self.client = build_client(settings)
        tokens = Tokens(now_ms=now_ms)
        looker = Looker(
            self.client,
            cleared_at=duet.cleared_at,
            reads_threads=settings.discord_message_content,
            connected=self._connected,
            hosts=file_hosts | _own_host(settings),
        )
        self.outlet = DiscordOutlet(
            self.client,
            Poster(self.client, tokens),
            looker,
            tokens,
            draft_period_s=draft_period_s,
            now_ms=now_ms,
            connected=self._connected,
        )
        gate = Gate(duet.policy, looker)
        self._entry = Entry(duet, gate, tokens, self.outlet)
        # Where commands.Bot has it too.
        self.tree = self.client.tree = build_tree(self.client, self._entry)  # type: ignore[attr-defined]
        self._sync = Sync(self.client, self.tree, file=folder / "commands.json", guild=settings.discord_guild)
        self._listener = Listener(
            self.client,
            duet,
            gate,
            opens_threads=settings.discord_threads,
            reads_threads=settings.discord_message_content,
        )
        self._catch_up = CatchUp(
            self.client,
            duet,
            file=folder / "seen.json",
            hear=self._listener.hear,
            now_ms=now_ms,
            window_ms=int(settings.discord_catch_up_s * 1000),
        )
        self._listener.catch_up = self._catch_up
        self._endings = Endings(self.client, duet, file=folder / "servers.json")
        handlers = [*handlers_of(self._listener), *handlers_of(self._endings)]
        for handler in [*handlers, self.setup_hook, self.on_ready, self.on_resumed]:
            self.client.event(handler)
        duet.attach(PLATFORM, self.outlet)

    async def setup_hook(self) -> None:
        """Do what is done once a process, however often Discord says that it is ready."""
        self._keep(asyncio.create_task(attempt(self._sync.run(), where="registering commands"), name="discord-sync"))

    async def on_ready(self) -> None:
        """Let answers out, and catch up."""
        is_first = not self._connected.is_set()
        self._connected.set()
        self._reconnects += not is_first
        if is_first:
            strays = attempt(self._sync.clear_strays(), where="clearing stale commands")
            self._keep(asyncio.create_task(strays, name="discord-strays"))
        await self._listener.on_ready()
        await attempt(self._endings.run(), where="ending what went away in Discord")

    async def on_resumed(self) -> None:
        self._reconnects += 1
        await self._listener.on_resumed()

    @property
    def link(self) -> Link:
        """Tell whether Discord can be heard, and how often the connection was made again."""
        ws = self.client.ws
        is_open = ws is not None and ws.open  # discord.py leaves `ws` None until the first connection
        return Link(self._connected.is_set() and is_open, self._reconnects)

    async def start(self) -> None:
        """Log in and connect; Discord being out of reach is waited out. Raises: BadInput when it takes no token."""
        point(self._settings)
        self.outlet.render(Answer("", "the first one imports the Markdown parser, which takes a tenth of a second"))
        try:
            await self._login()
            is_in = True
        except faults.RequestFailed as error:
            log.warning("Discord could not be reached, trying again: %s", error, extra={"action": "login"})
            is_in = False
        self._keep(asyncio.create_task(self._stay(is_in=is_in), name="discord"))

    async def _login(self) -> None:
        try:
            await self.client.login(self._settings.discord_token)
        except discord.LoginFailure as error:
            raise BadInput(
                "Discord does not take the token in DISCORD_TOKEN. Copy it anew: Developer Portal, your app, Bot, "
                "Reset Token."
            ) from error

    async def _stay(self, *, is_in: bool) -> None:
        """Stay connected; discord.py reconnects and resumes by itself."""
        while not is_in:
            await asyncio.sleep(LOGIN_AGAIN_S)
            try:
                await self._login()
                is_in = True
            except faults.RequestFailed as error:
                log.warning("Discord could not be reached: %s", error, extra={"action": "login"})
            except BadInput as error:
                log.error("%s", error, extra={"action": "login"})
                return
        try:
            await self.client.connect(reconnect=True)
        except discord.PrivilegedIntentsRequired:
            log.error(
                "Discord refuses the Message Content intent. Switch it on (Developer Portal, your app, Bot) or set "
                "discord.message_content to false.",
                extra={"action": "connect"},
            )
        except faults.RequestFailed as error:
            log.error("Discord ended the connection for good: %s", error, extra={"action": "connect"})

    def _keep(self, task: asyncio.Task[object]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave Discord; turns and parts stay in the store."""
        self._connected.clear()
        self._catch_up.write()
        await self._entry.close()
        await self.outlet.close()
        await self.client.close()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def handlers_of(listener: object) -> list[Any]:
    """Give the handlers of gateway events by the names that discord.py calls them by."""
    return [getattr(listener, name) for name in dir(listener) if name.startswith("on_")]


def build_client(settings: Settings) -> discord.Client:
    """Give the client: no privileged intent unless wanted, and no string that pings anybody."""
    options: dict[str, Any] = {
        "intents": intents(settings),
        "allowed_mentions": discord.AllowedMentions.none(),
        "max_ratelimit_timeout": LONGEST_REST_S,
        "guild_ready_timeout": GUILDS_TOLD_S,
    }
    if settings.discord_shards == 1:
        return discord.Client(**options)
    return discord.AutoShardedClient(shard_count=settings.discord_shards or None, **options)


def intents(settings: Settings) -> discord.Intents:
    """Give what Duet listens to."""
    wanted = discord.Intents.none()
    wanted.guilds = True
    wanted.guild_messages = True
    wanted.dm_messages = True
    wanted.message_content = settings.discord_message_content
    return wanted


def point(settings: Settings) -> None:
    """Point discord.py at another Discord, where one is set; the library keeps its addresses in its classes."""
    if settings.discord_api_base:
        discord.http.Route.BASE = settings.discord_api_base.rstrip("/")
    if settings.discord_gateway:
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(settings.discord_gateway)


def _own_host(settings: Settings) -> frozenset[str]:
    host = urlsplit(settings.discord_api_base).hostname
    return frozenset({host}) if host else frozenset()
