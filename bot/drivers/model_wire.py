"""One streamed HTTP call: three clocks, bounded reading, every fault of the network as a ModelError.

httpx is imported here alone, so that a change of library is a change of this module.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
from httpx_sse._decoders import SSEDecoder, SSELineDecoder

from bot.drivers.endpoint_errors import Redact, one_line
from bot.errors import ModelGarbled, ModelRefused, ModelTimeout, ModelUnreachable

MAX_LINE_BYTES = 1_000_000
MAX_STREAM_BYTES = 20_000_000
UNREADABLE = "The language model's answer could not be read."
ENDLESS = "The language model's server sent far more than an answer."
PIECE_BYTES = 65_536  # the most that is unpacked at once
WHOLE = ("application/json", "application/problem+json", "text/html")  # answers that are no event stream
EVENT_BEGINS = (b"data:", b"event:", b"id:", b"retry:", b":")
MAX_BODY_BYTES = 64_000  # of an answer that is no stream; an error has said what it has to say by then
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Clocks:
    """How long to wait: for a connection, for the first sign of a reply, between two signs, and in all."""

    connect_s: float = 5.0
    first_s: float = 60.0
    silence_s: float = 30.0
    total_s: float = 115.0

    @classmethod
    def within(cls, turn_timeout_s: float, *, first_s: float | None = None) -> Clocks:
        """Fit the clocks into a turn, so that they speak before the turn's own deadline does."""
        total = turn_timeout_s * 0.95
        return cls(
            connect_s=min(DEFAULT_CLOCKS.connect_s, total * 0.25),
            first_s=min(first_s or DEFAULT_CLOCKS.first_s, total * 0.75),
            silence_s=min(DEFAULT_CLOCKS.silence_s, total * 0.5),
            total_s=total,
        )


DEFAULT_CLOCKS = Clocks()


class Watch:
    """The clocks of one call, running. Only a sign that moves the reply on resets the silence; a comment does not."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.on_sooner: Callable[[], None] | None = None  # called when less time is left than was said
        self._now = asyncio.get_running_loop().time
        self._ends_at = self._now() + clocks.total_s
        self._due_at = 0.0
        self._has_begun = False
        self._is_finishing = False
        self.restart()

    def restart(self) -> None:
        """Begin to wait for the first sign, as for a second try."""
        self._has_begun = self._is_finishing = False
        self._due_at = min(self._now() + self.clocks.first_s, self._ends_at)

    def touch(self) -> None:
        """Note a sign of life."""
        if not self._is_finishing:
            self._has_begun = True
            self._due_at = min(self._now() + self.clocks.silence_s, self._ends_at)

    def finish_within(self, grace_s: float) -> None:
        """Wait no longer than that for what may still follow a complete reply."""
        due_at = min(self._now() + grace_s, self._ends_at)
        if not self._is_finishing or due_at < self._due_at:
            self._is_finishing = True
            self._due_at = due_at
            if self.on_sooner is not None:
                self.on_sooner()

    @property
    def due_at(self) -> float:
        return self._due_at

    @property
    def left_s(self) -> float:
        return self._ends_at - self._now()

    def ran_out(self) -> ModelTimeout:
        clocks = self.clocks
        if self.left_s <= 0.01:
            return ModelTimeout("The language model took too long.", detail=f"not done after {clocks.total_s:g} s")
        if self._has_begun:
            return ModelTimeout(
                "The language model fell silent in the middle.", detail=f"nothing new for {clocks.silence_s:g} s"
            )
        return ModelTimeout("The language model did not begin to answer.", detail=f"nothing for {clocks.first_s:g} s")


class Alarm:
    """Cancels a wait when the watch runs out: one timer for a whole reply.

    Set `waiting` to the task that waits, and to None when it no longer does. `asyncio.timeout` around every read would
    cost a third of the read itself, and most reads find their data there.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.waiting: asyncio.Task[object] | None = None
        self._cancelled_before = 0
        self._has_rung = False

    def __enter__(self) -> Alarm:
        self._watch.on_sooner = self._look
        self._look()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.on_sooner = None
        if self._timer is not None:
            self._timer.cancel()

    def was_it(self) -> bool:
        """Tell whether the cancellation just caught was this alarm's alone, and take it back."""
        task = asyncio.current_task()
        return self._has_rung and task is not None and task.uncancel() <= self._cancelled_before

    def _look(self) -> None:
        """Ring if it is time, else look again when it will be."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        if now < self._watch.due_at:
            self._timer = self._loop.call_at(self._watch.due_at, self._look)
        elif self.waiting is None:  # the listener is busy; that is not the model's silence
            self._timer = self._loop.call_later(0.05, self._look)
        else:
            self._has_rung = True
            self._cancelled_before = self.waiting.cancelling()
            self.waiting.cancel()


@contextmanager
def _network_faults(redact: Redact) -> Iterator[None]:
    """Turn what the library raises, a dozen classes without a common sense, into the ModelError family."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise ModelTimeout("The language model's server could not be reached in time.", detail=_said(error)) from error
    except httpx.ConnectError as error:
        raise ModelUnreachable(_why_not_connected(error), detail=one_line(_said(error), redact)) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeError) as error:
        raise ModelRefused(
            "The language model's address or key cannot be sent as it is set. Whoever runs Duet should check "
            "DUET_MODEL_URL and DUET_MODEL_KEY.",
            detail=type(error).__name__,  # its text may hold the key
        ) from None
    except zlib.error as error:
        raise ModelGarbled(UNREADABLE, detail=one_line(_said(error), redact)) from error
    except httpx.ProxyError as error:
        raise ModelUnreachable(
            "The proxy before the language model lets nothing through. Whoever runs Duet should check HTTPS_PROXY.",
            detail=one_line(_said(error), redact),
        ) from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise ModelUnreachable(
            "The connection to the language model broke off.", detail=one_line(_said(error), redact)
        ) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _why_not_connected(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "The language model's server has no certificate that this machine trusts."
        if isinstance(cause, socket.gaierror):
            return (
                "The language model's server was not found by its name. Whoever runs Duet should check DUET_MODEL_URL."
            )
        cause = cause.__cause__ or cause.__context__
    return "The language model's server refused the connection. Is it running, and is DUET_MODEL_URL right?"


class WireAnswer:
    """What came back: status, headers and a body to read once, as text or as events."""

    def __init__(self, response: httpx.Response, watch: Watch, redact: Redact) -> None:
        self._response = response
        self._watch = watch
        self._redact = redact
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._chunks = _unpacked(response.aiter_raw(), self.headers.get("content-encoding", "identity").lower())
        self._first = b""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def is_whole(self) -> bool:
        """Tell whether the body is one JSON object or page and no stream: by how it begins, else by its type."""
        async with aclosing(self._bytes()) as chunks:
            self._first = await anext(chunks, b"")
        begins = self._first.lstrip(b"\xef\xbb\xbf \t\r\n")
        if begins.startswith(EVENT_BEGINS):
            return False
        return begins[:1] in (b"{", b"<") or self.media_type in WHOLE

    async def text(self) -> str:
        """Give the beginning of the body; bytes that are not UTF-8 are replaced."""
        body = bytearray()
        async with aclosing(self._bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAX_BODY_BYTES:
                    break
        return _text(bytes(body[:MAX_BODY_BYTES]))

    async def events(self) -> AsyncGenerator[list[str], None]:
        """Give the data of the events as they come, those of one read together.

        Raises: the ModelError family; ModelGarbled too where a line or the whole grows out of all proportion.
        """
        events = EventReader()
        total, held = 0, b""
        async with aclosing(self._bytes()) as chunks:
            async for chunk in chunks:
                total += len(chunk)
                if total > MAX_STREAM_BYTES or len(held) > MAX_LINE_BYTES:
                    raise ModelGarbled(ENDLESS, detail=f"{total} bytes, {len(held)} in a line")
                end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
                if not end:  # decoded only up to the end of a line: no character is cut in two there
                    held += chunk
                    continue
                text, held = _text(held + chunk[:end]), chunk[end:]
                if batch := events.read(text):
                    yield batch
        if batch := events.finish(_text(held)):
            yield batch

    async def _bytes(self) -> AsyncGenerator[bytes, None]:
        """Read under the clocks; the reader's own time between two reads is not counted."""
        first, self._first = self._first, b""
        if first:
            yield first
        with _network_faults(self._redact), Alarm(self._watch) as alarm:
            while True:
                alarm.waiting = asyncio.current_task()
                try:
                    chunk = await anext(self._chunks)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    if alarm.was_it():
                        raise self._watch.ran_out() from None
                    raise
                finally:
                    alarm.waiting = None
                yield chunk


def _unpacked(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Give the body without a compression that nobody asked for, a little at a time: a few bytes may hold gigabytes."""
    return chunks if encoding == "identity" else _inflated(chunks, encoding)


async def _inflated(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ModelGarbled(UNREADABLE, detail="it is packed in a way that was not asked for")
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)  # of either kind, by its head
    async for packed in chunks:
        piece = b""
        while packed or len(piece) == PIECE_BYTES:
            piece = decoder.decompress(packed, PIECE_BYTES)
            packed = decoder.unconsumed_tail
            yield piece


def _text(data: bytes) -> str:
    """Decode as UTF-8, which an event stream is whatever its header says."""
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


class EventReader:
    """Text that ends with a line's end -> the data of the events in it.

    The library's own iterator gives one event at a time, through five generators; its decoders, read directly, let a
    burst of events cost little more than one.
    """

    def __init__(self) -> None:
        self._lines, self._events = SSELineDecoder(), SSEDecoder()
        self._is_between = True  # no event is half read

    def read(self, text: str) -> list[str]:
        was_between, self._is_between = self._is_between, text.endswith("\n\n")
        if was_between and self._is_between and text.startswith("data: ") and _holds_one_line(text):
            return [text[6:-2]]  # one whole event, the commonest case by far
        return self._data(self._lines.decode(text))

    def finish(self, text: str) -> list[str]:
        """Take the last text. Strictly an event without its empty line is void, but some servers end so."""
        return self._data([*self._lines.decode(text), *self._lines.flush(), ""])

    def _data(self, lines: Sequence[str]) -> list[str]:
        return [event.data for line in lines if (event := self._events.decode(line)) and event.data]


def _holds_one_line(text: str) -> bool:
    return text.find("\n") == len(text) - 2 and "\r" not in text


class Wire:
    """Holds the connections to one endpoint. `headers` carry the key; they are never logged."""

    def __init__(self, url: str, headers: Mapping[str, str], *, connect_s: float, redact: Redact) -> None:
        self._url = url
        self._headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "duet", **headers}
        self._connect_s = connect_s
        self._redact = redact
        self._client: httpx.AsyncClient | None = None

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            try:
                self._client = self._made()
            except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
                raise ModelRefused(
                    "The proxy or the certificates that are set for Duet cannot be used. Whoever runs it should check "
                    "HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE.",
                    detail=type(error).__name__,  # its text may hold the proxy's password
                ) from None
        return self._client

    def _made(self) -> httpx.AsyncClient:
        is_local = urlsplit(self._url).hostname in LOOPBACK
        return httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=self._connect_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=not is_local,  # a proxy set for the world is not for this machine
            verify=self._url.startswith("https:"),  # reading the certificates takes 30 ms: not for nothing
        )

    @asynccontextmanager
    async def post(self, body: Mapping[str, object], watch: Watch) -> AsyncIterator[WireAnswer]:
        """Send and give the answer once its headers are there. Raises: the ModelError family."""
        with _network_faults(self._redact):
            request = self._opened().build_request("POST", self._url, json=body, headers=self._headers)
            try:
                async with asyncio.timeout_at(watch.due_at):
                    response = await self._opened().send(request, stream=True)
            except TimeoutError as error:
                raise watch.ran_out() from error
        try:
            yield WireAnswer(response, watch, self._redact)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
