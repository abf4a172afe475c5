"""The engine's door against a stand-in that answers just enough, and can stop answering."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.drivers.engine import Address, Engine
from bot.errors import SandboxUnavailable

VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "0", "Components": []}


class StandIn:
    """A socket that answers every request with the engine's version; asked while it hangs, never."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix://{path}"
        self.hangs = threading.Event()
        self._ended = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        body = json.dumps(VERSION).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with caller:
            while caller.recv(65_536) and not self.hangs.is_set():
                caller.sendall(head + body)
            self._ended.wait()

    def close(self) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with tempfile.TemporaryDirectory(prefix="duet-s-") as folder:
        made = StandIn(Path(folder) / "s")
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def engine(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr("bot.drivers.engine.PING_TIMEOUT_S", 0.3)
    monkeypatch.setattr("bot.drivers.engine.WATCH_EVERY_S", 0.1)
    made = Engine(Address(stand_in.address), streams=1)
    try:
        yield made
    finally:
        made.close()


async def test_the_end_of_an_aborted_stream_is_no_sign_that_a_hung_engine_is_back(
    engine: Engine, stand_in: StandIn
) -> None:
    aborted, ended = threading.Event(), threading.Event()

    def work(_api: object) -> str:
        stand_in.hangs.set()
        aborted.wait(20)
        ended.set()
        return "what had come"

    def abort() -> None:
        aborted.set()
        ended.wait(20)
        time.sleep(0.05)  # so that the loop finds both: the engine given up, and the job done

    with pytest.raises(SandboxUnavailable, match="does not answer"):
        await engine.stream(work, limit_s=30, abort=abort)
    assert engine.epoch == 0, "it has not come back"


async def test_pings_that_hang_at_their_first_question_do_not_hold_up_the_ones_after(
    engine: Engine, stand_in: StandIn
) -> None:
    stand_in.hangs.set()
    for _ in range(3):
        with pytest.raises(SandboxUnavailable):
            await engine.ping()
    stand_in.hangs.clear()
    async with asyncio.timeout(20):
        await answers(engine)


async def answers(engine: Engine) -> None:
    while True:
        try:
            return await engine.ping()
        except SandboxUnavailable:
            await asyncio.sleep(0.05)
