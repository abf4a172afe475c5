"""What every reply has in common: faults as JSON, unknown paths, and how often and how long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from adapters.web.inbound import BadRequest, SlowBody
from bot.errors import Incident, StoreUnavailable, attempt

if TYPE_CHECKING:
    from adapters.web.metrics import Metrics

# Below these an unknown path is 404; every other unknown path is the page.
API_PREFIXES = ("/api/", "/v1/", "/static/")


def middleware(metrics: Metrics, show_page: Handler) -> Middleware:
    """Give the outermost middleware; `show_page` answers what nothing else does."""

    @web.middleware
    async def enveloped(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        outcome = await attempt(_answered(request, handler, show_page), where=f"answering {route_of(request)}")
        if isinstance(outcome, Incident):
            outcome = web.json_response({"error": outcome.text, "incident": outcome.id}, status=500)
        metrics.note_request(request.method, route_of(request), outcome.status, time.perf_counter() - began)
        return outcome

    return enveloped


def route_of(request: web.Request) -> str:
    """Give the route's pattern: never the path, which may hold a session's id."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else "other"


async def _answered(request: web.Request, handler: Handler, show_page: Handler) -> web.StreamResponse:
    """Run the handler; give expected faults as replies."""
    try:
        return await handler(request)
    except BadRequest as fault:
        return web.json_response({"error": "invalid request", "details": fault.details}, status=400)
    except SlowBody as fault:
        return _closing({"error": str(fault)}, 408)
    except StoreUnavailable:
        return web.json_response(
            {"error": "the database is not available; nothing was stored, try again"},
            status=503,
            headers={"Retry-After": "5"},
        )
    except web.HTTPRequestEntityTooLarge:
        return _closing({"error": "the body is too large"}, 413)
    except web.HTTPNotFound:
        return await _unknown(request, show_page)
    except web.HTTPMethodNotAllowed as fault:
        return _not_allowed(", ".join(sorted(fault.allowed_methods)))
    except web.HTTPException as fault:
        return web.json_response({"error": fault.reason}, status=fault.status)


async def _unknown(request: web.Request, show_page: Handler) -> web.StreamResponse:
    if f"{request.path}/".startswith(API_PREFIXES):
        return web.json_response({"error": "not found"}, status=404)
    return await show_page(request) if request.method in ("GET", "HEAD") else _not_allowed("GET, HEAD")


def _not_allowed(methods: str) -> web.Response:
    return web.json_response({"error": "method not allowed"}, status=405, headers={"Allow": methods})


def _closing(body: dict[str, str], status: int) -> web.Response:
    """Reply and close: what is left of the body is not worth waiting for."""
    response = web.json_response(body, status=status)
    response.force_close()
    return response
