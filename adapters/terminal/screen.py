"""A turn's events -> what stands on the screen: streamed while it is made, set right at the end.

Where the output is no terminal only the finished answer is written, so that a pipe gets nothing twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TextIO

from adapters.terminal.outbound import answer_text, below, command_text, ending, joined
from bot.conversation import Answer, CommandEnded, CommandOutput, CommandStarted, Drafted, Event, Settled
from bot.redaction import neutralised, spelled_out

# Up to here and clear: https://ecma-international.org/publications-and-standards/standards/ecma-48/ (CUU, ED).
_UP_AND_CLEAR = "\x1b[{}F\x1b[0J"
_CLEAR_LINE = "\r\x1b[0J"


class Screen:
    """Shows one turn. `is_live` says that the output is a terminal that may be written over."""

    def __init__(
        self, out: TextIO, *, is_live: bool, size: Callable[[], tuple[int, int]] = lambda: shutil.get_terminal_size()
    ) -> None:
        self._out = out
        self._is_live = is_live
        self._size = size
        self._written = ""
        self._said = ""
        self._commands = 0
        self._is_between = False

    def show(self, event: Event) -> None:
        """Show what just happened."""
        match event:
            case Settled(answer):
                self._settle(answer)
            case _ if not self._is_live:
                return
            case Drafted(text):
                self._draft(text)
            case CommandStarted(code):
                self._is_between = True
                self._paragraph(f"$ {spelled_out(code)}\n")
            case CommandOutput(text):
                self._write(neutralised(text))
            case CommandEnded(result):
                self._commands += 1
                self._end_line()
                self._write(f"{ending(result)}\n")

    def remark(self, text: str) -> None:
        """Write a line of our own between; it goes with what is taken back at the end."""
        self._end_line()
        self._write(f"{text}\n")
        self._is_between = True

    def _draft(self, text: str) -> None:
        """Write what is new of the text so far; what was taken back is set right when the turn is settled."""
        text = neutralised(text)
        if not text.startswith(self._said) or text == self._said:
            return
        new = text[len(self._said) :]
        self._paragraph(new.lstrip("\n")) if self._is_between else self._write(new)
        self._is_between = False
        self._said = text

    def _settle(self, answer: Answer) -> None:
        text = neutralised(answer.text)
        unseen = [command_text(result) for result in answer.commands[self._commands :]]
        if self._written and text.startswith(self._said) and not unseen:
            self._draft(text)
            self._paragraph(joined(below(answer)))
        else:
            self._erase()
            self._write(answer_text(answer))
        self._end_line()
        self._out.flush()

    def _erase(self) -> None:
        """Take back what was written, as far as it is still on the screen; what has scrolled away stays."""
        if not self._written:
            return
        columns, lines = self._size()
        height = rows(self._written, columns)
        if height >= lines:
            self._write("\n\nThe answer, set right:\n\n")
        else:
            self._out.write(_UP_AND_CLEAR.format(height - 1) if height > 1 else _CLEAR_LINE)
        self._written = ""

    def _paragraph(self, text: str) -> None:
        if not text:
            return
        if self._written:
            self._write("\n" * max(0, 2 - (len(self._written) - len(self._written.rstrip("\n")))))
        self._write(text)

    def _end_line(self) -> None:
        if self._written and not self._written.endswith("\n"):
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._written += text


def rows(text: str, columns: int) -> int:
    """Give how many rows of a screen text takes."""
    from prompt_toolkit.utils import get_cwidth

    return sum(max(1, -(-get_cwidth(line.expandtabs()) // max(1, columns))) for line in text.split("\n"))
