"""A server on a free port, on the scripted core; nothing but HTTP between it and the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.web.app import WebFront
from bot.settings import Settings
from tests.adapters.web.fake_duet import FakeDuet


@asynccontextmanager
async def serving(duet: FakeDuet, *, extra_routes: Any = (), **settings: Any) -> AsyncIterator[str]:
    """Serve the core and give the address."""
    front = WebFront(duet, Settings(http_port=0, **settings), extra_routes=extra_routes)  # type: ignore[arg-type]
    await front.start()
    try:
        yield front.address
    finally:
        await front.close()
