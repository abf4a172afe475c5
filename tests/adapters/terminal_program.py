"""The program as a person starts it: a process of its own, in a folder of its own, without an engine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NO_ENGINE = "unix:///nonexistent/docker.sock"


@dataclass(frozen=True)
class Ran:
    """What a call of the program left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Give the one object on stdout; fails where there is more or less."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


@dataclass(frozen=True)
class Program:
    """Calls `python -m bot` with a data folder of its own; `env` holds settings."""

    folder: Path

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
        ours = {"PYTHONPATH": str(ROOT), "DUET_HOME": str(self.folder / "home"), "DOCKER_HOST": NO_ENGINE}
        return kept | ours | dict(more or {})

    def __call__(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str | bytes = "", timeout_s: float = 60
    ) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "bot", *arguments],
            cwd=self.folder,
            env=self.env(env),
            input=stdin if isinstance(stdin, bytes) else stdin.encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def call(self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "") -> Ran:
        """The same, while the test's own loop goes on, as when it serves a model."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bot",
            *arguments,
            cwd=self.folder,
            env=self.env(env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        return Ran(process.returncode or 0, out.decode(), err.decode())
