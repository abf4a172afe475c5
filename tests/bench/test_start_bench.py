"""How long the program takes to say something, as a ratio to loading click alone in the same run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def best_s(*arguments: str, tries: int = 5) -> float:
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True)
        best = min(best, time.perf_counter() - start)
    return best


def test_help_costs_little_more_than_loading_click() -> None:
    assert best_s("-m", "bot", "--help") < 2 * best_s("-c", "import click")  # measured 1.1 to 1.3
