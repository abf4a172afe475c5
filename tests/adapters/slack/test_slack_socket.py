"""Socket Mode that stays: refreshes, silence, crowds, refused tokens, and a close that ends."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from adapters.slack.app import SlackFront
from tests.adapters.slack.conftest import CHANNEL, QUICK, Office, Open, settings_for
from tests.doubles.slack import FakeSlack, Fault
from tests.doubles.slack_people import Person

QUESTION = "What is our branch naming convention?"


async def test_33_a_refresh_loses_no_message(open_office: Open, slack: FakeSlack) -> None:
    office = await open_office(settings={"slack_sockets": 2})
    await office.until(lambda: len(slack.links) == 2)
    threads = []
    for link in list(slack.links):
        slack.ask_to_refresh(link)
        threads += [await office.alice.mention(CHANNEL, QUESTION) for _ in range(3)]
    for ts in threads:
        await office.answers(thread=ts)
    await office.settle()
    assert len(slack.said(CHANNEL)) == 6
    await office.until(lambda: len(slack.links) == 2)


async def test_of_two_sockets_one_always_stands_while_the_other_is_renewed(open_office: Open, slack: FakeSlack) -> None:
    office = await open_office(settings={"slack_sockets": 2})
    await office.until(lambda: len(slack.links) == 2)
    fewest = len(slack.links)
    slack.ask_to_refresh(slack.links[0])
    opened = len(slack.made("apps.connections.open"))
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        fewest = min(fewest, len(slack.links))
        await asyncio.sleep(0.002)
    assert len(slack.made("apps.connections.open")) > opened
    assert fewest >= 1


async def test_32_a_silent_socket_is_noticed_and_replaced_and_what_came_meanwhile_is_answered(office: Office) -> None:
    office.slack.links[0].is_silent = True
    began = time.monotonic()
    await office.alice.write(CHANNEL, f"<@U0DUETBOT0> {QUESTION}", order=("app_mention",), wait=False)
    await office.until(lambda: any(not link.is_silent for link in office.slack.links), timeout_s=10)
    # The clocks of these tests are 25 times as fast as the real ones, which keep to 60 s.
    assert time.monotonic() - began < 60 / 10
    await office.answers()


async def test_the_real_clocks_notice_silence_within_a_minute() -> None:
    from adapters.slack.socket import Clocks

    clocks = Clocks()
    assert clocks.silent_s + clocks.look_s + clocks.ping_s <= 50


async def test_a_connection_that_drops_is_made_again(office: Office) -> None:
    await office.slack.links[0].socket.close()
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)


async def test_too_many_sockets_makes_one_wait_instead_of_reconnecting_in_a_storm(
    open_office: Open, slack: FakeSlack
) -> None:
    slack.crowded_after = 1
    office = await open_office(settings={"slack_sockets": 2})
    await asyncio.sleep(1.0)
    assert len(slack.made("apps.connections.open")) <= 4
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)


async def test_a_socket_without_a_hello_is_not_believed(open_office: Open, slack: FakeSlack) -> None:
    slack.says_hello = False
    opening = asyncio.create_task(open_office())
    await asyncio.sleep(0.5)
    assert slack.made("apps.connections.open")
    slack.says_hello = True
    office = await opening
    await office.until(lambda: office.front.is_listening)


async def test_slack_that_is_away_at_the_start_is_waited_for(open_office: Open, slack: FakeSlack) -> None:
    slack.fault("auth.test", Fault("status", status=503), Fault("ratelimited", retry_after=1))
    slack.fault("apps.connections.open", Fault("status", status=500))
    office = await open_office()
    await office.until(lambda: office.front.is_listening)
    ts = await office.alice.mention(CHANNEL, QUESTION)
    await office.answers(thread=ts)


async def test_a_refused_app_token_is_said_once_and_not_tried_for_ever(
    open_office: Open, slack: FakeSlack, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.slack.app.PATIENCE_S", 0.5)
    slack.fault("apps.connections.open", *[Fault("error", "invalid_auth")] * 9)
    office = await open_office()
    await office.until(lambda: "does not accept SLACK_APP_TOKEN" in caplog.text)
    await asyncio.sleep(0.5)
    assert len(slack.made("apps.connections.open")) == 1
    assert not office.front.is_listening


async def test_closing_ends_within_seconds_even_when_slack_does_not_answer(open_office: Open, slack: FakeSlack) -> None:
    office = await open_office()
    slack.links[0].is_silent = True
    began = time.monotonic()
    await office.front.close()
    assert time.monotonic() - began < 5


async def test_a_new_process_listens_before_the_old_one_goes(
    open_office: Open, slack: FakeSlack, office: Office, build: Any
) -> None:
    new = SlackFront(office.world.duet, settings_for(slack), clocks=QUICK)
    await new.start()
    assert len(slack.links) == 2
    asking = [asyncio.create_task(office.alice.mention(CHANNEL, QUESTION)) for _ in range(4)]
    await office.front.close()
    threads = await asyncio.gather(*asking)
    try:
        await office.until(lambda: len(slack.made("chat.postMessage")) >= 4 or not office.front.calls._session)
        assert all(d.acked_ms is not None for d in slack.deliveries)
        assert len(set(threads)) == 4
    finally:
        await new.close()


async def test_tokens_and_texts_are_in_no_log_line(
    open_office: Open, slack: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    office = await open_office()
    slack.fault("chat.postMessage", Fault("status", status=500))
    ts = await office.alice.mention(CHANNEL, f"{QUESTION} the-private-words")
    await office.answers(thread=ts)
    theirs = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith(("adapters.slack", "slack")))
    assert "xoxb-" not in theirs
    assert "xapp-" not in theirs
    assert "the-private-words" not in theirs


async def test_one_of_n_sockets_gets_each_event_and_order_is_kept_by_the_store(
    open_office: Open, slack: FakeSlack
) -> None:
    office = await open_office(settings={"slack_sockets": 3})
    await office.until(lambda: len(slack.links) == 3)
    carol = Person(slack, slack.add_user("U0CAROL000", "carol"))
    slack.channels[CHANNEL].members.add(carol.id)
    root = await office.alice.mention(CHANNEL, QUESTION)
    for number in range(6):
        await carol.mention(CHANNEL, f"branch {number}?", thread=root)
    await office.answers(7, thread=root)
