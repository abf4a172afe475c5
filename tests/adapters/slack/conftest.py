"""Slack for its adapter's tests: the double, Duet's front against it, and two people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.pacing import Pacer
from adapters.slack.app import SlackFront
from adapters.slack.socket import Clocks
from bot.settings import Settings
from tests.conftest import Build, World
from tests.doubles import slack as double
from tests.doubles.slack import FakeSlack
from tests.doubles.slack_people import Person

CHANNEL = "C0ENGROOM0"
QUICK = Clocks(ping_s=0.3, look_s=0.1, silent_s=1.5, hello_s=2, close_s=1, wait_s=0.1, longest_wait_s=1, crowded_s=5)


@dataclass
class Office:
    """A workspace with Duet in it."""

    slack: FakeSlack
    world: World
    front: SlackFront
    alice: Person
    bob: Person

    async def answers(
        self, count: int = 1, *, channel: str = CHANNEL, thread: str | None = None
    ) -> list[dict[str, Any]]:
        """Wait until Duet has said `count` final messages in the channel or thread, and give them."""

        async def enough() -> list[dict[str, Any]]:
            while True:
                said = self.slack.said(channel, thread=thread)
                if len(said) >= count and await self.is_quiet():
                    return said
                await asyncio.sleep(0.01)

        try:
            return await asyncio.wait_for(enough(), 10)
        except TimeoutError:
            raise AssertionError(
                f"{count} answers wanted, there are {self.slack.said(channel, thread=thread)}"
            ) from None

    async def is_quiet(self) -> bool:
        """Tell whether nothing is being made or posted."""
        status = await self.world.duet.status()
        return status.queue_age_ms is None and status.outbox_age_ms is None and status.turns_running == 0

    async def settle(self) -> None:
        async with asyncio.timeout(10):
            await asyncio.sleep(0.05)
            while not await self.is_quiet():
                await asyncio.sleep(0.01)

    async def until(self, condition: Callable[[], object], *, timeout_s: float = 10) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)


Open = Callable[..., Awaitable[Office]]


def settings_for(slack: FakeSlack, **more: Any) -> Settings:
    given: dict[str, Any] = {
        "slack_bot_token": double.BOT_TOKEN,
        "slack_app_token": double.APP_TOKEN,
        "slack_api_url": slack.api_url,
        "slack_sockets": 1,
    }
    return Settings(**(given | more))


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    fake = FakeSlack(ack_within_s=1.0)
    await fake.start()
    fake.add_channel(CHANNEL, fake.add_user("U0ALICE000", "alice"), fake.add_user("U0BOB00000", "bob"))
    yield fake
    await fake.stop()
    assert fake.violations == []
    for call in fake.made("chat.postMessage"):  # 24, 40: nothing becomes a mention or preview
        assert (call.args["unfurl_links"], call.args["unfurl_media"]) == (False, False)
        assert (call.args["parse"], call.args["link_names"]) == ("none", False)
    # 36: a stream dies after five minutes and its rest is lost, so none is begun.
    assert not [call for call in fake.calls if call.method.endswith("Stream")]


@pytest.fixture
async def office(open_office: Open) -> Office:
    return await open_office()


@pytest.fixture
async def open_office(slack: FakeSlack, build: Build) -> AsyncIterator[Open]:
    """Open an office; called with what differs: settings' fields in `settings=`, the world's parts by name."""
    fronts: list[SlackFront] = []

    async def make(*, settings: dict[str, Any] | None = None, period_s: float = 0.0, **parts: Any) -> Office:
        parts.setdefault("clock", lambda: time.time_ns() // 1_000_000)
        world = await build(attach=False, start=False, **parts)
        pacer = Pacer(period_s=period_s or 0.001)
        front = SlackFront(
            world.duet, settings_for(slack, **(settings or {})), now=world.clock, pacer=pacer, edits=pacer, clocks=QUICK
        )
        fronts.append(front)
        world.duet.attach("slack", front.outlet)
        world.duet.start()
        await front.start()
        return Office(slack, world, front, Person(slack, "U0ALICE000"), Person(slack, "U0BOB00000"))

    yield make
    for front in fronts:
        await front.close()
