"""The chat page and its files, and the login form: package data served from memory, by fixed names only."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING

from aiohttp import web

from adapters.web.guard import COOKIE, COOKIE_LIFE_S, Guard
from adapters.web.guesses import TooManyGuesses
from adapters.web.inbound import BODY_TIMEOUT_S, SlowBody

if TYPE_CHECKING:
    from collections.abc import Mapping

# By ending. What is not here is not part of the page.
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
MAX_LOGIN_BYTES = 4_096
WRONG = "That is not the token."
TOO_MANY = "Too many wrong tokens. Try again in {} seconds."


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page; `tag` changes with its bytes."""

    data: bytes
    media_type: str
    tag: str


def load_files() -> Mapping[str, StaticFile]:
    """Read the page's files out of the package."""
    folder = resources.files("adapters.web") / "static"
    return {
        file.name: _static(file.read_bytes(), media_type)
        for file in folder.iterdir()
        if (media_type := MEDIA_TYPES.get(PurePath(file.name).suffix))
    }


def _static(data: bytes, media_type: str) -> StaticFile:
    return StaticFile(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')


class Page:
    """The page's routes. `Range` is not honoured: a whole file is the right answer to any range, and a small one."""

    def __init__(self, guard: Guard, files: Mapping[str, StaticFile]) -> None:
        self._guard = guard
        self._files = files

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.show),
            web.get("/static/{name:[^/]+}", self.static),
            web.get("/login", self.login_form),
            web.post("/login", self.login),
            web.post("/logout", self.logout),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """Give the chat page, whatever the path."""
        return self._send(request, "page.html")

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._files or name.endswith(".html"):
            return web.json_response({"error": "not found"}, status=404)
        return self._send(request, name)

    async def login_form(self, request: web.Request) -> web.Response:
        if not self._guard.token:
            return _to("/")
        return self._send(request, "login.html")

    async def login(self, request: web.Request) -> web.Response:
        """Take the token out of the form and leave a cookie that proves it was shown."""
        given = await _form_token(request)
        try:
            if not (self._guard.token and self._guard.is_token(given, request)):
                return self._form_with(WRONG, status=401)
        except TooManyGuesses as fault:
            headers = {"Retry-After": str(fault.retry_after_s)}
            return self._form_with(TOO_MANY.format(fault.retry_after_s), status=429, headers=headers)
        response = _to("/")
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        response.set_cookie(
            COOKIE,
            self._guard.login_cookie(),
            max_age=COOKIE_LIFE_S,
            httponly=True,
            samesite="Strict",
            secure=secure,
        )
        return response

    async def logout(self, request: web.Request) -> web.Response:
        response = _to("/login")
        response.del_cookie(COOKIE)
        return response

    def _form_with(self, fault: str, *, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
        told = f'<p class="login-fault" role="alert">{fault}</p>'
        text = self._files["login.html"].data.decode().replace("<!-- fault -->", told)
        return web.Response(text=text, content_type="text/html", status=status, headers=headers)

    def _send(self, request: web.Request, name: str) -> web.Response:
        file = self._files[name]
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.data, content_type=file.media_type, charset="utf-8", headers=headers)


def _to(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})


async def _form_token(request: web.Request) -> str:
    """Give the form's token, or '' where there is none. Raises: SlowBody, HTTPRequestEntityTooLarge."""
    if (request.content_length or 0) > MAX_LOGIN_BYTES:
        raise web.HTTPRequestEntityTooLarge(MAX_LOGIN_BYTES, request.content_length or 0)
    if request.content_type != "application/x-www-form-urlencoded":
        return ""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            form = await request.post()
    except TimeoutError as error:
        raise SlowBody("the body did not arrive in time") from error
    except ValueError:
        return ""  # not UTF-8, or an unknown charset
    token = form.get("token", "")
    return token if isinstance(token, str) else ""
