"""What a sandbox container is: its limits, its name, its labels, and what makes it looser than the default."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.conversation import RoomKey
from bot.drivers.image.seccomp import profile

if TYPE_CHECKING:
    from bot.settings import Settings

# The holder keeps the container alive; commands run as another uid, so that `kill -9 -1` as that uid empties the
# container and leaves it running. A holder of the same uid would die with the command.
HOLDER_USER = "65534:65534"
COMMAND_USER = "1000:1000"
HOLDER_PROCESSES = 2  # docker-init and sleep
WORKSPACE = "/workspace"
MIN_SPARE_MB = 128  # tmpfs pages count as memory: a full workspace must leave this much for processes

CLOSED_RUNTIMES = (
    "",
    "runc",
    "crun",
    "io.containerd.runc.v2",
    "runsc",
    "kata",
    "kata-runtime",
    "io.containerd.kata.v2",
)


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """How every sandbox is made. The defaults are the tightest that an engineer can still work in."""

    image: str = "duet-sandbox:latest"
    runtime: str = ""
    network: str = "none"
    userns: str = ""
    memory_mb: int = 256
    workspace_mb: int = 64
    pids: int = 64
    cpus: float = 0.5
    timeout_s: float = 30.0
    pool: int = 2
    rooms_at_once: int = 8
    stop_after_s: float = 900.0
    remove_after_s: float = 86_400.0
    snapshot_after_s: float = 5.0
    kept_bytes: int = 64_000
    seen_bytes: int = 8_000_000
    docker_host: str = ""
    docker_tls_verify: bool = False
    docker_cert_path: str = ""

    @classmethod
    def of(cls, settings: Settings) -> SandboxSpec:
        """Take what the settings say about the sandbox."""
        named = {f.name: getattr(settings, f"sandbox_{f.name}", None) for f in fields(cls)}
        given = {name: value for name, value in named.items() if value is not None}
        return cls(
            **given,
            docker_host=settings.docker_host,
            docker_tls_verify=settings.docker_tls_verify,
            docker_cert_path=str(settings.docker_cert_path or ""),
        )

    @property
    def workspace_bytes(self) -> int:
        return self.workspace_mb << 20

    @property
    def memory_bytes(self) -> int:
        return max(self.memory_mb, self.workspace_mb + MIN_SPARE_MB) << 20

    @property
    def looser(self) -> tuple[str, ...]:
        """Give a phrase for each limit that is looser than the default: doctor says them, policy asks a person."""
        default = SandboxSpec()
        loose = [
            f"{name} is {getattr(self, name):g}{unit}, the default is {getattr(default, name):g}{unit}"
            for name, unit in (
                ("memory_mb", " MB"),
                ("workspace_mb", " MB"),
                ("pids", ""),
                ("cpus", ""),
                ("timeout_s", " s"),
            )
            if getattr(self, name) > getattr(default, name)
        ]
        if self.network != default.network:
            loose.append(f"network is {self.network!r}, the default is 'none'")
        if self.userns == "host":
            loose.append("userns is 'host', which switches the engine's user remapping off")
        if self.runtime not in CLOSED_RUNTIMES:
            loose.append(f"runtime is {self.runtime!r}, which Duet does not know")
        return tuple(loose)


def looser_than_default(settings: Settings) -> tuple[str, ...]:
    """Give a phrase for each sandbox setting that is looser than the default; empty when none is."""
    return SandboxSpec.of(settings).looser


def room_hash(room: RoomKey) -> str:
    """Give the 16 hex digits that stand for a room in container and file names."""
    return hashlib.sha256(str(room).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one installation's containers; another installation's never match."""

    install_id: str

    @property
    def prefix(self) -> str:
        return "duet-" + re.sub(r"[^a-zA-Z0-9]", "", self.install_id)[:16]

    def room(self, digest: str, generation: int) -> str:
        return f"{self.prefix}-{digest}-g{generation}"

    def pooled(self, token: str) -> str:
        return f"{self.prefix}-pool-{token}"

    @property
    def probes(self) -> str:
        """How the names of doctor's containers begin; each is removed by its doctor."""
        return f"{self.prefix}-probe-"

    def parse(self, name: str) -> tuple[str, int] | None:
        """Give (room hash, generation) of a room's container; None for a pooled or foreign one."""
        match = re.fullmatch(re.escape(self.prefix) + r"-([0-9a-f]{16})-g(\d+)", name.lstrip("/"))
        return (match[1], int(match[2])) if match else None


def container_arguments(spec: SandboxSpec, *, image_id: str, install_id: str) -> dict[str, Any]:
    """Give the arguments of `create_container`, without `host_config` made: see `host_arguments`."""
    host = host_arguments(spec)
    return {
        "image": image_id,
        "command": ["sleep", "infinity"],
        "user": HOLDER_USER,
        "hostname": "sandbox",
        "working_dir": "/",  # the workspace is entered by the wrapper: its owner may have shut it
        # Only these: nothing of the bot's environment, and not the proxies of the engine client's own settings file.
        "environment": {"HOME": WORKSPACE, "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"},
        "use_config_proxy": False,
        "labels": {
            "duet.sandbox": "1",
            "duet.home": install_id,
            "duet.spec": spec_hash(host, image_id),
        },
    }


def host_arguments(spec: SandboxSpec) -> dict[str, Any]:
    """Give the limits, as `create_host_config` takes them; ulimits as (name, value)."""
    size = spec.workspace_bytes
    arguments: dict[str, Any] = {
        "init": True,
        "network_mode": spec.network,
        "ipc_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true", "seccomp=" + json.dumps(profile(), separators=(",", ":"))],
        "tmpfs": {
            WORKSPACE: f"rw,exec,nosuid,nodev,size={size},nr_inodes=16384,mode=0777,uid=1000,gid=1000",
            "/tmp": "rw,noexec,nosuid,nodev,size=16m,nr_inodes=2048,mode=1777",  # noqa: S108 - inside the container
        },
        "mem_limit": spec.memory_bytes,
        "memswap_limit": spec.memory_bytes,  # equal to memory, or swap makes the limit void
        "pids_limit": spec.pids,
        "nano_cpus": int(spec.cpus * 1e9),
        # No message queues: they outlive the processes that make them, by `mq_open` or as files in /dev/mqueue.
        "ulimits": [("core", 0), ("nofile", 256), ("fsize", size), ("msgqueue", 0)],
        "log_config": "none",
        "restart_policy": {"Name": "no"},
    }
    if spec.runtime:
        arguments["runtime"] = spec.runtime
    if spec.userns:
        arguments["userns_mode"] = spec.userns
    return arguments


def podman_arguments(host: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Give the limits as podman takes them: the profile as a file, which is written; tmpfs without inodes and owner."""
    path = folder / "seccomp.json"
    path.write_text(json.dumps(profile()), "utf-8")
    kept = [one for one in host["security_opt"] if not one.startswith("seccomp=")]
    tmpfs = {place: re.sub(r"nr_inodes=\d+,|,uid=\d+,gid=\d+", "", options) for place, options in host["tmpfs"].items()}
    # Podman asks for a number of processes above its own hard limit unless it is told one.
    ulimits = [*host["ulimits"], ("nproc", 4096)]
    return host | {"security_opt": [*kept, f"seccomp={path}"], "tmpfs": tmpfs, "ulimits": ulimits}


def spec_hash(host: dict[str, Any], image_id: str) -> str:
    """Give a short name for everything that a container was made from: an old one is replaced when it differs."""
    text = json.dumps([host, image_id, HOLDER_USER], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def snapshot_folder(home: Path) -> Path:
    """Give the folder of workspaces at rest, made when missing and closed to other users."""
    folder = home / "snapshots"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
