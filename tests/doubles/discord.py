"""Discord on the wire: a gateway (zlib-stream) and the REST routes that Duet uses, on one loopback port, with faults.

Every request is held against Discord's own schema (`discord_contract`); what is wrong stands in `violations`. Kept from
the real one because a client depends on it: `Content-Type` is exactly `application/json`, a 429 carries `Via`, a nonce
with `enforce_nonce` gives the earlier message, sessions are resumed with what was missed, ids have 18 digits.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.doubles import discord_contract

TOKEN = "double-token"
EPOCH_MS = 1_420_070_400_000
MESSAGE_CONTENT, LOADING, EPHEMERAL = 1 << 15, 1 << 7, 1 << 6
EVERYTHING = str((1 << 53) - 1)
TEXT, DIRECT, VOICE, THREAD = 0, 1, 2, 11

Json = dict[str, Any]


@dataclass
class Fault:
    """What befalls the next `times` requests of `method` to a path that `path` matches.

    `do`: `error` (status and code), `ratelimited` (after the pause all is well), `banned` (a 429 without Via),
    `drop_after` (done, but the answer is lost), `drop_before` (nothing done, the connection is cut).
    """

    method: str
    path: str
    do: str = "error"
    status: int = 500
    code: int = 0
    retry_after: float = 0.1
    is_global: bool = False
    times: int = 1


@dataclass
class Request:
    method: str
    path: str
    body: Any
    at: float
    files: list[str] = field(default_factory=list)
    status: int = 0


@dataclass
class Session:
    """What a resumed connection is told again."""

    id: str
    intents: int
    events: list[Json] = field(default_factory=list)


@dataclass
class Link:
    """One gateway connection; a zombie answers no heartbeat and tells nothing."""

    socket: web.WebSocketResponse
    zipper: Any
    session: Session | None = None
    is_zombie: bool = False

    async def send(self, payload: Json) -> None:
        if self.is_zombie or self.socket.closed:
            return
        text = json.dumps(payload).encode()
        if self.zipper is None:
            await self.socket.send_str(text.decode())
        else:
            await self.socket.send_bytes(self.zipper.compress(text) + self.zipper.flush(zlib.Z_SYNC_FLUSH))


class HttpError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, {"code": code, "message": message}


class FakeDiscord:
    """Start it, point Duet at `api_base` and `gateway`, and let people act (`discord_people.People`)."""

    def __init__(self, *, heartbeat_s: float = 41.0) -> None:
        self.heartbeat_s = heartbeat_s
        self.grants_content = True
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.links: list[Link] = []
        self.sessions: dict[str, Session] = {}
        self.identifies = self.resumes = 0
        self.users: dict[str, Json] = {}
        self.members: set[str] = set()
        self.channels: dict[str, Json] = {}
        self.messages: dict[str, list[Json]] = {}
        self.interactions: dict[str, Json] = {}
        self.commands: dict[str, list[Json]] = {}
        self.nonces: dict[tuple[str, str], str] = {}
        self.blobs: dict[str, bytes] = {}
        self.now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        self._counter = itertools.count(1)
        self._seq = itertools.count(1)
        self._routes = [(method, re.compile(pattern), do) for method, pattern, do in self._table()]
        self.me = self.add_user("duet", bot=True)
        self.guild = self.new_id()
        self.channel = self.add_channel("general")
        self.members.add(self.me["id"])

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> FakeDiscord:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/gw", self._gateway)
        app.router.add_get("/cdn/{path:.*}", self._cdn)
        app.router.add_route("*", "/api/v10/{path:.*}", self._rest)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for link in self.links:
            await link.socket.close(code=1001)
        await self._runner.cleanup()

    @property
    def api_base(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    @property
    def gateway(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gw"

    @property
    def environment(self) -> dict[str, str]:
        return {"DISCORD_TOKEN": TOKEN, "DISCORD_API_BASE": self.api_base, "DISCORD_GATEWAY": self.gateway}

    # ── What there is ─────────────────────────────────────────────────────────────────────────────────────────────

    def new_id(self) -> str:
        return str((self.now_ms() - EPOCH_MS) << 22 | next(self._counter) % (1 << 12))

    def add_user(self, name: str, *, bot: bool = False) -> Json:
        user = {"id": self.new_id(), "username": name, "discriminator": "0", "avatar": None, "bot": bot}
        self.users[user["id"]] = user | {"global_name": name}
        return self.users[user["id"]]

    def add_member(self, name: str, *, bot: bool = False) -> Json:
        user = self.add_user(name, bot=bot)
        self.members.add(user["id"])
        return user

    def add_channel(self, name: str, *, type: int = TEXT, parent: str | None = None, id: str = "") -> str:
        id = id or self.new_id()
        self.channels[id] = {
            "id": id,
            "type": type,
            "name": name,
            "guild_id": None if type == DIRECT else self.guild,
            "position": len(self.channels),
            "permission_overwrites": [],
            "parent_id": parent,
            "topic": None,
            "nsfw": False,
            "last_message_id": None,
        }
        self.messages[id] = []
        return id

    def direct(self, user: str) -> str:
        found = next((c["id"] for c in self.channels.values() if c.get("with") == user), None)
        if found is None:
            found = self.add_channel("", type=DIRECT)
            self.channels[found]["with"] = user
            self.channels[found]["recipients"] = [self.users[user]]
        return found

    def member(self, user: str) -> Json:
        return {"roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}

    def find(self, channel: str, message: str) -> Json:
        found = next((m for m in self.messages.get(channel, []) if m["id"] == message), None)
        if channel not in self.channels:
            raise HttpError(404, 10003, "Unknown Channel")
        if found is None:
            raise HttpError(404, 10008, "Unknown Message")
        return found

    def add_message(self, channel: str, author: str, content: str, **extra: Any) -> Json:
        """Keep a message; it is told to nobody yet."""
        if channel not in self.channels:
            raise HttpError(404, 10003, "Unknown Channel")
        id = self.new_id()
        mentions = list(dict.fromkeys(re.findall(r"<@!?(\d+)>", content)))
        message = {
            "id": id,
            "channel_id": channel,
            "author": self.users[author],
            "content": content,
            "timestamp": _iso(int(id)),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [self.users[user] for user in mentions if user in self.users],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "type": 0,
            "flags": 0,
        } | extra
        self.messages[channel].append(message)
        self.channels[channel]["last_message_id"] = id
        return message

    def told(self, message: Json) -> Json:
        """Give a message as the gateway tells it."""
        channel = self.channels[message["channel_id"]]
        if channel["guild_id"] is None:
            return message
        author = message["author"]["id"]
        return message | {"guild_id": channel["guild_id"], "member": self.member(author)}

    def mine(self, channel: str = "") -> list[Json]:
        said = self.messages[channel or self.channel]
        return [message for message in said if message["author"]["id"] == self.me["id"]]

    # ── The gateway ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        is_zipped = request.query.get("compress") == "zlib-stream"
        link = Link(socket, zlib.compressobj() if is_zipped else None)
        self.links.append(link)
        await link.send({"op": 10, "d": {"heartbeat_interval": int(self.heartbeat_s * 1000)}, "s": None, "t": None})
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                await self._hear(link, json.loads(frame.data))
        if link in self.links:
            self.links.remove(link)
        return socket

    async def _hear(self, link: Link, payload: Json) -> None:
        match payload["op"]:
            case 1:
                await link.send({"op": 11, "d": None, "s": None, "t": None})
            case 2:
                self.identifies += 1
                if payload["d"]["token"] != TOKEN:
                    await link.socket.close(code=4004)
                    return
                if payload["d"]["intents"] & MESSAGE_CONTENT and not self.grants_content:
                    await link.socket.close(code=4014)
                    return
                link.session = Session(f"session-{self.identifies}", payload["d"]["intents"])
                self.sessions[link.session.id] = link.session
                await self._welcome(link)
            case 6:
                self.resumes += 1
                link.session = self.sessions.get(payload["d"]["session_id"])
                if link.session is None:
                    await link.send({"op": 9, "d": False, "s": None, "t": None})
                    return
                for event in [e for e in link.session.events if e["s"] > payload["d"]["seq"]]:
                    await link.send(event)
                await self._tell_one(link, "RESUMED", {})

    async def _welcome(self, link: Link) -> None:
        assert link.session is not None
        ready = {
            "v": 10,
            "user": self.me,
            "guilds": [{"id": self.guild, "unavailable": True}],
            "session_id": link.session.id,
            "resume_gateway_url": self.gateway,
            "application": {"id": self.me["id"], "flags": 0},
        }
        await self._tell_one(link, "READY", ready)
        await self._tell_one(link, "GUILD_CREATE", self.guild_object())

    def guild_object(self) -> Json:
        inside = [channel for channel in self.channels.values() if channel["guild_id"] == self.guild]
        roles = [{"id": self.guild, "name": "@everyone", "permissions": EVERYTHING, "position": 0, "color": 0}]
        roles[0] |= {"hoist": False, "managed": False, "mentionable": False, "flags": 0, "colors": {"primary_color": 0}}
        return {
            "id": self.guild,
            "name": "guild",
            "owner_id": self.me["id"],
            "roles": roles,
            "emojis": [],
            "features": [],
            "members": [self.member(self.me["id"]) | {"user": self.me}],
            "channels": [channel for channel in inside if channel["type"] != THREAD],
            "threads": [channel for channel in inside if channel["type"] == THREAD],
            "member_count": len(self.members),
            "unavailable": False,
            "large": False,
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "stickers": [],
            "premium_tier": 0,
            "verification_level": 0,
            "explicit_content_filter": 0,
            "default_message_notifications": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "preferred_locale": "en-US",
            "afk_timeout": 300,
            "system_channel_flags": 0,
        }

    async def tell(self, event: str, data: Json) -> None:
        """Tell every session; one without a connection hears it when it is resumed."""
        for session in list(self.sessions.values()):
            link = next((link for link in self.links if link.session is session), None)
            payload = {"op": 0, "t": event, "s": next(self._seq), "d": self._censored(event, data, session)}
            session.events.append(payload)
            if link is not None:
                await link.send(payload)

    async def _tell_one(self, link: Link, event: str, data: Json) -> None:
        await link.send({"op": 0, "t": event, "s": next(self._seq), "d": data})

    def _censored(self, event: str, data: Json, session: Session) -> Json:
        """Hide content as Discord does from apps without the intent: mentions, replies to it and DMs are shown."""
        if event not in ("MESSAGE_CREATE", "MESSAGE_UPDATE") or session.intents & MESSAGE_CONTENT:
            return data
        is_shown = "guild_id" not in data or data["author"]["id"] == self.me["id"]
        if is_shown or any(user["id"] == self.me["id"] for user in data["mentions"]):
            return data
        return data | {"content": "", "attachments": [], "components": [], "embeds": []}

    async def drop(self, code: int = 4000) -> None:
        """Cut every connection; sessions stay to be resumed."""
        for link in list(self.links):
            await link.socket.close(code=code)

    async def ask_to_reconnect(self) -> None:
        for link in list(self.links):
            await link.send({"op": 7, "d": None, "s": None, "t": None})

    async def invalidate(self, *, resumable: bool = False) -> None:
        if not resumable:
            self.sessions.clear()
        for link in list(self.links):
            await link.send({"op": 9, "d": resumable, "s": None, "t": None})

    def silence(self) -> None:
        """Make every connection a zombie: open, but dead."""
        for link in self.links:
            link.is_zombie = True

    async def replay(self) -> None:
        """Tell every session once more what it was told, as happens after a reconnect."""
        for link in list(self.links):
            for event in list(link.session.events if link.session else []):
                await link.send(event | {"s": next(self._seq)})

    # ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _rest(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        body, files = await self._body(request)
        entry = Request(request.method, path, body, time.monotonic(), list(files))
        self.requests.append(entry)
        if isinstance(body, (dict, list)):
            self.violations += discord_contract.faults(request.method, path, body)
        fault = self._fault(request.method, path)
        if fault is not None and fault.do == "drop_before":
            return self._cut(request)
        if fault is not None and fault.do != "drop_after":
            entry.status = 429 if fault.do in ("ratelimited", "banned") else fault.status
            return self._faulty(fault)
        try:
            status, answer = await self._do(request, path, body, files)
        except HttpError as error:
            status, answer = error.status, error.body
        entry.status = status
        if fault is not None:
            return self._cut(request)
        return web.Response(
            status=status,
            body=b"" if answer is None else json.dumps(answer).encode(),
            headers={"Content-Type": "application/json"} if answer is not None else {},
        )

    async def _do(self, request: web.Request, path: str, body: Any, files: dict[str, bytes]) -> tuple[int, Any]:
        is_open = path.startswith(("/interactions/", "/webhooks/"))
        if not is_open and request.headers.get("Authorization") != f"Bot {TOKEN}":
            raise HttpError(401, 0, "401: Unauthorized")
        for method, pattern, do in self._routes:
            if method == request.method and (found := pattern.fullmatch(path)):
                answer = await do(*found.groups(), body=body, files=files, query=request.query)
                return (200, answer) if answer is not None else (204, None)
        self.violations.append(f"{request.method} {path}: no such route here")
        raise HttpError(404, 0, "404: Not Found")

    async def _body(self, request: web.Request) -> tuple[Any, dict[str, bytes]]:
        if request.content_type != "multipart/form-data":
            text = await request.text()
            return (json.loads(text) if text else None), {}
        body: Any = None
        files: dict[str, bytes] = {}
        async for part in await request.multipart():
            data = await part.read()
            if part.name == "payload_json":
                body = json.loads(data)
            else:
                files[part.filename] = bytes(data)
        return body, files

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and re.fullmatch(fault.path, path):
                fault.times -= 1
                return fault
        return None

    def _faulty(self, fault: Fault) -> web.Response:
        if fault.do in ("ratelimited", "banned"):
            body = {
                "message": "You are being rate limited.",
                "retry_after": fault.retry_after,
                "global": fault.is_global,
            }
            headers = {"Retry-After": str(fault.retry_after)} | (
                {"Via": "1.1 double"} if fault.do == "ratelimited" else {}
            )
            return _json(429, body, headers)
        return _json(fault.status, {"code": fault.code, "message": "fault"}, {})

    def _cut(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _cdn(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            self.violations.append("the bot's token was sent to the CDN")
        blob = self.blobs.get(request.match_info["path"])
        return web.Response(status=404) if blob is None else web.Response(body=blob)

    def _table(self) -> Iterable[tuple[str, str, Callable[..., Any]]]:
        from tests.doubles.discord_routes import routes

        return routes(self)


def _json(status: int, body: Any, headers: dict[str, str]) -> web.Response:
    return web.Response(
        status=status, body=json.dumps(body).encode(), headers={"Content-Type": "application/json"} | headers
    )


def _iso(snowflake: int) -> str:
    at = ((snowflake >> 22) + EPOCH_MS) / 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03d}000+00:00"


async def until(told: Callable[[], Any], *, timeout_s: float = 30.0) -> Any:
    """Wait until `told` gives something true, and give that."""
    end = asyncio.get_running_loop().time() + timeout_s
    while not (found := told()):
        if asyncio.get_running_loop().time() > end:
            raise AssertionError("it never came")
        await asyncio.sleep(0.02)
    return found
