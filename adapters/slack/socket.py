"""Socket Mode connections that stay: watched, replaced when they go silent, closed within seconds.

The SDK reconnects by itself; it does not notice everything (a connect that hangs on a spent address, a close that never
returns), so each socket has a supervisor that throws the whole client away. With two sockets one always stands while
Slack asks for the other to be renewed. https://docs.slack.dev/apis/events-api/using-socket-mode/
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from aiohttp import WSMessage
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack import faults
from adapters.slack.calls import quiet
from bot.errors import Incident, OutletError, OutletUnavailable, attempt

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds. A silent socket is noticed after at most `silent_s` and one look."""

    ping_s: float = 5.0
    look_s: float = 2.0
    silent_s: float = 40.0
    hello_s: float = 15.0
    close_s: float = 5.0
    wait_s: float = 1.0
    longest_wait_s: float = 60.0
    crowded_s: float = 60.0


class Socket:
    """One connection for life. `run` ends only by being cancelled, or when Slack accepts the token no more."""

    def __init__(
        self,
        app: AsyncApp,
        app_token: str,
        *,
        new_client: Callable[[], AsyncWebClient],
        clocks: Clocks | None = None,
    ) -> None:
        self._app = app
        self._app_token = app_token
        self._new_client = new_client
        self._clocks = clocks or Clocks()
        self._said_hello = asyncio.Event()
        self._is_crowded = False
        self._up = False
        self.lives = 0
        self.is_refused = ""

    @property
    def is_up(self) -> bool:
        """Tell whether this socket could be heard at the last look."""
        return self._up

    async def wait_up(self) -> None:
        """Wait until Slack has said hello."""
        await self._said_hello.wait()

    async def run(self) -> None:
        wait_s = self._clocks.wait_s
        while not self.is_refused:
            began = _now()
            done = await attempt(self._one_life(), where="listening to Slack")
            self._up = False
            self._said_hello.clear()
            if isinstance(done, Incident):
                self._note(done.error)
                asked = done.error.retry_after_s if isinstance(done.error, OutletUnavailable) else None
                wait_s = asked if asked is not None else min(self._clocks.longest_wait_s, wait_s * 2)
            if _now() - began > self._clocks.longest_wait_s:
                wait_s = self._clocks.wait_s
            if self._is_crowded:
                log.warning("Slack has too many sockets of this app; one waits", extra={"action": "socket crowded"})
                wait_s = self._clocks.crowded_s
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads reconnects, hides nothing

    def _note(self, error: Exception) -> None:
        word = faults.word_of(error) if isinstance(error, OutletError) else ""
        if word in faults.DEAD or word in ("not_allowed_token_type", "missing_scope"):
            self.is_refused = word
            log.error("Slack does not accept SLACK_APP_TOKEN: %s. Run `duet doctor`.", word, extra={"action": "socket"})

    async def _one_life(self) -> None:
        """Connect, listen until the socket goes silent, close. Raises: OutletError when no connection came about."""
        self._is_crowded = False
        handler = AsyncSocketModeHandler(
            self._app,
            self._app_token,
            logger=quiet("adapters.slack.sdk"),
            web_client=self._new_client(),
            ping_interval=self._clocks.ping_s,
        )
        handler.client.on_message_listeners.append(self._heard)
        try:
            # Asked for here, since the SDK would try a refused token for ever.
            handler.client.wss_uri = await self._address(handler)
            async with asyncio.timeout(self._clocks.hello_s):
                await handler.connect_async()  # type: ignore[no-untyped-call]  # untyped there
                await self._said_hello.wait()
            self._up = True
            self.lives += 1
            log.info("Listening to Slack", extra={"action": "socket up"})
            await self._watch(handler)
        finally:
            await self._close(handler)

    async def _address(self, handler: AsyncSocketModeHandler) -> str:
        try:
            async with asyncio.timeout(self._clocks.hello_s):
                said = await handler.client.web_client.apps_connections_open(app_token=self._app_token)
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise faults.as_outlet_error(error) from error
        return str(said["url"])

    async def _watch(self, handler: AsyncSocketModeHandler) -> None:
        """Return when the socket has been silent for too long: no answer to a ping, or no connection."""
        heard_at = _now()
        while _now() - heard_at < self._clocks.silent_s and not self._is_crowded:
            await asyncio.sleep(self._clocks.look_s)
            self._up = await handler.client.is_connected()
            if self._up:
                heard_at = _now()
        log.warning("A Slack socket went silent", extra={"action": "socket silent"})

    async def _heard(self, message: WSMessage) -> None:
        """See what the SDK keeps to itself: the hello, and that there are too many sockets."""
        data = message.data
        if not isinstance(data, str) or '"envelope_id"' in data:
            return
        try:
            said = json.loads(data)
        except ValueError:
            return
        if not isinstance(said, dict):
            return
        if said.get("type") == "hello":
            self._said_hello.set()
        if said.get("type") == "disconnect" and said.get("reason") in ("too_many_websockets", "link_disabled"):
            self._is_crowded = True

    async def _close(self, handler: AsyncSocketModeHandler) -> None:
        """Close, but never wait for it longer than a few seconds."""
        try:
            async with asyncio.timeout(self._clocks.close_s):
                await handler.close_async()  # type: ignore[no-untyped-call]  # untyped there
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("A Slack socket did not close: %s", error, extra={"action": "socket close"})
        client = handler.client
        for task in (client.message_processor, client.current_session_monitor, client.message_receiver):
            if task is not None:
                task.cancel()
        await client.aiohttp_client_session.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
