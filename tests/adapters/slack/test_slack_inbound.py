"""What Slack sends, read: the case table from its fixtures, and whatever else may come."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from adapters.slack.identity import Identity
from adapters.slack.inbound import (
    Asked,
    Feedback,
    Follow,
    ResetWanted,
    RoomGone,
    SourcesWanted,
    Uninstalled,
    Wanted,
    Withdrawn,
    hear_command,
    hear_event,
    hear_press,
    hear_shortcut,
)
from bot.conversation import RoomKey, TurnKind, Verdict

ME = Identity("T1", "U0DUET", "B0DUET")
ROWS = json.loads((Path(__file__).parent / "fixtures" / "events.json").read_text("utf-8"))
ROOM = RoomKey("slack", "T1", "C1")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])
def test_the_case_table(row: dict[str, Any]) -> None:
    heard = hear_event({"event": row["event"], **row.get("body", {})}, ME, Follow.THREADS)
    wanted = row["heard"]
    match heard:
        case None:
            assert wanted is None
        case Withdrawn(turn, only_if_joined):
            assert {"withdrawn": turn.id} | ({"only_if_joined": True} if only_if_joined else {}) == wanted
        case RoomGone(room):
            assert wanted == {"gone": room.channel}
        case Uninstalled(space):
            assert wanted == {"uninstalled": space}
        case Asked(turn, only_if_joined):
            reply_to = wanted.pop("reply_to", {})
            assert reply_to.items() <= dict(turn.reply_to).items()
            seen = {"id": turn.id, "text": turn.text, "thread": turn.session.thread, "kind": turn.kind.value}
            seen |= {"files": [file.name for file in turn.files]} if turn.files else {}
            assert seen | ({"only_if_joined": True} if only_if_joined else {}) == wanted


@pytest.mark.parametrize("follow", list(Follow))
def test_mentions_count_however_far_duet_follows(follow: Follow) -> None:
    assert isinstance(hear_event({"event": ROWS[0]["event"]}, ME, follow), Asked)


def test_following_all_takes_every_message_of_a_person() -> None:
    event = {
        "type": "message",
        "channel_type": "channel",
        "user": "U1",
        "channel": "C1",
        "ts": "10.1",
        "text": "lunch?",
    }
    assert isinstance(hear_event({"event": event}, ME, Follow.ALL), Asked)


def command(text: str, **more: Any) -> Any:
    body = {
        "command": "/duet",
        "text": text,
        "channel_id": "C1",
        "user_id": "U1",
        "user_name": "ann",
        "trigger_id": "t",
    }
    return hear_command({**body, "response_url": "https://hooks.example/1", **more}, ME, now_ms=1_700_000_000_123)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("ask how do we deploy?", TurnKind.ASK, "how do we deploy?"),
        ("ASK how?", TurnKind.ASK, "how?"),
        ("ask\nhow\ndo we", TurnKind.ASK, "how\ndo we"),
        ("run pytest -q &amp;&amp; echo &lt;done&gt;", TurnKind.RUN, "pytest -q && echo <done>"),
        ("run curl <https://x.example|x.example>", TurnKind.RUN, "curl x.example"),
        ("run curl <https://x.example>", TurnKind.RUN, "curl https://x.example"),
    ],
)
def test_slash_commands_become_turns(text: str, kind: TurnKind, said: str) -> None:
    turn = command(text).turn
    assert (turn.id, turn.kind, turn.text, turn.session.thread) == ("t", kind, said, None)
    assert turn.reply_to["response_url"] == "https://hooks.example/1"
    assert turn.at == 1_700_000_000_123


@pytest.mark.parametrize("text", ["reset", "Reset", "\u201creset\u201d", " reset ", "reset please"])
def test_slash_reset_clears_the_room(text: str) -> None:
    ordered = command(text)
    assert isinstance(ordered, ResetWanted)
    assert ordered.turn.session.thread is None


@pytest.mark.parametrize("text", ["", "help", "ask", "run", "rest", "approve 1", "\x00", "x" * 10_000])
def test_anything_else_is_answered_with_help(text: str) -> None:
    assert isinstance(command(text), Wanted)
    assert command(text).word == "help"


def test_a_command_without_its_ids_is_answered_too() -> None:
    assert isinstance(hear_command({}, ME, now_ms=0), Wanted)
    assert isinstance(command("ask x", trigger_id=""), Wanted)


def press(action: str, value: str, **more: Any) -> Any:
    body = {
        "type": "block_actions",
        "trigger_id": "t",
        "user": {"id": "U2", "name": "bob", "team_id": "T1"},
        "channel": {"id": "C1"},
        "container": {"type": "message", "message_ts": "11.0", "channel_id": "C1", "thread_ts": "10.1"},
        "actions": [{"action_id": action, "value": value}],
    }
    return hear_press(body | more, ME, now_ms=1)


def test_buttons_say_what_is_meant_and_nothing_more() -> None:
    for action, verdict in (("approve", Verdict.APPROVE), ("deny", Verdict.DENY), ("retry", Verdict.RETRY)):
        turn = press(f"duet_{action}", "k1").turn
        assert (turn.id, turn.kind, turn.verdict, turn.target) == ("t", TurnKind.PRESS, verdict, "k1")
        assert (turn.author.id, turn.session.thread) == ("U2", "10.1")
    assert press("duet_stop", "10.1").turn.kind is TurnKind.STOP
    assert press("duet_feedback.2", "bad:10.1") == Feedback(ROOM, "10.1", "U2", "bad")
    assert press("duet_sources", "10.1") == SourcesWanted(ROOM, "10.1", "t")
    assert press("duet_reset", "room").turn.session.thread is None
    assert press("duet_reset", "thread:10.1").turn.session.thread == "10.1"


@pytest.mark.parametrize(
    ("action", "value"), [("duet_feedback", "x:10.1"), ("duet_feedback", "good:"), ("other", "1"), ("duet_approve", "")]
)
def test_a_button_that_makes_no_sense_is_none(action: str, value: str) -> None:
    assert press(action, value) is None


def test_a_shortcut_carries_what_its_message_forwards() -> None:
    body = {
        "type": "message_action",
        "callback_id": "ask_duet",
        "trigger_id": "t",
        "channel": {"id": "C1"},
        "user": {"id": "U2", "name": "bob"},
        "message": {"ts": "10.2", "text": "", "user": "U1", "attachments": [{"is_share": True, "text": "may I?"}]},
    }
    asked = hear_shortcut(body, ME, now_ms=1)
    assert isinstance(asked, Asked)
    assert asked.turn.text.endswith("> may I?")


def test_shortcuts_carry_the_message() -> None:
    body = {
        "type": "message_action",
        "callback_id": "ask_duet",
        "trigger_id": "t",
        "channel": {"id": "C1"},
        "user": {"id": "U2", "name": "bob"},
        "message": {"ts": "10.2", "thread_ts": "10.1", "text": "is this\nright?", "user": "U1"},
        "response_url": "https://hooks.example/1",
    }
    asked = hear_shortcut(body, ME, now_ms=1)
    assert isinstance(asked, Asked)
    assert asked.turn.session.thread == "10.1"
    assert asked.turn.text.endswith("> is this\n> right?")
    assert isinstance(hear_shortcut(body | {"callback_id": "reset_duet"}, ME, now_ms=1), ResetWanted)
    assert hear_shortcut(body | {"callback_id": "other"}, ME, now_ms=1) is None
    assert hear_shortcut(body | {"type": "shortcut"}, ME, now_ms=1) is None


NOISE: list[Any] = [
    None,
    True,
    -1,
    1e309,
    "",
    "x" * 50,
    "<@U0DUET>",
    [],
    {},
    [None],
    {"a": []},
    "\ud800",
    "\x00",
    "9" * 40,
]


SHARES: list[Any] = [
    {
        "is_share": True,
        "text": "",
        "author_id": "U2",
        "files": [{"id": "F2"}],
        "message_blocks": [{"message": {"blocks": [{"type": "rich_text", "elements": [{"type": "rich_text_list"}]}]}}],
    },
    {"title": "t", "fields": [{"title": "a", "value": "b"}], "blocks": [{"type": "section", "text": {"text": "x"}}]},
]


def mutated(value: Any, chance: random.Random) -> Any:
    """Give the value with something missing, wrong, doubled or deeper."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        spot = value
        while isinstance(spot, dict) and spot:
            key = chance.choice(list(spot))
            if isinstance(spot[key], (dict, list)) and spot[key] and chance.random() < 0.6:
                spot = spot[key] if isinstance(spot[key], dict) else spot[key][0]
                continue
            match chance.randrange(3):
                case 0:
                    del spot[key]
                case 1:
                    spot[key] = chance.choice(NOISE)
                case 2:
                    spot[key] = {"x": [spot[key]]}
            break
    return value


def test_ten_thousand_bent_payloads_are_read_without_a_fault() -> None:
    chance = random.Random(20261201)
    events = [{"event": row["event"]} for row in ROWS]
    events += [{"event": row["event"] | {"attachments": SHARES}} for row in ROWS]
    body: dict[str, Any] = {
        "channel_id": "C1",
        "user_id": "U1",
        "trigger_id": "t",
        "text": "ask x",
        "response_url": "u",
    }
    pressing: dict[str, Any] = {
        "trigger_id": "t",
        "user": {"id": "U2", "name": "b", "team_id": "T1"},
        "channel": {"id": "C1"},
        "container": {"thread_ts": "1.1"},
        "message": {"ts": "1.1", "thread_ts": "1.1", "text": "x", "files": [{"id": "F"}], "attachments": SHARES},
        "actions": [{"action_id": "duet_approve", "value": "v"}],
        "type": "message_action",
        "callback_id": "ask_duet",
    }
    for _ in range(10_000):
        heard = hear_event(mutated(chance.choice(events), chance), ME, chance.choice(list(Follow)))
        if isinstance(heard, Asked):
            heard.turn.text.encode()
        hear_command(mutated(body, chance), ME, now_ms=1)
        hear_press(mutated(pressing, chance), ME, now_ms=1)
        hear_shortcut(mutated(pressing, chance), ME, now_ms=1)
