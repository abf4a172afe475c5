"""Exactly once: every fault of Slack's Web API, and what stands in the channel after it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from bot.conversation import Answer, Outcome
from tests.adapters.slack.conftest import CHANNEL, Office, Open
from tests.doubles.slack import FakeSlack, Fault
from tests.doubles.slack_people import buttons
from tests.fakes import FakeModel

QUESTION = "What is our branch naming convention?"
LONG = "\n\n".join(f"Paragraph {n} says `x{n}` [1]. " + "word " * 60 for n in range(75))


def texts(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(block) for message in messages for block in message["blocks"])


@pytest.mark.parametrize(
    "fault",
    [
        Fault("drop_after"),
        Fault("drop_before"),
        Fault("status", status=500),
        Fault("status", status=502),
        Fault("status", status=503),
        Fault("error", "internal_error"),
        Fault("error", "fatal_error"),
        Fault("error", "service_unavailable"),
        Fault("ratelimited", retry_after=1),
    ],
    ids=lambda fault: f"{fault.do}-{fault.word or fault.status}",
)
async def test_4_an_answer_whose_posting_failed_stands_there_exactly_once(office: Office, fault: Fault) -> None:
    office.slack.fault("chat.postMessage", fault)
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    await office.settle()
    (answer,) = office.slack.said(CHANNEL)
    assert "feature/" in answer["text"]
    assert not any(button["label"] == "Stop" for button in buttons(answer))


@pytest.mark.parametrize("keeps_metadata", [True, False])
async def test_4_a_lost_reply_is_found_by_metadata_or_by_block_id(office: Office, keeps_metadata: bool) -> None:
    office.slack.keeps_metadata = keeps_metadata
    office.slack.fault("chat.postMessage", Fault("drop_after"), Fault("drop_after"))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    await office.settle()
    assert len(office.slack.said(CHANNEL)) == 1


@pytest.mark.parametrize("nth", [0, 1, 2])
@pytest.mark.parametrize("do", ["drop_after", "status"])
async def test_the_parts_of_a_long_answer_keep_their_order_whichever_fails(
    open_office: Open, nth: int, do: str
) -> None:
    office = await open_office(model=FakeModel(lambda call: LONG))
    office.slack.fault("chat.postMessage", *([Fault("")] * nth), Fault(do))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    said = await office.answers(3, thread=ts)
    await office.settle()
    said = office.slack.said(CHANNEL, thread=ts)
    assert len(said) == 3
    numbers = [n for n in range(75) if f"Paragraph {n} " in texts(said)]
    order = [texts([message]) for message in said if "Paragraph" in texts([message])]
    firsts = [int(text.split("Paragraph ")[1].split(" ")[0]) for text in order]
    assert firsts == sorted(firsts)
    assert len(set(firsts)) == len(firsts)
    assert numbers == list(range(75))


async def test_429_is_kept_for_its_channel_and_holds_up_no_other(office: Office) -> None:
    office.slack.add_channel("C0OTHER000", "U0ALICE000")
    office.slack.fault("chat.postMessage", Fault("ratelimited", retry_after=2, channel=CHANNEL))
    one = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: office.slack.made("chat.postMessage"))
    limited_at = time.monotonic()
    two = await office.alice.mention("C0OTHER000", QUESTION)
    await office.until(lambda: any("feature/" in m["text"] for m in office.slack.said("C0OTHER000", thread=two)))
    assert time.monotonic() - limited_at < 1.5
    await office.answers(thread=one)
    again = [c.at for c in office.slack.made("chat.postMessage") if c.args["channel"] == CHANNEL]
    assert again[1] - again[0] >= 1.9


async def test_one_post_a_second_and_channel(open_office: Open, slack: FakeSlack) -> None:
    slack.pace_s = 0.2  # instead of a second, as is the period
    office = await open_office(period_s=0.25)
    threads = [await office.alice.mention(CHANNEL, QUESTION) for _ in range(3)]
    for ts in threads:
        await office.answers(thread=ts)
    assert not [call for call in slack.calls if call.error == "ratelimited"]


async def test_26_a_limit_while_drafting_loses_no_answer(open_office: Open) -> None:
    pieces: list[Any] = [item for n in range(20) for item in (f"Sentence number {n}. ", 0.02)]
    office = await open_office(model=FakeModel(lambda call: pieces))
    office.slack.fault("chat.update", Fault("ratelimited", retry_after=1), Fault("ratelimited", retry_after=1))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    (answer,) = await office.answers(thread=ts)
    await office.settle()
    assert not [b for b in buttons(office.slack.said(CHANNEL, thread=ts)[0]) if b["label"] == "Stop"]
    assert answer["ts"] == office.slack.said(CHANNEL, thread=ts)[0]["ts"]


async def test_drafts_leave_most_of_the_workspaces_edits_to_the_answers(open_office: Open) -> None:
    pieces: list[Any] = [item for n in range(40) for item in (f"Sentence number {n}. ", 0.02)]
    office = await open_office(model=FakeModel(lambda call: pieces))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    (answer,) = await office.answers(thread=ts)
    assert "Sentence number 39." in str(answer["blocks"])
    assert 2 <= len(office.slack.made("chat.update")) <= 8


# 27: errors that a person can act on.


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("not_in_channel", "/invite"),
        ("missing_scope", "reinstall"),
        ("restricted_action", "administrator"),
        ("restricted_action_read_only_channel", "read-only"),
        ("restricted_action_thread_locked", "locked"),
        ("cannot_reply_to_message", "no reply"),
        ("some_error_of_2031", "some_error_of_2031"),
    ],
)
async def test_27_what_keeps_an_answer_away_is_told_to_the_asker_once(office: Office, word: str, says: str) -> None:
    office.slack.fault("chat.postMessage", *[Fault("error", word, channel=CHANNEL)] * 2)
    await office.alice.mention(CHANNEL, QUESTION)
    await office.settle()
    await office.until(lambda: [m for m in office.slack.said_in_direct() if says in m["text"]])
    assert len(office.slack.made("chat.postMessage")) <= 4
    before = len(office.slack.calls)
    await asyncio.sleep(0.3)
    assert len(office.slack.calls) == before


@pytest.mark.parametrize("word", ["is_archived", "channel_not_found", "thread_not_found"])
async def test_27_a_channel_or_thread_that_is_gone_ends_and_nothing_loops(office: Office, word: str) -> None:
    office.slack.fault("chat.postMessage", *[Fault("error", word)] * 3)
    await office.alice.mention(CHANNEL, QUESTION)
    await office.settle()
    assert len(office.slack.made("chat.postMessage")) <= 2
    assert office.slack.said(CHANNEL) == []


@pytest.mark.parametrize("word", ["account_inactive", "token_revoked", "invalid_auth"])
async def test_43_a_dead_token_ends_all_calls(office: Office, word: str) -> None:
    office.slack.fault("chat.postMessage", Fault("error", word))
    await office.alice.mention(CHANNEL, QUESTION)
    await office.settle()
    await office.bob.mention(CHANNEL, QUESTION)
    await office.settle()
    assert len(office.slack.made("chat.postMessage")) == 1
    assert not office.front.is_listening


async def test_older_blocks_are_used_where_the_newer_are_refused(open_office: Open, slack: FakeSlack) -> None:
    slack.old_workspace = True
    table = "# Head\n\n**Bold** [1].\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n\n```py\nx < y\n```"
    office = await open_office(model=FakeModel(lambda call: table))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    (answer,) = await office.answers(thread=ts)
    assert {block["type"] for block in answer["blocks"]} <= {"section", "rich_text", "context", "actions"}
    labels = {button["label"] for button in buttons(answer)}
    assert {"Helpful", "Not helpful"} <= labels
    await office.alice.press(CHANNEL, answer, "duet_feedback.1")


async def test_blocks_can_be_old_from_the_start(open_office: Open, slack: FakeSlack) -> None:
    slack.old_workspace = True
    office = await open_office(settings={"slack_markdown": False})
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    assert not [call for call in slack.calls if call.error]


async def test_an_answer_all_of_whose_blocks_are_refused_comes_as_text_and_file(office: Office) -> None:
    for method in ("chat.postMessage", "chat.update"):
        office.slack.fault(method, Fault("error", "invalid_blocks"), Fault("error", "invalid_blocks"))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    await office.settle()
    said = office.slack.said(CHANNEL, thread=ts)
    assert any("feature/" in message["text"] for message in said)
    assert any(b"feature/" in data for data in office.slack.file_data.values())


@pytest.mark.parametrize("word", ["msg_too_long", "msg_blocks_too_long"])
async def test_20_what_slack_finds_too_long_goes_out_as_a_file(office: Office, word: str) -> None:
    office.slack.fault("chat.postMessage", Fault("error", word))
    office.slack.fault("chat.update", Fault("error", word))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)
    await office.settle()
    assert any(b"feature/" in data for data in office.slack.file_data.values())
    assert "answer.md" in texts([m for m in office.slack.said(CHANNEL, thread=ts) if m.get("blocks")])


async def test_20_a_very_long_answer_is_split_and_the_whole_is_attached(open_office: Open, slack: FakeSlack) -> None:
    whole = LONG * 4
    office = await open_office(model=FakeModel(lambda call: whole))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(4, thread=ts)
    await office.settle()
    assert not [call for call in slack.calls if call.error], [c for c in slack.calls if c.error]
    assert any(b"Paragraph 74 " in data for data in slack.file_data.values())


async def test_a_file_that_cannot_be_attached_is_said(open_office: Open, slack: FakeSlack) -> None:
    slack.scopes.discard("files:write")
    office = await open_office()
    office.world.sandbox.output = "x" * 10_000
    await office.alice.command(CHANNEL, "run cat big")
    await office.answers(2)
    assert "could not be attached" in office.slack.said(CHANNEL)[-1]["text"]


async def test_a_message_that_was_deleted_by_an_admin_is_posted_anew(open_office: Open) -> None:
    gate = asyncio.Event()
    office = await open_office(model=FakeModel(lambda call: ["Branches are named like this. ", gate, "And so on."]))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: office.slack.said(CHANNEL, thread=ts))
    channel = office.slack.channels[CHANNEL]
    channel.messages.remove(office.slack.said(CHANNEL, thread=ts)[0])
    gate.set()
    (answer,) = await office.answers(thread=ts)
    assert "And so on" in answer["text"]


async def test_a_crash_between_post_and_note_posts_nothing_twice(
    open_office: Open, slack: FakeSlack, tmp_path: Any
) -> None:
    office = await open_office(home=tmp_path)
    slack.fault("chat.postMessage", Fault("never"))
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.until(lambda: slack.made("chat.postMessage"))
    # The post arrives, but nobody is there any more to hear that it did.
    args = slack.made("chat.postMessage")[0].args
    slack._answer("chat.postMessage", args, "xoxb-duet-test-token")
    for loop in (*office.world.duet._loops, *office.world.duet._delivery._posting, *office.world.duet._lanes._wrappers):
        loop.cancel()
    for task in office.world.duet._lanes._running.values():
        task.cancel()
    await office.front.close()
    await office.world.store.close()
    again = await open_office(home=tmp_path)
    await again.settle()
    await again.until(lambda: "feature/" in slack.said(CHANNEL, thread=ts)[0]["text"])
    await again.settle()
    assert len(slack.said(CHANNEL)) == 1


async def test_a_response_url_that_is_used_up_is_no_loop(office: Office) -> None:
    office.slack.add_channel("C0FARAWAY0", "U0ALICE000", with_duet=False)
    office.slack.fault("response_url", *[Fault("error", "expired_url")] * 5)
    await office.alice.command("C0FARAWAY0", f"ask {QUESTION}")
    await office.settle()
    assert office.slack.responses == []


def test_a_draft_is_one_message_with_a_stop_button() -> None:
    from adapters.slack.outbound import render

    (body,) = render(Answer("1.1", "text " * 5_000, Outcome.DRAFT))
    assert "Stop" in str(body.content["blocks"])
