"""A whole turn's own work as a ratio to the least that any bot must do: same model stub, same platform stub, same disk.

The floor hears, stores the question, reads the history, asks the model over one HTTP stream, stores the reply with its
log and posts it. Both run in turns in one process; CPU time is compared, so that a busy machine does not decide.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from bot.conversation import Answer, Body, Part, SessionKey, Standing, Surroundings, Turn
from bot.drivers.chat_model import Endpoint, OpenAIModel
from bot.drivers.store import SqliteStore
from bot.duet import Duet
from bot.policy import Policy
from bot.ports import Profile
from bot.redaction import Redactor
from tests.fakes import NAMING, ROOM, FakeRetriever, FakeSandbox, turn

TURNS = 40
MOST = 3.0

STUB = """
import asyncio, json, sys
from aiohttp import web
def chunk(text):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return "data: " + json.dumps({"choices": [choice]}) + "\\n\\n"
PIECES = ["Every branch ", "is named `feature/<ticket>-<words>`", " and hotfix branches ", "begin with `hotfix/` "]
PIECES.append("[1]. ")
BODY = ("".join(chunk(piece) for _ in range(10) for piece in PIECES)
        + 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\\n\\ndata: [DONE]\\n\\n').encode()
async def model(request):
    await request.read()
    return web.Response(body=BODY, content_type="text/event-stream")
async def post(request):
    await request.read()
    return web.json_response({"ok": True, "ts": "1.1"})
async def main():
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", model), web.post("/post", post)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
async def stub() -> AsyncIterator[str]:
    """Give the address of a model and a platform in a process of their own."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUB, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    port = (await process.stdout.readline()).decode().strip()
    yield f"http://127.0.0.1:{port}"
    process.kill()
    await process.wait()


class HttpOutlet:
    """Posts by HTTP and shows no drafts: those are a platform's own cost, one a second."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.posted = asyncio.Event()

    def render(self, answer: Answer) -> tuple[Body, ...]:
        return (Body({"text": answer.text}),)

    async def surroundings(self, asked: Turn) -> Surroundings:
        return Surroundings(replace(asked.author, standing=Standing.MEMBER))

    async def status(self, asked: Turn, text: str | None) -> None: ...

    async def show(self, part: Part, *, draft: bool) -> str:
        if not draft:
            await self._http.post("/post", json=dict(part.body.content))
            self.posted.set()
        return "1.1"

    async def find(self, part: Part) -> str | None:
        return None

    async def delete(self, part: Part) -> None: ...


def floor(home: Path, http: httpx.AsyncClient) -> Callable[[int], Awaitable[None]]:
    """Give the least that a turn takes."""
    c = sqlite3.connect(home / "floor.db", isolation_level=None)
    c.execute("PRAGMA journal_mode=wal")
    c.execute("PRAGMA synchronous=full")
    c.executescript(
        """CREATE TABLE seen(id TEXT PRIMARY KEY); CREATE TABLE messages(id INTEGER PRIMARY KEY, role TEXT, text TEXT);
           CREATE TABLE calls(id INTEGER PRIMARY KEY, request TEXT, reply TEXT)"""
    )

    async def one(number: int) -> None:
        question = f"What is our branch naming convention? {number}"
        c.execute("BEGIN IMMEDIATE")
        c.execute("INSERT INTO seen VALUES(?)", (str(number),))
        c.execute("INSERT INTO messages(role, text) VALUES('user', ?)", (question,))
        c.execute("COMMIT")
        history = c.execute("SELECT role, text FROM messages ORDER BY id DESC LIMIT 12").fetchall()[::-1]
        messages = [{"role": "system", "content": "S" * 1_500 + NAMING.text}]
        messages += [{"role": role, "content": text} for role, text in history]
        pieces = []
        async with http.stream("POST", "/v1/chat/completions", json={"messages": messages, "stream": True}) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    pieces.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
        text = "".join(pieces)
        c.execute("BEGIN IMMEDIATE")
        c.execute("INSERT INTO messages(role, text) VALUES('assistant', ?)", (text,))
        c.execute("INSERT INTO calls(request, reply) VALUES(?, ?)", (json.dumps(messages), text))
        c.execute("COMMIT")
        await http.post("/post", json={"text": text})

    return one


async def cpu_ms(one: Callable[[int], Awaitable[None]], numbers: range) -> list[float]:
    spent = []
    for number in numbers:
        began = time.process_time()
        await one(number)
        spent.append((time.process_time() - began) * 1000)
    return spent


async def test_a_turns_own_cost_stays_within_three_times_the_floor(stub: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, now=lambda: time.time_ns() // 1_000_000)
    await store.open()
    model = OpenAIModel(Endpoint(f"{stub}/v1", "stub"), profile=Profile())
    async with httpx.AsyncClient(base_url=stub) as http:
        duet = Duet(
            store,
            model,
            FakeRetriever(),
            FakeSandbox(),
            policy=Policy(),
            redact=Redactor(()),
            now=lambda: time.time_ns() // 1_000_000,
            new_id=lambda: "x",
        )
        outlet = HttpOutlet(http)
        duet.attach("fake", outlet)
        duet.start()

        async def ours(number: int) -> None:
            asked = turn(f"What is our branch naming convention? {number}", session=SessionKey(ROOM))
            outlet.posted.clear()
            await duet.hear(asked)
            await outlet.posted.wait()
            while await store.outbox_age_at() is not None:
                await asyncio.sleep(0.001)

        least = floor(tmp_path, http)
        for warm in (ours, least):
            await cpu_ms(warm, range(5))
        spent: dict[str, list[float]] = {"ours": [], "floor": []}
        for block in range(TURNS // 10):
            numbers = range(100 + block * 10, 110 + block * 10)
            spent["floor"] += await cpu_ms(least, numbers)
            spent["ours"] += await cpu_ms(ours, numbers)
        await duet.close()
    await model.aclose()
    await store.close()
    # The quarter that was disturbed least: beside a busy neighbour CPU time grows for all, and not evenly.
    own, bare = (statistics.quantiles(spent[name], n=4)[0] for name in ("ours", "floor"))
    print(f"turn: {own:.2f} ms CPU, floor {bare:.2f} ms, ratio {own / bare:.2f}")
    assert own / bare <= MOST
