"""The way out: what the core wants shown becomes messages, each once.

A part's key stands in a block's id and in the message's metadata, so that a message whose posting was cut off can be
found again. https://docs.slack.dev/messaging/message-metadata
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from adapters.slack import blocks, faults, outbound
from adapters.slack.calls import Calls
from adapters.slack.payload import Payload, list_at, text_at
from adapters.slack.surroundings import Looking
from bot.conversation import Answer, Body, FileData, Json, Part, Surroundings, Turn
from bot.errors import OutletError, OutletRefused, OutletUnavailable

log = logging.getLogger(__name__)

EVENT_TYPE = "duet_part"
FIND_MESSAGES = 2_000
CLEAR_AGAIN_S = (0.5, 2.0)
LEFT_OUT_S = 0.3  # until the next draft is worth rendering
# Refs of what is not a message of the channel: it cannot be edited, deleted or found.
UNPOSTED, RESPONDED, WHISPERED = "unposted", "responded", "whispered"


Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[str]]


class SlackOutlet:
    """Implements `Outlet` for one workspace."""

    def __init__(self, calls: Calls, looking: Looking, *, now: Callable[[], int], markdown: bool = True) -> None:
        self._calls = calls
        self._looking = looking
        self._now = now
        self._markdown = markdown
        self._status_locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._showing: set[asyncio.Task[None]] = set()
        self._has_status = True
        self._told: set[tuple[str, str]] = set()

    def render(self, answer: Answer) -> tuple[Body, ...]:
        return outbound.render(answer, markdown=self._markdown)

    async def surroundings(self, turn: Turn) -> Surroundings:
        return await self._looking.look(turn)

    # The sign that work goes on.

    async def status(self, turn: Turn, text: str | None) -> None:
        """Set or clear the status line; where there is none, an eye under the message does. In order, never raising."""
        channel, thread = turn.reply_to.get("channel", ""), turn.reply_to.get("thread_ts", "")
        if not channel or not thread:
            return
        # A press or a shortcut is no message that could be reacted to; what it is about stands in its thread.
        message = turn.id if turn.id == turn.reply_to.get("since") else thread
        # No answer waits until the sign is there or gone; a lock takes one after the other.
        showing = asyncio.create_task(self._show_status(channel, thread, message, text), name="status")
        self._showing.add(showing)
        showing.add_done_callback(self._showing.discard)

    async def close(self, *, timeout_s: float) -> None:
        """Wait until the signs that work goes on are gone, for so long."""
        if self._showing:
            await asyncio.wait(set(self._showing), timeout=timeout_s)
        for task in self._showing:
            task.cancel()

    async def _show_status(self, channel: str, thread: str, message: str, text: str | None) -> None:
        lock = self._status_locks.setdefault((channel, thread), asyncio.Lock())
        async with lock:
            # A status that stays keeps people from writing, so its end is tried again.
            for pause_s in (0.0,) if text else (0.0, *CLEAR_AGAIN_S):
                await asyncio.sleep(pause_s)
                try:
                    await self._status(channel, thread, message, text)
                    break
                except OutletError as error:
                    log.info("Could not show a status: %s", error, extra={"action": "status"})
                    if isinstance(error, OutletRefused):
                        break
        if text is None and not lock.locked():
            self._status_locks.pop((channel, thread), None)

    async def _status(self, channel: str, thread: str, message: str, text: str | None) -> None:
        if self._has_status:
            try:
                await self._calls.set_status(channel, thread, text or "")
            except OutletRefused as error:
                if faults.word_of(error) not in (
                    "unknown_method",
                    "missing_scope",
                    "not_allowed",
                    "feature_not_enabled",
                ):
                    raise
                self._has_status = False
        if not self._has_status:
            await self._calls.react(channel, message, "eyes", on=text is not None)

    # Parts.

    async def show(self, part: Part, *, draft: bool) -> str:
        """Edit `part.ref`, else post under `part.key`."""
        channel = _channel(part)
        if part.ref == WHISPERED:
            return part.ref
        if part.ref == RESPONDED:  # it cannot be edited, so what it says now is said anew
            return part.ref if draft or not self._may_respond(part) else await self._respond(part)
        if draft and part.ref not in (None, UNPOSTED) and not await self._calls.may_draft():
            await asyncio.sleep(LEFT_OUT_S)
            return part.ref  # left out: a later draft or the answer says it
        if part.ref not in (None, UNPOSTED) and await self._edit(part, channel, part.ref, draft=draft):
            await (self._calls.hold(channel) if draft else self._attach(part, part.body.files))
            return part.ref
        try:
            ref = await self._create(part, channel, draft=draft)
        except OutletRefused as error:
            await self._tell(part, error)
            raise
        if not draft and ref != UNPOSTED:
            await self._attach(part, part.body.files)
        return ref

    async def _edit(self, part: Part, channel: str, ref: str, *, draft: bool) -> bool:
        """Edit a message; False when what stands there can be edited no more."""
        try:
            await self._with_fallbacks(
                part, lambda content: self._calls.update(channel, ref, content, metadata=_metadata(part)), draft=draft
            )
        except OutletRefused as error:
            if faults.word_of(error) in faults.NOT_EDITABLE:
                return False
            raise
        return True

    async def _create(self, part: Part, channel: str, *, draft: bool) -> str:
        thread = part.reply_to.get("thread_ts", "")
        try:
            if part.body.content.get("only_to_asker") and (user := part.reply_to.get("user")):
                await self._with_fallbacks(
                    part, lambda content: self._calls.whisper(channel, user, content, thread=thread), draft=draft
                )
                return WHISPERED
            return await self._with_fallbacks(
                part,
                lambda content: self._calls.post(channel, content, thread=thread, metadata=_metadata(part)),
                draft=draft,
            )
        except OutletRefused as error:
            if faults.word_of(error) not in faults.NOT_HERE or not self._may_respond(part):
                raise
        return UNPOSTED if draft else await self._respond(part)

    async def _respond(self, part: Part) -> str:
        """Answer where the command was typed, in a channel that Duet is no member of."""
        public = not part.body.content.get("only_to_asker")
        url = part.reply_to["response_url"]
        await self._with_fallbacks(
            part, lambda content: self._calls.respond(url, content, in_channel=public), draft=False
        )
        return RESPONDED

    def _may_respond(self, part: Part) -> bool:
        until = part.reply_to.get("response_until", "")
        return bool(part.reply_to.get("response_url")) and until.isdecimal() and self._now() < int(until)

    async def _with_fallbacks(self, part: Part, send: Send, *, draft: bool) -> str:
        """Send the message; in older blocks where the newer are refused; short, with a file, where it is too long."""
        content = part.body.content
        try:
            return await send(_keyed(content, part.key))
        except OutletRefused as error:
            word = faults.word_of(error)
            if word not in faults.BAD_BLOCKS | faults.TOO_LONG:
                raise
            log.warning("Slack refused the form of %s: %s", part.key, error, extra={"action": "fallback"})
        if word in faults.TOO_LONG:
            return await self._with_file(part, send, _keyed(shortened(content), part.key), draft=draft)
        try:
            return await send(_keyed(blocks.downgraded(content), part.key))
        except OutletRefused as error:
            if faults.word_of(error) not in faults.BAD_BLOCKS:
                raise
        return await self._with_file(part, send, {"text": content.get("text")}, draft=draft)

    async def _with_file(self, part: Part, send: Send, content: Mapping[str, Any], *, draft: bool) -> str:
        """Send less than the message, and the whole of it as a file once it is final."""
        ref = await send(content)
        if not draft:
            await self._attach(part, (FileData("answer.md", flat_text(part.body.content).encode("utf-8", "replace")),))
        return ref

    async def _attach(self, part: Part, files: tuple[FileData, ...]) -> None:
        """Put the files beside the message. They may come twice after a crash; a fault is told, not raised."""
        if not files:
            return
        channel, thread = _channel(part), part.reply_to.get("thread_ts", "")
        try:
            await self._calls.upload(channel, files, thread=thread)
        except OutletError as error:
            log.warning("Could not attach files to %s: %s", part.key, error, extra={"action": "upload"})
            text = f"The files of this answer could not be attached: {error}"
            told: dict[str, Json] = {"text": text, "blocks": list[Json](blocks.small(text))}
            try:
                if faults.word_of(error) in faults.NOT_HERE and self._may_respond(part):
                    await self._calls.respond(part.reply_to["response_url"], told, in_channel=False)
                    return
                await self._calls.post(channel, told, thread=thread, metadata=_metadata(part, suffix="-files"))
            except OutletError:
                log.warning("Could not say so either", extra={"action": "upload"})

    async def _tell(self, part: Part, error: OutletRefused) -> None:
        """Tell the asker what keeps the answer away: in private, once for a channel and cause."""
        user, cause = part.reply_to.get("user"), (part.session.room.channel, faults.word_of(error))
        if not user or cause in self._told or error.room_is_gone or self._calls.dead:
            return
        text = f"I could not answer in <#{part.session.room.channel}>: {error}"
        try:
            if self._may_respond(part):
                await self._calls.respond(part.reply_to["response_url"], {"text": text}, in_channel=False)
            else:
                await self._calls.post(user, {"text": text}, thread="", metadata=_metadata(part, suffix="-told"))
            self._told.add(cause)
        except OutletError as other:
            log.warning("Could not tell the asker: %s", other, extra={"action": "tell"})

    async def find(self, part: Part) -> str | None:
        """Look for a part's message after the turn's own. None: surely not posted."""
        channel, thread = _channel(part), part.reply_to.get("thread_ts", "")
        since = part.reply_to.get("since", "")
        try:
            said = await self._calls.messages(channel, thread=thread, oldest=since, limit=FIND_MESSAGES, metadata=True)
        except OutletRefused as error:
            if faults.word_of(error) in (faults.NOT_HERE | faults.GONE):
                return None
            raise OutletUnavailable(f"Could not look for the answer: {error}") from error
        return next((text_at(message, "ts") for message in said if _bears(message, part.key)), None)

    async def delete(self, part: Part) -> None:
        if part.ref in (None, UNPOSTED, RESPONDED, WHISPERED):
            return
        try:
            await self._calls.delete(_channel(part), part.ref)
        except OutletRefused as error:
            if faults.word_of(error) not in faults.NOT_EDITABLE | faults.GONE:
                raise


def _channel(part: Part) -> str:
    return part.reply_to.get("channel") or part.session.room.channel


def _metadata(part: Part, *, suffix: str = "") -> dict[str, Json]:
    """Give what names a part. Every app of the workspace can read it, so it holds no secret."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": part.key + suffix, "turn": part.turn}}


def _keyed(content: Mapping[str, Json], key: str) -> dict[str, Json]:
    """Give the message with its key as the id of its last block that keeps ids (`markdown` blocks do not)."""
    found = content.get("blocks")
    made = [dict(block) for block in found if isinstance(block, dict)] if isinstance(found, list) else []
    for block in reversed(made):
        if block.get("type") != "markdown":
            block["block_id"] = key
            break
    return {"text": content.get("text"), "blocks": list[Json](made)} if made else {"text": content.get("text")}


def _bears(message: Payload, key: str) -> bool:
    if text_at(message, "metadata", "event_payload", "key") == key:
        return True
    return any(text_at(block, "block_id") == key for block in list_at(message, "blocks"))


def shortened(content: Mapping[str, Json]) -> dict[str, Json]:
    """Give a message that is surely short enough: what it is about, and its buttons."""
    found = content.get("blocks")
    keep = ("actions", "context_actions")
    buttons = [b for b in found if isinstance(b, dict) and b.get("type") in keep] if isinstance(found, list) else []
    note = blocks.small("The answer is longer than Slack takes: the whole is in *answer.md*.")
    return {"text": str(content.get("text", ""))[:300], "blocks": [*note, *buttons]}


def flat_text(content: Json | Mapping[str, Json]) -> str:
    """Give every text of a message's blocks, in order."""
    if isinstance(content, list):
        return "\n".join(filter(None, map(flat_text, content)))
    if isinstance(content, Mapping):
        own = content.get("text")
        inner = [v for k, v in content.items() if k in ("blocks", "elements", "child_blocks", "rows")]
        return "\n".join(
            filter(
                None, [own if isinstance(own, str) and "type" in content else flat_text(own), *map(flat_text, inner)]
            )
        )
    return ""
