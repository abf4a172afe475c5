"""What `duet doctor` says of the sandbox: engine, image, and whether the limits are really in force."""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.checks import Check, Health
from bot.drivers.container import COMMAND_USER, Names, SandboxSpec
from bot.drivers.containers import ENTER, SHELL, Containers
from bot.drivers.engine import Address, Engine, InTheWay, NotThere
from bot.drivers.exec_stream import Exec
from bot.drivers.image.build import RECIPE_LABEL, recipe_hash
from bot.errors import SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient

PROBE_LIMIT_S = 10.0
# The oldest runc of each line without the mount races CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881.
SAFE_RUNC = ((1, 2, 8), (1, 3, 3), (1, 4, 0))

# Each line `name=value`, from inside, where a limit either is or is not.
PROBE = (
    ENTER
    + r"""
c=/sys/fs/cgroup
echo memory=$(cat $c/memory/memory.limit_in_bytes $c/memory.max 2>/dev/null)
echo swap=$(cat $c/memory/memory.memsw.limit_in_bytes $c/memory.swap.max 2>/dev/null)
echo pids=$(cat $c/pids/pids.max $c/pids.max 2>/dev/null)
echo cpu=$(cat $c/cpu/cpu.cfs_quota_us $c/cpu/cpu.cfs_period_us 2>/dev/null || cat $c/cpu.max 2>/dev/null)
grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status | tr -d '\t ' | tr : =
if touch /duet-probe 2>/dev/null; then echo root=writable; else echo root=read-only; fi
echo network=$(ls /sys/class/net)
echo workspace=$(df -k /workspace | awk 'END{print $(NF-4)}')
echo files=$(ulimit -n)
echo user=$(id -u)
"""
)


async def checks(spec: SandboxSpec, *, install_id: str) -> list[Check]:
    """Look at everything that commands need; each check says what to do where it is not well."""
    address = Address(spec.docker_host, tls_verify=spec.docker_tls_verify, certificates=spec.docker_cert_path)
    engine = Engine(address, streams=1)
    try:
        made, version = await _engine_check(engine, address)
        found = [made]
        if version is not None:
            found += [_runc_check(version, spec), *await _image_and_limits(engine, spec, install_id)]
        return [*found, settings_check(spec)]
    finally:
        engine.close()


async def _engine_check(engine: Engine, address: Address) -> tuple[Check, Mapping[str, Any] | None]:
    try:
        version: dict[str, Any] = await engine.call(lambda api: api.version())
    except SandboxUnavailable as error:
        return Check("docker engine", Health.FAIL, error.reason, error.mend), None
    seen = f"{version.get('Version', '?')}, API {version.get('ApiVersion', '?')}, at {address.resolved()}"
    return Check("docker engine", Health.OK, seen), version


def _runc_check(version: Mapping[str, Any], spec: SandboxSpec) -> Check:
    parts = {str(one.get("Name")): str(one.get("Version", "")) for one in version.get("Components") or ()}
    if spec.runtime not in ("", "runc") or "runc" not in parts:
        return Check("container runtime", Health.OK, spec.runtime or "the engine's own")
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", parts["runc"])
    if match and is_safe_runc((int(match[1]), int(match[2]), int(match[3]))):
        return Check("container runtime", Health.OK, f"runc {parts['runc']}")
    return Check(
        "container runtime",
        Health.WARN,
        f"runc {parts['runc']} has known ways out for containers of strange images (CVE-2025-31133 and others)",
        "Update runc to 1.2.8, 1.3.3 or newer; until then let nobody else make containers on this engine.",
    )


def is_safe_runc(version: tuple[int, int, int]) -> bool:
    """Say whether a runc has the fixes; a line that had them from its first release counts, an older line does not."""
    for safe in SAFE_RUNC:
        if version[:2] == safe[:2]:
            return version >= safe
    return version > SAFE_RUNC[-1]


async def _image_and_limits(engine: Engine, spec: SandboxSpec, install_id: str) -> list[Check]:
    image = await image_check(engine, spec)
    if image.verdict is Health.FAIL:
        return [image]
    return [image, await limits_check(engine, spec, install_id=install_id)]


async def image_check(engine: Engine, spec: SandboxSpec) -> Check:
    """Say whether the image is there and made from the present recipe."""

    def work(api: APIClient) -> dict[str, Any]:
        seen: dict[str, Any] = api.inspect_image(spec.image)  # type: ignore[no-untyped-call]  # untyped there
        return seen

    try:
        seen = await engine.call(work)
    except NotThere:
        return Check("sandbox image", Health.FAIL, f"{spec.image} is not on the engine", "Run `duet image build`.")
    except SandboxUnavailable as error:
        return Check("sandbox image", Health.FAIL, error.reason, error.mend)
    recipe = (seen["Config"].get("Labels") or {}).get(RECIPE_LABEL, "")
    about = f"{spec.image}, {seen['Size'] / 1e6:.0f} MB, made {str(seen['Created'])[:10]}"
    if recipe == recipe_hash():
        return Check("sandbox image", Health.OK, about)
    why = "from an older recipe" if recipe else "not made by Duet"
    return Check("sandbox image", Health.WARN, f"{about}: {why}", "Run `duet image build`.")


async def limits_check(engine: Engine, spec: SandboxSpec, *, install_id: str) -> Check:
    """Start a container as for a room, and look from inside whether every limit is there."""
    name = "sandbox limits"
    try:
        async with _probe_container(engine, spec, install_id) as (containers, container_id):
            argv = [SHELL, "-c", PROBE]
            job = Exec(container_id, argv, user=COMMAND_USER, limit_s=PROBE_LIMIT_S)
            end = await containers.exec(job, limit_s=PROBE_LIMIT_S)
    except SandboxUnavailable as error:
        return Check(name, Health.FAIL, error.reason, error.mend or "See the engine's own log.")
    except (NotThere, InTheWay) as error:
        return Check(name, Health.FAIL, f"a sandbox does not stay up: {error}", "See the engine's own log.")
    lines = end.stdout.parts()[0].decode("utf-8", "replace").splitlines()
    seen = {key: value.strip() for key, _, value in (line.partition("=") for line in lines)}
    loose = not_in_force(seen, spec)
    if not loose:
        return Check(name, Health.OK, f"{len(EXPECTED)} limits looked at from inside, all in force")
    return Check(
        name,
        Health.FAIL,
        "not in force: " + "; ".join(f"{key} is {seen.get(key) or 'not to be seen'}" for key in loose),
        " ".join(dict.fromkeys(MENDS.get(key, KERNEL_MEND) for key in loose)) + " Until then set `commands` to off.",
    )


@asynccontextmanager
async def _probe_container(engine: Engine, spec: SandboxSpec, install_id: str) -> AsyncIterator[tuple[Containers, str]]:
    with tempfile.TemporaryDirectory() as folder:
        containers = Containers(engine, spec, install_id=install_id, folder=Path(folder))
        container_id = await containers.create(Names(install_id).probes + secrets.token_hex(4))
        try:
            yield containers, container_id
        finally:
            await containers.remove(container_id)


CGROUP_MEND = (
    "Switch the memory, pids and cpu control groups on in the engine's kernel (and swap accounting on cgroup v1)."
)
KERNEL_MEND = "Use an engine whose kernel and runtime support seccomp, no-new-privileges and dropped capabilities."
FILES_MEND = "Use an engine that can mount sized tmpfs and a read-only root."
NETWORK_MEND = "Set `sandbox.network` to none."
MENDS = {
    "memory": CGROUP_MEND,
    "swap": CGROUP_MEND,
    "pids": CGROUP_MEND,
    "cpu": CGROUP_MEND,
    "root": FILES_MEND,
    "workspace": FILES_MEND,
    "network": NETWORK_MEND,
}
EXPECTED = (
    "memory", "swap", "pids", "cpu", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd", "root", "network", "workspace",
    "files", "user",
)  # fmt: skip


def not_in_force(seen: Mapping[str, str], spec: SandboxSpec) -> list[str]:
    """Give the names of the limits that do not hold by what was seen from inside."""
    wanted = {
        "memory": seen.get("memory") == str(spec.memory_bytes),
        # cgroup v1 counts memory and swap together, v2 swap alone.
        "swap": seen.get("swap") in (str(spec.memory_bytes), "0"),
        "pids": seen.get("pids") == str(spec.pids),
        "cpu": _cpu_share(seen.get("cpu", "")) <= spec.cpus + 0.01,
        "NoNewPrivs": seen.get("NoNewPrivs") == "1",
        "Seccomp": seen.get("Seccomp") == "2",
        "CapEff": set(seen.get("CapEff", "?")) == {"0"},
        "CapBnd": set(seen.get("CapBnd", "?")) == {"0"},
        "root": seen.get("root") == "read-only",
        "network": spec.network != "none" or seen.get("network") == "lo",
        "workspace": seen.get("workspace") == str(spec.workspace_bytes >> 10),
        "files": seen.get("files") == "256",
        "user": seen.get("user") == COMMAND_USER.split(":")[0],
    }
    return [name for name in EXPECTED if not wanted[name]]


def _cpu_share(text: str) -> float:
    """Give the processors that `quota period` allows; infinity where there is no quota."""
    parts = text.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        return float("inf")
    return int(parts[0]) / int(parts[1])


def settings_check(spec: SandboxSpec) -> Check:
    """Say loudly what is set looser than the default."""
    if not spec.looser:
        return Check("sandbox settings", Health.OK, "nothing is looser than the default")
    return Check(
        "sandbox settings",
        Health.WARN,
        "LOOSER THAN THE DEFAULT: " + "; ".join(spec.looser),
        "Take these settings away; until then every command waits for a person's approval.",
    )
