"""What `duet doctor` prints, and what `/readyz` asks: every driver and adapter gives its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what was seen, and what to do about it. Neither ever holds a secret."""

    name: str
    verdict: Health
    seen: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A platform's connection: whether it stands now, and how often it had to be made again."""

    is_up: bool
    reconnects: int = 0
