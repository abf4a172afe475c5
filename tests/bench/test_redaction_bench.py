"""What redacting costs, as a ratio to one pass of a plain expression over the same text in the same run."""

from __future__ import annotations

import re
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.redaction import Redactor, neutralised

WORDS = re.compile(r"[A-Za-z0-9_]+")
OWN = [f"xoxb-{n}482-77913-Kq3vZr8sWm1TyLp6{n}" for n in range(8)]


def best_ms(work: Callable[[], object], tries: int = 7) -> float:
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best * 1_000


def ratio(work: Callable[[str], object], text: str) -> float:
    return best_ms(lambda: work(text)) / best_ms(lambda: WORDS.findall(text))


CODE = (Path(sysconfig.get_paths()["stdlib"]) / "argparse.py").read_text("utf-8")


def test_four_kilobytes_of_code_cost_a_few_plain_passes() -> None:
    assert ratio(Redactor(OWN), CODE[20_000:24_096]) < 12  # measured 2.5; 2 ms would be about 20


LINES = {
    "code": (CODE.replace("\n", " ") * 12)[: 1 << 20],
    "one word": "a" * (1 << 20),
    "beginnings of tokens": ("sk-eyJghp_xoxb-AKIA." * 60_000)[: 1 << 20],
    "beginnings of keys": ("-----BEGIN PRIVATE KEY-----\nab cd " * 40_000).replace("\n", "\\n")[: 1 << 20],
    "addresses": ("https://a:b" * 100_000)[: 1 << 20],
    "assignments": ("token=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" * 40_000)[: 1 << 20],
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_no_line_of_a_megabyte_costs_more_than_a_few_passes_over_code(line: str) -> None:
    floor = best_ms(lambda: WORDS.findall(LINES["code"]), 3)
    assert best_ms(lambda: Redactor(OWN)(line), 3) < 3 * floor  # measured 0.1 to 1; the floor is 20 to 30 ms


def test_clean_output_is_neutralised_for_less_than_a_pass() -> None:
    assert ratio(neutralised, CODE[:65_536]) < 1


def test_hostile_output_costs_time_that_grows_with_its_length_only() -> None:
    for piece in ("\x1b]", "\x1b[0;", "\x9d", "\x1b", "\x1bP\x1b["):
        short, long = piece * 2_000, piece * 20_000
        assert best_ms(lambda text=long: neutralised(text), 5) < 25 * best_ms(lambda text=short: neutralised(text), 5)
