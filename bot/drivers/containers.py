"""What is done to containers: made, started, emptied, saved and removed. Knows no rooms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.drivers.container import (
    COMMAND_USER,
    HOLDER_PROCESSES,
    SandboxSpec,
    container_arguments,
    host_arguments,
    podman_arguments,
)
from bot.drivers.engine import CALL_TIMEOUT_S, Engine, InTheWay, NotThere
from bot.drivers.exec_stream import CHUNK_BYTES, Exec, ExecEnd
from bot.errors import SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient

# Ours, not the commands': dash starts in a third of the time that bash takes.
SHELL = "/bin/sh"
REAP_TRIES = 3
REAP_LIMIT_S = 2.0

# A command may have shut its own door (`chmod 0 /workspace`): the owner opens it again. The working folder is entered
# here and never by the engine.
ENTER = "cd /workspace 2>/dev/null || { chmod 700 /workspace; cd /workspace; } || exit 125\n"

# The wrapper is of the command's uid and the last to live: `kill -9 -1` spares its caller alone. So background
# processes end at once, and the engine does not wait for them to close the output.
# Its own standard error is shut: the shell's word on a killed child is not the command's output.
RUN = ENTER + (
    'exec 3>&2 2>/dev/null; timeout -k 1 "$1" /bin/bash -c "$2" 2>&3 3>&-; e=$?; exec 3>&-; kill -9 -1; exit "$e"'
)

SAVE = (
    ENTER
    + 'case "$(tar --version 2>/dev/null)" in *GNU*) set -- --sparse --ignore-failed-read --warning=none;; esac\n'
    + 'exec tar "$@" -cf - .'
)
# The byte count stands for the end of input: half-closing would break a TLS connection. Whoever is fed this way takes
# all of it and says little, whatever goes wrong: we write to the end before we read.
LOAD = ENTER + ('head -c "$1" | { tar -xf - 2>&1; cat >/dev/null; } | { head -c 1000 >&2; cat >/dev/null; }')


@dataclass(frozen=True, slots=True)
class Found:
    """A container as the engine lists it."""

    id: str
    name: str
    running: bool
    paused: bool
    spec_hash: str


class Containers:
    """The containers of one installation on one engine. Every verb may raise SandboxUnavailable."""

    def __init__(self, engine: Engine, spec: SandboxSpec, *, install_id: str, folder: Path) -> None:
        self._engine = engine
        self._spec = spec
        self._install_id = install_id
        self._folder = folder

    async def create(self, name: str) -> str:
        """Make and start a container; one of that name that is in the way is replaced."""
        try:
            return await self._create(name)
        except InTheWay:
            await self.remove(name)
            try:
                return await self._create(name)
            except InTheWay as error:
                raise SandboxUnavailable(f"The Docker engine refused: {error}") from error

    async def _create(self, name: str) -> str:
        def work(api: APIClient) -> str:
            image_id = image_id_of(api, self._spec.image)
            arguments = container_arguments(self._spec, image_id=image_id, install_id=self._install_id)
            made = api.create_container(**arguments, name=name, host_config=engine_form(api, self._host()))
            started = False
            try:
                api.start(made["Id"])
                started = True
            finally:
                if not started:
                    api.remove_container(made["Id"], force=True)
            return str(made["Id"])

        try:
            return await self._engine.call(work)
        except NotThere as error:
            raise SandboxUnavailable(
                f"The sandbox image {self._spec.image} is not on the engine.", mend="Run `duet image build`."
            ) from error

    def _host(self) -> dict[str, Any]:
        host = host_arguments(self._spec)
        return podman_arguments(host, self._folder) if self._engine.is_podman else host

    async def current_hash(self) -> str:
        """Give the spec hash that a container made now would have; '' without the image."""

        def work(api: APIClient) -> str:
            image_id = image_id_of(api, self._spec.image)
            made = container_arguments(self._spec, image_id=image_id, install_id=self._install_id)
            return str(made["labels"]["duet.spec"])

        try:
            return await self._engine.call(work)
        except NotThere:
            return ""

    async def find(self, container_id: str) -> Found | None:
        """Look at one container. None: it is not there."""

        def work(api: APIClient) -> Found:
            seen = api.inspect_container(container_id)
            labels = seen["Config"]["Labels"] or {}
            state = seen["State"]
            return Found(seen["Id"], seen["Name"], state["Running"], state["Paused"], labels.get("duet.spec", ""))

        try:
            return await self._engine.call(work)
        except NotThere:
            return None

    async def all(self) -> list[Found]:
        """List this installation's containers, running or not, and nobody else's."""

        def work(api: APIClient) -> list[Found]:
            labels = [f"duet.home={self._install_id}", "duet.sandbox=1"]
            return [
                Found(
                    one["Id"],
                    one["Names"][0],
                    running=one["State"] in ("running", "paused"),
                    paused=one["State"] == "paused",
                    spec_hash=one["Labels"]["duet.spec"],
                )
                for one in api.containers(all=True, filters={"label": labels})
                if one["Names"]
            ]

        return await self._engine.call(work)

    async def unpause(self, container_id: str) -> None:
        await self._engine.call(lambda api: api.unpause(container_id))

    async def start(self, container_id: str) -> None:
        await self._engine.call(lambda api: api.start(container_id))

    async def restart(self, container_id: str) -> None:
        await self._engine.call(lambda api: api.restart(container_id, timeout=0))

    async def stop(self, container_id: str) -> None:
        """Stop at once; a container that is gone is stopped."""
        await self._if_there(lambda api: api.stop(container_id, timeout=0))

    async def remove(self, container: str) -> None:
        """Kill and remove, by id or name; one that is gone is removed."""
        await self._if_there(lambda api: api.remove_container(container, force=True, v=True))

    async def rename(self, container_id: str, name: str) -> None:
        await self._if_there(lambda api: api.rename(container_id, name))

    async def _if_there(self, work: Callable[[APIClient], Any]) -> None:
        try:
            await self._engine.call(work)
        except NotThere:
            return
        except InTheWay as error:
            if "already in progress" not in str(error):  # another remover is at it
                raise SandboxUnavailable(f"The Docker engine refused: {error}") from error

    async def is_empty(self, container_id: str) -> bool:
        """Say whether nothing but the holder runs. Raises: NotThere, InTheWay when it is not running."""
        top = await self._engine.call(lambda api: api.top(container_id))
        return len(top["Processes"] or ()) <= HOLDER_PROCESSES

    async def reap(self, container_id: str) -> bool:
        """Kill every process of the command uid; say whether the container is empty after it."""
        for _ in range(REAP_TRIES):
            kill = Exec(container_id, [SHELL, "-c", "kill -9 -1"], user=COMMAND_USER, limit_s=REAP_LIMIT_S)
            await self.exec(kill, limit_s=REAP_LIMIT_S)
            if await self.is_empty(container_id):
                return True
        return False

    async def exec(self, job: Exec, *, limit_s: float) -> ExecEnd:
        """Run an exec to its end. Raises: NotThere, InTheWay when the container is gone or not running."""
        return await self._engine.stream(job.run, limit_s=limit_s + CALL_TIMEOUT_S, abort=job.abort)

    async def save(self, container_id: str, write: Callable[[int, bytes], None]) -> str:
        """Write the workspace as a tar to `write`; give what went wrong, '' when it is whole."""
        # Headers and padding of the files that fit, and no more: a tar cannot grow past what the limits allow.
        cap = 2 * self._spec.workspace_bytes + (48 << 20)
        job = Exec(
            container_id,
            [SHELL, "-c", SAVE, "duet"],
            user=COMMAND_USER,
            limit_s=60.0,
            seen_bytes=cap,
            sink=write,
            kept_bytes=2_000,
        )
        end = await self.exec(job, limit_s=60.0)
        if end.why != "eof" or end.exit_code is None:
            return f"it ended early ({end.why})"
        if end.exit_code not in (0, 1):  # 1: a file changed while it was read
            return end.stderr.parts()[0].decode("utf-8", "replace").strip() or f"tar gave {end.exit_code}"
        return ""

    async def load(self, container_id: str, pieces: Iterable[bytes], *, size_bytes: int) -> str:
        """Unpack a tar into the workspace, inside the container; give what went wrong, '' when nothing did."""
        end = await self.feed(container_id, [SHELL, "-c", LOAD, "duet", str(size_bytes)], pieces)
        said = end.stderr.parts()[0].decode("utf-8", "replace").strip()
        return said if said or end.exit_code == 0 else end.why

    async def feed(self, container_id: str, argv: Sequence[str], pieces: Iterable[bytes]) -> ExecEnd:
        """Run `argv` with `pieces` as its standard input."""
        job = Exec(container_id, argv, user=COMMAND_USER, limit_s=60.0, stdin=pieces, kept_bytes=2_000)
        return await self.exec(job, limit_s=60.0)

    async def fetch(self, container_id: str, argv: Sequence[str], *, limit_bytes: int) -> ExecEnd:
        """Run `argv` and keep its whole output up to `limit_bytes`."""
        job = Exec(
            container_id,
            argv,
            user=COMMAND_USER,
            limit_s=30.0,
            kept_bytes=2 * limit_bytes + 2 * CHUNK_BYTES,  # all of it in the head
            seen_bytes=limit_bytes + CHUNK_BYTES,
        )
        return await self.exec(job, limit_s=30.0)

    async def ran_out_of_memory(self, container_id: str, *, since_s: float) -> bool:
        """Ask the engine whether the kernel killed for memory in there since then (seconds since the epoch)."""

        def work(api: APIClient) -> bool:
            filters = {"container": container_id, "event": "oom"}
            # Not yet over when it is asked: the event may come a moment after the kill.
            window: dict[str, Any] = {"since": f"{since_s:.3f}", "until": f"{time.time() + 0.4:.3f}"}
            return any(True for _ in api.events(**window, filters=filters, decode=True))

        return await self._engine.call(work)


def image_id_of(api: APIClient, image: str) -> str:
    """Give the id that an image's name means now."""
    seen: dict[str, Any] = api.inspect_image(image)  # type: ignore[no-untyped-call]  # untyped there
    return str(seen["Id"])


def engine_form(api: APIClient, host: dict[str, Any]) -> Any:
    """Give the host arguments as this client's engine takes them."""
    from docker.types import LogConfig, Ulimit

    return api.create_host_config(
        **(
            host
            | {
                "ulimits": [Ulimit(name=name, soft=value, hard=value) for name, value in host["ulimits"]],
                "log_config": LogConfig(type=host["log_config"]),
            }
        )
    )


def run_argv(code: str, *, timeout_s: float) -> list[str]:
    """Give the argument list that runs `code`; it is one argument, never part of a shell string of ours."""
    # The space keeps a code that begins with a dash from being read as an option.
    return [SHELL, "-c", RUN, "duet", f"{timeout_s:g}", " " + code]
