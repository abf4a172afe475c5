"""The shipped program against the wire double: sessions lost and resumed, limits, faults, and kills."""

from __future__ import annotations

import asyncio

from tests.adapters.discord.wire import ACTION, QUESTION, on_the_wire
from tests.doubles.discord import Fault, until


async def test_a_mention_and_a_slash_command_are_answered_by_the_shipped_program(tmp_path):
    async with on_the_wire(tmp_path / "home") as w:
        asked = await w.people.ask(QUESTION)
        [answer] = await w.answers()
        assert "Branches are named" in answer["content"]
        assert answer["message_reference"]["message_id"] == asked["id"]
        made = await w.people.slash("duet ask", question=QUESTION)
        await until(lambda: "Branches are named" in (w.people.answer_to(made) or {}).get("content", ""))
        assert made["acknowledged"] == 5
