"""Lines as they are typed: with history and editing at a terminal, as they come from a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

COMMANDS = ("/run ", "/sources", "/retry", "/approve", "/deny", "/reset", "/log", "/help", "/quit")


async def typed_lines(history: Path, redact: Callable[[str], str], *, prompt: str = "\nyou> ") -> AsyncIterator[str]:
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


async def piped_lines(source: TextIO) -> AsyncIterator[str]:
    """Give the lines of a pipe or file; reading waits in a thread of its own."""
    loop = asyncio.get_running_loop()
    lines: Iterable[str] = iter(source.readline, "")
    reader = iter(lines)
    with ThreadPoolExecutor(1, thread_name_prefix="duet-input") as pool:
        while (line := await loop.run_in_executor(pool, next, reader, None)) is not None:
            yield line
