"""What the tests of the sandbox share: the engine of DOCKER_HOST, real sandboxes on it, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import pytest

from bot.conversation import Command, CommandResult, RoomKey
from bot.drivers.container import SandboxSpec
from bot.drivers.ledger import MemoryLedger
from bot.drivers.sandbox import DockerSandbox

TINY = "duet-sandbox-tiny:latest"
FULL = "duet-sandbox:latest"
PROBE_EVERY_S = 0.02


def engine_address() -> str:
    """Give DOCKER_HOST; without one skip, or fail where DUET_TEST_REQUIRE names docker."""
    address = os.environ.get("DOCKER_HOST", "")
    if address:
        return address
    reason = 'no Docker engine: run eval "$(.ci/engine)" first'
    if "docker" in os.environ.get("DUET_TEST_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


def room(name: str = "a") -> RoomKey:
    return RoomKey("local", "tests", name)


@dataclass
class Bench:
    """A data folder with an installation of its own; sandboxes made on it come and go like the bot's processes."""

    home: Path
    address: str
    image: str = TINY
    install_id: str = field(default_factory=lambda: f"t{os.getpid()}x{time.monotonic_ns() % 10**9}")
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    now_ms: int = 1_000_000

    def spec(self, **changes: Any) -> SandboxSpec:
        # A clock that no busy machine reaches: who wants one that strikes says so.
        tight = SandboxSpec(
            image=self.image, docker_host=self.address, workspace_mb=32, memory_mb=192, timeout_s=30.0, pool=0, cpus=1.0
        )
        return replace(tight, **changes)

    def sandbox(self, **changes: Any) -> DockerSandbox:
        return DockerSandbox(
            self.spec(**changes),
            home=self.home,
            install_id=self.install_id,
            ledger=self.ledger,
            clock=lambda: self.now_ms,
        )

    def client(self) -> docker.APIClient:
        return docker.APIClient(base_url=self.address, timeout=60)

    def containers(self, *, all: bool = True) -> list[dict[str, Any]]:
        """List this installation's containers as the engine knows them."""
        with contextlib.closing(self.client()) as client:
            return client.containers(all=all, filters={"label": f"duet.home={self.install_id}"})

    def remove_all(self) -> None:
        with contextlib.closing(self.client()) as client:
            for one in client.containers(all=True, filters={"label": f"duet.home={self.install_id}"}):
                with contextlib.suppress(docker.errors.APIError):
                    client.remove_container(one["Id"], force=True)


@contextlib.contextmanager
def bench(home: Path, image: str = TINY) -> Iterator[Bench]:
    """Give a bench on the engine of DOCKER_HOST and remove its containers in the end."""
    made = Bench(home, engine_address(), image=image)
    with contextlib.closing(made.client()) as client:
        try:
            client.inspect_image(image)
        except docker.errors.ImageNotFound:
            reason = f'{image} is not on the engine: run eval "$(.ci/engine)"'
            if "docker" in os.environ.get("DUET_TEST_REQUIRE", "").split(","):
                pytest.fail(reason)
            pytest.skip(reason)
    try:
        yield made
    finally:
        made.remove_all()


@contextlib.asynccontextmanager
async def closing(sandbox: DockerSandbox) -> AsyncIterator[DockerSandbox]:
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def run(sandbox: Any, code: str, *, where: RoomKey | None = None, generation: int = 0) -> CommandResult:
    """Run one command in the sandbox."""
    result: CommandResult = await sandbox.run(Command("key", where or room(), generation, code))
    return result


async def begun(sandbox: Any, code: str, *, where: RoomKey | None = None) -> asyncio.Task[CommandResult]:
    """Start a command that says something first, and give it once it has."""
    said = asyncio.Event()
    command = Command("key", where or room(), 0, code)
    task: asyncio.Task[CommandResult] = asyncio.create_task(sandbox.run(command, on_output=lambda text: said.set()))
    waiting = asyncio.create_task(said.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert said.is_set(), task.result()
    return task


@contextlib.asynccontextmanager
async def stopwatch() -> AsyncIterator[Callable[[], float]]:
    """Give the seconds since now, without those that the machine took: a probe beside tells how late it is woken."""
    began, late = time.monotonic(), 0.0

    async def probe() -> None:
        nonlocal late
        while True:
            due = time.monotonic() + PROBE_EVERY_S
            await asyncio.sleep(PROBE_EVERY_S)
            late += max(0.0, time.monotonic() - due - PROBE_EVERY_S)  # a little late is every timer

    task = asyncio.create_task(probe())
    try:
        yield lambda: time.monotonic() - began - late
    finally:
        task.cancel()


async def until(condition: Any, *, within_s: float = 10.0) -> None:
    """Wait until `condition()` holds."""
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, "it did not come to pass in time"
        await asyncio.sleep(0.05)
