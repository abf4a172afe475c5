"""`duet serve`: every front that is configured, over one Duet, until it is stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.app import DRAIN_S, Parts, open_duet
from bot.settings import Settings

if TYPE_CHECKING:
    from adapters.web.app import WebFront
    from bot.checks import Link


@dataclass(frozen=True, slots=True)
class Front:
    """What is started and stopped."""

    name: str
    start: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


async def serve(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """Start the fronts, say so through `ready`, and answer until SIGTERM or Ctrl-C; then see through what runs."""
    async with open_duet(settings, keeps_house=True, drain_s=0) as parts, AsyncExitStack() as stack:
        fronts, web = _fronts(parts)
        parts.duet.start()
        for front in fronts:
            stack.push_async_callback(front.close)
            await front.start()
        ready(f"Duet listens on {web.address}; {', '.join(front.name for front in fronts)}.")
        await _stopped()
        await parts.duet.drain(timeout_s=DRAIN_S)


def _fronts(parts: Parts) -> tuple[list[Front], WebFront]:
    """Give every front that is configured, attached; HTTP always, and first to come up."""
    from adapters.web.app import WebFront

    settings, duet = parts.settings, parts.duet
    fronts: list[Front] = []
    links: dict[str, Callable[[], Link]] = {}
    routes = []
    if settings.slack_bot_token or settings.slack_app_token:
        from adapters.slack.app import EVENTS_PATH, SlackFront

        slack = SlackFront(duet, settings)
        duet.attach("slack", slack.outlet)
        routes += [("POST", EVENTS_PATH, slack.events_handler)] if slack.events_handler else []
        fronts.append(Front("Slack", slack.start, slack.close))
        links["slack"] = lambda: slack.link
    if settings.discord_token:
        from adapters.discord import app as discord

        client = discord.Front(settings, duet)
        fronts.append(Front("Discord", client.start, client.close))
        links["discord"] = lambda: client.link
    web = WebFront(duet, settings, extra_routes=routes, links=lambda: {name: link() for name, link in links.items()})
    return [Front("web", web.start, web.close), *fronts], web


async def _stopped() -> None:
    """Wait for SIGTERM or Ctrl-C; a second one ends the waiting for what still runs."""
    loop, stopped, task = asyncio.get_running_loop(), asyncio.Event(), asyncio.current_task()

    def stop() -> None:
        if stopped.is_set() and task:
            task.cancel()
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await stopped.wait()
