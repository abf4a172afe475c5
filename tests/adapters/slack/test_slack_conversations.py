"""Slack, from what a person writes to what they read, against the double."""

from __future__ import annotations

from tests.adapters.slack.conftest import CHANNEL, Office


async def test_a_mention_is_answered_in_its_thread_with_its_source(office: Office) -> None:
    ts = await office.alice.mention(CHANNEL, "What is our branch naming convention?")
    (answer,) = await office.answers(thread=ts)
    assert "feature/" in answer["text"]
    assert any("naming.md" in str(block) for block in answer["blocks"])
