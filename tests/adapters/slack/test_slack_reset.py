"""Clearing a channel or a conversation from Slack, and what happens when the channel itself goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.conversation import RoomKey, SessionKey
from bot.policy import Policy
from tests.adapters.slack.conftest import CHANNEL, Office, Open
from tests.doubles.slack import BOT_USER, TEAM
from tests.doubles.slack_people import buttons, envelope
from tests.fakes import FakeModel

QUESTION = "What is our branch naming convention?"
ROOM = RoomKey("slack", TEAM, CHANNEL)


async def test_slash_reset_says_in_the_channel_who_cleared_what(office: Office) -> None:
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    delivery = await office.bob.command(CHANNEL, "reset")
    assert delivery.acked_ms is not None
    assert delivery.acked_ms < 3_000
    assert delivery.payload == {"response_type": "in_channel"}
    await office.settle()
    said = office.slack.said(CHANNEL)[-1]
    assert "bob cleared this channel" in said["text"]
    assert "thread_ts" not in said
    assert await office.world.duet.history(SessionKey(ROOM, ts)) == []


@pytest.mark.parametrize("word", ["reset", "Reset!", "\u201creset\u201d", " RESET ", "`reset`"])
async def test_a_mention_with_the_word_reset_in_a_thread_clears_that_conversation_alone(
    office: Office, word: str
) -> None:
    one = await office.alice.mention(CHANNEL, QUESTION)
    two = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(2)
    await office.bob.mention(CHANNEL, word, thread=one)
    await office.answers(2, thread=one)
    assert "bob cleared this conversation" in office.slack.said(CHANNEL, thread=one)[-1]["text"]
    assert await office.world.duet.history(SessionKey(ROOM, one)) == []
    assert await office.world.duet.history(SessionKey(ROOM, two)) != []
    assert len(office.world.model.calls) == 2


async def test_a_sentence_with_the_word_reset_is_a_question(office: Office) -> None:
    ts = await office.alice.mention(CHANNEL, "how do I reset a branch?")
    await office.answers(thread=ts)
    assert len(office.world.model.calls) == 1


async def test_the_shortcut_resets_inside_a_thread(office: Office) -> None:
    ts = await office.alice.mention(CHANNEL, QUESTION)
    (answer,) = await office.answers(thread=ts)
    await office.bob.shortcut("reset_duet", CHANNEL, answer)
    await office.answers(2, thread=ts)
    assert "bob cleared this conversation" in office.slack.said(CHANNEL, thread=ts)[-1]["text"]


async def test_reset_cancels_what_runs_and_takes_back_its_draft(open_office: Open) -> None:
    gate = asyncio.Event()
    office = await open_office(model=FakeModel(lambda call: ["Branches are named like this. ", gate, "And so on."]))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: office.slack.said(CHANNEL, thread=ts))
    await office.alice.command(CHANNEL, "reset")  # one's own answer needs no second question
    await office.settle()
    (draft,) = office.slack.said(CHANNEL, thread=ts)
    assert "Cancelled by a reset" in draft["text"]
    assert not list(buttons(draft))


async def test_reset_asks_first_when_another_persons_answer_is_being_made(open_office: Open) -> None:
    gate = asyncio.Event()
    office = await open_office(model=FakeModel(lambda call: ["Branches are named like this. ", gate, "And so on."]))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: office.slack.said(CHANNEL, thread=ts))
    delivery = await office.bob.command(CHANNEL, "reset")
    assert "Somebody else is being answered" in delivery.payload["text"]
    assert delivery.payload["response_type"] == "ephemeral"
    await office.bob.press(CHANNEL, {"ts": "1.1", "blocks": delivery.payload["blocks"]}, "duet_reset")
    await office.settle()
    assert any("bob cleared this channel" in message["text"] for message in office.slack.said(CHANNEL))
    assert "Cancelled by a reset" in office.slack.said(CHANNEL, thread=ts)[0]["text"]


async def test_a_mention_with_the_word_reset_asks_too_and_once(open_office: Open) -> None:
    gate = asyncio.Event()
    office = await open_office(model=FakeModel(lambda call: ["Branches are named like this. ", gate, "And so on."]))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: office.slack.said(CHANNEL, thread=ts))
    await office.bob.mention(CHANNEL, "reset", thread=ts)
    await office.until(lambda: office.slack.whispers)
    (question,) = office.slack.whispers
    assert "Somebody else is being answered in this conversation" in question["text"]
    await office.bob.press(CHANNEL, {"ts": "1.1", "blocks": question["blocks"]}, "duet_reset")
    await office.settle()
    assert "bob cleared this conversation" in office.slack.said(CHANNEL, thread=ts)[-1]["text"]
    assert len(office.slack.whispers) == 1


async def test_the_shortcut_asks_too_and_its_button_clears_only_that_thread(open_office: Open) -> None:
    gate = asyncio.Event()
    office = await open_office(model=FakeModel(lambda call: ["Branches are named like this. ", gate, "And so on."]))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: office.slack.said(CHANNEL, thread=ts))
    await office.bob.shortcut("reset_duet", CHANNEL, office.slack.said(CHANNEL, thread=ts)[0])
    await office.until(lambda: office.slack.responses)
    await office.bob.press(CHANNEL, {"ts": "1.1", "blocks": office.slack.responses[0]["blocks"]}, "duet_reset")
    await office.settle()
    assert "bob cleared this conversation" in office.slack.said(CHANNEL, thread=ts)[-1]["text"]


async def test_reset_works_where_duet_is_not_a_member(office: Office) -> None:
    office.slack.add_channel("C0FARAWAY0", "U0ALICE000", with_duet=False)
    await office.alice.command("C0FARAWAY0", "reset")
    await office.until(lambda: office.slack.responses)
    assert "alice cleared this channel" in office.slack.responses[0]["text"]
    assert office.slack.responses[0]["response_type"] == "in_channel"


async def test_who_may_reset_is_policy_and_the_refusal_is_private(open_office: Open) -> None:
    office = await open_office(policy=Policy(resetters=("U0ALICE000",)))
    await office.bob.command(CHANNEL, "reset")
    await office.until(lambda: office.slack.whispers)
    assert office.slack.whispers[0]["user"] == "U0BOB00000"
    assert office.slack.said(CHANNEL) == []


async def test_a_reset_delivered_twice_clears_once(office: Office) -> None:
    delivery = await office.bob.command(CHANNEL, "reset")
    await office.slack.deliver("slash_commands", delivery.body)
    await office.settle()
    assert len(office.slack.said(CHANNEL)) == 1


async def test_messages_of_before_the_reset_are_not_brought_back(office: Office) -> None:
    root = await office.bob.write(CHANNEL, "the secret plan is banana")
    await office.alice.mention(CHANNEL, QUESTION, thread=root)
    await office.answers(thread=root)
    assert "banana" in office.world.model.sent()
    # The clock of the double counts its own seconds: move the reset to after what was said so far.
    office.slack._started -= 10_000
    await office.alice.command(CHANNEL, "reset")
    await office.settle()
    office.slack._started += 20_000
    await office.alice.mention(CHANNEL, "and the branch naming convention?", thread=root)
    await office.settle()
    assert "banana" not in office.world.model.sent()
    assert len(office.world.model.calls) == 2


@pytest.mark.parametrize(
    "kind", ["channel_archive", "group_archive", "channel_deleted", "group_deleted", "channel_left"]
)
async def test_a_channel_that_goes_ends_its_room_and_nothing_is_posted(office: Office, kind: str) -> None:
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    event: dict[str, Any] = {"type": kind, "channel": CHANNEL, "event_ts": "9.9"}
    if kind == "channel_archive":
        event["user"] = "U0ALICE000"
    await office.slack.deliver("events_api", envelope(office.slack, event))
    await office.settle()
    assert await office.world.duet.history(SessionKey(ROOM, ts)) == []
    assert office.world.sandbox.destroyed
    assert len(office.slack.said(CHANNEL)) == 1


@pytest.mark.parametrize("kind", ["app_uninstalled", "tokens_revoked"])
async def test_43_an_app_that_is_removed_ends_its_rooms_and_calls_no_more(office: Office, kind: str) -> None:
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    office.slack.token_is_dead = "account_inactive"
    event: dict[str, Any] = {"type": kind}
    if kind == "tokens_revoked":
        event["tokens"] = {"oauth": [], "bot": [BOT_USER]}
    await office.slack.deliver("events_api", envelope(office.slack, event))
    await office.settle()
    calls = len(office.slack.calls)
    assert await office.world.duet.history(SessionKey(ROOM, ts)) == []
    await asyncio.sleep(0.3)
    assert len(office.slack.calls) == calls
    assert not office.front.is_listening
