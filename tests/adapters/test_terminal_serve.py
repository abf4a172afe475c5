"""`duet serve` as a process, and the command line beside it on the same database."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.terminal_program import Program

CONVENTION = "What is our branch naming convention?"


@pytest.fixture
def duet(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def served(duet: Program) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the server on a free port; give its address and the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bot", "serve", "--set", "http.port=0"],
        cwd=duet.folder,
        env=duet.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address, line
        yield address[0], process
    finally:
        process.kill()
        process.communicate()


def test_it_serves_alone_and_ends_in_order_when_told(served: tuple[str, subprocess.Popen[str]]) -> None:
    address, process = served
    with urllib.request.urlopen(f"{address}/health", timeout=10) as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_the_command_line_shares_its_database(duet: Program, served: tuple[str, subprocess.Popen[str]]) -> None:
    assert duet("ask", CONVENTION).code == 0
    assert len(duet("log", "--json").json["calls"]) == 1
    assert duet("reset", "--json").json["cleared"] is True
    assert duet("log", "--json").json["calls"] == []
    assert served[1].poll() is None


def test_a_port_that_is_taken_is_told(duet: Program, served: tuple[str, subprocess.Popen[str]]) -> None:
    port = served[0].rsplit(":", 1)[1]
    ran = duet("serve", "--set", f"http.port={port}")
    assert ran.code == 2
    assert f"127.0.0.1:{port} cannot be listened on" in ran.err
    assert "Traceback" not in ran.err


def test_a_slack_token_that_is_none_is_told_before_anything_listens(duet: Program) -> None:
    ran = duet("serve", "--set", "http.port=0", env={"SLACK_BOT_TOKEN": "xapp-123456-wrong"})
    assert (ran.code, ran.out) == (2, "")
    assert "must begin with xoxb-" in ran.err
