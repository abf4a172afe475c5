"""Logging: stdlib, one line an event, with room and turn on every line and no secret in any.

`bot` and `adapters` speak at the level that is set; libraries only when something is wrong, since some of them write
addresses with tokens or whole message bodies at INFO.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path

from bot.redaction import neutralised

_FILE_BYTES = 2_000_000
_OURS = ("bot", "adapters")

# Where the running task is at work. A context variable goes with the task and its children, which no argument could.
_place: ContextVar[str] = ContextVar("place", default="-")


@contextmanager
def bound(room: object, turn: str = "") -> Iterator[None]:
    """Put room and turn on every line that is logged inside the block, by this task and those it starts."""
    token = _place.set(f"{room} {turn}".strip())
    try:
        yield
    finally:
        _place.reset(token)


class LineFormatter(logging.Formatter):
    """Give `time level logger [room turn] message key=value`, redacted, with nothing that a terminal would obey."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        # A newline within a message would let a message forge the next line.
        message = neutralised(record.getMessage()).replace("\n", "\\n")
        line = f"{at}.{int(record.msecs):03}Z {record.levelname} {record.name} [{_place.get()}] {message}"
        line += "".join(
            f" {key}={value}" for key in ("action", "ms") if (value := getattr(record, key, None)) is not None
        )
        if record.exc_info:
            line += "\n" + neutralised(self.formatException(record.exc_info))
        return self._redact(line)


class PrivateFileHandler(logging.handlers.RotatingFileHandler):
    """A log that only its owner can read, made when there is something to write; one that cannot be is no fault."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_FILE_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing: the terminal belongs to a person, and what cannot be logged was said there."""


def set_up_logging(level: str, redact: Callable[[str], str], *, file: Path | None = None) -> None:
    """Send logs to the error stream, or to `file` where the terminal belongs to a person."""
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h.formatter, LineFormatter)]:
        root.removeHandler(old)
        old.close()
    handler = PrivateFileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(redact))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
