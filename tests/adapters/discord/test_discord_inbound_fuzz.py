"""Whatever Discord tells, in fields and words, becomes a well-formed turn or nothing; no payload raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import discord
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.discord.inbound import (
    THREAD_NAME_CHARS,
    about,
    is_addressed,
    is_help,
    is_reset,
    is_spoken,
    thread_name,
    to_turn,
)
from bot.conversation import Standing, TurnKind

ME = 111111111111111111
words = st.text(max_size=200)
ids = st.integers(10**16, 10**18)


def user(id: int, **more: Any) -> dict[str, Any]:
    return {"id": str(id), "username": "u", "discriminator": "0", "avatar": None, "global_name": None} | more


@pytest.fixture(scope="module")
def state() -> Any:
    return discord.Client(intents=discord.Intents.none())._connection


payloads = st.fixed_dictionaries(
    {
        "id": ids.map(str),
        "channel_id": ids.map(str),
        "author": st.builds(user, ids, bot=st.booleans(), global_name=st.one_of(st.none(), words)),
        "content": st.one_of(words, st.just(f"<@{ME}> hello"), st.just(f"<@!{ME}> reset"), st.just(f"<@{ME}>")),
        "mentions": st.lists(st.builds(user, st.one_of(ids, st.just(ME))), max_size=3),
        "type": st.integers(0, 60),
        "flags": st.integers(0, 1 << 15),
        "mention_everyone": st.booleans(),
        "attachments": st.lists(
            st.fixed_dictionaries(
                {"id": ids.map(str), "filename": words, "size": st.integers(0, 10**9), "url": words, "proxy_url": words}
            ),
            max_size=2,
        ),
    },
    optional={
        "webhook_id": ids.map(str),
        "message_reference": st.fixed_dictionaries(
            {}, optional={"message_id": ids.map(str), "channel_id": ids.map(str), "type": st.integers(0, 3)}
        ),
    },
)


@given(payloads, st.booleans())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_message_whatever_raises_or_makes_a_turn_that_is_not_whole(state, payload, opens_threads):
    fixed = {
        "timestamp": "2026-01-01T00:00:00+00:00",
        "edited_timestamp": None,
        "tts": False,
        "mention_roles": [],
        "embeds": [],
        "pinned": False,
        "components": [],
    }
    if "message_reference" in payload:
        payload["message_reference"].setdefault("channel_id", payload["channel_id"])
    channel = SimpleNamespace(id=int(payload["channel_id"]), type=discord.ChannelType.text, guild=None)
    message = discord.Message(state=state, channel=channel, data=fixed | payload)
    me = SimpleNamespace(id=ME)
    is_person = is_spoken(message)
    assert is_person == (payload["type"] in (0, 19) and not payload["author"]["bot"] and "webhook_id" not in payload)
    is_addressed(message, me)
    turn = to_turn(message, me, opens_threads=opens_threads)
    assert turn.id == payload["id"]
    assert turn.kind in (TurnKind.ASK, TurnKind.RESET)
    assert turn.author.standing in (Standing.UNKNOWN, Standing.BOT)
    assert all(isinstance(value, str) for value in turn.reply_to.values())
    assert f"<@{ME}>" not in turn.text[:22]
    assert about(message, me).startswith("Help with this message from")


@given(st.text(max_size=300))
def test_a_thread_always_has_a_name_that_fits(question):
    name = thread_name(question)
    assert 1 <= len(name) <= THREAD_NAME_CHARS
    assert "\n" not in name


@pytest.mark.parametrize("text", ["reset", "Reset.", "/reset", "duet reset", "RESET!"])
def test_a_reset_is_known_by_its_one_word(text):
    assert is_reset(text)


@pytest.mark.parametrize("text", ["how do I reset a branch?", "reset the router", "please reset", "resets"])
def test_a_question_about_resets_is_a_question(text):
    assert not is_reset(text)
    assert not is_help(text)
