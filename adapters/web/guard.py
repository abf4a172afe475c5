"""Who may call: the address listened on, `Host`, `Origin`, the token, and the headers that bind the browser.

Without a token only this machine may call, and only under this machine's names, so that neither a foreign page nor a
name re-bound to 127.0.0.1 can reach the API. With a token every caller shows it, in `Authorization` or through the
login form's cookie; both go through `Guard.caller`, the one place that decides.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from adapters.web.desk import CALLER
from adapters.web.guesses import Guesses, TooManyGuesses
from adapters.web.inbound import Caller
from bot.conversation import Author, Standing
from bot.errors import BadInput

log = logging.getLogger(__name__)

COOKIE = "duet_login"
COOKIE_LIFE_S = 30 * 86_400
LEAST_TOKEN_CHARS = 16

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Open without a token: what machines probe, the form itself, and what the form looks like.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login", "/openapi.json"})
PROBES = frozenset({"/healthz", "/readyz"})

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types duet"
)
# `no-referrer` would make the browser name the login form's own origin as `null`.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules for one server. `hosts` are further names that callers may use; `own_paths` check themselves."""

    listens_on: str
    token: str = ""
    hosts: tuple[str, ...] = ()
    own_paths: frozenset[str] = frozenset()
    now_ms: Callable[[], int] = field(kw_only=True)
    _guesses: Guesses = field(default_factory=Guesses)

    def check_settings(self) -> None:
        """Raises: BadInput where others could reach this server and nothing would ask who they are."""
        if is_loopback(self.listens_on):
            return
        if not self.token:
            raise BadInput(
                f"http.host {self.listens_on} can be reached by others: set http.token (DUET_HTTP_TOKEN) "
                "or listen on 127.0.0.1."
            )
        if len(self.token) < LEAST_TOKEN_CHARS:
            raise BadInput(f"http.token must have at least {LEAST_TOKEN_CHARS} characters beyond 127.0.0.1.")

    # ── Where from ────────────────────────────────────────────────────────────────────────────────────────────────

    def fault_of_host(self, request: web.Request) -> str | None:
        """Say what is wrong with `Host`, or None. A missing one is accepted on loopback."""
        host = request.headers.get("Host")
        if host is None:
            return None if is_loopback(self.listens_on) else "Host is missing"
        name = _host_name(host)
        if name is not None and self._knows(name):
            return None
        return "this Host is not known here: add it to http.hosts (DUET_HTTP_HOSTS) if it is yours"

    def fault_of_origin(self, request: web.Request) -> str | None:
        """Say what is wrong with where a state-changing request comes from, or None."""
        origin = request.headers.get("Origin")
        if origin is not None:
            own = _is_own(origin, request.headers.get("Host", ""))
            return None if own else "requests from other origins are refused"
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "requests from other sites are refused"
        # A browser always names the origin of such a request: a cookie without one is no page of ours.
        if self.token and "Authorization" not in request.headers and request.path != "/login":
            return "Origin is missing"
        return None

    def _knows(self, name: str) -> bool:
        if is_loopback(name) or name in self.hosts or name == self.listens_on:
            return True
        return not is_loopback(self.listens_on) and _is_address(name)

    # ── Who ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def caller(self, request: web.Request) -> Caller | None:
        """Give who calls, or None for a stranger. Raises: TooManyGuesses."""
        if not self.token:
            return Caller("local", Author("local", "Local user", Standing.LOCAL))
        if not (self.is_login(request.cookies.get(COOKIE, "")) or self._has_bearer(request)):
            return None
        holder = "token-" + hashlib.sha256(self.token.encode()).hexdigest()[:16]
        return Caller(holder, Author(holder, "Web user", Standing.MEMBER))

    def is_token(self, given: str, request: web.Request) -> bool:
        """Compare in constant time, whatever the lengths, and count what is wrong against the caller's address.

        Raises: TooManyGuesses, right or wrong; but nobody's guesses keep this machine's own programs out.
        """
        address, is_right = _address_of(request), hmac.compare_digest(_digest(given), _digest(self.token))
        if is_right and is_loopback(address):
            return True
        if wait_s := self._guesses.wait_s(address, self.now_ms()):
            raise TooManyGuesses(wait_s)
        if not is_right and self._guesses.note_wrong(address, self.now_ms()):
            log.warning("Takes no token from %s for a while: too many were wrong", address, extra={"action": "guesses"})
        return is_right

    def login_cookie(self) -> str:
        """Give a cookie that proves a login and holds nothing of the token: time, nonce, seal."""
        stamped = f"{self.now_ms() // 1000}.{secrets.token_hex(16)}"
        return f"{stamped}.{self._seal(stamped)}"

    def is_login(self, cookie: str) -> bool:
        stamped, _, seal = cookie.rpartition(".")
        if not hmac.compare_digest(_digest(seal), _digest(self._seal(stamped))):
            return False
        made_at_s = int(stamped.split(".")[0])  # sealed, so ours
        return self.now_ms() // 1000 - made_at_s < COOKIE_LIFE_S

    def _seal(self, text: str) -> str:
        return hmac.new(self.token.encode(), b"duet-login:" + text.encode(), hashlib.sha256).hexdigest()

    def _has_bearer(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip(), request)


def middleware(guard: Guard) -> Middleware:
    """Give the middleware that lets a request through only when the guard has nothing against it."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in guard.own_paths:
            return await handler(request)
        if request.path not in PROBES and (fault := guard.fault_of_host(request)):
            return refused(fault)
        if request.method not in SAFE_METHODS and (fault := guard.fault_of_origin(request)):
            return refused(fault)
        if _is_open(request.path):
            return await handler(request)
        try:
            caller = guard.caller(request)
        except TooManyGuesses as fault:
            return too_many(fault)
        if caller is None:
            return stranger(request)
        request[CALLER] = caller
        return await handler(request)

    return guarded


async def bind_browser(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every reply carries; nothing of ours is kept by caches unless it says so."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "duet"


def refused(fault: str) -> web.Response:
    return web.json_response({"error": fault}, status=403)


def stranger(request: web.Request) -> web.Response:
    """Send a person to the login form, a program a 401."""
    if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
        return web.Response(status=303, headers={"Location": "/login"})
    return web.json_response(
        {"error": "a token is needed: Authorization: Bearer …"}, status=401, headers={"WWW-Authenticate": "Bearer"}
    )


def too_many(fault: TooManyGuesses) -> web.Response:
    return web.json_response({"error": str(fault)}, status=429, headers={"Retry-After": str(fault.retry_after_s)})


def is_loopback(host: str) -> bool:
    name = host.strip("[]").lower()
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _address_of(request: web.Request) -> str:
    """Give where a request comes from: of one that a proxy on this machine passes on, what the proxy says of it."""
    address = request.remote or ""
    told = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    return told if is_loopback(address) and _is_address(told) else address


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/static/")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str | None:
    """Give the name out of a `Host` header, lower-cased, or None when it is none."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.netloc == host and "@" not in host else None
    except ValueError:
        return None


def _is_own(origin: str, host: str) -> bool:
    """Say whether an origin is this server's under the name it was called by; the scheme may be a proxy's."""
    try:
        theirs = urlsplit(origin)
        ours = urlsplit(f"{theirs.scheme}://{host}")
        default = {"http": 80, "https": 443}[theirs.scheme]
        return bool(ours.hostname) and (theirs.hostname, theirs.port or default) == (
            ours.hostname,
            ours.port or default,
        )
    except (KeyError, ValueError):  # `null`, or no address at all
        return False


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
