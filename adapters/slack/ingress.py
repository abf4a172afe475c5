"""Signed HTTP events: what comes to `/slack/events` is Slack's, fresh and unchanged, or it is refused with 401.

https://docs.slack.dev/authentication/verifying-requests-from-slack
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from aiohttp import web
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_sdk.signature import SignatureVerifier

MAX_BODY_BYTES = 1_048_576
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def events_handler(app: AsyncApp, signing_secret: str) -> Handler:
    """Give the handler for the program's own web server. Raises: ValueError without a signing secret."""
    if not signing_secret:
        raise ValueError("HTTP events need SLACK_SIGNING_SECRET (Basic Information > App Credentials)")
    verifier = SignatureVerifier(signing_secret)

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        if body is None:
            return web.Response(status=413)
        # Bolt would answer a timestamp that is no number with a traceback, and log the body of a bad signature.
        timestamp = request.headers.get("X-Slack-Request-Timestamp", "")
        signature = request.headers.get("X-Slack-Signature", "")
        if not re.fullmatch(r"[0-9]{1,12}", timestamp) or not signature.isascii():
            return web.Response(status=401)
        if not verifier.is_valid(body, timestamp, signature):
            return web.Response(status=401)
        text = body.decode("utf-8", "replace")
        if not _is_payload(text, request.content_type):
            return web.Response(status=400)
        said = await app.async_dispatch(AsyncBoltRequest(body=text, headers=dict(request.headers), mode="http"))
        response = web.Response(status=said.status, text=said.body)
        for name, values in said.headers.items():
            if name.lower() == "content-type":
                response.headers["Content-Type"] = values[0]
        return response

    return handle


def _is_payload(text: str, content_type: str) -> bool:
    """Tell whether Bolt can read it: a JSON object, or a form whose `payload`, if it has one, is such."""
    if content_type != "application/json":
        fields = dict(parse_qsl(text, keep_blank_values=True))
        if "payload" not in fields:
            return True
        text = fields["payload"]
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


async def _body(request: web.Request) -> bytes | None:
    if (request.content_length or 0) > MAX_BODY_BYTES:
        return None
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        return None
