"""People in the double of Slack: what they do becomes the events that the real one would send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.doubles.slack import APP, BOT_USER, TEAM, Delivery, FakeSlack

CHANNEL_TYPES = {"channel": "channel", "group": "group", "im": "im", "mpim": "mpim"}

# Ids of files, or file objects as Slack would send them.
Files: TypeAlias = Sequence[str | Mapping[str, Any]]

# What every file object carries: https://docs.slack.dev/reference/objects/file-object
_FILE: dict[str, Any] = {
    "created": 1_700_000_000,
    "filetype": "text",
    "pretty_type": "Plain Text",
    "editable": False,
    "mode": "hosted",
    "is_external": False,
    "external_type": "",
    "is_public": True,
    "public_url_shared": False,
    "display_as_bot": False,
    "username": "",
    "permalink": "https://duet.slack.com/files/x",
    "channels": [],
    "groups": [],
}


@dataclass(frozen=True)
class Person:
    """Somebody with a keyboard."""

    slack: FakeSlack
    id: str

    # Writing.

    async def mention(self, channel: str, text: str, *, thread: str = "", files: Files = (), **more: Any) -> str:
        """Write to Duet. Slack sends it twice: as `app_mention` and as `message`, with different event ids."""
        return await self.write(channel, f"<@{BOT_USER}> {text}".strip(), thread=thread, files=files, **more)

    async def write(
        self,
        channel: str,
        text: str,
        *,
        thread: str = "",
        files: Files = (),
        order: tuple[str, ...] = ("message", "app_mention"),
        wait: bool = True,
        **more: Any,
    ) -> str:
        """Write a message and give its `ts`; `order` is the order of the twins, a name twice is sent twice."""
        place = self.slack.channels[channel]
        message: dict[str, Any] = {
            "type": "message",
            "user": self.id,
            "text": text,
            "ts": self.slack.ts(),
            "team": TEAM,
        }
        if thread:
            message["thread_ts"] = thread
            root = place.find(thread)
            if root is not None:
                root.setdefault("thread_ts", thread)
        if files:
            message |= {"files": [self.slack.files[file] if isinstance(file, str) else file for file in files]}
        message |= more
        place.messages.append(message)
        if BOT_USER in place.members:
            sent = [self._event(place.id, place.kind, message, name) for name in order]
            wanted = [event for event in sent if event["type"] == "message" or self._is_mention(text, place.kind)]
            await self._deliver(wanted, wait=wait)
        return str(message["ts"])

    def _is_mention(self, text: str, kind: str) -> bool:
        return f"<@{BOT_USER}>" in text and kind != "im"

    def _event(self, channel: str, kind: str, message: Mapping[str, Any], name: str) -> dict[str, Any]:
        event = {**message, "type": name, "channel": channel, "event_ts": message["ts"]}
        if name == "message":
            event["channel_type"] = CHANNEL_TYPES[kind]
            if "files" in message:
                event |= {"subtype": "file_share", "upload": False, "display_as_bot": False, "x_files": []}
                event.pop("x_files")
        else:
            event.pop("files", None)  # the twin that comes without them
        return event

    async def _deliver(self, events: list[dict[str, Any]], *, wait: bool) -> None:
        bodies = [envelope(self.slack, event) for event in events]
        if not wait:
            for body in bodies:
                self.slack._spawn(self.slack.deliver("events_api", body))
            return
        await asyncio.gather(*(self.slack.deliver("events_api", body) for body in bodies))

    async def direct(self, text: str, *, thread: str = "") -> tuple[str, str]:
        """Write to Duet alone; give channel and `ts`."""
        channel = self.slack._direct(self.id).id
        return channel, await self.write(channel, text, thread=thread)

    async def edit(self, channel: str, ts: str, text: str) -> None:
        place = self.slack.channels[channel]
        message = place.find(ts)
        assert message is not None
        before = dict(message)
        message |= {"text": text, "edited": {"user": self.id, "ts": self.slack.ts()}}
        event = {
            "type": "message",
            "subtype": "message_changed",
            "hidden": True,
            "message": dict(message),
            "previous_message": before,
            "channel": channel,
            "channel_type": CHANNEL_TYPES[place.kind],
            "ts": self.slack.ts(),
            "event_ts": self.slack.ts(),
        }
        events = [event]
        if self._is_mention(text, place.kind):  # https://github.com/slackapi/bolt-js/issues/960
            events.append(self._event(channel, place.kind, message, "app_mention"))
        await self._deliver(events, wait=True)

    async def remove(self, channel: str, ts: str) -> None:
        place = self.slack.channels[channel]
        message = place.find(ts)
        assert message is not None
        place.messages.remove(message)
        event = {
            "type": "message",
            "subtype": "message_deleted",
            "hidden": True,
            "deleted_ts": ts,
            "previous_message": message,
            "channel": channel,
            "channel_type": CHANNEL_TYPES[place.kind],
            "ts": self.slack.ts(),
            "event_ts": self.slack.ts(),
        }
        await self._deliver([event], wait=True)

    def file(self, name: str, data: bytes, mimetype: str = "text/plain", **more: Any) -> str:
        """Put a file into Slack and give its id, to be sent with a message."""
        id = f"F{self.slack.number():09d}"
        self.slack.file_data[id] = data
        self.slack.files[id] = {
            "id": id,
            "name": name,
            **_FILE,
            "title": name,
            "user": self.id,
            "mimetype": mimetype,
            "size": len(data),
            "url_private": f"{self.slack.base}/files/{id}",
            "url_private_download": f"{self.slack.base}/files/{id}",
        } | more
        return id

    # Commanding.

    async def command(self, channel: str, text: str) -> Delivery:
        number = self.slack.number()
        body = {
            "command": "/duet",
            "text": text,
            "team_id": TEAM,
            "channel_id": channel,
            "channel_name": "somewhere",
            "user_id": self.id,
            "user_name": self.slack.users[self.id]["name"],
            "api_app_id": APP,
            "trigger_id": f"{number}.{number}.abc",
            "response_url": f"{self.slack.base}/respond/{number}",
        }
        return await self.slack.deliver("slash_commands", body)

    async def shortcut(self, callback: str, channel: str, message: Mapping[str, Any]) -> Delivery:
        number = self.slack.number()
        body = {
            "type": "message_action",
            "callback_id": callback,
            "trigger_id": f"{number}.{number}.abc",
            "team": {"id": TEAM},
            "channel": {"id": channel},
            "user": {"id": self.id, "name": self.slack.users[self.id]["name"]},
            "message": dict(message),
            "message_ts": message["ts"],
            "api_app_id": APP,
            "response_url": f"{self.slack.base}/respond/{number}",
        }
        return await self.slack.deliver("interactive", body)

    async def press(self, channel: str, message: Mapping[str, Any], action: str, *, value: str = "") -> Delivery:
        """Press the button with this action id; `value` picks one of the two thumbs."""
        button = next(
            b for b in buttons(message) if b["action_id"] == action and (not value or b["value"].startswith(value))
        )
        number = self.slack.number()
        ts, thread = message.get("ts", ""), message.get("thread_ts", "")
        container = {"type": "message", "message_ts": ts, "channel_id": channel}
        body = {
            "type": "block_actions",
            "trigger_id": f"{number}.{number}.abc",
            "team": {"id": TEAM, "domain": "duet"},
            "channel": {"id": channel},
            "user": {"id": self.id, "name": self.slack.users[self.id]["name"], "team_id": TEAM},
            "message": dict(message),
            "container": container | ({"thread_ts": thread} if thread else {}),
            "api_app_id": APP,
            "response_url": f"{self.slack.base}/respond/{number}",
            "actions": [{"type": "button", "block_id": "b", "action_ts": self.slack.ts(), **button}],
        }
        return await self.slack.deliver("interactive", body)


def envelope(slack: FakeSlack, event: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Put an event into what Slack sends."""
    return {
        "token": "verification",
        "team_id": TEAM,
        "api_app_id": APP,
        "type": "event_callback",
        "event_id": f"Ev{slack.number():08d}",
        "event_time": 1_700_000_000,
        "authorizations": [{"team_id": TEAM, "enterprise_id": None, "user_id": BOT_USER, "is_bot": True}],
        "is_ext_shared_channel": False,
        "event": dict(event),
        **more,
    }


def buttons(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give every button of a message, the two thumbs as buttons of their own."""
    for block in message.get("blocks", []):
        for element in block.get("elements", []) if block["type"] in ("actions", "context_actions") else []:
            if element["type"] == "button":
                yield {"action_id": element["action_id"], "value": element["value"], "label": element["text"]["text"]}
            if element["type"] == "feedback_buttons":
                for thumb in (element["positive_button"], element["negative_button"]):
                    yield {"action_id": element["action_id"], "value": thumb["value"], "label": thumb["text"]["text"]}
