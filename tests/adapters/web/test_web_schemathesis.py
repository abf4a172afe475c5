"""The API against its description: generated requests, every check, no drift and no 5xx.

The short form runs with everything else; the long one, at least 5,000 cases, is `pytest -m slow` of this file.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import serving


async def fuzzed(folder: Path, *options: str) -> int:
    """Run schemathesis with all checks against a served scripted core; give how many cases it made."""
    async with serving(FakeDuet()) as address:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--checks", "all"),
            *("--no-color", "--request-timeout", "20", "--suppress-health-check", "all", *options),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    text = re.sub(r"(?m)^(.{300}).*$", r"\1 …", said.decode(errors="replace"))
    assert process.returncode == 0, text[-6_000:]
    cases = re.search(r"(\d+) generated", text)
    assert cases, text[-2_000:]
    return int(cases[1])


@pytest.mark.timeout(180)
async def test_generated_requests_find_no_drift(tmp_path: Path) -> None:
    options = ("--max-examples", "3", "--seed", "16", "--phases", "examples,fuzzing")
    assert await fuzzed(tmp_path, *options) >= 50


@pytest.mark.slow
@pytest.mark.timeout(3_600)
async def test_five_thousand_generated_requests_find_no_drift(tmp_path: Path) -> None:
    assert await fuzzed(tmp_path, "--max-examples", "250", "--seed", "1") >= 5_000
