"""The sandbox's image made from the Dockerfile: its base really pulled, each instruction really run, and used."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.checks import Health
from bot.conversation import Ended
from bot.drivers.engine import Address, Engine
from bot.drivers.image.build import BASE, build_image
from bot.drivers.sandbox_checks import checks
from tests.private_engine import PrivateEngine, private_engine
from tests.sandbox_engine import Bench, closing, room, run

IMAGE = "duet-sandbox-built:latest"
TOOLS = "python3 git jq rg curl patch diff make less file unzip xz gawk ps tini"


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Give the address of a registry of our own on this machine (Debian package docker-registry), or skip."""
    for program in ("docker-registry", "mmdebstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    settings = folder / "registry.yml"
    settings.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/images}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    served = subprocess.Popen(
        ["docker-registry", "serve", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield address
    finally:
        served.terminate()
        served.wait(10)


@pytest.fixture
def engine() -> Iterator[PrivateEngine]:
    """Give an engine that pulls from a registry which has the base, as a normal one does from Docker's own."""
    with tempfile.TemporaryDirectory(prefix="duet-i-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (
            registry(folder) as address,
            private_engine(folder, "--registry-mirror", f"http://{address}") as made,
        ):
            base = f"{address}/library/{':'.join(BASE)}"
            tar = folder / "base.tar"
            slim = [f"--dpkgopt=path-exclude=/usr/share/{kind}/*" for kind in ("doc", "man", "locale")]
            for argv in (
                ["mmdebstrap", "--variant=minbase", *slim, "bookworm", str(tar)],
                ["docker", "import", str(tar), base],
                ["docker", "push", base],
                ["docker", "rmi", base],
            ):
                subprocess.run(
                    argv, env=os.environ | {"DOCKER_HOST": made.address}, check=True, capture_output=True, timeout=200
                )
            yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_dockerfile_makes_an_image_that_the_sandbox_works_in(engine: PrivateEngine, tmp_path: Path) -> None:
    told: list[str] = []
    door = Engine(Address(engine.address), streams=1)
    began = time.monotonic()
    try:
        await build_image(door, IMAGE, progress=told.append)
    finally:
        door.close()
    print(f"built in {time.monotonic() - began:.0f} s; {told[-1]}")
    assert told[:2] == [f"Pulling {':'.join(BASE)}…", f"Using the Dockerfile, on {':'.join(BASE)}."]
    place = Bench(tmp_path, engine.address, image=IMAGE)
    async with closing(place.sandbox(timeout_s=20)) as sandbox:
        tools = await run(
            sandbox, f"for tool in {TOOLS}; do command -v $tool >/dev/null || echo no $tool; done; id -un"
        )
        assert tools.ended is Ended.EXIT
        assert "no " not in tools.stdout
        assert tools.stdout.endswith("\nsandbox\n")
        assert (await run(sandbox, "find / -xdev -perm /6000 -type f 2>/dev/null | wc -l")).stdout == "0\n"
        await run(sandbox, "echo kept > f")
        assert await sandbox.get(room(), 0, "f") == b"kept\n"
    found = {check.name: check for check in await checks(place.spec(), install_id=place.install_id)}
    assert found["sandbox image"].verdict is Health.OK, found["sandbox image"].seen
    assert found["sandbox limits"].verdict is Health.OK, found["sandbox limits"].seen
