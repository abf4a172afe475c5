"""Mentions, replies, direct messages, slash commands, menus: each becomes one answered turn in the right session."""

from __future__ import annotations

from tests.adapters.discord.world import QUESTION


async def test_a_mention_is_answered_once_with_its_sources(world):
    async with world() as w:
        asked = await w.ask()
        [answer] = await w.settled()
        assert "Branches are named" in answer.content
        assert "[1]" in answer.content
        assert "(<https://codex.example/" in answer.content
        assert answer.reference.message_id == asked.id


async def test_a_slash_command_is_answered_in_the_deferred_message(world):
    async with world() as w:
        result = await w.alice.slash(w.channel, "duet ask", question=QUESTION)
        assert result.deferred
        await w.until(lambda: "Branches are named" in result.response.content)
        await w.quiet()
        assert len(w.mine()) == 1
