"""Tokens from a person: typed unseen at a terminal, or as NAME=VALUE lines from a pipe; never as arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click


def set_up(steps: str, names: Sequence[str], write: Callable[[Path, Mapping[str, str]], None]) -> int:
    """Print the steps, take the tokens that a person gives, and write those. Raises: BadInput when one is none."""
    click.echo(steps)
    if tokens := _given(names):
        write(Path(".env"), tokens)
        click.echo(f"{', '.join(tokens)} written to .env, which only you can read.", err=True)
    return 0


def _given(names: Sequence[str]) -> dict[str, str]:
    """Give the value of each name that was given; an empty line leaves one out."""
    if sys.stdin.isatty():
        asked = {name: _ask(name) for name in names}
    else:
        lines = (line.strip().partition("=") for line in sys.stdin)
        asked = {name: value for name, _, value in lines if name in names}
    return {name: value.strip() for name, value in asked.items() if value.strip()}


def _ask(name: str) -> str:
    question = f"{name} (Enter leaves it out)"
    answer: str = click.prompt(question, default="", show_default=False, hide_input=True, err=True)
    return answer
