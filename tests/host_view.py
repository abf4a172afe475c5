"""What sandboxes take of the machine that their engine runs on, seen from the machine and not from inside.

Only what belongs to the containers in question and to their engine is counted: whatever else runs here changes nothing.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Taken:
    """What one container takes: processes wherever they are on the machine, tasks, memory, and the engine's disk."""

    processes: int
    tasks: int
    memory_bytes: int
    disk_bytes: int


def taken(client: Any, container_id: str) -> Taken | None:
    """Look at a running container from outside. None: its engine is on another machine."""
    seen = client.inspect_container(container_id)
    holder = Path("/proc") / str(seen["State"]["Pid"])
    if not _is_in(holder, container_id):
        return None
    return Taken(
        processes=sum(_is_in(path, container_id) for path in Path("/proc").glob("[0-9]*")),
        tasks=_count(holder, "pids", "pids.current"),
        memory_bytes=_count(holder, "memory", "memory.usage_in_bytes", "memory.current"),
        disk_bytes=_size_bytes([seen["GraphDriver"]["Data"]["UpperDir"]])
        + _size_bytes([f"{client.info()['DockerRootDir']}/containers/{container_id}"]),
    )


def engine_bytes(address: str) -> int | None:
    """Give the memory of the engine behind a local socket. None: it is not local."""
    if not address.startswith("unix://"):
        return None
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(address.removeprefix("unix://"))
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    status = Path("/proc") / str(struct.unpack("3i", credentials)[0]) / "status"
    with contextlib.suppress(OSError):
        return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return None


def _is_in(process: Path, container_id: str) -> bool:
    with contextlib.suppress(OSError):
        return container_id in (process / "cgroup").read_text()
    return False


def _count(process: Path, controller: str, *files: str) -> int:
    """Give the number that a control group's file holds, in either version of them."""
    for line in (process / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(",") or not names:
            folder = CGROUPS / (controller if names else "") / path.lstrip("/")
            for file in files:
                if (folder / file).exists():
                    return int((folder / file).read_text())
    raise AssertionError(f"no control group {controller}")


def _size_bytes(places: Iterable[str]) -> int:
    return sum(path.lstat().st_size for place in places for path in Path(place).rglob("*") if path.is_file())
