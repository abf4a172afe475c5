"""Other people's words, made safe to stand in a prompt: as data, clearly bounded, with a name that is only a name."""

from __future__ import annotations

import re

NAME_CHARS = 60
_BACKTICKS = re.compile(r"`{3,}")
_NOT_A_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\U000e0000-\U000e007f]+")


def fenced(text: str) -> str:
    """Give the text between fences longer than any within it, so that nothing in it can end the quotation."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def named(name: str) -> str:
    """Give a name on one line, without control or invisible characters, of bounded length."""
    clean = " ".join(_NOT_A_NAME.sub(" ", name).split())
    return clean[:NAME_CHARS] or "somebody"


def spoken(name: str, text: str) -> str:
    """Give `name: text`; further lines are indented, so that none of them can pass for another speaker's."""
    first, *others = text.strip().split("\n")
    return "\n".join([f"{named(name)}: {first}", *(f"  {line}" if line else "" for line in others)])


def clipped(text: str, limit_chars: int) -> str:
    """Give the text, or its two ends with a mark between them where it is longer."""
    if len(text) <= limit_chars:
        return text
    head, tail = limit_chars * 2 // 3, limit_chars // 3
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"
