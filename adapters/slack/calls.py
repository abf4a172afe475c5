"""Calls to Slack's Web API: each made once, paced by channel, its faults told in the core's words.

The SDK's own retries are off: it repeats a post whose reply was lost, and Slack then shows it twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from adapters.pacing import Pacer
from adapters.slack import faults
from adapters.slack.identity import Identity
from adapters.slack.payload import Payload, list_at, map_at, text_at
from bot.conversation import FileData, Json
from bot.errors import OutletRefused, OutletUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TIMEOUT_S = 15.0
# Edits are limited to 50 a minute over all channels together; drafts leave some of that to the answers.
# https://docs.slack.dev/apis/web-api/rate-limits
DRAFT_S, DRAFT_BURST = 1.5, 5
PAGE = 200  # messages read at a time
TRIES = 3
_CAUGHT = (SlackClientError, aiohttp.ClientError, TimeoutError, OSError)


def quiet(name: str, level: int = logging.WARNING) -> logging.Logger:
    """Give a logger for the SDK: it writes whole payloads at DEBUG, which is nobody's to read."""
    logger = logging.getLogger(name)
    logger.setLevel(max(level, logger.level))
    return logger


async def patiently(call: Callable[[], Awaitable[T]], *, tries: int = TRIES) -> T:
    """Make a reading call, again after a moment when Slack is busy. Raises: OutletError."""
    for attempt in range(1, tries):
        try:
            return await call()
        except OutletUnavailable as error:
            await asyncio.sleep(min(error.retry_after_s or 0.3 * attempt, 5.0))
    return await call()


class Calls:
    """One workspace's Web API. Every method raises the OutletError family only."""

    def __init__(self, token: str, *, api_url: str, pacer: Pacer, edits: Pacer, timeout_s: float = TIMEOUT_S) -> None:
        self._token = token
        self._pacer = pacer
        self._edits = edits
        self._drafts = Pacer(period_s=DRAFT_S, burst=DRAFT_BURST)
        self._session: aiohttp.ClientSession | None = None
        self.client = AsyncWebClient(
            token,
            base_url=api_url,
            timeout=int(timeout_s),
            retry_handlers=[],
            logger=quiet("adapters.slack.sdk"),
        )
        self._timeout_s = timeout_s
        self.dead: str = ""  # why no call is made any more

    async def open(self) -> None:
        """Open the connections that all calls share."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout_s))
        self.client.session = self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _call(self, call: Awaitable[Any], *, pace: str = "") -> Payload:
        """Await a call; give its answer. `pace` is the channel that rests when Slack asks for it."""
        try:
            response = await call
        except _CAUGHT as error:
            if isinstance(error, SlackApiError):
                self._note(error, pace)
            raise faults.as_outlet_error(error) from error
        data = getattr(response, "data", None)
        return data if isinstance(data, dict) else {}

    def _note(self, error: SlackApiError, pace: str) -> None:
        word = faults.error_word(error)
        if word in faults.DEAD and not self.dead:
            self.dead = word
            log.error("Slack does not accept the token any more: %s", word, extra={"action": "slack token"})
        if word == "missing_scope":
            log.error("Slack misses a scope: %s", faults.needed_scope(error), extra={"action": "slack scope"})
        if pace and (seconds := faults.retry_after_s(error)) is not None:
            self._pacer.rest(pace, seconds)
            self._edits.rest(pace, seconds)

    def _must_live(self) -> None:
        if self.dead:
            raise OutletRefused(f"Slack does not accept Duet's token ({self.dead}). Run `duet doctor`.")

    # Who we are.

    async def identity(self) -> Identity:
        """Ask who the token belongs to."""
        found = await self._call(self.client.auth_test())
        return Identity(
            team=text_at(found, "team_id"),
            user=text_at(found, "user_id"),
            bot=text_at(found, "bot_id"),
            team_name=text_at(found, "team"),
            user_name=text_at(found, "user") or "duet",
            enterprise=text_at(found, "enterprise_id"),
        )

    # Posting. None of these is repeated by anything but the core, which looks first whether it is there.

    async def post(self, channel: str, content: Mapping[str, Any], *, thread: str, metadata: Mapping[str, Json]) -> str:
        """Post a message and give its `ts`."""
        self._must_live()
        await self._pacer.slot(channel)
        said = await self._call(
            self.client.chat_postMessage(
                channel=channel,
                thread_ts=thread or None,
                text=content.get("text"),
                blocks=content.get("blocks"),
                metadata=dict(metadata),
                parse="none",
                link_names=False,
                unfurl_links=False,
                unfurl_media=False,
            ),
            pace=channel,
        )
        return text_at(said, "ts")

    async def update(self, channel: str, ts: str, content: Mapping[str, Any], *, metadata: Mapping[str, Json]) -> str:
        """Edit a message and give its `ts`."""
        self._must_live()
        await self._edits.slot(channel)
        text, blocks = content.get("text"), content.get("blocks")
        edit = self.client.chat_update(
            channel=channel, ts=ts, text=text, blocks=blocks, metadata=dict(metadata), parse="none", link_names=False
        )
        await self._call(edit, pace=channel)
        return ts

    async def may_draft(self) -> bool:
        """Tell whether the workspace has an edit to spare for a draft, and take it."""
        return await self._drafts.try_slot("workspace")

    async def hold(self, channel: str) -> None:
        """Wait until the channel's last edit is a slot ago."""
        await self._edits.hold(channel)

    async def whisper(self, channel: str, user: str, content: Mapping[str, Any], *, thread: str) -> str:
        """Post what only `user` sees."""
        self._must_live()
        await self._pacer.slot(channel)
        text, blocks = content.get("text"), content.get("blocks")
        say = self.client.chat_postEphemeral(
            channel=channel, user=user, text=text, blocks=blocks, thread_ts=thread or None
        )
        return text_at(await self._call(say, pace=channel), "message_ts")

    async def respond(self, url: str, content: Mapping[str, Any], *, in_channel: bool) -> str:
        """Answer a command at its `response_url`: five times within half an hour, member of the channel or not.

        Slack tells no `ts` of such a message, so '' is given.
        """
        self._must_live()
        body = {
            "response_type": "in_channel" if in_channel else "ephemeral",
            "replace_original": False,
            "text": content.get("text"),
            "blocks": content.get("blocks"),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        await self._call(self._respond(url, body))
        return ""

    async def _respond(self, url: str, body: Mapping[str, Any]) -> None:
        assert self._session is not None
        async with self._session.post(url, json=body) as response:
            if response.status == 200:
                return
            data = {"ok": False, "error": (await response.text())[:80]}
            answer = _Refusal(response.status, dict(response.headers), data)
            raise SlackApiError("response_url", answer)  # type: ignore[no-untyped-call]  # untyped there

    async def delete(self, channel: str, ts: str) -> None:
        self._must_live()
        await self._call(self.client.chat_delete(channel=channel, ts=ts), pace=channel)

    async def upload(self, channel: str, files: Sequence[FileData], *, thread: str) -> list[str]:
        """Put files into the thread, or into the channel itself; give their ids."""
        self._must_live()
        uploads = [{"filename": file.name, "title": file.name, "content": file.data or b" "} for file in files]
        said = await self._call(
            self.client.files_upload_v2(channel=channel, thread_ts=thread or None, file_uploads=uploads), pace=channel
        )
        return [text_at(file, "id") for file in list_at(said, "files")]

    async def delete_files(self, ids: Sequence[str]) -> None:
        for id in ids:
            await self._call(self.client.files_delete(file=id))

    # Reading.

    async def messages(
        self, channel: str, *, thread: str, oldest: str = "", limit: int = 1_000, metadata: bool = False
    ) -> list[Payload]:
        """Give the messages of a thread, or of the channel itself, oldest first, at most about `limit`."""
        found: list[Payload] = []
        cursor = ""
        options: dict[str, Any] = {"channel": channel, "limit": PAGE, "include_all_metadata": metadata or None}
        if oldest:
            options |= {"oldest": oldest, "inclusive": True}
        while len(found) < limit:
            page = options | ({"cursor": cursor} if cursor else {})
            said = await self._call(
                self.client.conversations_replies(ts=thread, **page)
                if thread
                else self.client.conversations_history(**page)
            )
            found += list_at(said, "messages")
            cursor = text_at(said, "response_metadata", "next_cursor")
            if not cursor:
                break
        return sorted(found, key=lambda message: text_at(message, "ts"))

    async def person(self, user: str) -> Payload:
        return map_at(await self._call(self.client.users_info(user=user)), "user")

    async def file(self, file_id: str) -> Payload:
        return map_at(await self._call(self.client.files_info(file=file_id)), "file")

    async def download(self, url: str, *, limit_bytes: int) -> bytes:
        """Fetch a file of Slack's, at most `limit_bytes` of it. The token goes along, so only to Slack."""
        assert self._session is not None
        try:
            headers = {"Authorization": f"Bearer {self._token}"}
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                if response.status != 200 or response.content_type == "text/html":
                    raise OutletRefused(f"the file could not be fetched (status {response.status})")
                data = bytearray()
                async for chunk in response.content.iter_chunked(65_536):
                    data += chunk
                    if len(data) >= limit_bytes:
                        break
                return bytes(data[:limit_bytes])
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise faults.as_outlet_error(error) from error

    # Signs and windows.

    async def set_status(self, channel: str, thread: str, text: str) -> None:
        await self._call(self.client.assistant_threads_setStatus(channel_id=channel, thread_ts=thread, status=text))

    async def react(self, channel: str, ts: str, name: str, *, on: bool) -> None:
        change = self.client.reactions_add if on else self.client.reactions_remove
        await self._call(change(channel=channel, timestamp=ts, name=name))

    async def open_window(self, trigger: str, view: Mapping[str, Json]) -> None:
        await self._call(self.client.views_open(trigger_id=trigger, view=dict(view)))

    async def publish_home(self, user: str, view: Mapping[str, Json]) -> None:
        await self._call(self.client.views_publish(user_id=user, view=dict(view)))


class _Refusal:
    """What a `response_url` answered, in the shape that the SDK gives a Web API's answer."""

    def __init__(self, status_code: int, headers: Mapping[str, str], data: Mapping[str, Any]) -> None:
        self.status_code = status_code
        self.headers = headers
        self.data = data
