"""What `duet doctor` prints: every driver and adapter gives its own checks."""

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
