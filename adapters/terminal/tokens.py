"""Tokens from a person: typed unseen at a terminal, or as NAME=VALUE lines from a pipe; never as arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click


def given_tokens(names: Sequence[str]) -> dict[str, str]:
    """Give the value of each name that was given; an empty line leaves one out."""
    if sys.stdin.isatty():
        asked = {name: str(_ask(name)).strip() for name in names}
    else:
        lines = (line.strip().partition("=") for line in sys.stdin)
        asked = {name: value.strip() for name, _, value in lines if name in names}
    return {name: value for name, value in asked.items() if value}


def _ask(name: str) -> str:
    answer: str = click.prompt(
        f"{name} (Enter leaves it out)", default="", show_default=False, hide_input=True, err=True
    )
    return answer
