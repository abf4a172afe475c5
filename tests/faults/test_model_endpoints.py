"""Endpoints that misbehave: each is survived within the deadline, told in a plain sentence, and the next call works."""

import asyncio
import socket
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pytest
import trustme

from bot.drivers.chat_model import Endpoint, OpenAIModel
from bot.errors import BadInput, ModelError, ModelRefused, ModelTimeout, ModelUnreachable
from bot.ports import ChatMessage, Findings, Finished, ModelCall, Profile, Text
from tests.bad_endpoints import CLOCKS, DEADLINE_S, FAULTS, KEY, PATIENCE, UNHURRIED, A, B, event, stream
from tests.scripted_model import HANG, Reply, ScriptedModel, chunk

CALL = ModelCall((ChatMessage("user", "Ana: what is our branch naming convention?"),), "naming", Findings(), 64)


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
    model._clocks = CLOCKS if expected is ModelTimeout else UNHURRIED
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
    model._clocks = UNHURRIED
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


async def test_a_redirect_is_not_followed_with_the_key(server: ScriptedModel, model: OpenAIModel):
    async with ScriptedModel(["stolen"]) as other:
        for status in (301, 302, 303, 307, 308):
            server.then(Reply(status=status, headers={"location": f"{other.url}/chat/completions"}))
            _, _, error = await heard_from(model)
            assert isinstance(error, ModelRefused)
            assert "no language model at the configured address" in error.room_text
        assert not other.requests


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://user:hunter2@127.0.0.1:1"),
        ("HTTP_PROXY", "ftp://user:hunter2@127.0.0.1:1"),
        ("HTTP_PROXY", "http://user:hunter2@127.0.0.1:port"),
        ("NO_PROXY", "*[::1"),
        ("SSL_CERT_FILE", "/nowhere/at/all.pem"),
    ],
)
async def test_a_proxy_or_certificates_that_cannot_be_used_are_told(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    address = "https://models.invalid/v1" if name == "SSL_CERT_FILE" else "http://models.invalid/v1"
    model = OpenAIModel(Endpoint(address, "m", KEY), profile=Profile(), clocks=CLOCKS, patience=PATIENCE)
    _, _, error = await heard_from(model)
    await model.aclose()
    assert isinstance(error, ModelRefused)
    assert name in error.room_text or "PROXY" in error.room_text
    assert "hunter2" not in f"{error} {error.room_text}"


async def test_a_proxy_that_refuses_is_told_and_one_set_for_the_world_is_not_asked_for_this_machine(
    server: ScriptedModel, model: OpenAIModel, monkeypatch
):
    async with ScriptedModel(lambda body: Reply(status=407)) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://user:hunter2@127.0.0.1:{proxy.port}")
        server.then("Here.")
        assert (await heard_from(model))[0] == "Here."
        assert not proxy.requests
        far = OpenAIModel(Endpoint("https://models.invalid/v1", "m", KEY), profile=Profile(), patience=PATIENCE)
        _, _, error = await heard_from(far)
        await far.aclose()
    assert isinstance(error, ModelUnreachable)
    assert "proxy" in error.room_text
    assert "hunter2" not in f"{error} {error.room_text}"


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
