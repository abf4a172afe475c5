"""A Docker engine of a test's own, to be killed, stopped and replaced."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TINY_RECIPE = Path(__file__).parent.parent / "bot/drivers/image/tiny.sh"


class PrivateEngine:
    """dockerd in a folder; `address` stays the same over its lives."""

    def __init__(self, folder: Path, *, flags: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.address = f"unix://{folder}/docker.sock"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return int((self.folder / "dockerd.pid").read_text())

    def start(self, *, data: str = "data") -> None:
        """Start it; another `data` is another engine at the same address."""
        self._drop_stale_pids()
        with (self.folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    *("--host", self.address),
                    *("--data-root", str(self.folder / data)),
                    *("--exec-root", str(self.folder / "exec")),
                    *("--pidfile", str(self.folder / "dockerd.pid")),
                    "--iptables=false",
                    "--ip6tables=false",
                    "--bridge=none",
                    "--ip-forward=false",
                    "--ip-masq=false",
                    *self._flags,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ends = time.monotonic() + 30
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "dockerd.log").read_text()[-2000:]
            assert time.monotonic() < ends
            time.sleep(0.05)

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(2)
            caller.connect(str(self.folder / "docker.sock"))
            caller.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b"200 OK" in caller.recv(200)
        return False

    def load_tiny(self, image: str = "duet-sandbox-tiny:latest") -> None:
        subprocess.run(
            ["sh", str(TINY_RECIPE), image],
            env=os.environ | {"DOCKER_HOST": self.address},
            check=True,
            capture_output=True,
        )

    def empty(self) -> None:
        """Kill every container: dockerd would wait ten seconds for each at its own end."""
        env = os.environ | {"DOCKER_HOST": self.address}
        subprocess.run(["sh", "-c", "docker kill $(docker ps -q)"], env=env, check=False, capture_output=True)

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)
            self.empty()
            os.kill(self._process.pid, signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(30)

    def end(self) -> None:
        """Stop it and everything that it left running."""
        self.stop()
        # After a kill -9 its containerd and shims live on: they are known by this folder in their arguments.
        for pid in _mentioning(str(self.folder)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(str(self.folder))), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)

    def _drop_stale_pids(self) -> None:
        """After a kill -9 a pid file may name a process that is gone or a zombie, and dockerd then refuses to start."""
        for path in (self.folder / "dockerd.pid", self.folder / "exec/containerd/containerd.pid"):
            with contextlib.suppress(FileNotFoundError):
                stat = Path(f"/proc/{path.read_text().strip()}/stat")
                if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                    path.unlink()


def _mentioning(text: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def private_engine(folder: Path, *flags: str) -> Iterator[PrivateEngine]:
    """Give a running engine with the tiny image; without dockerd or root skip, or fail where docker is required."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        reason = "a private engine needs dockerd and root"
        if "docker" in os.environ.get("DUET_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    engine = PrivateEngine(folder, flags=flags)
    try:
        engine.start()
        engine.load_tiny()
        yield engine
    finally:
        engine.end()
