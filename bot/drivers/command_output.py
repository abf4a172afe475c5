"""A command's bytes as clean text: clipped in the middle, and as they come while it runs."""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections.abc import Callable

from bot.drivers.exec_stream import Kept
from bot.redaction import neutralised, painted

LIVE_EVERY_S = 0.05
ESCAPE = "\x1b"
MAX_ESCAPE_CHARS = 256


def clean_text(kept: Kept) -> str:
    """Give what was kept of a stream, with a mark where the middle was left out; invalid UTF-8 becomes U+FFFD."""
    head, tail = kept.parts()
    if not kept.left_out_bytes:
        return neutralised((head + tail).decode("utf-8", "replace"))
    # A cut through the middle of a character is ours, not the command's: no replacement character for it.
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head, final=False)
    start = next((i for i, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
    mark = f"\n[… {kept.left_out_bytes:,} bytes left out …]\n"
    return neutralised(text) + mark + neutralised(tail[start:].decode("utf-8", "replace"))


def painted_output(stdout: Kept, stderr: Kept, plain: str) -> str:
    """Give both streams with their colours, as `CommandResult.output` joins them; '' where there are none to show."""
    if stdout.left_out_bytes or stderr.left_out_bytes:
        return ""  # a colour that the middle switched off would run on
    streams = (b"".join(kept.parts()).decode("utf-8", "replace").rstrip("\n") for kept in (stdout, stderr))
    return painted("\n".join(stream for stream in streams if stream), plain)


class LiveOutput:
    """Hand on output while a command runs: from the reading thread to `tell` on the loop, at most 20 times a second.

    An escape sequence or a character that is cut between two pieces is held back until the rest has come.
    """

    def __init__(self, tell: Callable[[str], None], *, limit_chars: int) -> None:
        self._tell = tell
        self._left = limit_chars
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, bytes]] = []
        self._scheduled = False
        self._decoders = {n: codecs.getincrementaldecoder("utf-8")("replace") for n in (1, 2)}
        self._open_escape = ""

    def feed(self, stream: int, data: bytes) -> None:
        """Take a piece, in the reading thread."""
        with self._lock:
            if self._left <= 0:
                return  # enough was shown: a flood must not fill memory on its way to the loop
            data = data[: self._left]
            self._left -= len(data)
            self._waiting.append((stream, data))
            if self._scheduled:
                return
            self._scheduled = True
        self._loop.call_soon_threadsafe(self._loop.call_later, LIVE_EVERY_S, self.flush)

    def flush(self) -> None:
        """Tell what has come, on the loop."""
        with self._lock:
            waiting, self._waiting, self._scheduled = self._waiting, [], False
        text = self._open_escape + "".join(self._decoders[stream].decode(data) for stream, data in waiting)
        at = text.rfind(ESCAPE)
        held = at if at >= 0 and len(text) - at < MAX_ESCAPE_CHARS and not _is_whole(text[at:]) else len(text)
        text, self._open_escape = text[:held], text[held:]
        if shown := neutralised(text):
            self._tell(shown)


def _is_whole(sequence: str) -> bool:
    """Say whether an escape sequence has its end: a final letter, or the bell or ST of an operating system command."""
    if len(sequence) < 2:
        return False
    if sequence[1] in "]PX^_":
        return "\x07" in sequence or "\x1b\\" in sequence
    if sequence[1] == "[":
        return any("@" <= char <= "~" for char in sequence[2:])
    return True
