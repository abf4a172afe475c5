"""Slack, as far as Duet can tell: Web API, Socket Mode and signed HTTP events, with the faults of the real one.

One port: `/api/<method>`, `/link/<ticket>` (WebSocket), `/upload/<id>`, `/files/<id>`, `/respond/<id>`. Outgoing calls
and emitted events are held to schemas made from Slack's own types; what is wrong stands in `violations`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import json
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import WSMsgType, web

from tests.doubles import slack_contract as contract

TEAM, BOT_USER, BOT_ID, APP = "T0DUETTEAM", "U0DUETBOT0", "B0DUETBOT0", "A0DUETAPP0"
BOT_TOKEN, APP_TOKEN, SECRET = "xoxb-duet-test-token", "xapp-1-duet-test-token", "duet-signing-secret"

# Method -> the scope it needs. https://docs.slack.dev/reference/methods
SCOPES = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "users.info": "users:read",
    "conversations.replies": "channels:history",
    "conversations.history": "channels:history",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
    "files.delete": "files:write",
    "files.info": "files:read",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "assistant.threads.setStatus": "assistant:write",
}
ALL_SCOPES = {
    *SCOPES.values(),
    *("app_mentions:read", "channels:read", "groups:history", "groups:read", "im:history", "im:read"),
    *("im:write", "mpim:history", "mpim:read", "commands"),
}
NEEDS_MEMBER = ("chat.postMessage", "chat.postEphemeral", "conversations.replies", "conversations.history")
NEEDS_MEMBER += ("chat.update", "chat.delete", "reactions.add", "reactions.remove", "assistant.threads.setStatus")
NEEDS_MEMBER += ("files.completeUploadExternal",)


@dataclass
class Channel:
    id: str
    kind: str = "channel"  # channel, group, im, mpim
    members: set[str] = field(default_factory=set)
    is_archived: bool = False
    is_shared: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)

    def find(self, ts: str) -> dict[str, Any] | None:
        return next((message for message in self.messages if message["ts"] == ts), None)


@dataclass(frozen=True)
class Fault:
    """What befalls one call. `do`: error (an error word), status (an HTTP one), ratelimited, drop_after, drop_before,

    hang_after, never (no answer; the one took it in, the other did not), or '' with `slow_s`.
    """

    do: str
    word: str = ""
    status: int = 500
    retry_after: int = 1
    slow_s: float = 0.0
    channel: str = ""  # only calls that name this channel


@dataclass
class Call:
    method: str
    args: dict[str, Any]
    at: float
    error: str = ""


@dataclass
class Link:
    """One Socket Mode connection."""

    socket: web.WebSocketResponse
    is_silent: bool = False


@dataclass
class Delivery:
    """One payload given to the app, and what came back. `acked_ms` is None while nothing did."""

    body: dict[str, Any]
    tries: int = 0
    acked_ms: float | None = None
    payload: Any = None
    status: int | None = None


class FakeSlack:
    """Start it, point Duet at `api_url`, and let people act through `human`."""

    def __init__(self, *, ack_within_s: float = 3.0, redelivers: int = 3) -> None:
        self.ack_within_s = ack_within_s
        self.redelivers = redelivers
        self.pace_s = 0.0  # seconds that must lie between two posts into a channel
        self.scopes = set(ALL_SCOPES)
        self.users: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, Channel] = {}
        self.calls: list[Call] = []
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.violations: list[str] = []
        self.links: list[Link] = []
        self.deliveries: list[Delivery] = []
        self.statuses: list[tuple[str, str, str]] = []
        self.views: list[dict[str, Any]] = []
        self.homes: dict[str, dict[str, Any]] = {}
        self.whispers: list[dict[str, Any]] = []
        self.responses: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, Any]] = {}
        self.file_data: dict[str, bytes] = {}
        self.unsupported: set[str] = set()
        self.old_workspace = False
        self.keeps_metadata = True
        self.token_is_dead = ""
        self.events_url = ""
        self.refuse_links = False
        self.crowded_after: int | None = None
        self.says_hello = True
        self._round_robin = itertools.count()
        self._numbers = itertools.count(1)
        self._last_post: dict[str, float] = {}
        self._runner: web.AppRunner | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._acks: dict[str, asyncio.Future[Any]] = {}
        self._started = int(time.time())
        self.base = ""
        self.add_user(BOT_USER, "duet", is_bot=True)

    # Life.

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/{ticket}", self._link)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/files/{id}", self._file)
        app.router.add_post("/respond/{id}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in list(self.links):
            with contextlib.suppress(Exception):
                await link.socket.close()
        if self._runner:
            await self._runner.cleanup()

    @property
    def api_url(self) -> str:
        return f"{self.base}/api/"

    # State.

    def add_user(self, id: str, name: str, **profile: Any) -> str:
        self.users[id] = {
            "id": id,
            "team_id": TEAM,
            "name": name,
            "real_name": name.capitalize(),
            "deleted": False,
            "is_bot": False,
            "profile": {"display_name": name, "real_name": name.capitalize()},
        } | profile
        return id

    def add_channel(
        self, id: str, *members: str, kind: str = "channel", with_duet: bool = True, **more: Any
    ) -> Channel:
        people = {*members, BOT_USER} if with_duet else set(members)
        self.channels[id] = channel = Channel(id, kind, people, **more)
        return channel

    def ts(self) -> str:
        number = next(self._numbers)
        return f"{self._started + number}.{number:06d}"

    def number(self) -> int:
        return next(self._numbers)

    def said(self, channel: str, *, thread: str | None = None) -> list[dict[str, Any]]:
        """Give Duet's messages of a channel, or of one thread, in order."""
        return [
            message
            for message in self.channels[channel].messages
            if message.get("user") == BOT_USER and (thread is None or message.get("thread_ts") == thread)
        ]

    def said_in_direct(self) -> list[dict[str, Any]]:
        """Give what Duet wrote in direct messages."""
        return [m for c in self.channels.values() if c.kind == "im" for m in c.messages if m.get("user") == BOT_USER]

    def made(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    def fault(self, method: str, *faults: Fault) -> None:
        """Let these befall the next calls of a method, one each."""
        self.faults[method].extend(faults)

    # Web API.

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        args = await _arguments(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ") or args.pop("token", "")
        args.pop("app_token", None)
        call = Call(method, args, time.monotonic())
        self.calls.append(call)
        fault = self._next_fault(method, args)
        if fault.slow_s:
            await asyncio.sleep(fault.slow_s)
        if fault.do == "never":
            await asyncio.sleep(3_600)
        if fault.do == "drop_before":
            assert request.transport
            request.transport.abort()
            return web.Response()
        if fault.do == "status":
            call.error = str(fault.status)
            return web.Response(status=fault.status, text="<html>oops</html>", content_type="text/html")
        if fault.do == "ratelimited":
            call.error = "ratelimited"
            return _limited(fault.retry_after)
        if fault.do == "error":
            answer: dict[str, Any] = {"ok": False, "error": fault.word}
            if fault.word == "missing_scope":
                answer |= {"needed": "chat:write", "provided": "users:read"}
        else:
            self.violations += contract.faults(method, args)
            answer = self._answer(method, args, token)
            if answer.get("error") == "ratelimited":
                call.error = "ratelimited"
                return _limited(1)
        call.error = answer.get("error", "")
        if fault.do == "hang_after":
            await asyncio.sleep(3_600)
        if fault.do == "drop_after":
            assert request.transport
            request.transport.abort()
            return web.Response()
        headers = {"x-oauth-scopes": ",".join(sorted(self.scopes))}
        return web.json_response(answer, headers=headers)

    def _next_fault(self, method: str, args: Mapping[str, Any]) -> Fault:
        waiting = self.faults[method]
        if waiting and waiting[0].channel in ("", args.get("channel")):
            return waiting.popleft()
        return Fault("")

    def _answer(self, method: str, args: dict[str, Any], token: str) -> dict[str, Any]:
        if self.token_is_dead:
            return {"ok": False, "error": self.token_is_dead}
        if token != (APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN):
            return {
                "ok": False,
                "error": "not_allowed_token_type" if token in (APP_TOKEN, BOT_TOKEN) else "invalid_auth",
            }
        if method in self.unsupported:
            return {"ok": False, "error": "unknown_method"}
        scope = SCOPES.get(method)
        if scope and scope not in self.scopes:
            return {"ok": False, "error": "missing_scope", "needed": scope, "provided": ",".join(sorted(self.scopes))}
        handler = getattr(self, "_do_" + method.replace(".", "_").lower(), None)
        if handler is None:
            return {"ok": False, "error": "unknown_method"}
        if method in NEEDS_MEMBER:
            error = self._membership(args.get("channel") or args.get("channel_id") or "")
            if error:
                return {"ok": False, "error": error}
        answer = handler(args)
        return answer if "ok" in answer else {"ok": True, **answer}

    def _membership(self, id: str) -> str:
        channel = self.channels.get(id)
        if channel is None:
            return "" if id in self.users else "channel_not_found"
        if BOT_USER not in channel.members:
            return "not_in_channel" if channel.kind == "channel" else "channel_not_found"
        return "is_archived" if channel.is_archived else ""

    def _direct(self, id: str) -> Channel:
        """Give the channel; a person's id opens a direct message."""
        if id in self.channels:
            return self.channels[id]
        return self.channels.setdefault(f"D{id[1:]}", Channel(f"D{id[1:]}", "im", {id, BOT_USER}))

    def _do_auth_test(self, args: dict[str, Any]) -> dict[str, Any]:
        return {
            "team_id": TEAM,
            "team": "duet",
            "user": "duet",
            "user_id": BOT_USER,
            "bot_id": BOT_ID,
            "url": self.base,
        }

    def _do_apps_connections_open(self, args: dict[str, Any]) -> dict[str, Any]:
        return {"url": f"{self.base.replace('http', 'ws')}/link/{self.number()}"}

    def _do_chat_postmessage(self, args: dict[str, Any]) -> dict[str, Any]:
        error = contract.message_error("chat.postMessage", args, old_workspace=self.old_workspace)
        channel = self._direct(args["channel"])
        if args.get("thread_ts") and channel.find(args["thread_ts"]) is None:
            error = error or "thread_not_found"
        if error:
            return {"ok": False, "error": error}
        now = time.monotonic()
        if now - self._last_post.get(channel.id, 0) < self.pace_s:
            return {"ok": False, "error": "ratelimited"}
        self._last_post[channel.id] = now
        message = {
            "type": "message",
            "user": BOT_USER,
            "bot_id": BOT_ID,
            "ts": self.ts(),
            "text": args.get("text", ""),
            "blocks": args.get("blocks", []),
        }
        if args.get("thread_ts"):
            message["thread_ts"] = args["thread_ts"]
        if args.get("metadata") and self.keeps_metadata:
            message["metadata"] = args["metadata"]
        channel.messages.append(message)
        return {"channel": channel.id, "ts": message["ts"], "message": message}

    def _do_chat_update(self, args: dict[str, Any]) -> dict[str, Any]:
        error = contract.message_error("chat.update", args, old_workspace=self.old_workspace)
        message = self.channels[args["channel"]].find(args["ts"])
        if message is None or message.get("user") != BOT_USER:
            error = error or "message_not_found"
        if error or message is None:
            return {"ok": False, "error": error}
        message |= {"text": args.get("text", ""), "blocks": args.get("blocks", []), "edited": {"ts": self.ts()}}
        return {"channel": args["channel"], "ts": args["ts"], "text": args.get("text", "")}

    def _do_chat_delete(self, args: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels[args["channel"]]
        message = channel.find(args["ts"])
        if message is None:
            return {"ok": False, "error": "message_not_found"}
        channel.messages.remove(message)
        return {"channel": args["channel"], "ts": args["ts"]}

    def _do_chat_postephemeral(self, args: dict[str, Any]) -> dict[str, Any]:
        error = contract.message_error("chat.postEphemeral", args, old_workspace=self.old_workspace)
        if error or args["user"] not in self.channels[args["channel"]].members:
            return {"ok": False, "error": error or "user_not_in_channel"}
        self.whispers.append(args)
        return {"message_ts": self.ts()}

    def _do_conversations_replies(self, args: dict[str, Any]) -> dict[str, Any]:
        channel = self.channels[args["channel"]]
        root = args["ts"]
        thread = [m for m in channel.messages if m["ts"] == root or m.get("thread_ts") == root]
        return self._paged(thread, args) if thread else {"ok": False, "error": "thread_not_found"}

    def _do_conversations_history(self, args: dict[str, Any]) -> dict[str, Any]:
        top = [m for m in self.channels[args["channel"]].messages if m.get("thread_ts", m["ts"]) == m["ts"]]
        return self._paged(top[::-1], args)

    def _paged(self, messages: list[dict[str, Any]], args: dict[str, Any]) -> dict[str, Any]:
        oldest = float(args.get("oldest", 0))
        found = [m for m in messages if float(m["ts"]) >= oldest]
        start, limit = int(args.get("cursor") or 0), int(args.get("limit", 100))
        page = [
            {k: v for k, v in m.items() if k != "metadata" or args.get("include_all_metadata")}
            for m in found[start : start + limit]
        ]
        more = start + limit < len(found)
        return {
            "messages": page,
            "has_more": more,
            "response_metadata": {"next_cursor": str(start + limit) if more else ""},
        }

    def _do_users_conversations(self, args: dict[str, Any]) -> dict[str, Any]:
        return {"channels": [{"id": c.id} for c in self.channels.values() if BOT_USER in c.members]}

    def _do_users_info(self, args: dict[str, Any]) -> dict[str, Any]:
        user = self.users.get(args["user"])
        return {"user": user} if user else {"ok": False, "error": "user_not_found"}

    def _do_files_info(self, args: dict[str, Any]) -> dict[str, Any]:
        file = self.files.get(args["file"])
        return {"file": file} if file else {"ok": False, "error": "file_not_found"}

    def _do_files_getuploadurlexternal(self, args: dict[str, Any]) -> dict[str, Any]:
        id = f"F0UP{self.number():06d}"
        self.files[id] = {"id": id, "name": args["filename"]}
        return {"upload_url": f"{self.base}/upload/{id}", "file_id": id}

    def _do_files_completeuploadexternal(self, args: dict[str, Any]) -> dict[str, Any]:
        files = json.loads(args["files"]) if isinstance(args["files"], str) else args["files"]
        channel = self.channels[args["channel_id"]]
        for file in files:
            message = {"type": "message", "user": BOT_USER, "bot_id": BOT_ID, "ts": self.ts(), "text": ""}
            message |= {"files": [self.files[file["id"]]], "thread_ts": args.get("thread_ts")}
            channel.messages.append({k: v for k, v in message.items() if v is not None})
        return {"files": files}

    def _do_files_delete(self, args: dict[str, Any]) -> dict[str, Any]:
        if self.files.pop(args["file"], None) is None:
            return {"ok": False, "error": "file_not_found"}
        for channel in self.channels.values():
            held = [m for m in channel.messages if args["file"] in [file["id"] for file in m.get("files", [])]]
            channel.messages = [m for m in channel.messages if m not in held]
        return {}

    def _do_reactions_add(self, args: dict[str, Any]) -> dict[str, Any]:
        message = self.channels[args["channel"]].find(args["timestamp"])
        if message is None:
            return {"ok": False, "error": "message_not_found"}
        if args["name"] in message.setdefault("reactions", []):
            return {"ok": False, "error": "already_reacted"}
        message["reactions"].append(args["name"])
        return {}

    def _do_reactions_remove(self, args: dict[str, Any]) -> dict[str, Any]:
        message = self.channels[args["channel"]].find(args["timestamp"]) or {}
        if args["name"] not in message.get("reactions", []):
            return {"ok": False, "error": "no_reaction"}
        message["reactions"].remove(args["name"])
        return {}

    def _do_assistant_threads_setstatus(self, args: dict[str, Any]) -> dict[str, Any]:
        self.statuses.append((args["channel_id"], args["thread_ts"], args["status"]))
        return {}

    def _do_views_open(self, args: dict[str, Any]) -> dict[str, Any]:
        self.views.append(args["view"] if isinstance(args["view"], dict) else json.loads(args["view"]))
        return {}

    def _do_views_publish(self, args: dict[str, Any]) -> dict[str, Any]:
        self.homes[args["user_id"]] = args["view"] if isinstance(args["view"], dict) else json.loads(args["view"])
        return {}

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.content_type.startswith("multipart/"):
            body = body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0]
        self.file_data[request.match_info["id"]] = body
        return web.Response(text="OK", content_type="text/plain")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(status=302, headers={"Location": f"{self.base}/login"})
        data = self.file_data.get(request.match_info["id"])
        return web.Response(status=404) if data is None else web.Response(body=data, content_type="text/plain")

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults["response_url"].popleft() if self.faults["response_url"] else Fault("")
        if fault.do == "error":
            return web.Response(status=404, text=fault.word)
        body = await request.json()
        self.responses.append({"id": request.match_info["id"], **body})
        return web.Response(text="ok")

    # Socket Mode.

    async def _link(self, request: web.Request) -> web.StreamResponse:
        if self.refuse_links:
            return web.Response(status=503)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        link = Link(socket)
        self.links.append(link)
        if self.says_hello:
            await socket.send_json({"type": "hello", "num_connections": len(self.links)})
        if self.crowded_after is not None and len(self.links) > self.crowded_after:
            await socket.send_json({"type": "disconnect", "reason": "too_many_websockets"})
        try:
            async for message in socket:
                if link.is_silent:
                    continue
                if message.type is WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    said = json.loads(message.data)
                    future = self._acks.get(said.get("envelope_id", ""))
                    if future and not future.done():
                        future.set_result(said.get("payload"))
        finally:
            self.links.remove(link)
        return socket

    def ask_to_refresh(self, link: Link, reason: str = "refresh_requested") -> None:
        self._spawn(link.socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {}}))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Delivering.

    async def deliver(self, kind: str, body: dict[str, Any]) -> Delivery:
        """Give a payload to the app, again while it is not acknowledged in time. `kind`: events_api, slash_commands…"""
        delivery = Delivery(body)
        self.deliveries.append(delivery)
        if kind == "events_api":
            self.violations += contract.event_faults(body["event"])
        began = time.monotonic()
        for number in range(1 + self.redelivers):
            delivery.tries = number + 1
            send = self._send_http if self.events_url else self._send_socket
            if await send(kind, body, delivery, number):
                delivery.acked_ms = (time.monotonic() - began) * 1000
                return delivery
            if kind != "events_api":
                return delivery  # Slack sends commands and presses once, and shows the person its own failure
        return delivery

    async def _send_socket(self, kind: str, body: dict[str, Any], delivery: Delivery, number: int) -> bool:
        until = time.monotonic() + self.ack_within_s
        while not self.links and time.monotonic() < until:
            await asyncio.sleep(0.02)
        if not self.links:
            return False
        link = self.links[next(self._round_robin) % len(self.links)]
        envelope = f"e{self.number()}"
        future = self._acks[envelope] = asyncio.get_running_loop().create_future()
        sent: dict[str, Any] = {
            "envelope_id": envelope,
            "type": kind,
            "payload": body,
            "accepts_response_payload": True,
        }
        if number:
            sent |= {"retry_attempt": number, "retry_reason": "timeout"}
        with contextlib.suppress(ConnectionError):
            if not link.is_silent:
                await link.socket.send_json(sent)
        try:
            delivery.payload = await asyncio.wait_for(future, self.ack_within_s)
        except TimeoutError:
            return False
        finally:
            self._acks.pop(envelope, None)
        return True

    async def _send_http(self, kind: str, body: dict[str, Any], delivery: Delivery, number: int) -> bool:
        if kind == "events_api":
            raw, content = json.dumps(body), "application/json"
        else:
            form = body if kind == "slash_commands" else {"payload": json.dumps(body)}
            raw, content = urlencode(form), "application/x-www-form-urlencoded"
        headers = signed(raw) | {"Content-Type": content}
        if number:
            headers |= {"x-slack-retry-num": str(number), "x-slack-retry-reason": "http_timeout"}
        timeout = aiohttp.ClientTimeout(total=self.ack_within_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(self.events_url, data=raw.encode(), headers=headers) as response,
            ):
                delivery.status, text = response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError):
            return False
        delivery.payload = json.loads(text) if text.startswith("{") else text or None
        return delivery.status == 200


def signed(raw: str, *, at: str = "", secret: str = SECRET) -> dict[str, str]:
    """Give the headers with which Slack signs a body."""
    at = at or str(int(time.time()))
    digest = hmac.new(secret.encode(), f"v0:{at}:{raw}".encode(), hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={digest}"}


def _limited(retry_after: int) -> web.Response:
    return web.json_response(
        {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(retry_after)}
    )


async def _arguments(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        found = await request.json()
        return found if isinstance(found, dict) else {}
    fields: Mapping[str, Any] = {**request.query}
    if request.method == "POST":
        fields = {**fields, **(await request.post())}
    return {key: _typed(key, value) for key, value in fields.items()}


def _typed(key: str, value: Any) -> Any:
    """Undo form encoding for the arguments that are no text."""
    if key in ("limit", "length"):
        return int(value)
    if key in ("inclusive", "include_all_metadata"):
        return value in ("1", "true", "True")
    if key in ("files", "view", "blocks") and isinstance(value, str) and value[:1] in "[{":
        return json.loads(value)
    return value


def texts(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    return [message.get("text", "") for message in messages]
