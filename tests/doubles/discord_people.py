"""People in the Discord double: they say, reply, type commands and press buttons, as the client lets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.doubles.discord import FakeDiscord, Json


class People:
    """What people do in one `FakeDiscord`."""

    def __init__(self, world: FakeDiscord) -> None:
        self.world = world
        self.alice = world.add_member("alice")["id"]
        self.bob = world.add_member("bob")["id"]

    @property
    def mention(self) -> str:
        return f"<@{self.world.me['id']}>"

    async def say(
        self,
        text: str,
        *,
        who: str = "",
        channel: str = "",
        reply_to: Json | None = None,
        files: Sequence[tuple[str, bytes]] = (),
    ) -> Json:
        """Say something; a reply pings whom it answers."""
        extra: Json = {}
        if reply_to is not None:
            extra["message_reference"] = {"message_id": reply_to["id"], "channel_id": reply_to["channel_id"]}
            extra |= {"referenced_message": reply_to, "type": 19}
        world = self.world
        message = world.add_message(channel or world.channel, who or self.alice, text, **extra)
        if reply_to is not None:
            message["mentions"] = [*message["mentions"], reply_to["author"]]
        for name, data in files:
            id = world.new_id()
            world.blobs[f"{id}/{name}"] = data
            url = f"http://127.0.0.1:{world.port}/cdn/{id}/{name}"
            message["attachments"].append(
                {
                    "id": id,
                    "filename": name,
                    "size": len(data),
                    "url": url,
                    "proxy_url": url,
                    "content_type": "text/plain",
                }
            )
        await world.tell("MESSAGE_CREATE", world.told(message))
        return message

    async def ask(self, question: str, **where: Any) -> Json:
        return await self.say(f"{self.mention} {question}", **where)

    async def slash(self, name: str, *, who: str = "", channel: str = "", life_ms: int = 0, **options: Any) -> Json:
        """Type a registered command; `life_ms` makes its token live shorter than fifteen minutes."""
        root, *path = name.split()
        command = next(c for c in self.world.commands[""] if c["name"] == root)
        leaf: list[Json] = [
            {"name": k, "type": 5 if isinstance(v, bool) else 3, "value": v} for k, v in options.items()
        ]
        for part in reversed(path):
            leaf = [{"name": part, "type": 1, "options": leaf}]
        data = {"id": command["id"], "name": root, "type": 1, "options": leaf}
        return await self._interact(2, data, who=who, channel=channel, life_ms=life_ms)

    async def press(self, message: Json, label: str, *, who: str = "") -> Json:
        """Press the button of that label."""
        buttons = [button for row in message["components"] for button in row["components"]]
        button = next(button for button in buttons if button["label"] == label)
        data = {"custom_id": button["custom_id"], "component_type": 2}
        return await self._interact(3, data, who=who, channel=message["channel_id"], message=message)

    async def _interact(
        self, type: int, data: Json, *, who: str, channel: str, message: Json | None = None, life_ms: int = 0
    ) -> Json:
        world, user = self.world, who or self.alice
        where = world.channels[channel or world.channel]
        made: Json = {
            "id": world.new_id(),
            "token": f"token{world.new_id()}",
            "type": type,
            "at": world.now_ms(),
            "acknowledge_ms": 3000,
            "channel_id": where["id"],
            "user": user,
        }
        if life_ms:
            made["life_ms"] = life_ms
        if message is not None:
            made["message"] = message["id"]
        world.interactions[made["token"]] = made
        payload: Json = {
            "id": made["id"],
            "application_id": world.me["id"],
            "type": type,
            "data": data,
            "channel": where,
            "channel_id": where["id"],
            "token": made["token"],
            "version": 1,
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {"0": world.guild},
            "context": 0 if where["guild_id"] else 1,
            "attachment_size_limit": 10_485_760,
            "app_permissions": "0",
        }
        if where["guild_id"] not in (None, world.guild):  # the app was installed by the person, not by that server
            payload["authorizing_integration_owners"] = {"1": user}
        if where["guild_id"]:
            payload |= {
                "guild_id": where["guild_id"],
                "guild": {"id": where["guild_id"], "features": [], "locale": "en-US"},
            }
            payload["member"] = world.member(user) | {"user": world.users[user], "permissions": "0"}
        else:
            payload["user"] = world.users[user]
        if message is not None:
            payload["message"] = message
        await world.tell("INTERACTION_CREATE", payload)
        return made

    def elsewhere(self) -> str:
        """Give a channel of a server that Duet is not in; only its interactions are told."""
        world = self.world
        channel = world.add_channel("elsewhere")
        world.channels[channel]["guild_id"] = world.new_id()
        return channel

    def answer_to(self, made: Json) -> Json | None:
        """Give the message that an interaction's acknowledgement made, as it stands now."""
        original = made.get("original")
        if original is None:
            return None
        return next((m for m in self.world.messages[made["channel_id"]] if m["id"] == original), None)
