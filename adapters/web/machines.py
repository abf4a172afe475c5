"""What machines ask: alive, ready, how it goes, and what can be asked here."""

from __future__ import annotations

from importlib import resources

from aiohttp import web

from adapters.web.desk import Desk
from adapters.web.metrics import Metrics
from bot.errors import StoreUnavailable


def routes(desk: Desk, metrics: Metrics) -> list[web.RouteDef]:
    """Give the routes of health, metrics and the API's description."""
    description = (resources.files("adapters.web") / "openapi.json").read_bytes()

    async def health(request: web.Request) -> web.Response:
        status = await desk.duet.status()
        return web.json_response({"status": "ok", "model": status.model, "documents": status.documents})

    async def alive(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        checks = await _checks(desk)
        is_ready = all(checks.values())
        return web.json_response({"ready": is_ready, "checks": checks}, status=200 if is_ready else 503)

    async def measure(request: web.Request) -> web.Response:
        status = await desk.duet.status()
        body, content_type = metrics.render(status, desk.links(), open_streams=desk.streams.open)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def describe(request: web.Request) -> web.Response:
        return web.Response(body=description, content_type="application/json", charset="utf-8")

    return [
        web.get("/health", health),
        web.get("/healthz", alive),
        web.get("/readyz", ready),
        web.get("/metrics", measure),
        web.get("/openapi.json", describe),
    ]


async def _checks(desk: Desk) -> dict[str, bool]:
    """Look at what must stand before anybody is sent here: the store, the index, each platform's connection."""
    links = {name: link.is_up for name, link in sorted(desk.links().items())}
    try:
        status = await desk.duet.status()
    except StoreUnavailable:
        return {"store": False, "index": False, **links}
    return {"store": True, "index": status.documents > 0, **links}
