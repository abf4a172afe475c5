"""The HTTP front: builds the application, starts and stops the server."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from adapters.web import (
    desk as desks,
)
from adapters.web import (
    envelope,
    machines,
    openai_api,
    openai_errors,
    reading,
    routes_copilot,
    routes_duet,
    turns,
)
from adapters.web import (
    guard as guards,
)
from adapters.web import (
    page as pages,
)
from adapters.web.metrics import Metrics
from bot.checks import Link
from bot.errors import BadInput

if TYPE_CHECKING:
    from bot.duet import Duet
    from bot.settings import Settings

MAX_BODY_BYTES = 1_048_576
MAX_LINE_BYTES = 8_190
MAX_HEADERS = 64
# Also how long a connection may take to send its first whole head: slow heads end here.
KEEP_ALIVE_S = 30.0
SHUTDOWN_S = 5.0
# How long a refused body may still trickle in before the connection is cut.
LINGER_S = 1.0

# A route that another front serves under this server, as Slack's signed events: it checks its callers itself.
ExtraRoute = tuple[str, str, Handler]


class WebFront:
    """Duet over HTTP.

    `new_id` gives unguessable ids (128 bits), `now_ms` UTC milliseconds; `links` gives each platform's connection, for
    `/readyz` and `/metrics`.
    """

    def __init__(
        self,
        duet: Duet,
        settings: Settings,
        *,
        extra_routes: Sequence[ExtraRoute] = (),
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        links: Callable[[], Mapping[str, Link]] = dict,
    ) -> None:
        self._settings = settings
        self._streams = desks.Streams()
        self._guard = guards.Guard(
            settings.http_host,
            settings.http_token,
            settings.http_hosts,
            frozenset(path for _, path, _ in extra_routes),
            now_ms=now_ms,
        )
        desk = desks.Desk(duet, new_id, now_ms, self._streams, links)
        self._runner = web.AppRunner(
            build_app(desk, self._guard, extra_routes),
            access_log=None,  # addresses hold session ids, which are keys
            logger=_wire_log(),
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_S,
            shutdown_timeout=SHUTDOWN_S,
        )

    async def start(self) -> None:
        """Listen. Raises: BadInput when the address is taken, not ours, or open to others without a token."""
        self._guard.check_settings()
        host, port = self._settings.http_host, self._settings.http_port
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            raise BadInput(
                f"{host}:{port} cannot be listened on ({error}): stop what holds it, or set http.host and http.port."
            ) from error

    async def close(self) -> None:
        """End the open streams (their turns go on) and stop listening."""
        self._streams.closing.set()
        await self._runner.cleanup()

    @property
    def address(self) -> str:
        """The address listened on, as `http://127.0.0.1:8787`; '' before `start`."""
        for host, port, *_ in self._runner.addresses:
            return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        return ""


def _wire_log() -> logging.Logger:
    """Give the server a log of its own: what is no HTTP was answered with 400, and is no error of ours to log."""
    wire = logging.Logger(f"{__name__}.wire")
    wire.parent = logging.getLogger(__name__)
    wire.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return wire


def build_app(desk: desks.Desk, guard: guards.Guard, extra_routes: Sequence[ExtraRoute] = ()) -> web.Application:
    """Give the application with every route, guarded."""
    metrics = Metrics()
    page = pages.Page(guard, pages.load_files())
    app = web.Application(
        client_max_size=MAX_BODY_BYTES,
        middlewares=[
            openai_errors.middleware,
            envelope.middleware(metrics, page.show),
            guards.middleware(guard),
        ],
    )
    app.on_response_prepare.append(guards.bind_browser)
    app.add_routes(
        [
            *routes_copilot.routes(desk),
            *routes_duet.routes(desk),
            *turns.routes(desk),
            *reading.routes(desk),
            *openai_api.routes(desk),
            *machines.routes(desk, metrics),
            *page.routes(),
            *(web.route(method, path, handler) for method, path, handler in extra_routes),
        ]
    )
    return app
