"""The built-in language model: llama.cpp's own server in a process of its own, on this machine's loopback alone.

A process of its own, because a fault or a want of memory in it must not take Duet along, and because its threads would
fight for this one's. It ends with the program that started it, however that ends: its standard input closes. The
protocol is the one of every other model, so one client serves all.

The child speaks one line of JSON: `{"ready": address}` or `{"fault": sentence}`. What the extra `local` brings is
imported by the child alone.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, cast

from bot import small_prompt
from bot.checks import Check, Health
from bot.errors import ModelError, ModelTimeout, ModelUnreachable
from bot.ports import ChatMessage, ChatModel, Findings, ModelCall, Piece, Profile

log = logging.getLogger(__name__)

NAME = "Qwen2.5-Coder-1.5B-Instruct"
PROFILE = Profile(context_tokens=4_096, max_reply_tokens=512, prompts="split")
RUNTIME = "xllamacpp"
START_TIMEOUT_S = 180.0  # a cold disk, a busy machine, and 1.1 GB to hash
MEMORY_BESIDE_WEIGHTS = 900_000_000  # context, buffers and the prompt cache
PROMPT_CACHE_MIB = 256  # the library's default is 8 GiB
CHILD = (sys.executable, "-m", "bot.drivers.local_model")
INSTALL = "Run `duet model install local`."


@dataclass(frozen=True, slots=True)
class Weights:
    """The file of weights and what it must be."""

    path: Path
    sha256: str
    size_bytes: int


def default_threads() -> int:
    """Give half of the processors, at most four: with fewer than it counts on, llama.cpp falls to a tenth."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))


class LocalServer:
    """The child process. `command` begins its command line; `port` 0 takes any free one; `key` '' asks for none."""

    def __init__(
        self,
        weights: Weights,
        *,
        threads: int = 0,
        port: int = 0,
        key: str = "",
        command: Sequence[str] = CHILD,
    ) -> None:
        self.key = key
        self._arguments = [
            *command,
            *("--weights", str(weights.path), "--sha256", weights.sha256, "--size", str(weights.size_bytes)),
            *("--threads", str(threads or default_threads()), "--port", str(port)),
        ]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> str:
        """Start the process and give its address once the weights are loaded. Raises: ModelUnreachable."""
        self._process = process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for Duet, which then stops the child in order
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{self.key}\n".encode())  # not an argument: those can be read by everybody
            async with asyncio.timeout(START_TIMEOUT_S):
                line = await process.stdout.readline()
            said = json.loads(line or b"{}")
            address = said.get("ready")
            if not address:
                raise _cannot(said.get("fault") or "it ended without a word, perhaps for want of memory.")
        except (TimeoutError, ValueError, OSError) as error:
            await self.stop()
            raise _cannot(f"it did not come up within {START_TIMEOUT_S:g} s.") from error
        except (ModelError, asyncio.CancelledError):
            await self.stop()
            raise
        return str(address)

    async def wait(self) -> None:
        """Wait until the process ends."""
        if self._process is not None:
            await self._process.wait()

    async def stop(self) -> None:
        """End the process: by closing its input, then less politely."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        for signal in (None, SIGTERM, SIGKILL):
            with suppress(ProcessLookupError, TimeoutError):
                if signal is not None:
                    process.send_signal(signal)
                async with asyncio.timeout(3):
                    await process.wait()
                return


def _look_at(task: asyncio.Task[ChatModel]) -> None:
    if not task.cancelled():
        task.exception()


def _cannot(why: str) -> ModelUnreachable:
    mend = f" {INSTALL}" if "weights" in why else ""
    return ModelUnreachable(
        f"The built-in language model cannot start: {why}", detail=f"The built-in model cannot start: {why}{mend}"
    )


class LocalModel:
    """A ChatModel that starts its server at the first question, or at `warm`, and stops it with `aclose`.

    `weights` gives the file, or None where it is not installed; `client` makes the ChatModel for an address and a key.
    """

    name = f"{NAME} (built in)"
    profile = PROFILE

    def __init__(
        self,
        weights: Callable[[], Weights | None],
        client: Callable[[str, str], ChatModel],
        *,
        threads: int = 0,
        patience_s: float = 80.0,
        command: Sequence[str] | None = None,
    ) -> None:
        self._weights = weights
        self._client = client
        self._threads = threads
        self._patience_s = patience_s
        self._command = command
        self._server: LocalServer | None = None
        self._starting: asyncio.Task[ChatModel] | None = None
        self._warming: asyncio.Task[None] | None = None

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece, None]:
        """Give the reply in pieces. Raises: the ModelError family only."""
        model = await self._ready()
        async with aclosing(cast("AsyncGenerator[Piece, None]", model.stream(call))) as pieces:
            async for piece in pieces:
                yield piece

    def warm(self) -> None:
        """Start in the background, and read the fixed head of the prompt once, so that it is in the cache."""
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(), name="warming the built-in model")

    async def _warm(self) -> None:
        try:
            model = await self._ready()
            head = (*small_prompt.head(small_prompt.Task.ANSWER), ChatMessage("user", "Text:\n"))
            async for _ in model.stream(ModelCall(head, "", Findings(), 1)):
                pass
        except ModelError as error:
            log.warning("The built-in model is not ready: %s", error, extra={"action": "local_model_failed"})

    async def _ready(self) -> ChatModel:
        """Give the client of the running server; whoever comes while it starts waits for the same start."""
        if self._starting is None or (self._starting.done() and not (self._server and self._server.is_running)):
            await self._close_client()
            self._starting = asyncio.create_task(self._start(), name="starting the built-in model")
            self._starting.add_done_callback(_look_at)  # nobody may be waiting any more
        try:
            async with asyncio.timeout(self._patience_s):
                return await asyncio.shield(self._starting)
        except TimeoutError as error:
            raise ModelTimeout("The built-in language model is still starting. Try again in a moment.") from error

    async def _start(self) -> ChatModel:
        started = time.monotonic()
        weights = self._weights()
        if weights is None:
            raise _cannot("its weights are not installed.")
        if self._command is None and importlib.util.find_spec(RUNTIME) is None:
            raise _cannot(
                "its runtime is not installed. Install Duet with the extra `local`: pip install 'duet-bot[local]'."
            )
        key = secrets.token_urlsafe(24)
        self._server = LocalServer(weights, threads=self._threads, key=key, command=self._command or CHILD)
        address = await self._server.start()
        took = round((time.monotonic() - started) * 1000)
        log.info("Built-in model started", extra={"action": "local_model_started", "ms": took})
        return self._client(address, key)

    async def checks(self) -> list[Check]:
        """Start it if need be, and ask for one short reply."""
        try:
            model = await self._ready()
        except ModelError as error:
            mend = INSTALL if "weights" in error.room_text else "See docs/models.md."
            return [Check("language model", Health.FAIL, error.room_text, mend)]
        checks: list[Check] = await model.checks()  # type: ignore[attr-defined]  # the port lacks it; ours has it
        return checks

    async def _close_client(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None and starting.done() and not starting.cancelled() and starting.exception() is None:
            close = getattr(starting.result(), "aclose", None)
            if close is not None:
                await close()

    async def aclose(self) -> None:
        """Stop the server and whatever waits for it."""
        for task in (self._warming, self._starting):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._close_client()
        if self._server is not None:
            await self._server.stop()
            self._server = None


# The child.


def fault_of(weights: Weights, *, free_bytes: int | None) -> str | None:
    """Give the sentence why the weights cannot be loaded; None when they can."""
    try:
        size = weights.path.stat().st_size
    except OSError:
        return "its weights are missing."
    if size != weights.size_bytes:
        return f"its weights are not whole ({size:,} of {weights.size_bytes:,} bytes)."
    needed = size + MEMORY_BESIDE_WEIGHTS
    if free_bytes is not None and free_bytes < needed:
        return f"it needs {needed / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB are free."
    if not _is_verified(weights):
        return "its weights are not the pinned file: the SHA-256 differs."
    return None


def _is_verified(weights: Weights) -> bool:
    """Check the file's hash, once for each state of the file: 1.1 GB take seconds."""
    stat = weights.path.stat()
    state = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino} {weights.sha256}"
    stamp = weights.path.with_name(weights.path.name + ".verified")
    with suppress(OSError):
        if stamp.read_text("ascii") == state:
            return True
    with open(weights.path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != weights.sha256:
            return False
    with suppress(OSError):  # a read-only folder: it is hashed again next time
        stamp.write_text(state, "ascii")
    return True


def free_memory_bytes(root: Path = Path("/")) -> int | None:
    """Give what can be taken without swapping, inside a container's limit too; None where that cannot be read."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        group = root / "sys/fs/cgroup"
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return min(found, default=None)


def serve(weights: Weights, *, threads: int, port: int, key: str) -> Any:
    """Load the weights and give the server, which serves as long as it is kept. In the child only."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights.path)
    parameters.model_alias = [NAME] if isinstance(parameters.model_alias, (list, set)) else NAME
    parameters.n_ctx = PROFILE.context_tokens
    parameters.n_parallel = 1  # two at once would each be half as fast, and share the context
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.ui = False
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    if key:
        parameters.api_keys = [key]
    return xllamacpp.Server(parameters)


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the child: say how it went in one line, then serve until standard input closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the library prints is no answer
    key = sys.stdin.readline().strip()
    weights = Weights(given.weights, given.sha256, given.size)
    if fault := fault_of(weights, free_bytes=free_memory_bytes()):
        print(json.dumps({"fault": fault}), file=answers, flush=True)
        return 1
    server = serve(weights, threads=given.threads, port=given.port, key=key)
    print(json.dumps({"ready": f"{server.listening_address}/v1"}), file=answers, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    os._exit(main())  # the library's threads do not end by themselves
