"""Lines as they are typed: with history and editing at a terminal, as they come from a pipe."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TextIO

COMMANDS = ("/run ", "/sources", "/retry", "/approve", "/deny", "/reset", "/log", "/help", "/quit")


PROMPT = "\nyou> "


def lines_of(source: TextIO, history: Path, redact: Callable[[str], str], *, is_live: bool) -> AsyncIterator[str]:
    """Give the lines of the input; `is_live` says that the screen can be drawn on."""
    if source.isatty() and is_live:
        return typed_lines(history, redact)
    return piped_lines(source, prompt=PROMPT if source.isatty() else "")


async def typed_lines(history: Path, redact: Callable[[str], str], *, prompt: str = PROMPT) -> AsyncIterator[str]:
    """Give lines from the keyboard until Ctrl-D; Ctrl-C throws away the line. The history, a file, keeps no secret."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    class RedactedHistory(FileHistory):
        def store_string(self, string: str) -> None:
            super().store_string(redact(string))

    session: PromptSession[str] = PromptSession(
        history=RedactedHistory(str(history)),
        completer=WordCompleter(list(COMMANDS), sentence=True),
        complete_while_typing=False,
        enable_history_search=True,
    )
    while True:
        try:
            yield await session.prompt_async(prompt)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


async def piped_lines(source: TextIO, *, prompt: str = "") -> AsyncIterator[str]:
    """Give the lines of a pipe, a file, or a terminal that cannot be drawn on, where `prompt` asks for each.

    A thread waits for each line, and nobody for the thread: Ctrl-C ends the program while there is no line. It reads
    without a buffer, whose lock Python could not take at its end.
    """
    raw = FileIO(source.fileno(), closefd=False)
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        read = asyncio.get_running_loop().create_future()
        threading.Thread(target=_read_line, args=(raw, read), name="duet-input", daemon=True).start()
        if not (line := await read):
            return
        yield line.decode("utf-8", "replace")


def _read_line(raw: FileIO, read: asyncio.Future[bytes]) -> None:
    line = raw.readline()

    def tell() -> None:
        if not read.done():
            read.set_result(line)

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        read.get_loop().call_soon_threadsafe(tell)
