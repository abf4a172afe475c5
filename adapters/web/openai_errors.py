"""Faults in the shape that clients of the OpenAI kind read: one object under `error`, whatever went wrong where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

PREFIXES = ("/v1/chat/", "/v1/models/")
KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


@web.middleware
async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Re-tell our own faults on the routes that such clients call; status and headers stay."""
    response = await handler(request)
    is_theirs = f"{request.path}/".startswith(PREFIXES)
    if is_theirs and response.status >= 400 and isinstance(response, web.Response):
        response.text = json.dumps(_retold(response.status, json.loads(response.text or "{}")))
    return response


def _retold(status: int, ours: Mapping[str, Any]) -> dict[str, Any]:
    details: Mapping[str, list[str]] = ours.get("details", {})
    faults = [f"{name}: {', '.join(said)}" for name, said in details.items()]
    incident = [f"incident {ours['incident']}"] if ours.get("incident") else []
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    message = " · ".join([str(ours.get("error", "")), *faults, *incident])
    return {"error": {"message": message, "type": kind, "param": next(iter(details), None), "code": None}}
