"""An interaction's life: three seconds to acknowledge, fifteen minutes to answer, and what happens after each."""

from __future__ import annotations

import asyncio

import discord
import pytest

from bot.errors import StoreUnavailable
from tests.adapters.discord.world import QUESTION


async def test_an_acknowledgement_that_came_too_late_sends_the_answer_to_the_channel(world):
    async with world() as w:
        w.env.inject_error("POST", "/interactions/*/*/callback", status=404, code=10062)
        await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        [answer] = await w.settled()
        assert "Branches are named" in answer.content


async def test_an_interaction_acknowledged_elsewhere_is_answered_through_its_token(world):
    async with world() as w:
        w.env.inject_error("POST", "/interactions/*/*/callback", status=400, code=40060)
        await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        # Nobody acknowledged here, so there is no deferred message to fill: the channel has the answer in any case.
        await w.settled()
        assert len(w.mine()) == 1


async def test_an_answer_later_than_the_token_lives_comes_as_a_message_and_that_is_announced(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        w.model.pieces = 1
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        await w.env.advance_time(14 * 60 + 1)
        await w.until(lambda: "will come as a message in this channel" in result.response.content)
        w.model.hold.set()
        await w.until(lambda: len(w.mine()) == 2)
        await w.quiet()
        assert "Branches are named" in w.mine()[-1].content
        assert w.mine()[-1].reference.message_id == result.response.id


@pytest.mark.parametrize(("status", "code"), [(401, 50027), (404, 10015)])
async def test_a_token_that_ends_early_sends_the_answer_to_the_channel(world, status, code):
    async with world() as w:
        w.env.inject_error("PATCH", "/webhooks/*", status=status, code=code, times=None)
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        await w.until(lambda: any("Branches are named" in m.content and m.id != result.response.id for m in w.mine()))
        await w.quiet()


async def test_a_private_answer_later_than_its_token_comes_directly(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        w.model.pieces = 1
        await w.alice.slash(w.channel, "duet ask", question=QUESTION, private=True)
        await w.env.advance_time(16 * 60)
        w.model.hold.set()
        direct = w.alice.user.dm_channel
        await w.until(lambda: w.mine(direct))
        await w.quiet()
        assert "Branches are named" in w.mine(direct)[0].content
        assert not [m for m in w.mine() if not m.flags.ephemeral]


async def test_a_private_answer_whose_message_is_gone_comes_directly_and_never_into_the_channel(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        await w.alice.slash(w.channel, "duet ask", question=QUESTION, private=True)
        await w.until(lambda: [r for r in w.env.http_requests if r.method == "PATCH" and "/webhooks/" in r.path])
        w.env.inject_error("PATCH", "/webhooks/*", status=404, code=10008, times=None)
        w.model.hold.set()
        direct = w.alice.user.dm_channel
        await w.until(lambda: [m for m in w.mine(direct) if "Branches are named" in m.content])
        await w.quiet()
        assert not [m for m in w.mine() if not m.flags.ephemeral]


async def test_a_person_who_takes_no_direct_messages_stops_nothing(world):
    async with world() as w:
        w.model.hold = asyncio.Event()
        w.model.pieces = 1
        await w.alice.slash(w.channel, "duet ask", question=QUESTION, private=True)
        await w.env.advance_time(16 * 60)
        w.env.inject_error("POST", "/users/@me/channels", status=403, code=50007, times=None)
        w.env.inject_error("POST", "/channels/*/messages", status=403, code=50007)
        w.model.hold.set()
        await w.quiet()
        w.model.hold = None
        await w.ask(who=w.bob)
        await w.until(lambda: any("Branches are named" in m.content for m in w.mine()))


async def test_what_cannot_be_stored_is_not_acknowledged_as_if_it_were(world, monkeypatch):
    async with world() as w:

        async def full(turn, **_):
            raise StoreUnavailable("The database is full.")

        monkeypatch.setattr(w.duet, "hear", full)
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        assert result.ephemeral
        assert "cannot store" in result.response.content
        await w.ask()
        await w.until(w.mine)
        assert any("cannot store" in m.content for m in w.mine())


async def test_a_fault_while_reporting_a_fault_is_only_logged(world, monkeypatch):
    async with world() as w:

        async def broken(turn):
            raise RuntimeError("no")

        monkeypatch.setattr(w.duet, "hear", broken)
        w.env.inject_error("POST", "/interactions/*/*/callback", status=500, times=None)
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        assert not result.acknowledged


async def test_a_command_of_yesterday_is_answered_with_a_sentence(world):
    async with world() as w:
        w.front.tree.remove_command("duet")
        result = await w.alice.slash(w.channel, "duet help")
        assert result.ephemeral
        assert "old form" in result.response.content
        assert isinstance(w.env.errors[0], discord.app_commands.CommandNotFound)


async def test_an_interaction_that_is_repeated_is_answered_once(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        await w.until(lambda: "Branches are named" in result.response.content)
        for event, name, payload in list(w.env.backend.transcript):
            if event == "GATEWAY" and name == "INTERACTION_CREATE":
                w.env.backend.emit("INTERACTION_CREATE", payload)
                break
        await w.env.settle()
        await w.quiet()
        assert len(w.mine()) == 1
        assert len(w.model.calls) == 1
