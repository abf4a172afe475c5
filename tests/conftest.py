"""What every test may use: a Duet over fakes and a real store, and the rule for what a machine may lack."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.conversation import Answer, Settled, Turn
from bot.drivers.store import SqliteStore
from bot.duet import Duet
from bot.policy import Policy
from bot.redaction import Redactor
from tests.fakes import FakeModel, FakeOutlet, FakeRetriever, FakeSandbox


def lacking(part: str, reason: str) -> None:
    """Skip a test for want of `part`; fail it where `DUET_TEST_REQUIRE` says that nothing may be missing."""
    if part in os.environ.get("DUET_TEST_REQUIRE", "").split(","):
        pytest.fail(f"{part} is required here: {reason}")
    pytest.skip(reason)


@dataclass
class World:
    """A Duet, what it stands on, and what a test says to it."""

    home: Path | None
    store: SqliteStore
    model: FakeModel
    retriever: FakeRetriever
    sandbox: FakeSandbox
    outlet: FakeOutlet
    duet: Duet
    clock: Callable[[], int]
    others: list[Duet] = field(default_factory=list)

    async def settled(self, turn: Turn, *, timeout_s: float = 5.0) -> Answer:
        """Wait for a turn's answer, and until all of it is posted."""
        async with asyncio.timeout(timeout_s):
            while (answer := await self.duet.answer(turn.room, turn.id)) is None:
                await asyncio.sleep(0.005)
            while await self.store.outbox_age_at() is not None:
                await asyncio.sleep(0.005)
        return answer

    async def hear(self, *turns: Turn) -> list[Answer]:
        """Hear turns in order, then wait for all answers."""
        for turn in turns:
            await self.duet.hear(turn)
        return [await self.settled(turn) for turn in turns]

    async def ask(self, turn: Turn) -> Answer:
        async for event in self.duet.ask(turn):
            if isinstance(event, Settled):
                return event.answer
        raise AssertionError("no answer")

    async def until(self, condition: Callable[[], object], *, timeout_s: float = 5.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)


Build = Callable[..., Awaitable[World]]


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    """Build a world; call it with what differs from the usual: `policy=`, `model=`, `home=`, `attach=False`…"""
    worlds: list[World] = []
    ids = itertools.count(1)

    async def make(
        *,
        policy: Policy | None = None,
        home: Path | None = None,
        attach: bool = True,
        start: bool = True,
        secrets: tuple[str, ...] = (),
        turn_timeout_s: float = 30.0,
        reset_wait_s: float = 5.0,
        clock: Callable[[], int] | None = None,
        **parts: object,
    ) -> World:
        clock = clock or (lambda: time.time_ns() // 1_000_000)
        store = SqliteStore(home, now=clock)
        await store.open()
        model = parts.get("model") or FakeModel()
        retriever = parts.get("retriever") or FakeRetriever()
        sandbox = parts.get("sandbox") or FakeSandbox()
        outlet = parts.get("outlet") or FakeOutlet()
        duet = Duet(
            store,
            model,
            retriever,
            sandbox,
            policy=policy or Policy(),
            redact=Redactor(secrets),
            now=clock,
            new_id=lambda: f"id{next(ids)}",
            turn_timeout_s=turn_timeout_s,
            reset_wait_s=reset_wait_s,
            find_after_s=0.05,
            first_wait_s=0.02,
        )
        if attach:
            duet.attach("fake", outlet)
        if start:
            duet.start()
        world = World(home, store, model, retriever, sandbox, outlet, duet, clock)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        await world.duet.close()
        await world.store.close()


@pytest.fixture
async def world(build: Build) -> World:
    return await build()
