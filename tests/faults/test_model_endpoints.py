"""Endpoints that misbehave: each is survived within the deadline, told in a plain sentence, and the next call works."""

import asyncio
import json
import socket
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest
import trustme

from bot.drivers.chat_model import Endpoint, OpenAIModel, Patience
from bot.drivers.model_wire import Clocks
from bot.errors import (
    BadInput,
    ContextTooLong,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelQuota,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
)
from bot.ports import ChatMessage, Findings, Finished, ModelCall, Profile, Text
from tests.scripted_model import HANG, RESET, Reply, ScriptedModel, chunk

KEY = "sk-proj-0123456789abcdefghij"
DEADLINE_S = 2.0
CLOCKS = Clocks(connect_s=0.4, first_s=0.6, silence_s=0.5, total_s=DEADLINE_S)
PATIENCE = Patience(retries=1, first_pause_s=0.01, longest_pause_s=0.5)
CALL = ModelCall((ChatMessage("user", "Ana: what is our branch naming convention?"),), "naming", Findings(), 64)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
HTML = "<!DOCTYPE html><html><body><h1>Welcome to the lounge</h1><a href='/login'>Log in</a></body></html>"


def event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


A = event(chunk({"content": "Part of an "}))
B = event(chunk({"content": "answer"}))
DRIP = [item for byte in HEAD + A * 2 for item in (bytes([byte]), 0.1)]
COMMENTS = [item for _ in range(200) for item in (b": keep-alive\n\n", 0.1)]
EMPTY_DELTAS = [item for _ in range(200) for item in (event(chunk({})), 0.1)]
STREAM_WITHOUT_END = [A * 20_000] * 4


def stream(*parts: bytes | float | str) -> Reply:
    return Reply(raw=(HEAD, *parts))


def big_body(kind: str, unit: bytes, megabytes: int) -> Reply:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()
    block = unit * (1_000_000 // len(unit))
    return Reply(raw=(head, *[block] * megabytes))


FAULTS: dict[str, tuple[Reply, type[ModelError], str]] = {
    "hangs before its headers": (Reply(raw=(HANG,)), ModelTimeout, ""),
    "hangs in its headers": (Reply(raw=(HEAD[:30], HANG)), ModelTimeout, ""),
    "hangs after its headers": (stream(HANG), ModelTimeout, ""),
    "hangs midway": (stream(A, HANG), ModelTimeout, "Part of an "),
    "sends comments only": (stream(*COMMENTS), ModelTimeout, ""),
    "sends comments after a piece": (stream(A, *COMMENTS), ModelTimeout, "Part of an "),
    "sends empty deltas only": (stream(A, *EMPTY_DELTAS), ModelTimeout, "Part of an "),
    "drips a byte at a time": (Reply(raw=DRIP), ModelTimeout, ""),
    "resets the connection at once": (Reply(raw=(RESET,)), ModelUnreachable, ""),
    "resets the connection midway": (stream(A, 0.05, RESET), ModelError, "Part of an "),
    "ends early": (stream(A, B), ModelGarbled, "Part of an answer"),
    "ends at once": (Reply(raw=()), ModelUnreachable, ""),
    "ends after its headers": (stream(), ModelGarbled, ""),
    "sends garbage": (Reply(raw=(b"\x00\xff\xfegarbage\r\n\r\n",)), ModelUnreachable, ""),
    "sends garbage as events": (stream(b"\x00\xff\n\n\xfe\r\r\n" * 50), ModelGarbled, ""),
    "sends bytes that are not UTF-8": (stream(A, b"data: \xff\xfe\xc3(\n\n"), ModelGarbled, "Part of an "),
    "sends half JSON": (stream(A, b'data: {"choices":[{"delta":{"con\n\n'), ModelGarbled, "Part of an "),
    "sends JSON that is no object": (stream(A, b"data: [1, 2]\n\n"), ModelGarbled, "Part of an "),
    "sends JSON nested without end": (stream(b"data: " + b'{"a":' * 50_000 + b"\n\n"), ModelGarbled, ""),
    "sends a line of 10 MB": (stream(A, b"data: ", *[b"x" * 1_000_000] * 10, b"\n\n"), ModelGarbled, "Part of an "),
    "sends 100 MB of a stream": (big_body("text/event-stream", A, 100), ModelError, ""),
    "sends 100 MB of JSON": (big_body("application/json", b'{"x":1}', 100), ModelGarbled, ""),
    "sends 100 MB of a page": (big_body("text/html", b"<p>x</p>", 100), ModelGarbled, ""),
    "sends a gateway's page with 200": (Reply(body=HTML, headers={"content-type": "text/html"}), ModelGarbled, ""),
    "sends a page as plain text": (Reply(body=HTML, headers={"content-type": "text/plain"}), ModelGarbled, ""),
    "sends a page that calls itself JSON": (Reply(body=HTML), ModelGarbled, ""),
    "redirects": (Reply(status=302, headers={"location": "https://login.example/"}), ModelRefused, ""),
    "says 401": (Reply(status=401, body=json.dumps({"error": {"message": f"bad key {KEY}"}})), ModelRefused, ""),
    "says 403 with a page": (Reply(status=403, body=HTML, headers={"content-type": "text/html"}), ModelRefused, ""),
    "says 404": (Reply(status=404, body="404 page not found"), ModelRefused, ""),
    "knows no such model": (Reply(status=404, body='{"error":"model \'m\' not found"}'), ModelRefused, ""),
    "says 413": (Reply(status=413, body=HTML), ModelError, ""),
    "says 422": (Reply(status=422, body='{"detail":[{"msg":"field required"}]}'), ModelRefused, ""),
    "says 429 with Retry-After": (Reply(status=429, headers={"retry-after": "9"}, body="{}"), ModelBusy, ""),
    "says 429 without": (Reply(status=429, body="{}"), ModelBusy, ""),
    "has no allowance left": (Reply(status=429, body='{"error":{"code":"insufficient_quota"}}'), ModelQuota, ""),
    "says 500": (Reply(status=500, body='{"error":{"message":"boom"}}'), ModelBusy, ""),
    "says 500 and hangs": (
        Reply(raw=(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n{", HANG)),
        ModelError,
        "",
    ),
    "says 502 with a page": (Reply(status=502, body=HTML, headers={"content-type": "text/html"}), ModelBusy, ""),
    "says 529": (Reply(status=529, body='{"error":{"type":"overloaded_error"}}'), ModelBusy, ""),
    "sends an empty reply": (Reply(""), ModelGarbled, ""),
    "sends only tool calls": (
        stream(event(chunk({"tool_calls": [{"index": 0, "function": {"name": "x"}}]}, finish="tool_calls"))),
        ModelGarbled,
        "",
    ),
    "sends only reasoning": (
        stream(event(chunk({"reasoning_content": "hm"})), event(chunk({}, finish="stop"))),
        ModelGarbled,
        "",
    ),
    "reports an error in a 200 stream": (
        stream(A, event(json.dumps({"error": {"message": f"<b>died</b> {KEY}"}}))),
        ModelError,
        "Part of an ",
    ),
    "lies about compression": (
        Reply(raw=(HEAD.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection"), A)),
        ModelGarbled,
        "",
    ),
    "finds the prompt too long": (
        Reply(status=400, body='{"error":{"type":"exceed_context_size_error","n_ctx":4096}}'),
        ContextTooLong,
        "",
    ),
}


async def heard_from(model: OpenAIModel) -> tuple[str, Finished | None, ModelError | None]:
    text = ""
    finished = None
    try:
        async for piece in model.stream(CALL):
            if isinstance(piece, Text):
                text += piece.text
            else:
                finished = piece
    except ModelError as error:
        return text, finished, error
    return text, finished, None


def is_plain(sentence: str) -> bool:
    return not any(mark in sentence for mark in "<>{}[]\n") and KEY not in sentence and len(sentence) < 250


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel([]) as server:
        yield server


@pytest.fixture
async def model(server: ScriptedModel) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel(Endpoint(server.url, "m", KEY), profile=Profile(), clocks=CLOCKS, patience=PATIENCE)
    yield model
    await model.aclose()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("name", FAULTS)
async def test_an_endpoint_that(name: str, server: ScriptedModel, model: OpenAIModel, traced: None):
    reply, expected, partial = FAULTS[name]
    server.then(reply, reply)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    started = time.perf_counter()
    async with asyncio.timeout(DEADLINE_S * 3 + 8):  # a backstop: tracing slows the bulky ones
        text, finished, error = await heard_from(model)
    took = time.perf_counter() - started

    assert isinstance(error, expected)
    assert finished is None
    assert error.partial == text
    assert error.partial.startswith(partial)
    assert is_plain(error.room_text)
    assert KEY not in str(error)
    assert "<" not in str(error)
    assert "\n" not in str(error)
    assert took < DEADLINE_S + 0.5 or "MB" in name
    assert tracemalloc.get_traced_memory()[1] - before < 20_000_000
    assert all(
        request.messages == [{"role": "user", "content": CALL.messages[0].content}] for request in server.requests
    )

    server._script[:] = ["And now it works."]
    assert (await heard_from(model))[0] == "And now it works."


async def test_a_server_that_finishes_twice_is_understood(server: ScriptedModel, model: OpenAIModel):
    finish = event(chunk({}, finish="stop"))
    server.then(stream(A, B, finish, finish, event("[DONE]"), event("[DONE]")))
    text, finished, error = await heard_from(model)
    assert (text, error) == ("Part of an answer", None)
    assert finished is not None
    assert finished.reason == "stop"


async def test_a_reply_that_ran_into_its_limit_says_length(server: ScriptedModel, model: OpenAIModel):
    server.then(Reply("Part of", finish="length"))
    _, finished, _ = await heard_from(model)
    assert finished is not None
    assert finished.reason == "length"


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (lambda: f"http://127.0.0.1:{_unused_port()}/v1", "refused the connection"),
        (lambda: "http://no-such-host.invalid/v1", "not found by its name"),
    ],
)
async def test_an_address_with_nobody_behind_it_is_told(url, words):
    model = OpenAIModel(Endpoint(url(), "m", KEY), profile=Profile(), clocks=CLOCKS, patience=PATIENCE)
    started = time.perf_counter()
    _, _, error = await heard_from(model)
    await model.aclose()
    assert isinstance(error, (ModelUnreachable, ModelRefused, ModelTimeout))
    assert words in error.room_text
    assert is_plain(error.room_text)
    assert time.perf_counter() - started < DEADLINE_S + 3  # a name server may take its own time


@pytest.mark.parametrize(
    "url", ["http://[not-an-address/v1", "http://127.0.0.1:99999/v1", "http:///v1", "http://a b/v1"]
)
def test_an_address_that_is_none_is_told_at_once(url):
    with pytest.raises(BadInput, match="DUET_MODEL_URL"):
        Endpoint(url, "m")


async def test_a_certificate_that_nobody_vouches_for_is_told():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with ScriptedModel(["never seen"], tls=context) as server:
        model = OpenAIModel(Endpoint(server.url, "m", KEY), profile=Profile(), clocks=CLOCKS, patience=PATIENCE)
        _, _, error = await heard_from(model)
        await model.aclose()
    assert isinstance(error, ModelUnreachable)
    assert "certificate" in error.room_text
    assert not server.requests


async def test_a_server_that_accepts_and_never_reads_runs_into_the_clock():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    model = OpenAIModel(
        Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", "m"),
        profile=Profile(),
        clocks=CLOCKS,
        patience=PATIENCE,
    )
    _, _, error = await heard_from(model)
    await model.aclose()
    listener.close()
    assert isinstance(error, ModelTimeout)


@pytest.mark.parametrize("key", ["ключ", "two\nlines", "a\r\nX-Evil: 1"])
async def test_a_key_that_no_header_can_hold_is_told_and_not_repeated(key):
    async with ScriptedModel(["never seen"]) as server:
        model = OpenAIModel(Endpoint(server.url, "m", key), profile=Profile(), clocks=CLOCKS, patience=PATIENCE)
        _, _, error = await heard_from(model)
        await model.aclose()
    assert isinstance(error, ModelRefused)
    assert "DUET_MODEL_KEY" in error.room_text
    assert key not in f"{error} {error.room_text}"
    assert not server.requests


async def test_being_cancelled_in_the_middle_ends_the_call_at_once(server: ScriptedModel, model: OpenAIModel):
    server.then(stream(A, HANG))
    task = asyncio.create_task(heard_from(model))
    while not server.requests:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(0.5):
            await task
