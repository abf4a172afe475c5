"""One exec in a container, read by hand: byte cap, wall deadline, and a way to end reading from another thread.

docker-py buffers all output and has no time limit for an exec, and an exec cannot be killed: who runs one here has to
empty the container afterwards (`reaping`).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from docker import APIClient

CHUNK_BYTES = 65_536
STDOUT, STDERR = 1, 2

# How reading ended. "lost": the container or the engine's record of the exec went away.
Why = Literal["eof", "timeout", "flood", "aborted", "lost"]


class Kept:
    """The head and the tail of a stream; what lies between is counted and forgotten."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.seen_bytes = 0

    def add(self, data: bytes | memoryview) -> None:
        self.seen_bytes += len(data)
        space = self._head_limit - len(self._head)
        if space > 0:
            self._head += data[:space]
            data = data[space:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + CHUNK_BYTES:  # cut now and then, not at every piece
            del self._tail[: -self._tail_limit]

    @property
    def left_out_bytes(self) -> int:
        return max(0, self.seen_bytes - self._head_limit - self._tail_limit)

    def parts(self) -> tuple[bytes, bytes]:
        """Give head and tail; where nothing was left out they join to the whole stream."""
        return bytes(self._head), bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""


class Frames:
    """The engine's multiplexed stream, taken apart: 8 bytes of header (stream, length), then the payload."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Give (stream, payload piece) for every piece in `data`; frames may be cut anywhere."""
        view = memoryview(data)
        while view:
            if not self._left:
                wanted = 8 - len(self._header)
                self._header += view[:wanted]
                view = view[wanted:]
                if len(self._header) == 8:
                    self._stream, self._left = self._header[0], struct.unpack(">I", self._header[4:])[0]
                    self._header.clear()
                continue
            piece, view = view[: self._left], view[self._left :]
            self._left -= len(piece)
            yield self._stream, piece


@dataclass(frozen=True, slots=True)
class ExecEnd:
    """What came of an exec. `exit_code` is None where it did not end by itself or the engine lost it."""

    why: Why
    exit_code: int | None
    stdout: Kept
    stderr: Kept
    seconds: float


class Exec:
    """One exec: `run` in a thread, `abort` from any other.

    `seen_bytes` ends reading after so many bytes of output ("flood"). `sink` is called in the thread with every piece
    as it comes. `stdin` is written before anything is read, so what it feeds must not answer at length.
    """

    def __init__(
        self,
        container_id: str,
        argv: Sequence[str],
        *,
        user: str,
        limit_s: float,
        kept_bytes: int = CHUNK_BYTES,
        seen_bytes: int = 8_000_000,
        sink: Callable[[int, bytes], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> None:
        self._container_id = container_id
        self._argv = list(argv)
        self._user = user
        self._limit_s = limit_s
        self._kept = {STDOUT: Kept(kept_bytes), STDERR: Kept(kept_bytes)}
        self._seen_bytes = seen_bytes
        self._sink = sink
        self._stdin = stdin
        self._raw: socket.socket | None = None
        self._aborted = False
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self.started = False

    def abort(self) -> None:
        """Make `run` return at once. The command itself goes on until it is reaped."""
        with self._lock:
            self._aborted = True
            if self._raw is not None:
                with contextlib.suppress(OSError):
                    self._raw.shutdown(socket.SHUT_RDWR)

    def so_far(self, why: Why) -> ExecEnd:
        """Give what had come when the end of `run` could not be seen."""
        return ExecEnd(why, None, self._kept[STDOUT], self._kept[STDERR], time.monotonic() - self._began)

    def run(self, api: APIClient) -> ExecEnd:
        """Start the exec and read it to its end. Raises: what docker-py raises before it is started."""
        self._began = time.monotonic()
        # Never workdir= (CVE-2024-21626), tty or privileged.
        made = api.exec_create(
            self._container_id,
            self._argv,
            stdin=self._stdin is not None,
            stdout=True,
            stderr=True,
            user=self._user,
        )
        self.started = True
        answer: Any = api.exec_start(made["Id"], socket=True)
        try:
            why = self._read(answer, self._began + self._limit_s)
        finally:
            with self._lock:
                raw, self._raw = self._raw, None
            _close(answer, raw)
        code = _exit_code(api, made["Id"]) if why == "eof" else None
        return replace(self.so_far(why), exit_code=code)

    def _read(self, answer: Any, deadline: float) -> Why:
        raw: socket.socket = getattr(answer, "_sock", answer)
        with self._lock:
            self._raw = raw
            if self._aborted:
                return "aborted"
        try:
            raw.settimeout(self._limit_s)
            for piece in self._stdin or ():
                raw.sendall(piece)
            # Read through the response's own buffer: it may have taken the first frames along with the headers.
            read = answer._response.raw._fp.fp.read1
            return self._pump(raw, read, deadline)
        except TimeoutError:
            return "timeout"
        except OSError:
            return "aborted" if self._aborted else "eof"

    def _pump(self, raw: socket.socket, read: Callable[[int], bytes], deadline: float) -> Why:
        frames, seen = Frames(), 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            raw.settimeout(left)
            data = read(CHUNK_BYTES)
            if not data:
                return "aborted" if self._aborted else "eof"
            for stream, piece in frames.feed(data):
                if stream in self._kept:
                    self._kept[stream].add(piece)
                    if self._sink:
                        self._sink(stream, bytes(piece))
            seen += len(data)
            if seen > self._seen_bytes:
                return "flood"


def _exit_code(api: APIClient, exec_id: str) -> int | None:
    """Ask for the exit code; the engine may need a moment after the stream's end."""
    for _ in range(25):
        state = api.exec_inspect(exec_id)
        if not state["Running"]:
            code: int | None = state["ExitCode"]
            return code
        time.sleep(0.02)
    return None


def _close(answer: Any, raw: socket.socket | None) -> None:
    for closable in (getattr(answer, "_response", None), answer, raw):
        if closable is not None:
            with contextlib.suppress(OSError, ValueError):
                closable.close()
