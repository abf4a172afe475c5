"""The guard: who may call from where, what is too much, and what a browser is bound to."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from aiohttp import web

from adapters.web.guesses import MAX_ADDRESSES, MAX_WRONG, Guesses
from bot.errors import BadInput
from tests.adapters.web.fake_duet import FakeDuet
from tests.adapters.web.serving import Api, Reply, calling, serving

TOKEN = "correct horse battery staple"
QUESTION = {"sessionId": "s1", "message": "hotfixes?"}


async def raw(address: str, request: bytes, *, timeout_s: float = 10.0) -> bytes:
    """Send bytes as they are and give what comes back until the server closes."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(timeout_s):
        reply = await reader.read()
    writer.close()
    return reply


# ── Where one may listen ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
async def test_beyond_loopback_a_token_is_demanded_before_listening(host: str) -> None:
    for token in ("", "short"):
        with pytest.raises(BadInput, match=r"http\.token"):
            async with serving(FakeDuet(), http_host=host, http_token=token):
                pass


async def test_a_taken_address_is_told_in_a_sentence() -> None:
    async with serving(FakeDuet()) as address:
        port = int(address.rsplit(":", 1)[1])
        from adapters.web.app import WebFront
        from bot.settings import Settings

        second = WebFront(FakeDuet(), Settings(http_port=port))
        with pytest.raises(BadInput, match=r"cannot be listened on"):
            await second.start()


# ── Host and Origin ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "10.0.0.1", "["]
)
async def test_a_foreign_host_is_refused_so_that_no_name_can_be_rebound(api: Api, host: str) -> None:
    for method, path in (("POST", "/chat"), ("GET", "/history?sessionId=s1"), ("GET", "/")):
        reply = await api.call(method, path, QUESTION if method == "POST" else None, headers={"Host": host})
        assert reply.status == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "127.8.8.8", "[::1]:80", "LOCALHOST"])
async def test_this_machines_own_names_are_known(api: Api, host: str) -> None:
    assert (await api.get("/docs", headers={"Host": host})).status == 200


async def test_a_missing_host_is_accepted_on_loopback(api: Api) -> None:
    reply = await raw(api.address, b"GET /docs HTTP/1.0\r\n\r\n")
    assert reply.startswith(b"HTTP/1.0 200")


async def test_a_name_that_was_set_is_known() -> None:
    async with calling(http_hosts=("duet.example",)) as api:
        assert (await api.get("/docs", headers={"Host": "duet.example"})).status == 200
        headers = {"Host": "duet.example", "Origin": "https://duet.example"}
        assert (await api.post("/chat", QUESTION, headers=headers)).status == 200, "a proxy ended TLS before us"
        headers["Host"] = "duet.example:443"
        assert (await api.post("/chat", QUESTION, headers=headers)).status == 200
        headers["Host"] = "duet.example:8443"
        assert (await api.post("/chat", QUESTION, headers=headers)).status == 403


STATE_CHANGING = [
    ("POST", "/chat"),
    ("POST", "/reset?sessionId=s1"),
    ("POST", "/api/rooms/r1/message"),
    ("POST", "/api/rooms/r1/sandbox/exec"),
    ("DELETE", "/api/rooms/r1"),
    ("POST", "/v1/turns"),
    ("POST", "/v1/turns/t/stop?sessionId=s1"),
    ("POST", "/v1/turns/t/retry?sessionId=s1"),
    ("POST", "/v1/tickets/t"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/login"),
    ("POST", "/logout"),
]


@pytest.mark.parametrize(("method", "path"), STATE_CHANGING)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_foreign_origin_changes_nothing(
    api: Api, duet: FakeDuet, method: str, path: str, headers: dict[str, str]
) -> None:
    reply = await api.call(method, path, {"anything": 1}, headers=headers)
    assert reply.status == 403
    assert duet.heard == []


def test_no_state_changing_route_is_left_out() -> None:
    from tests.adapters.web.serving import DESCRIPTION

    described = {
        (method.upper(), path)
        for path, operations in DESCRIPTION["paths"].items()
        for method in operations
        if method != "get"
    }
    plain = {(method, path.split("?")[0]) for method, path in STATE_CHANGING}
    filled = {
        (method, path.replace("{id}", "r1" if "rooms" in path else "t").replace("{turnId}", "t"))
        for method, path in described
    }
    assert filled <= plain


async def test_the_own_page_and_programs_without_an_origin_may_call(api: Api) -> None:
    own = {"Origin": api.address, "Sec-Fetch-Site": "same-origin"}
    assert (await api.post("/chat", QUESTION, headers=own)).status == 200
    assert (await api.post("/chat", QUESTION)).status == 200


async def test_no_other_origin_is_ever_allowed_to_read(api: Api) -> None:
    for reply in (
        await api.get("/docs", headers={"Origin": "http://evil.example"}),
        await api.call("OPTIONS", "/chat", headers={"Origin": "http://evil.example"}),
    ):
        assert "Access-Control-Allow-Origin" not in reply.headers
        assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"


# ── The token ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def locked(duet: FakeDuet) -> AsyncIterator[Api]:
    async with calling(duet, http_token=TOKEN) as api:
        yield api


@asynccontextmanager
async def logged_in(api: Api) -> AsyncIterator[Api]:
    form = f"token={TOKEN.replace(' ', '+')}"
    reply = await api.post(
        "/login", form, headers={"Content-Type": "application/x-www-form-urlencoded", "Origin": api.address}
    )
    assert (reply.status, reply.headers["Location"]) == (303, "/")
    cookie = reply.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
    assert "correct" not in cookie
    api.headers = {"Cookie": cookie.split(";")[0], "Origin": api.address}
    yield api


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}"],
)
async def test_without_the_token_nothing_is_told(locked: Api, duet: FakeDuet, authorization: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for method, path in (("POST", "/chat"), ("GET", "/history?sessionId=s"), ("GET", "/health"), ("GET", "/metrics")):
        reply = await locked.call(method, path, QUESTION if method == "POST" else None, headers=headers)
        assert reply.status in (401, 403)
    assert duet.heard == []


async def test_no_other_header_or_query_stands_in_for_the_token(locked: Api) -> None:
    for headers in ({"X-Api-Key": TOKEN}, {"X-Token": TOKEN}, {"Cookie": f"duet_login={TOKEN}"}):
        assert (await locked.get("/docs", headers=headers)).status == 401
    assert (await locked.get(f"/docs?token={TOKEN}")).status == 401


async def test_the_token_opens_every_route(locked: Api) -> None:
    locked.headers = {"Authorization": f"Bearer {TOKEN}"}
    assert (await locked.post("/chat", QUESTION)).status == 200
    assert (await locked.get("/metrics")).status == 200


async def test_the_login_form_gives_a_cookie_that_holds_no_token(locked: Api) -> None:
    async with logged_in(locked) as api:
        assert (await api.get("/docs")).status == 200
        assert (await api.post("/chat", QUESTION)).status == 200


async def test_a_cookie_without_an_origin_changes_nothing(locked: Api) -> None:
    async with logged_in(locked) as api:
        del api.headers["Origin"]
        assert (await api.post("/chat", QUESTION)).status == 403


async def test_a_forged_or_old_cookie_is_none(locked: Api, duet: FakeDuet) -> None:
    from adapters.web.guard import Guard

    now = [1_000_000_000_000]
    guard = Guard("127.0.0.1", TOKEN, now_ms=lambda: now[0])
    cookie = guard.login_cookie()
    assert guard.is_login(cookie)
    stamp, nonce, seal = cookie.split(".")
    assert not guard.is_login(f"{int(stamp) + 1}.{nonce}.{seal}")
    assert not guard.is_login(f"{stamp}.{nonce}.{'0' * 64}")
    assert not Guard("127.0.0.1", "another token entirely", now_ms=lambda: now[0]).is_login(cookie)
    for odd in ("", ".", "..", "a.b", "é.é.é", "x" * 5_000):
        assert not guard.is_login(odd)
    now[0] += 31 * 86_400_000
    assert not guard.is_login(cookie)


@pytest.mark.parametrize("form", ["token=wrong", "", "token=", "other=1", "token=%ff", "token=" + "x" * 5_000])
async def test_a_wrong_token_in_the_form_is_told_and_gives_no_cookie(locked: Api, form: str) -> None:
    reply = await locked.post("/login", form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert reply.status in (401, 413)
    assert "Set-Cookie" not in reply.headers


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ELSEWHERE = {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}


async def guess(api: Api, way: str, token: str, headers: Mapping[str, str]) -> Reply:
    if way == "form":
        return await api.post("/login", f"token={quote(token)}", headers=FORM | dict(headers))
    return await api.get("/docs", headers={"Authorization": f"Bearer {token}", **headers})


@pytest.mark.parametrize("way", ["form", "authorization"])
async def test_guessing_the_token_is_slowed_for_each_address(locked: Api, way: str) -> None:
    statuses = [(await guess(locked, way, f"wrong {n}", ELSEWHERE)).status for n in range(MAX_WRONG + 2)]
    assert statuses == [401] * MAX_WRONG + [429] * 2
    for other in ("form", "authorization"):
        told = await guess(locked, other, TOKEN, ELSEWHERE)
        assert (told.status, 0 < int(told.headers["Retry-After"]) <= 60) == (429, True), "or guessing went on unslowed"
    assert (await guess(locked, way, TOKEN, {"X-Forwarded-For": "198.51.100.8"})).status in (200, 303)
    assert (await locked.get("/healthz", headers={"Authorization": "Bearer wrong", **ELSEWHERE})).status == 200


async def test_wrong_tokens_keep_nobody_out_who_is_on_this_machine_or_logged_in(locked: Api) -> None:
    async with logged_in(locked) as api:
        cookie = dict(api.headers)
    locked.headers = {}
    for headers in ({}, ELSEWHERE):
        for n in range(MAX_WRONG + 1):
            last = await guess(locked, "authorization", f"wrong {n}", headers)
        assert last.status == 429
    assert (await guess(locked, "authorization", TOKEN, {})).status == 200
    assert (await guess(locked, "form", TOKEN, {})).status == 303
    assert (await locked.get("/docs", headers=cookie | ELSEWHERE)).status == 200


def test_wrong_tokens_are_forgotten_after_a_minute_and_take_little_memory() -> None:
    guesses = Guesses()
    for _ in range(MAX_WRONG):
        guesses.note_wrong("2001:db8::1", 0)
    assert guesses.wait_s("2001:db8::ffff", 15_000) == 45, "of one customer's addresses each is as good as another"
    assert guesses.wait_s("2001:db8:1::1", 15_000) == 0
    assert guesses.wait_s("2001:db8::1", 60_000) == 0
    assert guesses.wait_s("2001:db8::1", -1) == 0, "a clock that was set back keeps nobody out"
    for n in range(5_000):
        guesses.note_wrong(f"10.0.{n // 250}.{n % 250}", 70_000)
    assert len(guesses._windows) == MAX_ADDRESSES


async def test_a_person_is_led_to_the_form_and_out_again(locked: Api) -> None:
    reply = await locked.get("/", headers={"Accept": "text/html"})
    assert (reply.status, reply.headers["Location"]) == (303, "/login")
    form = await locked.get("/login")
    assert 'name="token" type="password"' in form.text
    async with logged_in(locked) as api:
        out = await api.post("/logout")
        assert (out.status, out.headers["Location"]) == (303, "/login")
        assert "Max-Age=0" in out.headers["Set-Cookie"]


async def test_sessions_are_bound_to_the_holder_of_the_token(duet: FakeDuet) -> None:
    async with calling(duet) as api:
        await api.post("/chat", QUESTION)
    for token in (TOKEN, TOKEN + " two"):
        async with calling(duet, http_token=token) as api:
            api.headers = {"Authorization": f"Bearer {token}"}
            assert (await api.get("/history?sessionId=s1")).json["messages"] == []
            await api.post("/chat", QUESTION)
            assert len((await api.get("/history?sessionId=s1")).json["messages"]) == 2


async def test_a_token_holder_may_claim_a_name_but_no_id(locked: Api, duet: FakeDuet) -> None:
    locked.headers = {"Authorization": f"Bearer {TOKEN}"}
    await locked.post("/api/rooms/r1/message", {"text": "hi", "userId": "U_ADMIN"})
    author = duet.heard[0].author
    assert author.name == "U_ADMIN"
    assert author.id != "U_ADMIN"


async def test_machines_are_told_alive_and_ready_without_a_token(locked: Api) -> None:
    assert (await locked.get("/healthz")).text == "ok"
    assert (await locked.get("/readyz", headers={"Host": "10.1.2.3:8787"})).status == 200


# ── Too much ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_body_over_a_megabyte_is_refused_whether_its_length_is_told_or_not(api: Api, duet: FakeDuet) -> None:
    big = b'{"sessionId": "s1", "message": "' + b"x" * 1_100_000 + b'"}'
    assert (await api.call("POST", "/chat", data=io.BytesIO(big))).status == 413

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 65_536):
            yield big[start : start + 65_536]

    async with calling(duet) as fresh, fresh._session.post(fresh.address + "/chat", data=chunks()) as response:
        assert response.status == 413
    assert duet.heard == []


async def test_a_packed_body_is_held_to_its_unpacked_size(api: Api) -> None:
    import zlib

    bomb = zlib.compress(b'{"message": "' + b"x" * 50_000_000 + b'"}', 9)
    reply = await api.post("/chat", bomb, headers={"Content-Encoding": "deflate"})
    assert reply.status == 413


async def test_a_slow_body_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.web import inbound

    monkeypatch.setattr(inbound, "BODY_TIMEOUT_S", 0.2)
    head = b"POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    reply = await raw(api.address, head, timeout_s=5)
    assert reply.startswith(b"HTTP/1.1 408")


async def test_slow_heads_are_given_up(duet: FakeDuet, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.web import app

    monkeypatch.setattr(app, "KEEP_ALIVE_S", 0.3)
    async with serving(duet) as address:
        assert await raw(address, b"GET / HTTP/1.1\r\nHost: local", timeout_s=5) == b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    ],
)
async def test_a_head_that_is_too_large_or_no_head_is_a_400(
    api: Api, head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await raw(api.address, head)
    assert caplog.records == [], "whoever sends rubbish must not fill the log"
    assert reply.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 403")), reply[:60]


async def test_a_range_bomb_gets_one_small_file(api: Api) -> None:
    ranges = "bytes=" + ",".join("0-" for _ in range(1_200))
    reply = await api.get("/static/page.css", headers={"Range": ranges})
    assert reply.status == 200
    assert len(reply.text) < 60_000


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/..%5capp.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/static//etc/passwd",
        "/static/page.css%00.html",
        "/static/page.html",
        "/static/login.html",
        "/static/",
        "/..%2f..%2fetc/passwd",
    ],
)
async def test_no_path_leads_out_of_the_pages_files(api: Api, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    reply = await raw(api.address, head)
    assert b"root:" not in reply
    assert b"WebFront" not in reply
    assert reply.split(b" ")[1] in (b"404", b"200")
    if path.startswith("/static") and b"passwd" not in head:
        assert reply.split(b" ")[1] == b"404" or b"<!doctype html>" in reply


# ── The browser ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_reply_binds_the_browser(api: Api) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/docs"),
        ("POST", "/chat"),
        ("GET", "/static/page.js"),
        ("GET", "/api/x"),
    ):
        reply = await api.call(method, path, QUESTION if method == "POST" else None)
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "Python" not in reply.headers["Server"]
    streamed = await api.post("/v1/turns", QUESTION)
    assert "default-src 'none'" in streamed.headers["Content-Security-Policy"]


async def test_what_was_said_is_kept_by_no_cache_and_the_page_only_by_its_tag(api: Api) -> None:
    assert (await api.get("/history?sessionId=s1")).headers["Cache-Control"] == "no-store"
    page = await api.get("/static/page.js")
    assert page.headers["Cache-Control"] == "no-cache"
    again = await api.get("/static/page.js", headers={"If-None-Match": page.headers["ETag"]})
    assert again.status == 304


# ── Routes of others ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_route_that_checks_its_callers_itself_is_served_beside(duet: FakeDuet) -> None:
    async def events(request: web.Request) -> web.Response:
        return web.Response(text=(await request.read()).decode())

    async with calling(duet, extra_routes=[("POST", "/slack/events", events)], http_token=TOKEN) as api:
        reply = await api.post("/slack/events", "signed", headers={"Host": "duet.example"})
        assert (reply.status, reply.text) == (200, "signed")
        assert (await api.get("/docs")).status == 401
