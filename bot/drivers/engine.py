"""The Docker engine's door: own threads, a watch that notices when it is gone or hangs, and a circuit breaker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bot.drivers.ssh_bridge import SshBridge
from bot.errors import SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0  # a start may queue behind many on a busy machine; an engine that hangs is noticed by the watch
PODMANS_CONFLICTS = ("is already in use", "container state improper", "is not running")  # it calls them 500
TESTED_API_VERSION = "1.41"
WATCH_EVERY_S = 1.0
PING_TIMEOUT_S = 3.0  # with WATCH_EVERY_S it keeps the promise that a hung engine is noticed within 5 s
CLOSED_FOR_S = (0.25, 0.5, 1.0, 2.0)  # how long calls fail at once after the first, second … fault in a row

START_MEND = "Start Docker, or set DOCKER_HOST to a running engine; `duet doctor` looks again."


class NotThere(Exception):
    """The engine has no such container, image or exec."""


class InTheWay(Exception):
    """The engine will not do it in the present state: name taken, not running, paused."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the engine listens. `certificates` is the folder of ca.pem, cert.pem and key.pem, or ''."""

    url: str = ""
    tls_verify: bool = False
    certificates: str = ""

    def resolved(self) -> str:
        """Give the address, or the first local socket that exists where none was set."""
        if self.url:
            return self.url
        home = Path.home()
        run = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
        places = (
            Path("/var/run/docker.sock"),
            run / "docker.sock",
            home / ".docker/run/docker.sock",
            home / ".colima/default/docker.sock",
            run / "podman/podman.sock",
        )
        return f"unix://{next((place for place in places if place.exists()), places[0])}"


class Engine:
    """Calls on the engine, made from the loop and run in threads of its own.

    Every call ends within 5 s of the engine's going away: while calls are in flight it is pinged each second. After a
    fault calls fail at once for a moment (the circuit is open), and the first one after that finds out. `epoch` goes
    up each time the engine comes back: what ran before may have been lost.
    """

    def __init__(self, address: Address, *, streams: int) -> None:
        self._address = address
        self._calls = ThreadPoolExecutor(8, thread_name_prefix="engine-call")
        # A stream holds its thread as long as its command runs: they must not starve the short calls.
        self._streams = ThreadPoolExecutor(streams + 4, thread_name_prefix="engine-stream")
        self._local = threading.local()
        self._pings = ThreadPoolExecutor(2, thread_name_prefix="engine-ping", initializer=self._be_short)
        self._clients: set[APIClient] = set()
        self._version: str | None = None
        self._bridge: SshBridge | None = None
        self._bridge_lock = threading.Lock()
        self._in_flight: dict[asyncio.Future[None], Callable[[], None] | None] = {}
        self._watch: asyncio.Task[None] | None = None
        self._faults = 0
        self._shut_until = 0.0
        self._reason = ""
        self._is_closed = False
        self.epoch = 0
        self.is_podman = False

    async def call(self, work: Callable[[APIClient], T], *, limit_s: float = CALL_TIMEOUT_S) -> T:
        """Run `work` in a thread. Raises: SandboxUnavailable, NotThere, InTheWay."""
        return await self._guarded(self._calls, work, limit_s, None)

    async def stream(self, work: Callable[[APIClient], T], *, limit_s: float, abort: Callable[[], None]) -> T:
        """Run `work`, which may take long; `abort` makes it end, on cancelling and when the engine is gone."""
        return await self._guarded(self._streams, work, limit_s, abort)

    async def ping(self) -> None:
        """Find out whether the engine answers, whatever the circuit says. Raises: SandboxUnavailable."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self._in_pool(self._pings, lambda api: api.ping())
        except (TimeoutError, SandboxUnavailable) as error:
            raise self._trip(error) from error
        self._recover()

    def close(self) -> None:
        """Let the threads end; calls that hang in them are left to their own time limits."""
        self._is_closed = True
        if self._watch:
            self._watch.cancel()
        for pool in (self._calls, self._streams, self._pings):
            pool.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.copy():
            client.close()
        if self._bridge:
            self._bridge.close()

    async def _guarded(
        self, pool: ThreadPoolExecutor, work: Callable[[APIClient], T], limit_s: float, abort: Callable[[], None] | None
    ) -> T:
        await self._admit()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight[gone] = abort
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_engine())
        job = self._in_pool(pool, work)
        try:
            waited: set[asyncio.Future[Any]] = {job, gone}
            await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            return await self._outcome(job, gone, limit_s)
        except asyncio.CancelledError:
            if abort:
                abort()
            raise
        finally:
            self._in_flight.pop(gone, None)
            gone.cancel()
            job.add_done_callback(_forget)

    async def _outcome(self, job: asyncio.Future[T], gone: asyncio.Future[None], limit_s: float) -> T:
        if gone.done():  # first: an aborted job is done too, and its end is no sign of life
            gone.result()
        if job.done():
            try:
                result = job.result()
            except SandboxUnavailable as error:
                await self.ping()  # trips the circuit if the engine is really gone
                raise error
            self._recover()
            return result
        raise SandboxUnavailable(f"The Docker engine did not finish in {limit_s:g} s.", mend=START_MEND)

    def _in_pool(self, pool: ThreadPoolExecutor, work: Callable[[APIClient], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, self._translated, work)

    async def _admit(self) -> None:
        """Let a call pass. While the circuit is open it fails at once; after that one ping decides."""
        if not self._faults:
            return
        if time.monotonic() < self._shut_until:
            raise self._unavailable()
        await self.ping()

    async def _watch_engine(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            if not self._in_flight:
                return
            try:
                await self.ping()
            except SandboxUnavailable:
                return

    def _trip(self, error: Exception) -> SandboxUnavailable:
        """Open the circuit, end every call in flight, and give the error to raise."""
        self._reason = _reason(error)
        if not self._faults:
            log.warning("The Docker engine is not usable: %s", self._reason, extra={"action": "engine_lost"})
        self._faults += 1
        self._shut_until = time.monotonic() + CLOSED_FOR_S[min(self._faults, len(CLOSED_FOR_S)) - 1]
        self._version = None  # another engine may come back
        for gone, abort in list(self._in_flight.items()):
            if abort:
                abort()
            if not gone.done():
                gone.set_exception(self._unavailable())
                gone.exception()  # seen: a call that is past waiting must not warn
        return self._unavailable()

    def _recover(self) -> None:
        if self._faults:
            self._faults = 0
            self.epoch += 1
            log.info("The Docker engine is back", extra={"action": "engine_back"})

    def _unavailable(self) -> SandboxUnavailable:
        return SandboxUnavailable(f"The Docker engine cannot be used: {self._reason}.", mend=START_MEND)

    # From here on in the threads.

    def _translated(self, work: Callable[[APIClient], T]) -> T:
        """Run `work`; every fault of docker-py, requests and the socket comes out as one of three."""
        import requests
        from docker.errors import APIError, DockerException, NotFound

        try:
            return work(self._client())
        except NotFound as error:
            raise NotThere(str(error.explanation or error)) from error
        except APIError as error:
            if error.status_code == 409 or any(words in str(error) for words in PODMANS_CONFLICTS):
                raise InTheWay(str(error.explanation or error)) from error
            raise SandboxUnavailable(f"The Docker engine refused: {error.explanation or error}") from error
        except (DockerException, requests.RequestException, OSError) as error:
            self._drop_client()
            raise SandboxUnavailable(_reason(error), mend=START_MEND) from error
        finally:
            if self._is_closed:  # a call that hung until after the end
                self._drop_client()

    def _client(self) -> APIClient:
        """Give this thread's client: docker-py promises nothing about sharing one."""
        if getattr(self._local, "client", None) is None:
            self._local.client = self._made(getattr(self._local, "timeout_s", CALL_TIMEOUT_S))
            self._clients.add(self._local.client)
        client: APIClient = self._local.client
        return client

    def _drop_client(self) -> None:
        client: APIClient | None = getattr(self._local, "client", None)
        self._local.client = None
        if client is not None:
            self._clients.discard(client)
            client.close()

    def _made(self, timeout_s: float) -> APIClient:
        from docker.constants import MINIMUM_DOCKER_API_VERSION
        from docker.tls import TLSConfig

        options: dict[str, Any] = {"base_url": self._url(), "timeout": timeout_s, "max_pool_size": 2}
        if self._address.tls_verify or self._address.certificates:
            folder = Path(self._address.certificates or Path.home() / ".docker")
            options["tls"] = TLSConfig(
                client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
                ca_cert=str(folder / "ca.pem"),
                verify=self._address.tls_verify,
            )
        if self._version is None:
            with contextlib.closing(_client(MINIMUM_DOCKER_API_VERSION, options)) as asking:
                seen: dict[str, Any] = asking.version(api_version=False)
            self.is_podman = any(one.get("Name") == "Podman Engine" for one in seen.get("Components") or ())
            self._version = _spoken(seen)
        return _client(self._version, options)

    def _url(self) -> str:
        """Give the address for docker-py; an ssh one is bridged to a local socket by the ssh program."""
        url = self._address.resolved()
        if not url.startswith("ssh://"):
            return url
        with self._bridge_lock:
            self._bridge = self._bridge or SshBridge(url)
            return self._bridge.url

    def _be_short(self) -> None:
        """Make this thread's client give up early, at its first question too: two pings that hang would block all."""
        self._local.timeout_s = PING_TIMEOUT_S


def _client(version: str, options: dict[str, Any]) -> APIClient:
    """Make a client without asking the engine anything yet."""
    from docker import APIClient

    client = APIClient(version=version, **options)
    if (url := options["base_url"]).startswith("unix://"):
        from bot.drivers.unix_transport import mount

        mount(client, url, timeout_s=options["timeout"], pool_size=options["max_pool_size"])
    # The engine is not reached through the web's proxy, nor checked against the web's authorities.
    client.trust_env = False
    return client


def _spoken(seen: dict[str, Any]) -> str:
    """Give the API version to speak: what was tested, or the nearest that the engine speaks."""

    def number(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split("."))

    newest, oldest = str(seen["ApiVersion"]), str(seen.get("MinAPIVersion") or seen["ApiVersion"])
    return min(newest, max(oldest, TESTED_API_VERSION, key=number), key=number)


def _forget(job: asyncio.Future[Any]) -> None:
    """Look at the outcome of a call that nobody waits for, so that it is not reported as unseen."""
    if not job.cancelled():
        job.exception()


def _reason(error: Exception) -> str:
    """Give the innermost cause in few words: docker-py wraps it three times."""
    if isinstance(error, SandboxUnavailable):
        return error.reason
    if isinstance(error, TimeoutError):
        return "it does not answer"
    seen: BaseException = error
    while seen.__cause__ or seen.__context__:
        seen = seen.__cause__ or seen.__context__ or seen
    if isinstance(seen, FileNotFoundError):
        return "there is no socket at its address"
    if isinstance(seen, ConnectionRefusedError):
        return "nothing listens at its address"
    if isinstance(seen, TimeoutError):
        return "it does not answer in time"
    return str(seen).strip(" .") or type(seen).__name__
