"""A language model that says what it is told to: an OpenAI-compatible server over plain asyncio, for tests.

In a test:      async with ScriptedModel(["Hello.", Reply("<run>ls</run>")]) as model: … model.url … model.requests
As a process:   python tests/scripted_model.py --port 0 --script replies.json [--requests seen.jsonl]
                prints its address on the first line; replies.json is a list of strings or of Reply's fields, or
                {"rules": [{"contains": "…", "reply": …}], "otherwise": …}, matched against the last message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

HANG = 3_600.0  # seconds of silence: longer than any test waits
RESET = "reset"  # cut the connection with a TCP reset

Raw: TypeAlias = Sequence["bytes | float | str"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server.

    A plain one streams `text` in pieces of `piece_chars`, then `finish` and `usage`. With `status` other than 200 or a
    `body`, that is sent instead. `raw` is written to the socket as it is: bytes, a pause in seconds, or RESET; the
    connection ends after it. `native` streams Cloudflare's own dialect.
    """

    text: str = ""
    finish: str | None = "stop"
    usage: tuple[int, int] | None = (11, 7)
    piece_chars: int = 8
    before_s: float = 0.0
    between_s: float = 0.0
    done: bool = True
    native: bool = False
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    raw: Raw | None = None


Answerer: TypeAlias = "Callable[[dict[str, Any]], str | Reply | Awaitable[str | Reply]]"
Script: TypeAlias = "Sequence[str | Reply] | Answerer"


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller sent. `body` is the decoded JSON, `size` its bytes."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    size: int

    @property
    def messages(self) -> list[dict[str, str]]:
        messages: list[dict[str, str]] = self.body.get("messages", [])
        return messages

    @property
    def last(self) -> str:
        """The content of the last message."""
        return self.messages[-1]["content"] if self.messages else ""


class ScriptedModel:
    """The server. A list of replies is given out in order (`repeat_last` goes on with the last); a function of the
    request's body decides by itself. Every request is kept in `requests`."""

    def __init__(
        self,
        script: Script,
        *,
        repeat_last: bool = False,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[Request], None] | None = None,
    ) -> None:
        self._answerer = script if callable(script) else None
        self._script: list[str | Reply] = [] if callable(script) else list(script)
        self._repeat_last = repeat_last
        self._port = port
        self._tls = tls
        self._on_request = on_request
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.requests: list[Request] = []
        self.cut = 0  # how often the other side went away in the middle of a reply

    async def __aenter__(self) -> ScriptedModel:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The address that `DUET_MODEL_URL` takes."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def native_url(self) -> str:
        """The address in Cloudflare's own form."""
        return f"http://127.0.0.1:{self.port}/client/v4/accounts/0123456789abcdef0123456789abcdef/ai/run"

    def then(self, *replies: str | Reply) -> None:
        """Add to the script."""
        self._script += replies

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            request = await _read_request(reader)
            self.requests.append(request)
            if self._on_request:
                self._on_request(request)
            await _write(writer, await self._next(request), wanted=request.body)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.cut += 1
        except asyncio.CancelledError:
            writer.transport.abort()  # the server stops; whoever waits for a reply is cut off
        finally:
            self._open.discard(task)
            writer.close()

    async def _next(self, request: Request) -> Reply:
        if self._answerer is not None:
            answer = self._answerer(request.body)
            chosen = answer if isinstance(answer, (str, Reply)) else await answer
        elif not self._script:
            chosen = Reply(status=500, body='{"error":{"message":"the script has no more replies"}}')
        elif self._repeat_last and len(self._script) == 1:
            chosen = self._script[0]
        else:
            chosen = self._script.pop(0)
        return Reply(chosen) if isinstance(chosen, str) else chosen


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    path = head[0].split(" ")[1]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(path, headers, json.loads(data) if data else {}, len(data))


async def _write(writer: asyncio.StreamWriter, reply: Reply, *, wanted: Mapping[str, Any]) -> None:
    if reply.before_s:
        await asyncio.sleep(reply.before_s)
    if reply.raw is not None:
        await _write_raw(writer, reply.raw)
    elif reply.status != 200 or reply.body is not None:
        body = (reply.body or "").encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **reply.headers}
        writer.write(_head(reply.status, headers) + body)
    else:
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **reply.headers}
        writer.write(_head(200, headers))
        events = _native_events(reply) if reply.native else _events(reply, str(wanted.get("model", "scripted")))
        for event in events:
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            if reply.between_s:
                await asyncio.sleep(reply.between_s)
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _write_raw(writer: asyncio.StreamWriter, raw: Raw) -> None:
    for item in raw:
        if isinstance(item, bytes):
            writer.write(item)
            await writer.drain()
        elif item == RESET:
            writer.transport.abort()
            return
        else:
            await asyncio.sleep(float(item))


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode()


def _pieces(reply: Reply) -> list[str]:
    size = max(1, reply.piece_chars)
    return [reply.text[start : start + size] for start in range(0, len(reply.text), size)]


def _events(reply: Reply, model: str) -> list[str]:
    events = [chunk({"role": "assistant", "content": None}, model=model)]
    events += [chunk({"content": piece}, model=model) for piece in _pieces(reply)]
    if reply.finish is not None:
        events.append(chunk({}, finish=reply.finish, model=model))
    if reply.usage:
        prompt, completion = reply.usage
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        events.append(json.dumps({"object": "chat.completion.chunk", "model": model, "choices": [], "usage": usage}))
    return [*events, "[DONE]"] if reply.done else events


def _native_events(reply: Reply) -> list[str]:
    events = [json.dumps({"response": piece}) for piece in _pieces(reply)]
    if reply.usage:
        prompt, completion = reply.usage
        events.append(json.dumps({"response": "", "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}))
    return [*events, "[DONE]"] if reply.done else events


def chunk(delta: Mapping[str, Any], *, finish: str | None = None, model: str = "scripted") -> str:
    """Give one chunk of a streamed chat completion as JSON."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "c1", "object": "chat.completion.chunk", "model": model, "choices": [choice]})


def read_script(path: Path) -> Script:
    """Read a script file: a list of replies, or rules."""
    data = json.loads(path.read_text("utf-8"))
    if isinstance(data, list):
        return [_as_reply(item) for item in data]
    rules = [(rule["contains"], _as_reply(rule["reply"])) for rule in data["rules"]]
    otherwise = _as_reply(data["otherwise"])

    def answer(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]["content"]
        return next((reply for words, reply in rules if words in last), otherwise)

    return answer


def _as_reply(item: str | dict[str, Any]) -> Reply:
    return Reply(item) if isinstance(item, str) else Reply(**item)


async def _main(arguments: argparse.Namespace) -> None:
    def keep(request: Request) -> None:
        if arguments.requests:
            with arguments.requests.open("a", encoding="utf-8") as file:
                file.write(json.dumps(request.body) + "\n")

    script = read_script(arguments.script)
    async with ScriptedModel(script, port=arguments.port, repeat_last=True, on_request=keep) as model:
        sys.stdout.write(f"{model.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve scripted replies as an OpenAI-compatible model.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--requests", type=Path, help="append each request's JSON to this file")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))
