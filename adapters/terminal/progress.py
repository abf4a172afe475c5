"""How far something long has come, on one line of a terminal; only its beginning and end elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

import click


class Progress:
    """Shows `label` and how much of it is there."""

    def __init__(self, out: TextIO, *, is_live: bool) -> None:
        self._out = out
        self._is_live = is_live
        self._last = ""

    def show(self, label: str, done: int, whole: int) -> None:
        """Show that `done` of `whole` bytes are there; may be called as often as one likes."""
        text = f"{label}: {done * 100 // max(1, whole)} %" if self._is_live else label
        if text == self._last:
            return
        self._out.write(f"\r\x1b[2K{text}" if self._is_live else f"{text}\n")
        self._out.flush()
        self._last = text

    def end(self) -> None:
        if self._is_live and self._last:
            self._out.write("\n")


def asked(question: str, *, is_sure: bool) -> bool:
    """Put a yes-or-no question to the person; where nobody can answer it is a no unless `is_sure`."""
    click.echo(question, err=True)
    if is_sure:
        return True
    if not sys.stdin.isatty():
        click.echo("Nobody is there to ask: give --yes.", err=True)
        return False
    return click.confirm("Go on?", err=True)
