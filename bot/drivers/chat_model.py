"""A language model behind an HTTP address: OpenAI-compatible chat completions, or Cloudflare's own `/ai/run/@cf/…`.

Tried again only before the first visible text; partial text stays with the error. What is sent is `ModelCall.messages`,
unchanged, so that the prompt log is exact.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from bot.checks import Check, Health
from bot.conversation import Usage
from bot.drivers.endpoint_errors import ModelLoading, RequestRefused, one_line, refused
from bot.drivers.model_replies import CUT, ReplyReader, is_withheld
from bot.drivers.model_wire import DEFAULT_CLOCKS, Clocks, Watch, Wire, WireAnswer
from bot.errors import (
    BadInput,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelQuota,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
)
from bot.ports import ChatMessage, Findings, Finished, ModelCall, Piece, Profile, Text
from bot.redaction import Redactor

log = logging.getLogger(__name__)

LEAST_SECRET_CHARS = 8  # of a query's value: a shorter one is a flag or a version
AFTER_DONE_S = 0.05  # for the end of the stream itself
AFTER_FINISH_S = 2.0  # for the usage that some endpoints send after the finish reason
# Sent where they are understood; an endpoint that rejects the request is asked once more without them.
OPTIONAL: dict[str, object] = {"stream_options": {"include_usage": True}, "temperature": 0.2}
WITHHELD = "The reply ends early: the language model's provider withheld the rest."
WEB_PAGE = (
    "The language model's address answered with a web page, not a reply. A login page or a proxy may stand in between; "
    "whoever runs Duet should check DUET_MODEL_URL."
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is and what it is. `url` ends before `/chat/completions`, or in `/ai/run`."""

    url: str
    name: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Raises: BadInput when the address is none."""
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or re.search(r"\s", self.url):
            raise BadInput("DUET_MODEL_URL is no web address; it should read like https://host/v1.")

    @property
    def is_native(self) -> bool:
        """Whether the address speaks Cloudflare's own dialect."""
        return re.search(r"/ai/run(/|$)", urlsplit(self.url).path) is not None

    @property
    def address(self) -> str:
        """Where the calls go: a query, as some gateways want one, stays at the end."""
        return urlsplit(self.url)._replace(path=self._path, fragment="").geturl()

    @property
    def _path(self) -> str:
        path = urlsplit(self.url).path.rstrip("/")
        if self.is_native:
            return path if "/@" in path else f"{path}/{self.name}"
        return f"{path}/chat/completions"

    @property
    def label(self) -> str:
        """The model's name, else the machine's."""
        return self.name or self._path.partition("/ai/run/")[2] or urlsplit(self.url).hostname or "model"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may hold: the key, the account, a password or a key within the address."""
        parts = urlsplit(self.url)
        account = re.search(r"/accounts/([^/]+)", parts.path)
        in_query = (value for _, value in parse_qsl(parts.query) if len(value) >= LEAST_SECRET_CHARS)
        found = (self.key, account[1] if account else "", parts.password or "", *in_query)
        return tuple(secret for secret in found if secret)


@dataclass(frozen=True, slots=True)
class Patience:
    """How often to try again before anything was shown, and how long to rest between two tries."""

    retries: int = 2
    first_pause_s: float = 0.5
    longest_pause_s: float = 20.0
    chance: Callable[[], float] = random.random

    def pause_s(self, tried: int, error: ModelError) -> float | None:
        """Give the rest before the next try; None when there is to be none."""
        if isinstance(error, ModelLoading):
            return 1.0  # until the clock for the first sign runs out
        if tried >= self.retries or not isinstance(error, (ModelBusy, ModelUnreachable, ModelGarbled)):
            return None
        asked = error.retry_after_s if isinstance(error, ModelBusy) else None
        if asked is not None:
            return asked * (1 + 0.1 * self.chance()) if asked <= self.longest_pause_s else None
        longest = min(self.first_pause_s * 2.0**tried, self.longest_pause_s)
        return longest * (1 + self.chance()) / 2


DEFAULT_PATIENCE = Patience()


class OpenAIModel:
    """A ChatModel over HTTP. It holds connections: close it with `aclose`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        profile: Profile,
        clocks: Clocks = DEFAULT_CLOCKS,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self.name = endpoint.label
        self.profile = profile
        self._endpoint = endpoint
        self._clocks = clocks
        self._patience = patience
        self._redact = Redactor(endpoint.secrets)
        self._sends: tuple[str, ...] = ("temperature",) if endpoint.is_native else tuple(OPTIONAL)
        self._limit_field = "max_tokens"
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        self._wire = Wire(endpoint.address, headers, connect_s=clocks.connect_s, redact=self._redact)

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece, None]:
        """Give the reply in pieces; the last is `Finished`. Raises: the ModelError family, with what had come."""
        watch = Watch(self._clocks)
        shown: list[str] = []
        tried = 0
        while True:
            watch.restart()
            try:
                async with aclosing(self._once(call, watch)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Text):
                            shown.append(piece.text)
                        yield piece
                        watch.touch()  # the listener's own time is not the model's silence
                return
            except ModelError as error:
                error.partial = "".join(shown)
                pause = None if shown else self._pause_s(error, tried, watch)
                if pause is None:
                    raise
                log.info("Asks %s again in %.1f s: %s", self.name, pause, error, extra={"action": "model_retry"})
            tried += 1
            await asyncio.sleep(pause)

    def _pause_s(self, error: ModelError, tried: int, watch: Watch) -> float | None:
        """Give the rest before another try, or None."""
        if self._may_do_without(error):
            return 0.0
        pause = self._patience.pause_s(tried, error)
        return None if pause is None or pause >= watch.left_s else pause

    def _may_do_without(self, error: ModelError) -> bool:
        """Leave out what this endpoint may not understand, for good, if it rejected the request as such."""
        if not isinstance(error, RequestRefused):
            return False
        if "max_completion_tokens" in str(error) and self._limit_field == "max_tokens":
            self._limit_field = "max_completion_tokens"
            return True
        sends, self._sends = self._sends, ()
        return bool(sends)

    async def _once(self, call: ModelCall, watch: Watch) -> AsyncGenerator[Piece, None]:
        reader = ReplyReader(self._redact)
        async with self._wire.post(self._body(call), watch) as answer:
            if not 200 <= answer.status < 300:
                raise await self._refusal(answer, watch)
            try:
                async with aclosing(self._texts(answer, reader)) as texts:
                    async for text in texts:
                        if text:
                            yield Text(text)
                        elif reader.is_alive:
                            watch.touch()
                        if reader.is_done:
                            watch.finish_within(AFTER_DONE_S)
                        elif reader.reason:
                            watch.finish_within(AFTER_FINISH_S)
            except ModelError as error:
                if not reader.is_complete:
                    raise
                log.debug("Ignored what came after a complete reply: %s", error)
        if not reader.is_complete:
            raise ModelGarbled(CUT, detail="the stream ended without a finish")
        reader.check_not_empty()
        note = WITHHELD if is_withheld(reader.reason) else ""
        yield Finished(_reason(reader, call), reader.usage, self.name, note)

    async def _texts(self, answer: WireAnswer, reader: ReplyReader) -> AsyncGenerator[str, None]:
        """Give the visible text of each read, '' where there is none in it."""
        if await answer.is_whole():
            yield await self._whole(answer, reader)
            return
        async with aclosing(answer.events()) as batches:
            async for batch in batches:
                if reader.is_done:
                    continue  # the stream's own end: once it is read, the connection serves the next turn
                text, fault = reader.read(batch)
                yield text
                if fault is not None:
                    raise fault

    async def _whole(self, answer: WireAnswer, reader: ReplyReader) -> str:
        """Read an answer that is no event stream: an error, a web page, or a reply in one piece."""
        body = await answer.text()
        if answer.media_type == "text/html" or body.lstrip().startswith("<"):
            raise ModelGarbled(WEB_PAGE, detail=f"a web page: {one_line(body, self._redact)}")
        return reader.feed_whole(body)

    async def _refusal(self, answer: WireAnswer, watch: Watch) -> ModelError:
        watch.finish_within(AFTER_FINISH_S)
        try:
            body = await answer.text()
        except ModelError:
            body = ""  # the status says enough
        return refused(answer.status, answer.headers, body, now=time.time(), redact=self._redact)

    def _body(self, call: ModelCall) -> dict[str, object]:
        """Give the request: the call's messages as they are, and `max_tokens` always (some default to 256)."""
        body: dict[str, object] = {
            "messages": [{"role": message.role, "content": message.content} for message in call.messages],
            "stream": True,
            self._limit_field: call.max_reply_tokens,
        }
        if self._endpoint.name and not self._endpoint.is_native:
            body["model"] = self._endpoint.name
        optional = OPTIONAL if self.profile.prompts == "one" else OPTIONAL | {"temperature": 0.0}
        return body | {name: optional[name] for name in self._sends}

    async def checks(self) -> list[Check]:
        """Ask for one short reply and tell the time to its first piece."""
        message = ChatMessage("user", "Reply with the one word: ready")
        call = ModelCall((message,), message.content, Findings(), 16)
        started = time.perf_counter()
        first_ms, usage = 0, Usage()
        try:
            async with aclosing(self.stream(call)) as pieces:
                async for piece in pieces:
                    first_ms = first_ms or round((time.perf_counter() - started) * 1000)
                    if isinstance(piece, Finished):
                        usage = piece.usage
        except ModelError as error:
            return [Check("language model", Health.FAIL, f"{self.name}: {error.room_text} ({error})", _mend(error))]
        counted = "tokens are counted" if usage.reply_tokens else "it does not say how many tokens it used"
        return [Check("language model", Health.OK, f"{self.name}: first piece after {first_ms} ms; {counted}")]

    async def aclose(self) -> None:
        await self._wire.aclose()


def _reason(reader: ReplyReader, call: ModelCall) -> str:
    """Give `stop` or `length` for the many words for them, else the endpoint's own word."""
    if reader.reason in ("length", "max_tokens", "model_length"):
        return "length"
    if not reader.reason and reader.usage.reply_tokens >= call.max_reply_tokens:
        return "length"  # it stopped at the limit and did not say why
    return "stop" if reader.reason in ("", "eos", "eos_token", "end_turn", "stop_sequence") else reader.reason


def _mend(error: ModelError) -> str:
    match error:
        case ModelUnreachable():
            return (
                "Start the model's server, or set DUET_MODEL_URL to where it is; "
                "inside a container, this machine is host.docker.internal."
            )
        case ModelQuota():
            return "Wait for the allowance to be renewed, or list another model in DUET_MODELS."
        case ModelRefused():
            return "Check DUET_MODEL_URL, DUET_MODEL and DUET_MODEL_KEY."
        case ModelTimeout():
            return "Choose a smaller or nearer model, or raise DUET_TURN_TIMEOUT_S."
        case _:
            return "See the log for what the endpoint said."
