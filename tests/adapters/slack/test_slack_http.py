"""Signed HTTP events: only Slack's own, fresh and unchanged, are taken."""

from __future__ import annotations

import io
import json
import time
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web

from adapters.slack.app import EVENTS_PATH
from tests.adapters.slack.conftest import CHANNEL, Office, Open
from tests.doubles.slack import SECRET, FakeSlack, signed
from tests.doubles.slack_people import envelope

QUESTION = "What is our branch naming convention?"


@pytest.fixture
async def http_office(open_office: Open, slack: FakeSlack) -> AsyncIterator[Office]:
    office = await open_office(settings={"slack_app_token": "", "slack_signing_secret": SECRET})
    assert office.front.events_handler is not None
    app = web.Application(client_max_size=1 << 20)
    app.router.add_post(EVENTS_PATH, office.front.events_handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slack.events_url = f"http://127.0.0.1:{runner.addresses[0][1]}{EVENTS_PATH}"
    yield office
    await runner.cleanup()


async def post(office: Office, raw: str, headers: dict[str, str]) -> tuple[int, str]:
    data = io.BytesIO(raw.encode())
    async with (
        aiohttp.ClientSession() as session,
        session.post(office.slack.events_url, data=data, headers=headers) as response,
    ):
        return response.status, await response.text()


def mention(office: Office, ts: str = "9.9") -> str:
    text = f"<@U0DUETBOT0> {QUESTION}"
    event = {"type": "app_mention", "user": "U0ALICE000", "channel": CHANNEL, "ts": ts, "event_ts": ts, "text": text}
    return json.dumps(envelope(office.slack, event))


JSON = {"Content-Type": "application/json"}


async def test_a_mention_a_command_and_a_press_work_over_http(http_office: Office) -> None:
    ts = await http_office.alice.mention(CHANNEL, QUESTION)
    (answer,) = await http_office.answers(thread=ts)
    helped = await http_office.alice.command(CHANNEL, "help")
    assert "reset" in str(helped.payload)
    pressed = await http_office.alice.press(CHANNEL, answer, "duet_feedback", value="good")
    assert pressed.status == 200
    assert http_office.front.is_listening


async def test_slack_may_verify_the_address(http_office: Office) -> None:
    raw = json.dumps({"type": "url_verification", "challenge": "abc", "token": "t"})
    assert await post(http_office, raw, signed(raw) | JSON) == (200, '{"challenge": "abc"}')


@pytest.mark.parametrize("timestamp", ["abc", "", "-5", "1e9", "１２３", "9" * 30, "0x10", "12.5", "NaN"])
async def test_a_timestamp_that_is_no_number_is_refused_without_a_traceback(
    http_office: Office, timestamp: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw = mention(http_office)
    good = signed(raw)
    status, text = await post(http_office, raw, good | JSON | {"X-Slack-Request-Timestamp": timestamp})
    assert (status, text) == (401, "")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"X-Slack-Signature": "v0=" + "0" * 64},
        {"X-Slack-Signature": ""},
        {"X-Slack-Signature": "v0=ü"},
        {"X-Slack-Signature": "v1=x"},
    ],
)
async def test_a_wrong_signature_is_refused(http_office: Office, change: dict[str, str]) -> None:
    raw = mention(http_office)
    status, _ = await post(http_office, raw, signed(raw) | JSON | change)
    assert status == 401
    status, _ = await post(http_office, raw, JSON)
    assert status == 401
    assert http_office.world.model.calls == []


async def test_a_changed_body_an_old_one_and_another_secret_are_refused(http_office: Office) -> None:
    raw = mention(http_office)
    assert (await post(http_office, raw + " ", signed(raw) | JSON))[0] == 401
    assert (await post(http_office, raw, signed(raw, at=str(int(time.time()) - 600)) | JSON))[0] == 401
    assert (await post(http_office, raw, signed(raw, at=str(int(time.time()) + 600)) | JSON))[0] == 401
    assert (await post(http_office, raw, signed(raw, secret="other") | JSON))[0] == 401
    await http_office.settle()
    assert http_office.slack.said(CHANNEL) == []


async def test_a_replay_within_the_minutes_is_no_second_turn(http_office: Office) -> None:
    reset = {
        "command": "/duet",
        "text": "reset",
        "team_id": "T0DUETTEAM",
        "channel_id": CHANNEL,
        "user_id": "U0ALICE000",
        "trigger_id": "1.2.3",
        "response_url": f"{http_office.slack.base}/respond/1",
    }
    raw = urlencode(reset)
    headers = signed(raw) | {"Content-Type": "application/x-www-form-urlencoded"}
    for _ in range(3):
        assert (await post(http_office, raw, headers))[0] == 200
    await http_office.answers(1)
    await http_office.settle()
    assert len(http_office.slack.said(CHANNEL)) == 1


async def test_too_large_a_body_is_refused(http_office: Office) -> None:
    raw = "x" * (1 << 20) + "xx"
    assert (await post(http_office, raw, signed(raw) | JSON))[0] == 413


@pytest.mark.parametrize(
    "raw", ["", "{", "[]", '"text"', "payload=%7B", "payload=[]", "null", '{"event": 5}', "\ud800"]
)
async def test_garbage_that_is_signed_is_answered_and_harms_nothing(http_office: Office, raw: str) -> None:
    raw = raw.encode("utf-8", "ignore").decode()
    status, _ = await post(http_office, raw, signed(raw) | JSON)
    assert status in (200, 400, 404, 503)
    assert await http_office.alice.mention(CHANNEL, QUESTION)


def test_http_without_a_secret_is_not_offered(slack: FakeSlack, office: Office) -> None:
    from adapters.slack.app import SlackFront
    from bot.errors import BadInput
    from tests.adapters.slack.conftest import settings_for

    with pytest.raises(BadInput, match="SLACK_SIGNING_SECRET"):
        SlackFront(office.world.duet, settings_for(slack, slack_app_token=""))
    with pytest.raises(BadInput, match="SLACK_BOT_TOKEN"):
        SlackFront(office.world.duet, settings_for(slack, slack_bot_token=""))
