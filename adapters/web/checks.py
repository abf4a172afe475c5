"""What `duet doctor` looks at of HTTP: whether the address can be listened on, and whether it is safe to."""

from __future__ import annotations

import asyncio

from adapters.web.guard import Guard
from bot.checks import Check, Health
from bot.errors import BadInput
from bot.settings import Settings


async def checks(settings: Settings, *, offline: bool = False) -> list[Check]:
    """Give the check of the address that `duet serve` would listen on."""
    address = f"{settings.http_host}:{settings.http_port}"
    guard = Guard(settings.http_host, settings.http_token, settings.http_hosts, now_ms=lambda: 0)
    try:
        guard.check_settings()
    except BadInput as fault:
        return [Check("http", Health.FAIL, str(fault), "Set DUET_HTTP_TOKEN, or DUET_HTTP_HOST=127.0.0.1.")]
    try:
        server = await asyncio.start_server(lambda _, writer: writer.close(), settings.http_host, settings.http_port)
        server.close()
        await server.wait_closed()
    except (OSError, OverflowError) as error:
        mend = "Where `duet serve` runs already, all is well; else stop what holds the port, or set DUET_HTTP_PORT."
        return [Check("http", Health.WARN, f"{address} cannot be listened on: {error}", mend)]
    who = "callers need the token" if settings.http_token else "only this machine can call"
    return [Check("http", Health.OK, f"{address} is free; {who}")]
