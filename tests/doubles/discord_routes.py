"""The REST routes of the Discord double: what each does to its world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.doubles.discord import FakeDiscord, Json

TOKEN_LIFE_MS = 15 * 60 * 1000
LOADING, EPHEMERAL = 1 << 7, 1 << 6


def routes(world: FakeDiscord) -> Iterable[tuple[str, str, Any]]:
    """Give method, path pattern and handler of every route."""
    r = Routes(world)
    return [
        ("GET", "/users/@me", r.me),
        ("GET", "/users/@me/guilds", r.my_guilds),
        ("GET", r"/users/(\d+)", r.user),
        ("POST", "/users/@me/channels", r.open_direct),
        ("GET", "/gateway", r.gateway),
        ("GET", "/gateway/bot", r.gateway),
        ("GET", "/oauth2/applications/@me", r.application),
        ("GET", "/applications/@me", r.application),
        ("GET", r"/applications/(\d+)/commands", r.commands),
        ("PUT", r"/applications/(\d+)/commands", r.put_commands),
        ("GET", r"/applications/(\d+)/guilds/(\d+)/commands", r.commands),
        ("PUT", r"/applications/(\d+)/guilds/(\d+)/commands", r.put_commands),
        ("GET", r"/guilds/(\d+)", r.guild),
        ("GET", r"/guilds/(\d+)/channels", r.guild_channels),
        ("GET", r"/guilds/(\d+)/members/(\d+)", r.guild_member),
        ("GET", r"/channels/(\d+)", r.channel),
        ("PATCH", r"/channels/(\d+)", r.edit_channel),
        ("POST", r"/channels/(\d+)/typing", r.typing),
        ("GET", r"/channels/(\d+)/messages", r.history),
        ("POST", r"/channels/(\d+)/messages", r.post),
        ("GET", r"/channels/(\d+)/messages/(\d+)", r.message),
        ("PATCH", r"/channels/(\d+)/messages/(\d+)", r.edit),
        ("DELETE", r"/channels/(\d+)/messages/(\d+)", r.delete),
        ("POST", r"/channels/(\d+)/messages/(\d+)/threads", r.open_thread),
        ("POST", r"/interactions/(\d+)/([^/]+)/callback", r.callback),
        ("POST", r"/webhooks/(\d+)/([^/]+)", r.follow_up),
        ("GET", r"/webhooks/(\d+)/([^/]+)/messages/([^/]+)", r.get_by_token),
        ("PATCH", r"/webhooks/(\d+)/([^/]+)/messages/([^/]+)", r.edit_by_token),
        ("DELETE", r"/webhooks/(\d+)/([^/]+)/messages/([^/]+)", r.delete_by_token),
    ]


def refused(status: int, code: int, message: str) -> Exception:
    from tests.doubles.discord import HttpError

    return HttpError(status, code, message)


class Routes:
    def __init__(self, world: FakeDiscord) -> None:
        self.world = world

    async def me(self, **_: Any) -> Json:
        return self.world.me

    async def my_guilds(self, **_: Any) -> list[Json]:
        return [{"id": self.world.guild, "name": "guild", "owner": False, "permissions": "8", "features": []}]

    async def user(self, user: str, **_: Any) -> Json:
        if user not in self.world.users:
            raise refused(404, 10013, "Unknown User")
        return self.world.users[user]

    async def open_direct(self, *, body: Json, **_: Any) -> Json:
        return self.world.channels[self.world.direct(str(body["recipient_id"]))]

    async def gateway(self, **_: Any) -> Json:
        limit = {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
        return {"url": self.world.gateway, "shards": 1, "session_start_limit": limit}

    async def application(self, **_: Any) -> Json:
        return {
            "id": self.world.me["id"],
            "name": "duet",
            "icon": None,
            "description": "",
            "bot_public": True,
            "bot_require_code_grant": False,
            "owner": self.world.me,
            "verify_key": "",
            "flags": 0,
            "team": None,
            "summary": "",
        }

    async def commands(self, application: str, guild: str = "", **_: Any) -> list[Json]:
        return self.world.commands.get(guild, [])

    async def put_commands(self, application: str, guild: str = "", *, body: list[Json], **_: Any) -> list[Json]:
        scope = {"guild_id": guild} if guild else {}
        base = {"application_id": application, "version": "1", "default_member_permissions": None} | scope
        self.world.commands[guild] = [base | {"id": self.world.new_id(), "description": ""} | c for c in body]
        return self.world.commands[guild]

    async def guild(self, guild: str, **_: Any) -> Json:
        if guild != self.world.guild:
            raise refused(404, 10004, "Unknown Guild")
        return self.world.guild_object()

    async def guild_channels(self, guild: str, **_: Any) -> list[Json]:
        return self.world.guild_object()["channels"]

    async def guild_member(self, guild: str, user: str, **_: Any) -> Json:
        if user not in self.world.members:
            raise refused(404, 10007, "Unknown Member")
        return self.world.member(user) | {"user": self.world.users[user]}

    # Channels and messages.

    async def channel(self, channel: str, **_: Any) -> Json:
        if channel not in self.world.channels:
            raise refused(404, 10003, "Unknown Channel")
        return self.world.channels[channel]

    async def edit_channel(self, channel: str, *, body: Json, **_: Any) -> Json:
        found = await self.channel(channel)
        found.setdefault("thread_metadata", {}).update({k: v for k, v in body.items() if k in ("archived", "locked")})
        return found

    async def typing(self, channel: str, **_: Any) -> None:
        await self.channel(channel)

    async def history(self, channel: str, *, query: Any, **_: Any) -> list[Json]:
        await self.channel(channel)
        said = sorted(self.world.messages[channel], key=lambda m: int(m["id"]))
        said = [m for m in said if not m["flags"] & EPHEMERAL]
        limit = int(query.get("limit", 50))
        if "after" in query:
            said = [m for m in said if int(m["id"]) > int(query["after"])][:limit]
        if "before" in query:
            said = [m for m in said if int(m["id"]) < int(query["before"])]
        return list(reversed(said[-limit:]))

    async def post(self, channel: str, *, body: Json, files: dict[str, bytes], **_: Any) -> Json:
        if self.world.channels.get(channel, {}).get("guild_id") not in (None, self.world.guild):
            raise refused(403, 50001, "Missing Access")
        nonce = str(body.get("nonce", ""))
        if body.get("enforce_nonce") and (channel, nonce) in self.world.nonces:
            return self.world.find(channel, self.world.nonces[(channel, nonce)])
        message = self._made(channel, body, files)
        if nonce:
            self.world.nonces[(channel, nonce)] = message["id"]
        await self.world.tell("MESSAGE_CREATE", self.world.told(message))
        return message

    def _made(self, channel: str, body: Json, files: dict[str, bytes], **extra: Any) -> Json:
        if (self.world.channels.get(channel, {}).get("thread_metadata") or {}).get("locked"):
            raise refused(403, 160005, "Thread is locked")
        if len(body.get("content") or "") > 2000:
            raise refused(400, 50035, "Invalid Form Body")
        if not (body.get("content") or files or body.get("components") or extra):
            raise refused(400, 50006, "Cannot send an empty message")
        reference = body.get("message_reference")
        if reference:
            extra |= {"message_reference": {k: str(v) for k, v in reference.items() if k.endswith("_id")}, "type": 19}
        kept = {"components": body.get("components") or [], "flags": body.get("flags") or 0}
        kept["attachments"] = self._kept(files)
        return self.world.add_message(channel, self.world.me["id"], body.get("content") or "", **(kept | extra))

    def _kept(self, files: dict[str, bytes]) -> list[Json]:
        kept = []
        for name, data in files.items():
            id = self.world.new_id()
            self.world.blobs[f"{id}/{name}"] = data
            url = f"http://127.0.0.1:{self.world.port}/cdn/{id}/{name}"
            kept.append({"id": id, "filename": name, "size": len(data), "url": url, "proxy_url": url})
        return kept

    async def message(self, channel: str, message: str, **_: Any) -> Json:
        return self.world.find(channel, message)

    async def edit(self, channel: str, message: str, *, body: Json, files: dict[str, bytes], **_: Any) -> Json:
        found = self.world.find(channel, message)
        if found["author"]["id"] != self.world.me["id"]:
            raise refused(403, 50005, "Cannot edit a message authored by another user")
        return await self._changed(found, body, files)

    async def _changed(self, found: Json, body: Json, files: dict[str, bytes]) -> Json:
        if len(body.get("content") or "") > 2000:
            raise refused(400, 50035, "Invalid Form Body")
        for key in ("content", "components"):
            if key in body:
                found[key] = body[key] or ("" if key == "content" else [])
        if files:
            found["attachments"] = self._kept(files)
        found["flags"] &= ~LOADING
        if not found["flags"] & EPHEMERAL:
            await self.world.tell("MESSAGE_UPDATE", self.world.told(found))
        return found

    async def delete(self, channel: str, message: str, **_: Any) -> None:
        found = self.world.find(channel, message)
        self.world.messages[channel].remove(found)
        await self.world.tell(
            "MESSAGE_DELETE",
            {"id": message, "channel_id": channel, "guild_id": self.world.channels[channel]["guild_id"]},
        )

    async def open_thread(self, channel: str, message: str, *, body: Json, **_: Any) -> Json:
        self.world.find(channel, message)
        if message in self.world.channels:
            raise refused(400, 160004, "A thread has already been created for this message")
        self.world.add_channel(body["name"], type=11, parent=channel, id=message)
        thread = self.world.channels[message]
        thread |= {
            "owner_id": self.world.me["id"],
            "message_count": 0,
            "member_count": 1,
            "thread_metadata": {
                "archived": False,
                "locked": False,
                "auto_archive_duration": 1440,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
            },
        }
        await self.world.tell("THREAD_CREATE", thread | {"newly_created": True})
        return thread

    # Interactions.

    async def callback(self, id: str, token: str, *, body: Json, query: Any, **_: Any) -> Json | None:
        made = self.world.interactions.get(token)
        if made is None or made["id"] != id or self.world.now_ms() - made["at"] > made["acknowledge_ms"]:
            raise refused(404, 10062, "Unknown interaction")
        if made.get("acknowledged"):
            raise refused(400, 40060, "Interaction has already been acknowledged.")
        made["acknowledged"] = body["type"]
        made["data"] = body.get("data") or {}
        message = None
        if body["type"] in (4, 5):
            flags = made["data"].get("flags", 0) | (LOADING if body["type"] == 5 else 0)
            message = self._made(made["channel_id"], made["data"], {}, flags=flags, **self._metadata(made))
            made["original"] = message["id"]
        elif made.get("message"):
            made["original"] = made["message"]
        answer: Json = {"id": id, "type": made["type"], "response_message_id": made.get("original")}
        answer |= {"response_message_loading": body["type"] == 5}
        resource = {"type": body["type"], "message": message} if message is not None else None
        return {"interaction": answer, "resource": resource} if query.get("with_response") else None

    def _metadata(self, made: Json) -> Json:
        user = self.world.users[made["user"]]
        owners: Json = {"authorizing_integration_owners": {"0": self.world.guild}}
        return {"interaction_metadata": {"id": made["id"], "type": made["type"], "user": user} | owners, "type": 20}

    def _by_token(self, token: str) -> Json:
        made = self.world.interactions.get(token)
        if made is None:
            raise refused(404, 10015, "Unknown Webhook")
        if self.world.now_ms() - made["at"] > made.get("life_ms", TOKEN_LIFE_MS):
            raise refused(401, 50027, "Invalid Webhook Token")
        return made

    async def follow_up(self, application: str, token: str, *, body: Json, files: dict[str, bytes], **_: Any) -> Json:
        made = self._by_token(token)
        if not made.get("acknowledged"):
            raise refused(404, 10015, "Unknown Webhook")
        message = self._made(made["channel_id"], body, files, flags=body.get("flags") or 0, **self._metadata(made))
        made.setdefault("followups", []).append(message["id"])
        return message

    def _of_token(self, token: str, message: str) -> Json:
        made = self._by_token(token)
        id = made.get("original") if message in ("@original", "%40original") else message
        if id is None:
            raise refused(404, 10015, "Unknown Webhook")
        return self.world.find(made["channel_id"], id)

    async def get_by_token(self, application: str, token: str, message: str, **_: Any) -> Json:
        return self._of_token(token, message)

    async def edit_by_token(
        self, application: str, token: str, message: str, *, body: Json, files: dict[str, bytes], **_: Any
    ) -> Json:
        return await self._changed(self._of_token(token, message), body, files)

    async def delete_by_token(self, application: str, token: str, message: str, **_: Any) -> None:
        found = self._of_token(token, message)
        self.world.messages[found["channel_id"]].remove(found)
