"""The order of claim and acknowledgement, where the store is slow: what simcord's own clock does not let one see."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from discord import InteractionResponseType

from adapters.discord.entry import Entry
from adapters.discord.tokens import Acknowledged, Tokens
from bot.conversation import Author, RoomKey, SessionKey, Turn
from bot.errors import StoreUnavailable

TURN = Turn("7", SessionKey(RoomKey("discord", "g", "c")), Author("1", "alice"), "a question", 0)


class Store:
    """A Duet that claims when it is let."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.fails = False

    async def hear(self, turn: Turn) -> bool:
        await self.gate.wait()
        if self.fails:
            raise StoreUnavailable("full")
        return True

    async def answer(self, room: RoomKey, turn: str) -> Any:
        return object()


class Interaction:
    """Notes how it was answered."""

    def __init__(self) -> None:
        self.deferred = asyncio.Event()
        self.said: list[str] = []
        self.response = SimpleNamespace(
            type=None, defer=self._defer, is_done=self.deferred.is_set, send_message=lambda text, **_: self._said(text)
        )

    async def edit_original_response(self, *, content: str, **_: Any) -> None:
        await self._said(content)

    async def _defer(self, **_: Any) -> Any:
        self.deferred.set()
        self.response.type = InteractionResponseType.deferred_channel_message
        return SimpleNamespace(message_id=99)

    async def _said(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("adapters.discord.entry.CLAIM_S", 0.01)


@pytest.fixture
async def scene(monkeypatch):
    monkeypatch.setattr("adapters.discord.entry.CLAIM_S", 600.0)
    store, tokens = Store(), Tokens(now_ms=lambda: 0)
    entry = Entry(store, None, tokens, None)
    yield store, tokens, entry, Interaction()
    await entry.close()


async def test_a_quick_claim_comes_before_the_acknowledgement(scene):
    store, tokens, entry, interaction = scene
    taking = asyncio.create_task(entry.take(interaction, TURN))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not interaction.deferred.is_set()
    store.gate.set()
    await taking
    assert await tokens.acknowledged("7") == Acknowledged(ok=True, original=99)


async def test_a_slow_claim_does_not_cost_the_acknowledgement_and_answers_wait_for_it(scene, impatient):
    store, tokens, entry, interaction = scene
    taking = asyncio.create_task(entry.take(interaction, TURN))
    async with asyncio.timeout(30):
        await interaction.deferred.wait()
    assert not taking.done()
    store.gate.set()
    await taking
    assert (await tokens.acknowledged("7")).original == 99


async def test_a_claim_that_fails_at_once_is_refused_to_the_person_and_never_acknowledged(scene):
    store, tokens, entry, interaction = scene
    store.fails = True
    store.gate.set()
    await entry.take(interaction, TURN)
    assert not interaction.deferred.is_set()
    assert "cannot store" in interaction.said[0]
    assert not (await tokens.acknowledged("7")).ok


async def test_a_claim_that_fails_late_is_told_after_the_acknowledgement(scene, impatient):
    store, _, entry, interaction = scene
    store.fails = True
    taking = asyncio.create_task(entry.take(interaction, TURN))
    async with asyncio.timeout(30):
        await interaction.deferred.wait()
    store.gate.set()
    await taking
    assert "cannot store" in interaction.said[0]
