"""`kill -9` of the shipped program while Slack takes an answer in, and what stands there after the next start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adapters.slack.peers import CHANNEL, PEOPLE, environ
from tests.doubles.slack import FakeSlack, Fault
from tests.doubles.slack_people import Person, buttons
from tests.scenario import ANSWER, QUESTION
from tests.served import serve


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("do", ["hang_after", "never"])
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update", "users.info"])
async def test_a_killed_program_answers_exactly_once_after_the_next_start(do: str, method: str, tmp_path: Path) -> None:
    slack = FakeSlack()
    await slack.start()
    slack.add_channel(CHANNEL, *(slack.add_user(id, name) for name, id in PEOPLE.items()))
    alice = Person(slack, PEOPLE["alice"])
    try:
        slack.fault(method, Fault(do))
        async with serve(tmp_path, environ(slack.api_url, http=False)) as served:
            ts = await alice.mention(CHANNEL, QUESTION)
            await until(lambda: slack.made(method))
            await asyncio.sleep(0.3)
            served.process.kill()
            await served.process.wait()
        async with serve(tmp_path, environ(slack.api_url, http=False)):
            await until(lambda: [m for m in slack.said(CHANNEL, thread=ts) if ANSWER in m["text"]])
            await until(lambda: not any(b["label"] == "Stop" for m in slack.said(CHANNEL) for b in buttons(m)))
            await asyncio.sleep(1.5)
            assert len(slack.said(CHANNEL)) == 1
    finally:
        await slack.stop()
    assert slack.violations == []
