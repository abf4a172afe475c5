"""Putting one stored part before people: by channel, by an interaction's token, or, when both are closed, directly.

A ref is `channel/message` for what stands in a channel, `@message` for what only the token can change.
"""

from __future__ import annotations

import io
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, cast

import discord

from adapters.discord import faults
from adapters.discord.formatting import FENCE, LIMIT_CHARS
from adapters.discord.outbound import EPHEMERAL
from adapters.discord.tokens import Tokens
from bot.conversation import Body, FileData, Part
from bot.errors import OutletRefused

log = logging.getLogger(__name__)

LATE = "-# This takes longer than Discord keeps an answer open; it will come as a message in this channel."
LATE_PRIVATE = "-# This takes longer than Discord keeps an answer open; it will come as a direct message."
TOO_LATE = "-# This took longer than Discord keeps an answer open, and Duet is not in this server: it was stopped."
_NO_FILES = "-# Duet may not attach files here, so the rest is missing (permission Attach Files)."
_IN_FILE = "-# Discord did not take this text; it is in the file below."


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How a part is sent now; each remedy is tried once."""

    body: Body
    reference: int | None
    nonce: str | None
    reopened: bool = False
    again: bool = False


class Poster:
    """Post, edit and delete parts; each remedy that Discord's codes allow is tried here. Raises what Discord raises."""

    def __init__(self, client: discord.Client, tokens: Tokens, *, keep: int = 1_000) -> None:
        self._client = client
        self._tokens = tokens
        self._keep = keep
        self._threads: OrderedDict[str, bool] = OrderedDict()  # turn -> was its thread opened
        self._late: OrderedDict[str, bool] = OrderedDict()  # turns whose answer was announced as a message to come
        self._originals: OrderedDict[str, int] = OrderedDict()  # turn -> id of the interaction's first message

    # ── Where ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def channel(self, part: Part, channel_id: int) -> discord.PartialMessageable:
        """Give the channel without asking for it."""
        guild = part.reply_to.get("guild")
        return self._client.get_partial_messageable(channel_id, guild_id=int(guild) if guild else None)

    async def target(self, part: Part) -> tuple[discord.PartialMessageable, int | None]:
        """Give the channel of a part and the message it replies to, opening the thread where one is wanted."""
        message = int(part.reply_to["message"]) if part.reply_to.get("message") else None
        opens = part.reply_to.get("opens") and not _is_for_one(part)  # a refusal is worth no thread
        if opens and message is not None and await self._is_opened(part, message):
            return self.channel(part, message), None
        return self.channel(part, int(part.reply_to["channel"])), message

    async def _is_opened(self, part: Part, message: int) -> bool:
        """Open the turn's thread, or tell that it cannot be: then the answer stands in the channel."""
        if part.turn not in self._threads:
            starter = self.channel(part, int(part.reply_to["channel"])).get_partial_message(message)
            try:
                await starter.create_thread(name=part.reply_to["opens"])
                opened = True
            except discord.HTTPException as error:
                if error.code not in faults.NO_THREAD and error.code != faults.THREAD_EXISTS:
                    raise
                opened = error.code == faults.THREAD_EXISTS
                log.info("Did not open a thread: %s", error, extra={"action": "thread", "code": error.code})
            _remember(self._threads, part.turn, opened, self._keep)
        return self._threads[part.turn]

    # ── Show ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, part: Part) -> str:
        """Post a part that has no ref."""
        way = part.reply_to["way"]
        if way == "message":
            return await self._create_in_channel(part)
        if way == "press":
            return await self._create_for_press(part)
        return await self._create_for_interaction(part)

    async def edit(self, part: Part, *, draft: bool) -> str:
        """Change a part that has a ref; what cannot be changed any more is posted anew, unless it is a draft."""
        ref = part.ref or ""
        try:
            if ref.startswith("@"):
                return await self._edit_by_token(part, int(ref[1:]), draft=draft)
            channel, _, message = ref.partition("/")
            await self._edit_in_channel(part, self.channel(part, int(channel)), int(message))
            return ref
        except discord.HTTPException as error:
            if error.code not in (faults.UNKNOWN_MESSAGE, faults.OLD_MESSAGE_EDITS):
                raise
            # Deleted by somebody, or too old to be edited: a draft is not worth a new message.
            if draft:
                return ref
            is_private = part.reply_to.get("private")
            return await (self._send_directly(part) if is_private else self._create_in_channel(part, nonce=None))

    async def delete(self, part: Part) -> None:
        """Take a part away; one that is gone already is as good."""
        ref = part.ref or ""
        try:
            if ref.startswith("@"):
                if self._tokens.is_alive(part.reply_to):
                    await self._webhook(part).delete_message(int(ref[1:]))
                return
            channel, _, message = ref.partition("/")
            await self.channel(part, int(channel)).get_partial_message(int(message)).delete()
        except discord.HTTPException as error:
            if error.code not in (faults.UNKNOWN_MESSAGE, faults.UNKNOWN_CHANNEL, *faults.TOKEN_ENDED):
                raise

    async def _create_in_channel(self, part: Part, *, nonce: str | None = "") -> str:
        channel, reference = await self.target(part)
        if part.reply_to["way"] == "interaction":
            reference = await self._original(part)
        attempt = _Attempt(part.body, reference, part.key if nonce == "" else nonce)
        return await self._send(channel, attempt)

    async def _create_for_press(self, part: Part) -> str:
        """Post below the card that was pressed; what concerns only the presser goes to them alone."""
        is_private = bool(part.reply_to.get("private"))
        for_one = is_private or _is_for_one(part)
        by_token = self._tokens.is_alive(part.reply_to) and (for_one or not part.reply_to.get("member"))
        try:
            if by_token and (await self._tokens.acknowledged(part.turn)).ok:
                return await self._follow_up(part, ephemeral=for_one)
        except discord.HTTPException as error:
            if error.code not in faults.TOKEN_ENDED:
                raise
        return await (self._send_directly(part) if is_private else self._create_in_channel(part))

    async def _create_for_interaction(self, part: Part) -> str:
        """Fill the deferred answer with the first part; the others follow in the channel, where a nonce counts."""
        is_private, is_member = bool(part.reply_to.get("private")), bool(part.reply_to.get("member"))
        usable = self._tokens.is_alive(part.reply_to) and (await self._tokens.acknowledged(part.turn)).ok
        try:
            if usable and part.ordinal == 0 and (original := await self._original(part)) is not None:
                return await self._edit_through_token(part, original)
            if usable and (is_private or not is_member):
                return await self._follow_up(part, ephemeral=is_private)
        except discord.HTTPException as error:
            if error.code not in faults.TOKEN_ENDED and error.code != faults.UNKNOWN_MESSAGE:
                raise
        return await self._without_token(part)

    async def _without_token(self, part: Part) -> str:
        """Answer an interaction whose token has ended: in the channel, or directly where it was private."""
        if part.reply_to.get("private"):
            return await self._send_directly(part)
        if not part.reply_to.get("member"):
            raise OutletRefused("Discord closed this answer; ask again in a channel that Duet is in.")
        return await self._create_in_channel(part)

    async def _send_directly(self, part: Part) -> str:
        person = await self.person(part.reply_to["author"])
        direct = await person.create_dm()
        body = replace(part.body, content={**part.body.content, "flags": 0})
        return await self._send(self._client.get_partial_messageable(direct.id), _Attempt(body, None, part.key))

    async def person(self, user_id: str) -> discord.User:
        """Give the person, asking Discord only when they are not known."""
        return self._client.get_user(int(user_id)) or await self._client.fetch_user(int(user_id))

    # ── By channel ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send(self, channel: discord.PartialMessageable, attempt: _Attempt) -> str:
        while True:
            try:
                message = await self._send_once(channel, attempt)
                return f"{channel.id}/{message.id}"
            except discord.HTTPException as error:
                remedy = await self._remedy(channel, attempt, error.code)
                if remedy is None:
                    raise
                attempt = remedy
            except faults.ConnectionLost:
                # It may stand there already; with a nonce, asking again gives what stands there.
                if attempt.nonce is None or attempt.again:
                    raise
                attempt = replace(attempt, again=True)

    async def _send_once(self, channel: discord.PartialMessageable, attempt: _Attempt) -> discord.Message:
        options: dict[str, Any] = {}
        if attempt.reference is not None:
            options["reference"] = discord.MessageReference(
                message_id=attempt.reference, channel_id=channel.id, fail_if_not_exists=False
            )
        return await channel.send(
            text_of(attempt.body),
            view=view_of(attempt.body) or cast(discord.ui.View, discord.utils.MISSING),
            files=files_of(attempt.body),
            nonce=cast(str, attempt.nonce),
            mention_author=False,
            suppress_embeds=True,
            **options,
        )

    async def _remedy(self, channel: discord.PartialMessageable, attempt: _Attempt, code: int) -> _Attempt | None:
        """Give another way to send what was refused with `code`, or None when nothing is left to try."""
        match code:
            case faults.THREAD_ARCHIVED if not attempt.reopened and await self._is_reopened(channel.id):
                return replace(attempt, reopened=True)
            case faults.NO_HISTORY_PERMISSION | faults.INVALID_FORM if attempt.reference is not None:
                return replace(attempt, reference=None)
            case faults.INVALID_FORM if not attempt.body.files:
                return replace(attempt, body=_in_file(attempt.body))
            case faults.MISSING_PERMISSIONS if attempt.body.files:
                return replace(attempt, body=_without_files(attempt.body))
            case _:
                return None

    async def _is_reopened(self, thread_id: int) -> bool:
        """Take a thread out of the archive, where Duet may."""
        try:
            thread = self._client.get_channel(thread_id) or await self._client.fetch_channel(thread_id)
            if isinstance(thread, discord.Thread):
                await thread.edit(archived=False)
                return True
        except discord.HTTPException as error:
            log.info("Could not reopen a thread: %s", error, extra={"action": "reopen", "code": error.code})
        return False

    async def _edit_in_channel(self, part: Part, channel: discord.PartialMessageable, message: int) -> None:
        try:
            await self._edit_once(part, channel, message)
        except discord.HTTPException as error:
            if error.code == faults.MISSING_PERMISSIONS and part.body.files:
                part = replace(part, body=_without_files(part.body))
            elif error.code != faults.THREAD_ARCHIVED or not await self._is_reopened(channel.id):
                raise
            await self._edit_once(part, channel, message)

    async def _edit_once(self, part: Part, channel: discord.PartialMessageable, message: int) -> None:
        files = files_of(part.body)
        await channel.get_partial_message(message).edit(
            content=text_of(part.body),
            view=view_of(part.body),
            attachments=files or cast(list[discord.File], discord.utils.MISSING),
        )

    # ── By token ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _webhook(self, part: Part) -> discord.Webhook:
        # Only `Interaction.followup` makes one of this type, and after a restart there is no Interaction any more.
        data = {"id": self._client.application_id, "type": 3, "token": part.reply_to["token"]}
        return discord.Webhook.from_state(data=cast(Any, data), state=self._client._connection)

    async def _edit_by_token(self, part: Part, message: int, *, draft: bool) -> str:
        try:
            if self._tokens.is_alive(part.reply_to):
                return await self._edit_through_token(part, message)
        except discord.HTTPException as error:
            if error.code not in faults.TOKEN_ENDED:
                raise
        return f"@{message}" if draft else await self._edit_after_token(part, message)

    async def _edit_through_token(self, part: Part, message: int) -> str:
        files = files_of(part.body)
        await self._webhook(part).edit_message(
            message,
            content=text_of(part.body),
            view=view_of(part.body),
            attachments=files or cast(list[discord.File], discord.utils.MISSING),
        )
        return f"@{message}"

    async def _edit_after_token(self, part: Part, message: int) -> str:
        """Change in the channel what the token showed, as with any message of Duet's; a late answer comes anew."""
        can_edit = part.reply_to.get("member") and not part.reply_to.get("private")
        if can_edit and part.turn not in self._late:
            channel = self.channel(part, int(part.reply_to["channel"]))
            try:
                await self._edit_in_channel(part, channel, message)
                return f"{channel.id}/{message}"
            except discord.HTTPException as error:
                log.info("Could not edit after a token's end: %s", error, extra={"action": "edit", "code": error.code})
        return await self._without_token(part)

    async def _follow_up(self, part: Part, *, ephemeral: bool) -> str:
        message = await self._webhook(part).send(
            text_of(part.body),
            view=view_of(part.body) or cast(discord.ui.View, discord.utils.MISSING),
            files=files_of(part.body),
            ephemeral=ephemeral,
            suppress_embeds=True,
            wait=True,
        )
        return f"@{message.id}"

    async def tell_one(self, part: Part, text: str) -> None:
        """Tell the asker alone: by the token where it lives, else by a direct message. Raises what Discord raises."""
        if self._tokens.is_alive(part.reply_to):
            await self._webhook(part).send(text, ephemeral=True, wait=True)
        else:
            await (await self.person(part.reply_to["author"])).send(text)

    async def replace_original(self, part: Part, text: str) -> None:
        """Write a notice where the deferred answer stands. Raises what Discord raises."""
        _remember(self._late, part.turn, True, self._keep)
        original = await self._original(part)
        if original is not None:
            await self._webhook(part).edit_message(original, content=text, view=None)

    async def _original(self, part: Part) -> int | None:
        """Give the id of the message that the acknowledgement made; None where there is none to be had."""
        known = self._originals.get(part.turn)
        if known is None:
            acknowledged = await self._tokens.acknowledged(part.turn)
            if not acknowledged.ok:
                return None
            known = acknowledged.original or await self._fetched_original(part)
            if known is None:
                return None
            _remember(self._originals, part.turn, known, self._keep)
        return known

    async def _fetched_original(self, part: Part) -> int | None:
        if not self._tokens.is_alive(part.reply_to):
            return None
        token, application = part.reply_to["token"], self._client.application_id
        route = discord.http.Route("GET", f"/webhooks/{application}/{token}/messages/@original")
        try:
            return int((await self._client.http.request(route))["id"])
        except discord.HTTPException as error:
            if error.code not in faults.TOKEN_ENDED and error.code != faults.UNKNOWN_MESSAGE:
                raise
            return None


def _remember(kept: OrderedDict[str, Any], key: str, value: Any, limit: int) -> None:
    kept[key] = value
    while len(kept) > limit:
        kept.popitem(last=False)


# ── What a body holds, as discord.py wants it ─────────────────────────────────────────────────────────────────────


def text_of(body: Body) -> str:
    return str(body.content.get("content") or "")


def files_of(body: Body) -> list[discord.File]:
    return [discord.File(io.BytesIO(file.data), file.name) for file in body.files]


def view_of(body: Body) -> discord.ui.View | None:
    """Give the buttons of a body. They live in `buttons`, by their ids; the view itself is not kept."""
    rows = cast(list[dict[str, Any]], body.content.get("components") or [])
    if not rows:
        return None
    view = discord.ui.View(timeout=None)
    for number, row in enumerate(rows):
        for button in row["components"]:
            style = discord.ButtonStyle(button["style"])
            view.add_item(
                discord.ui.Button(style=style, label=button["label"], custom_id=button["custom_id"], row=number)
            )
    view.stop()  # else discord.py would keep it for every message there ever was
    return view


def _is_for_one(part: Part) -> bool:
    """Tell whether a part concerns only the person who asked."""
    return bool(cast(int, part.body.content.get("flags") or 0) & EPHEMERAL)


def _in_file(body: Body) -> Body:
    return replace(
        body, content={**body.content, "content": _IN_FILE}, files=(FileData("answer.md", text_of(body).encode()),)
    )


def _without_files(body: Body) -> Body:
    text = text_of(body)[: LIMIT_CHARS - len(_NO_FILES) - len(FENCE) - 2]
    closing = f"\n{FENCE}" if text.count(FENCE) % 2 else ""
    return replace(body, content={**body.content, "content": f"{text}{closing}\n{_NO_FILES}"}, files=())
