"""Model endpoints that misbehave: what each sends, the fault it must become, and the text that had come before."""

import gzip
import json
import zlib

from bot.drivers.chat_model import Patience
from bot.drivers.model_wire import Clocks
from bot.errors import (
    ContextTooLong,
    ModelBusy,
    ModelError,
    ModelGarbled,
    ModelQuota,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
)
from tests.scripted_model import HANG, RESET, Reply, chunk

KEY = "sk-proj-0123456789abcdefghij"
DEADLINE_S = 3.0
CLOCKS = Clocks(connect_s=2, first_s=0.9, silence_s=0.7, total_s=DEADLINE_S)
# For what is to end by itself: a busy machine may take its time.
UNHURRIED = Clocks(connect_s=DEADLINE_S, first_s=DEADLINE_S, silence_s=DEADLINE_S, total_s=DEADLINE_S)
PATIENCE = Patience(retries=1, first_pause_s=0.01, longest_pause_s=0.5)

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


def packed(data: bytes, encoding: str = "gzip") -> Reply:
    return Reply(raw=(HEAD.replace(b"Connection", f"Content-Encoding: {encoding}\r\nConnection".encode()), data))


def bomb() -> bytes:
    """Give 1 MB that unpacks to one line of 1 GB."""
    packer = zlib.compressobj(9, wbits=31)
    head = packer.compress(b"data: ") + packer.flush(zlib.Z_FULL_FLUSH)
    megabyte = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)  # says nothing of what was before
    return head + megabyte * 1_000


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
    "lies about compression": (packed(A), ModelGarbled, ""),
    "packs its reply unasked in a way of its own": (packed(A, "br"), ModelGarbled, ""),
    "packs its reply twice": (packed(gzip.compress(gzip.compress(A)), "gzip, gzip"), ModelGarbled, ""),
    "packs 1 GB into 1 MB": (packed(bomb()), ModelGarbled, ""),
    "withholds its reply": (stream(event(chunk({}, finish="content_filter"))), ModelGarbled, ""),
    "sends an error that calls itself a stream": (stream(b'{"error": {"message": "boom"}}\n'), ModelGarbled, ""),
    "finds the prompt too long": (
        Reply(status=400, body='{"error":{"type":"exceed_context_size_error","n_ctx":4096}}'),
        ContextTooLong,
        "",
    ),
}
