"""`docs/http.md`: each curl line is run against a server with the sample Codex, and gives what is written below it."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path

import pytest

from adapters.web.app import WebFront
from bot.app import open_duet
from bot.settings import Settings
from tests.conftest import lacking

PAGE = Path(__file__).parents[3] / "docs/http.md"
ADDRESS = "http://127.0.0.1:8787"


def steps() -> list[tuple[str, str]]:
    """Give each command of the page with what is written below it."""
    text = "\n".join(re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
    return [
        (one[0].strip(), one[1].strip()) for one in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", text, re.MULTILINE)
    ]


def pattern(written: str) -> re.Pattern[str]:
    """Give what is written as a pattern: `…` stands for anything."""
    return re.compile(".*".join(re.escape(part.strip()) for part in written.split("…")), re.DOTALL)


async def test_every_curl_line_gives_what_is_written_below_it(tmp_path: Path) -> None:
    if not shutil.which("curl"):
        lacking("curl", "curl is not installed")
    settings = Settings(home=tmp_path, http_port=0)
    async with open_duet(settings, drain_s=0.0) as parts:
        web = WebFront(parts.duet, settings)
        parts.duet.start()
        await web.start()
        for command, written in steps():
            words = shlex.split(command.replace(ADDRESS, web.address))
            process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            told = (await process.communicate())[0].decode()
            assert pattern(written).search(told), f"{command}\n  gave    {told[:800]}\n  written {written}"
        await web.close()


def test_the_page_shows_what_matters() -> None:
    shown = " ".join(command for command, _ in steps())
    for path in ("/chat", "/history", "/prompt-history", "/reset", "/docs", "/health ", "/v1/turns", "/api/rooms/"):
        assert path.strip() in shown
    assert len(steps()) >= 20


@pytest.mark.parametrize("path", re.findall(r"`(?:POST|GET|DELETE) (/[^`]+)`", PAGE.read_text("utf-8")))
def test_every_path_that_the_page_names_is_described(path: str) -> None:
    from tests.adapters.web.serving import DESCRIPTION

    assert path in DESCRIPTION["paths"]
