"""What Discord tells -> who asked what, where. Pure: nothing here awaits, looks up or posts.

A text channel is a room, a thread or forum post in it a session. A question's id is the id of the message or of the
interaction, so that what a reconnect repeats is known again. `reply_to` holds what `outlet` needs to answer:

    way      message · interaction · press
    channel  where to post            guild   empty in direct messages
    message  the message to reply to  author  who asked (told by direct message when the channel is closed to Duet)
    opens    the name of the thread to open on `message`, where one is to be opened
    token, expires, private           an interaction's; `expires` is UTC milliseconds
    member   empty where Duet is not in the guild, so that only the token can answer
    quoted   `channel/message` that the question replies to
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.conversation import Attachment, Author, RoomKey, SessionKey, Standing, Turn, TurnKind, Verdict

if TYPE_CHECKING:
    import discord

PLATFORM = "discord"
DIRECT = "dm"
PRIVATE = "~"  # between the thread and the person of a private conversation

# A token lives 15 minutes; the last one is left for what is under way.
# https://docs.discord.com/developers/interactions/receiving-and-responding#followup-messages
TOKEN_LIFE_MS = 14 * 60 * 1000

ASKED_IN_FILE = "Answer what is asked in the attached file."
THREAD_NAME_CHARS = 100

_TYPE_TEXT, _TYPE_NEWS = 0, 5
_MESSAGE_DEFAULT, _MESSAGE_REPLY = 0, 19
_FORWARD = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was said. `channel` is where an answer is posted; `may_open` says that a thread can be opened."""

    session: SessionKey
    channel: int
    may_open: bool = False

    @property
    def room(self) -> RoomKey:
        return self.session.room


def place_of(channel: Any, guild_id: int | None) -> Place:
    """Give the place of a channel, thread or direct message as discord.py shows it."""
    space = str(guild_id) if guild_id else DIRECT
    parent = getattr(channel, "parent_id", None)
    if parent:
        return Place(SessionKey(RoomKey(PLATFORM, space, str(parent)), str(channel.id)), channel.id)
    may_open = bool(guild_id) and _number(getattr(channel, "type", None)) in (_TYPE_TEXT, _TYPE_NEWS)
    return Place(SessionKey(RoomKey(PLATFORM, space, str(channel.id))), channel.id, may_open)


def is_spoken(message: discord.Message) -> bool:
    """Tell whether a person said it: no bot, no webhook (even one that mentions Duet), no notice by Discord."""
    said = _number(message.type) in (_MESSAGE_DEFAULT, _MESSAGE_REPLY)
    return said and not (message.author.bot or message.webhook_id)


def is_addressed(message: discord.Message, me: discord.abc.User) -> bool:
    """Tell whether the message mentions Duet, replies to it, or is a direct message. `@everyone` is not Duet."""
    return message.guild is None or any(user.id == me.id for user in message.mentions) or _is_reply_to(message, me)


def is_role_addressed(message: discord.Message) -> bool:
    """Tell whether Duet's own role was mentioned, as people do who pick the wrong line of the list."""
    mine = message.guild.self_role if message.guild else None
    return mine is not None and any(role.id == mine.id for role in message.role_mentions)


def _is_reply_to(message: discord.Message, me: discord.abc.User) -> bool:
    said = message.reference.resolved if message.reference else None
    author = getattr(said, "author", None)
    return author is not None and author.id == me.id and not _is_forward(message)


def _is_forward(message: discord.Message) -> bool:
    return message.reference is not None and _number(message.reference.type) == _FORWARD


def to_turn(message: discord.Message, me: discord.abc.User, *, opens_threads: bool = False) -> Turn:
    """Give the turn of a message that addresses Duet. Its text is empty where nothing was asked."""
    place = place_of(message.channel, message.guild.id if message.guild else None)
    text = asked(message, me)
    files = attachments(message)
    kind = TurnKind.RESET if is_reset(text) else TurnKind.ASK
    reply_to = {
        "way": "message",
        "channel": str(place.channel),
        "guild": str(message.guild.id) if message.guild else "",
        "message": str(message.id),
        "author": str(message.author.id),
        "member": "yes",
    }
    if message.reference and message.reference.message_id and not _is_forward(message):
        reply_to["quoted"] = f"{message.reference.channel_id}/{message.reference.message_id}"
    session = place.session
    if kind is TurnKind.ASK and opens_threads and place.may_open and not message.reference:
        # A thread opened on a message has that message's id, so the session is known before the thread exists.
        session = replace(session, thread=str(message.id))
        reply_to["opens"] = thread_name(text)
    return Turn(
        id=str(message.id),
        session=session,
        author=author_of(message.author, is_ours=message.guild is not None),
        text=text or (ASKED_IN_FILE if files else ""),
        at=_milliseconds(message.created_at),
        kind=kind,
        files=files,
        reply_to=reply_to,
    )


def to_press(interaction: discord.Interaction, *, target: str, verdict: Verdict) -> Turn:
    """Give the turn of a pressed button: `target` is a ticket, or the turn to try again."""
    turn = to_interaction_turn(interaction, kind=TurnKind.PRESS, text="")
    reply_to = {**turn.reply_to, "way": "press"}
    if interaction.message is not None:
        reply_to["message"] = str(interaction.message.id)
        # What comes of a message that one person sees is for that person, too.
        reply_to["private"] = "yes" if interaction.message.flags.ephemeral else ""
    return replace(turn, reply_to=reply_to, target=target, verdict=verdict)


def to_interaction_turn(
    interaction: discord.Interaction,
    *,
    kind: TurnKind,
    text: str,
    files: Iterable[discord.Attachment] = (),
    is_private: bool = False,
) -> Turn:
    """Give the turn of a slash command, a menu or a press.

    A private answer is gone from the channel's history and must not become context for others, so it has a session
    of its own for each person.
    """
    place = place_of_interaction(interaction)
    session = place.session
    if is_private:
        session = replace(session, thread=f"{session.thread or ''}{PRIVATE}{interaction.user.id}")
    at = _milliseconds(interaction.created_at)
    is_member = is_present(interaction)
    author = author_of(interaction.user, is_ours=is_member and interaction.guild_id is not None)
    author = replace(author, may_run=is_member)
    return Turn(
        id=str(interaction.id),
        session=session,
        author=author,
        text=text,
        at=at,
        kind=kind,
        files=tuple(map(_attachment, files)),
        reply_to={
            "way": "interaction",
            "channel": str(place.channel),
            "guild": str(interaction.guild_id or ""),
            "author": str(interaction.user.id),
            "token": interaction.token,
            "expires": str(at + TOKEN_LIFE_MS),
            "private": "yes" if is_private else "",
            "member": "yes" if is_member else "",
        },
    )


def thread_of(session: SessionKey) -> str:
    """Give the id of the thread that a conversation is in, private or not; empty in the channel itself."""
    return (session.thread or "").partition(PRIVATE)[0]


def place_of_interaction(interaction: discord.Interaction) -> Place:
    """Give where an interaction took place, known to discord.py or not."""
    return place_of(interaction.channel, interaction.guild_id)


def is_present(interaction: discord.Interaction) -> bool:
    """Tell whether Duet can post here itself: it is in the guild, or this is its own direct message with the person.

    A user-installed app is asked in guilds and group messages that it is not in.
    https://docs.discord.com/developers/resources/application#installation-context
    """
    if interaction.guild_id is not None:
        return interaction.client.get_guild(interaction.guild_id) is not None
    return _number(getattr(interaction.channel, "type", None)) == 1 and not interaction.context.private_channel


def author_of(user: discord.abc.User, *, is_ours: bool) -> Author:
    """Give the person; outside a guild that Duet is in, the standing is looked up later."""
    roles = tuple(str(role.id) for role in getattr(user, "roles", ()))
    return Author(str(user.id), user.display_name, _standing(user, is_ours=is_ours), roles)


def _standing(user: Any, *, is_ours: bool) -> Standing:
    if user.bot:
        return Standing.BOT
    if not is_ours:
        return Standing.UNKNOWN
    flags = getattr(user, "flags", None)
    return Standing.GUEST if flags is not None and getattr(flags, "guest", False) else Standing.MEMBER


def asked(message: discord.Message, me: discord.abc.User) -> str:
    """Give what was asked: without Duet's mention, with names for ids, with what was forwarded."""
    text = named(message, me)
    forwarded = "\n".join(snapshot.content for snapshot in message.message_snapshots if snapshot.content)
    if not forwarded:
        return text
    return f"{text}\n\nThe forwarded message:\n{forwarded}" if text else f"About this forwarded message:\n{forwarded}"


def named(message: discord.Message, me: discord.abc.User) -> str:
    """Give the text with the mention of Duet at either end taken away and other mentions as names."""
    text = re.sub(rf"^(?:\s*<@!?{me.id}>[\s,:]*)+|(?:\s*<@!?{me.id}>\s*)+$", "", message.content)
    names = {f"<@{user.id}>": f"@{user.display_name}" for user in message.mentions}
    names |= {f"<@!{user.id}>": f"@{user.display_name}" for user in message.mentions}
    names |= {f"<@&{role.id}>": f"@{role.name}" for role in message.role_mentions}
    names |= {f"<#{channel.id}>": f"#{getattr(channel, 'name', channel.id)}" for channel in message.channel_mentions}
    return re.sub(r"<(?:@[!&]?|#)\d+>", lambda found: names.get(found[0], found[0]), text).strip()


def attachments(message: discord.Message) -> tuple[Attachment, ...]:
    """Give the files of a message and of what it forwards."""
    forwarded = [file for snapshot in message.message_snapshots for file in snapshot.attachments]
    return tuple(map(_attachment, [*message.attachments, *forwarded]))


def _attachment(file: discord.Attachment) -> Attachment:
    return Attachment(file.filename, file.url, file.size, file.content_type or "")


def is_reset(text: str) -> bool:
    """Tell whether a mention asks for a reset and nothing else, before any model hears of it."""
    return re.fullmatch(r"/?(?:duet )?reset[.!]?", text.strip(), re.IGNORECASE) is not None


def is_help(text: str) -> bool:
    """Tell whether a mention asks for help and nothing else."""
    return re.fullmatch(r"/?(?:duet )?help[.!?]?", text.strip(), re.IGNORECASE) is not None


def about(message: discord.Message, me: discord.abc.User) -> str:
    """Give the question that the menu asks about a message."""
    who = "Duet" if message.author.id == me.id else message.author.display_name
    return f"Help with this message from {who}:\n{asked(message, me)}".strip()


def thread_name(question: str) -> str:
    """Give a thread's name: the question's first line, at most 100 characters."""
    line = next((line.strip() for line in question.split("\n") if line.strip()), "") or "Question"
    return line if len(line) <= THREAD_NAME_CHARS else line[: THREAD_NAME_CHARS - 1].rstrip() + "…"


def _number(value: Any) -> int:
    """Give the number behind one of discord.py's enums."""
    number = getattr(value, "value", value)
    return number if isinstance(number, int) else -1


def _milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
