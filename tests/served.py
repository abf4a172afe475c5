"""The shipped program as a process of its own: `duet serve` with the sample Codex, in a folder of its own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
START_S = 30.0


@dataclass
class Served:
    """A running `duet serve`. `address` is its web server's; `log` is what it has written to standard error."""

    process: asyncio.subprocess.Process
    address: str
    log: Path


@asynccontextmanager
async def serve(folder: Path, environ: Mapping[str, str]) -> AsyncIterator[Served]:
    """Start the program with these settings; on leaving, stop it and wait. AssertionError: it did not start."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "duet.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DUET_", "SLACK_", "DISCORD_"))}
    given = {"DUET_HOME": str(folder / "home"), "DUET_HTTP_PORT": "0", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    with open(log, "wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bot",
            "serve",
            cwd=folder,
            env={**clean, **given, **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=sink,
        )
    try:
        yield Served(process, await _address(process, log), log)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            async for line in process.stdout:
                if found := re.search(rb"listens on (http://\S+?)[;.]?(?:\s|$)", line):
                    return found[1].decode()
    except TimeoutError:
        pass
    raise AssertionError(f"duet serve did not start: {log.read_text('utf-8', 'replace')[-2_000:]}")
