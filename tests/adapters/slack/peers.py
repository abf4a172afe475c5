"""Slack as `Peer`s of the scenario suite: the double and local-slack, each over Socket Mode and over signed HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import lacking
from tests.doubles import slack as double
from tests.doubles.slack import FakeSlack
from tests.doubles.slack_people import Person, buttons
from tests.scenario import Peer, Seen
from tests.served import serve

CHANNEL = "C0ENGROOM0"
PEOPLE = {"alice": "U0ALICE000", "bob": "U0BOB00000"}
NOTHING: Mapping[str, str] = {}


def all_text(value: Any) -> Iterator[str]:
    """Give every text in a message's blocks."""
    if isinstance(value, list):
        for item in value:
            yield from all_text(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "text" and isinstance(item, str):
                yield item
            else:
                yield from all_text(item)


def read(message: Mapping[str, Any]) -> Seen:
    labels = tuple(button["label"] for button in buttons(message))
    files = tuple(file["name"] for file in message.get("files", []))
    return Seen(message.get("ts", ""), "\n".join(all_text(message)), labels, files)


def environ(api_url: str, *, http: bool) -> dict[str, str]:
    # Without an engine, unless the peer is given one: its pool of sandboxes would be left behind.
    nowhere = "unix:///nonexistent/docker.sock"
    given = {"SLACK_BOT_TOKEN": double.BOT_TOKEN, "SLACK_API_URL": api_url, "DOCKER_HOST": nowhere}
    way_in = {"SLACK_SIGNING_SECRET": double.SECRET} if http else {"SLACK_APP_TOKEN": double.APP_TOKEN}
    return given | way_in


class DoublePeer:
    """The double, with the shipped program against it."""

    def __init__(self, slack: FakeSlack, name: str) -> None:
        self.name = name
        self._slack = slack
        self._last: list[dict[str, Any]] = []

    def _person(self, name: str) -> Person:
        return Person(self._slack, PEOPLE[name])

    async def mention(self, text: str, *, by: str = "alice", thread: str | None = None) -> str:
        before = len(self._slack.deliveries)
        ts = await self._person(by).mention(CHANNEL, text, thread=thread or "")
        self._last = [delivery.body for delivery in self._slack.deliveries[before:]]
        return thread or ts

    async def again(self) -> None:
        for body in self._last:
            await self._slack.deliver("events_api", body)

    async def command(self, words: str, *, by: str = "alice") -> str:
        delivery = await self._person(by).command(CHANNEL, words)
        return "\n".join(all_text(delivery.payload))

    async def press(self, message: Seen, label: str, *, by: str = "alice") -> None:
        raw = self._slack.channels[CHANNEL].find(message.id)
        assert raw is not None
        button = next(b for b in buttons(raw) if b["label"] == label)
        delivery = await self._person(by).press(CHANNEL, raw, button["action_id"], value=button["value"])
        assert delivery.acked_ms is not None

    async def read_file(self, message: Seen, name: str) -> str:
        raw = self._slack.channels[CHANNEL].find(message.id)
        assert raw is not None
        file = next(file for file in raw["files"] if file["name"] == name)
        return self._slack.file_data[file["id"]].decode()

    async def seen(self, thread: str | None = None) -> list[Seen]:
        return [read(message) for message in self._slack.said(CHANNEL, thread=thread)]


@asynccontextmanager
async def open_double(folder: Path, *, http: bool, more: Mapping[str, str] = NOTHING) -> AsyncIterator[Peer]:
    slack = FakeSlack()
    await slack.start()
    slack.add_channel(CHANNEL, *(slack.add_user(id, name) for name, id in PEOPLE.items()))
    try:
        async with serve(folder, environ(slack.api_url, http=http) | dict(more)) as served:
            slack.events_url = f"{served.address}/slack/events" if http else ""
            yield DoublePeer(slack, "the double over HTTP" if http else "the double over sockets")
    finally:
        await slack.stop()
    assert slack.violations == []


class LocalSlackPeer:
    """local-slack, a Slack played by others: `.ci/slack-peer` fetches it."""

    def __init__(self, base: str, session: aiohttp.ClientSession, name: str) -> None:
        self.name = name
        self._base = base
        self._session = session
        self._last: dict[str, Any] = {}

    async def _post(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"{self._base}/_control/{what}", json=body) as response:
            found: dict[str, Any] = await response.json()
            assert found["ok"], found
            return found

    async def _get(self, what: str) -> dict[str, Any]:
        async with self._session.get(f"{self._base}/_control/{what}") as response:
            found: dict[str, Any] = await response.json()
            return found

    async def mention(self, text: str, *, by: str = "alice", thread: str | None = None) -> str:
        said = {"channel": CHANNEL, "user": PEOPLE[by], "text": f"<@{double.BOT_USER}> {text}"}
        made = await self._post("message", said | ({"thread_ts": thread} if thread else {}))
        self._last = made["message"]
        return thread or str(made["message"]["ts"])

    async def again(self) -> None:
        """It cannot send an event twice; an edit sends the mention again, as Slack's does."""
        edit = {
            "channel": CHANNEL,
            "ts": self._last["ts"],
            "user": self._last["user"],
            "text": self._last["text"] + " ",
        }
        await self._post("edit-message", edit)

    async def command(self, words: str, *, by: str = "alice") -> str:
        before = len((await self._get("log"))["log"])
        await self._post("command", {"channel": CHANNEL, "user": PEOPLE[by], "command": "/duet", "text": words})
        if words.startswith(("run ", "reset")):
            return ""  # what comes of these comes as a message
        for _ in range(60):  # what came back stands in its log (Socket Mode) or in the channel (HTTP)
            news = (await self._get("log"))["log"][before:]
            for entry in news:
                if entry["kind"] == "ack" or "response" in entry["summary"]:
                    return "\n".join(all_text(entry["detail"]))
            await asyncio.sleep(0.05)
        return "\n".join(message.text for message in (await self.seen())[-1:])

    async def press(self, message: Seen, label: str, *, by: str = "alice") -> None:
        raw = next(m for m in (await self._get(f"messages/{CHANNEL}"))["messages"] if m["ts"] == message.id)
        button = next(b for b in buttons(raw) if b["label"] == label)
        action = {"type": "button", "block_id": "b", "action_id": button["action_id"], "value": button["value"]}
        await self._post(
            "interact", {"channel": CHANNEL, "messageTs": message.id, "user": PEOPLE[by], "action": action}
        )

    async def read_file(self, message: Seen, name: str) -> str:
        raw = next(m for m in (await self._get(f"messages/{CHANNEL}"))["messages"] if m["ts"] == message.id)
        file = next(file for file in raw["files"] if file["name"] == name)
        headers = {"Authorization": f"Bearer {double.BOT_TOKEN}"}
        async with self._session.get(file["url_private"], headers=headers) as response:
            assert response.status == 200, response
            return await response.text("utf-8")

    async def seen(self, thread: str | None = None) -> list[Seen]:
        said = (await self._get(f"messages/{CHANNEL}"))["messages"]
        own = [m for m in said if m.get("user") == double.BOT_USER]
        return [read(m) for m in own if thread is None or m.get("thread_ts") == thread]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def config(events_url: str) -> dict[str, Any]:
    """Give local-slack's configuration (JSON is YAML, too)."""
    app = {
        "appId": double.APP,
        "botUserId": double.BOT_USER,
        "botName": "duet",
        "botToken": double.BOT_TOKEN,
        "appToken": double.APP_TOKEN,
        "signingSecret": double.SECRET,
        "mode": "events" if events_url else "socket",
    }
    return {
        "workspace": {"name": "Duet Test", "domain": "duet-test", "teamId": double.TEAM},
        "apps": [app | ({"requestUrl": events_url} if events_url else {})],
        "users": [{"id": id, "name": name, "real_name": name.capitalize()} for name, id in PEOPLE.items()],
        "channels": [{"id": CHANNEL, "name": "eng", "members": [*PEOPLE.values(), double.BOT_USER]}],
    }


@asynccontextmanager
async def open_local_slack(folder: Path, *, http: bool, more: Mapping[str, str] = NOTHING) -> AsyncIterator[Peer]:
    binary = os.environ.get("LOCAL_SLACK_BIN", "")
    if not binary or not Path(binary).exists():
        lacking("slack-peer", 'local-slack is not here: eval "$(.ci/slack-peer)" fetches it and sets LOCAL_SLACK_BIN')
    folder.mkdir(parents=True, exist_ok=True)
    port, own_port = free_port(), free_port()
    (folder / "slack.yaml").write_text(json.dumps(config(f"http://127.0.0.1:{own_port}/slack/events" if http else "")))
    with open(folder / "local-slack.log", "wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *(binary, "--config", str(folder / "slack.yaml"), "--port", str(port), "--base-host", "127.0.0.1"),
            cwd=folder,
            stdout=sink,
            stderr=sink,
        )
    base = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as session:
            await _until_up(session, base)
            given = environ(f"{base}/api/", http=http) | {"DUET_HTTP_PORT": str(own_port)} | dict(more)
            async with serve(folder, given):
                yield LocalSlackPeer(base, session, "local-slack over HTTP" if http else "local-slack over sockets")
    finally:
        process.terminate()
        await process.wait()


async def _until_up(session: aiohttp.ClientSession, base: str) -> None:
    for _ in range(200):
        try:
            async with session.get(f"{base}/_control/state") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.05)
    raise AssertionError("local-slack did not start")
