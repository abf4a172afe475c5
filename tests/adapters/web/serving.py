"""A server on a free port, on the scripted core, and a caller that holds every reply to the API's description."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema

from adapters.web.app import WebFront
from bot.settings import Settings
from tests.adapters.web.fake_duet import FakeDuet

DESCRIPTION = json.loads((Path(__file__).parents[3] / "adapters/web/openapi.json").read_text("utf-8"))


@dataclass(frozen=True)
class Reply:
    """What came back: `json` is None where it is no JSON."""

    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The server-sent events of the reply, in order."""
        found = re.findall(r"^event: (.*)\ndata: (.*)$", self.text, re.MULTILINE)
        return [(name, json.loads(data)) for name, data in found]


class Api:
    """Calls the server; each JSON reply must be as described. `headers` go with every call."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address = address
        self.headers: dict[str, str] = {}
        self._session = session

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        headers = self.headers | options.pop("headers", {})
        if body is not None:
            options["data"] = json.dumps(body) if not isinstance(body, bytes | str) else body
        request = self._session.request(method, self.address + path, headers=headers, allow_redirects=False, **options)
        async with request as response:
            reply = Reply(response.status, response.headers, await response.text())
        if response.content_type == "application/json":
            hold_to_description(method, path.split("?")[0], reply)
        return reply

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return await self.call("POST", path, body, **options)

    async def delete(self, path: str, **options: Any) -> Reply:
        return await self.call("DELETE", path, **options)


def hold_to_description(method: str, path: str, reply: Reply) -> None:
    """Fail unless the description knows this reply of this operation; unknown paths and methods are not described."""
    operation = _operation(method, path)
    if operation is None:
        assert 401 <= reply.status <= 413, f"{method} {path} is not described and answered {reply.status}"
        return
    described = operation["responses"].get(str(reply.status))
    assert described, f"{method} {path} answered {reply.status}, which is not described: {reply.text}"
    if "$ref" in described:
        described = DESCRIPTION["components"]["responses"][described["$ref"].rsplit("/", 1)[1]]
    schema = described["content"]["application/json"]["schema"]
    _validator(json.dumps(schema)).validate(reply.json)


def _operation(method: str, path: str) -> Any:
    for pattern, operations in DESCRIPTION["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path):
            return operations.get(method.lower())
    return None


@cache
def _validator(schema: str) -> Any:
    whole = json.loads(schema) | {"components": DESCRIPTION["components"]}
    return jsonschema.Draft202012Validator(whole)


@asynccontextmanager
async def serving(duet: Any, *, extra_routes: Any = (), links: Any = dict, **settings: Any) -> AsyncIterator[str]:
    """Serve the core and give the address."""
    front = WebFront(duet, Settings(http_port=0, **settings), extra_routes=extra_routes, links=links)
    await front.start()
    try:
        yield front.address
    finally:
        await front.close()


@asynccontextmanager
async def calling(duet: Any = None, **options: Any) -> AsyncIterator[Api]:
    """Serve the core (a scripted one, if none is given) and give a caller."""
    async with serving(duet or FakeDuet(), **options) as address, aiohttp.ClientSession() as session:
        yield Api(address, session)
