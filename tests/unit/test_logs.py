"""One line an event, with room and turn, and nothing secret or hostile in it."""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.logs import LineFormatter, bound, set_up_logging
from bot.redaction import Redactor

SECRET = "xoxb-2048-7791-Kq3vZr8sWm1TyLp6"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Give what a logger of ours writes."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(LineFormatter(Redactor([SECRET])))
    logger = logging.getLogger("bot.test")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield out
    logger.removeHandler(handler)


log = logging.getLogger("bot.test")


def test_a_line_holds_time_level_room_turn_message_and_what_was_measured(lines: io.StringIO) -> None:
    with bound("slack/T1/C1", "171.2"):
        log.info("Answered", extra={"action": "answer", "ms": 12})
    pattern = (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO bot\.test \[slack/T1/C1 171\.2\] Answered action=answer ms=12\n"
    )
    assert re.fullmatch(pattern, lines.getvalue())


async def test_turns_side_by_side_keep_their_own_names(lines: io.StringIO) -> None:
    async def turn(name: str) -> None:
        with bound("room", name):
            await asyncio.sleep(0)
            log.info("Said %s", name)

    await asyncio.gather(*(turn(f"t{n}") for n in range(5)))
    log.info("Said nothing")
    assert all(f"[room t{n}] Said t{n}\n" in lines.getvalue() for n in range(5))
    assert "[-] Said nothing" in lines.getvalue()


def test_a_secret_in_message_argument_or_traceback_is_removed(lines: io.StringIO) -> None:
    try:
        raise ValueError(f"refused {SECRET}")
    except ValueError:
        log.exception("Failed with %s", SECRET)
    assert SECRET not in lines.getvalue()
    assert "ValueError: refused [secret removed]" in lines.getvalue()


def test_a_message_cannot_forge_a_line_or_command_the_terminal(lines: io.StringIO) -> None:
    log.info("Heard %s", "x\n2026-01-01T00:00:00.000Z ERROR bot [-] forged\x1b[2J")
    assert lines.getvalue().count("\n") == 1
    assert "\x1b" not in lines.getvalue()


def test_libraries_speak_only_when_something_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "home" / "duet.log"
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        set_up_logging("INFO", Redactor([]), file=file)
        logging.getLogger("httpx").info("GET https://example/?token=1")
        assert not file.exists()
        logging.getLogger("bot.lanes").info("Took a turn")
        logging.getLogger("httpx").warning("Something is wrong")
        written = file.read_text()
    finally:
        for handler in [h for h in root.handlers if h not in before]:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
        for name in ("bot", "adapters"):
            logging.getLogger(name).setLevel(logging.NOTSET)
    assert "Took a turn" in written
    assert "Something is wrong" in written
    assert "GET" not in written
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_disturbs_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        set_up_logging("INFO", Redactor([]), file=tmp_path / "file" / "duet.log")
        logging.getLogger("bot.lanes").warning("Took a turn")
    finally:
        for handler in [h for h in root.handlers if h not in before]:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
    assert capsys.readouterr().err == ""
