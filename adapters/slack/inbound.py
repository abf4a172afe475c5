"""What Slack sends -> what Duet hears. Pure, and total: whatever arrives, it becomes a value or None.

A turn's id is the message's `ts`, or the `trigger_id` of a command or press: Slack delivers one text as `app_mention`
and as `message` with different event ids, and each of them more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from adapters.slack.identity import Identity
from adapters.slack.messages import forwards_of, said_in
from adapters.slack.payload import Payload, list_at, map_at, text_at
from adapters.slack.wording import as_word, decoded, mentioned
from bot.conversation import Attachment, Author, RoomKey, SessionKey, Turn, TurnKind, Verdict

PLATFORM = "slack"
# What a person does by writing. Every other subtype is the workspace talking about itself.
# https://docs.slack.dev/reference/events/message#subtypes
_SPOKEN = ("", "file_share", "thread_broadcast", "message_share")
# Stands among a turn's files where its message forwards others: what they say is fetched after the claim.
FORWARDED = "forwarded:"
_MAX_TEXT = 40_000
ABOUT_MESSAGE = "What do our standards say about this message?"
# What is asked where somebody hands over a message or a file without a word; a search has nothing to find in it, so
# that it looks for what was handed over.
ABOUT_THIS = "What about this?"


class Follow(StrEnum):
    """Which messages of a channel are meant for Duet: those that mention it, also its threads, or all."""

    MENTION = "mention"
    THREADS = "threads"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn. `only_if_joined`: it mentions nobody, so it counts only in a thread where Duet has answered."""

    turn: Turn
    only_if_joined: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The message of this turn was deleted. `only_if_joined` as for `Asked`: else it was no turn."""

    turn: Turn
    only_if_joined: bool = False


@dataclass(frozen=True, slots=True)
class RoomGone:
    """The channel was deleted or archived, or Duet was removed from it."""

    room: RoomKey


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """The app was removed from the workspace, or its tokens were revoked."""

    space: str


@dataclass(frozen=True, slots=True)
class HomeOpened:
    user: str
    tab: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A slash command that is answered at once, without a turn: `sources`, `status` or `help`."""

    word: str
    room: RoomKey
    text: str = ""


@dataclass(frozen=True, slots=True)
class FileWanted:
    """`/duet get`: the turn's text is the path of a file in the room's workspace."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Feedback:
    """A thumb: `good` or `bad`."""

    room: RoomKey
    turn: str
    user: str
    verdict: str


@dataclass(frozen=True, slots=True)
class SourcesWanted:
    """Somebody wants to read the sources of an answer; the trigger opens a window within 3 seconds."""

    room: RoomKey
    turn: str
    trigger: str


@dataclass(frozen=True, slots=True)
class ResetWanted:
    """A reset by a command or shortcut. It asks to confirm when another person's turn is running."""

    turn: Turn


Heard: TypeAlias = Asked | Withdrawn | RoomGone | Uninstalled | HomeOpened
Ordered: TypeAlias = Asked | ResetWanted | FileWanted | Wanted
Pressed: TypeAlias = Asked | Feedback | SourcesWanted


# ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────────


def hear_event(body: Payload, me: Identity, follow: Follow) -> Heard | None:
    """Read an Events API payload. None: nothing that concerns Duet."""
    event = map_at(body, "event")
    match text_at(event, "type"):
        case "app_mention":
            return _message(body, event, me, follow)
        case "message":
            return _by_subtype(body, event, me, follow)
        case "channel_archive" | "group_archive" | "channel_deleted" | "group_deleted" | "channel_left" | "group_left":
            channel = text_at(event, "channel")
            return RoomGone(RoomKey(PLATFORM, me.team, channel)) if channel else None
        case "app_uninstalled" | "tokens_revoked":
            return Uninstalled(me.team)
        case "app_home_opened":
            return HomeOpened(text_at(event, "user"), text_at(event, "tab"))
    return None


def _by_subtype(body: Payload, event: Payload, me: Identity, follow: Follow) -> Heard | None:
    match text_at(event, "subtype"):
        case "message_changed":
            return _edited(body, event, me)
        case "message_deleted":
            return _deleted(body, event, me)
        case subtype if subtype in _SPOKEN:
            return _message(body, event, me, follow)
    return None


def _edited(body: Payload, event: Payload, me: Identity) -> Heard | None:
    """A person's edit that adds a mention is a turn under the message's own id; every other change is none."""
    message = map_at(event, "message")
    if not map_at(message, "edited") or me.user not in mentioned(text_at(message, "text")):
        return None
    if me.user in mentioned(text_at(event, "previous_message", "text")):
        return None
    inner = {**message, "channel": text_at(event, "channel"), "channel_type": text_at(event, "channel_type")}
    return _message(body, inner, me, Follow.MENTION)


def _deleted(body: Payload, event: Payload, me: Identity) -> Heard | None:
    before = map_at(event, "previous_message")
    ts = text_at(event, "deleted_ts") or text_at(before, "ts")
    about_us = me.user in mentioned(text_at(before, "text")) or text_at(event, "channel_type") == "im"
    if not ts or _is_no_person(before, me) or not (about_us or text_at(before, "thread_ts")):
        return None
    inner = {**before, "ts": ts, "channel": text_at(event, "channel"), "channel_type": text_at(event, "channel_type")}
    turn = _turn(body, inner, me)
    return Withdrawn(turn, only_if_joined=not about_us) if turn else None


def _message(body: Payload, event: Payload, me: Identity, follow: Follow) -> Heard | None:
    subtype, text = text_at(event, "subtype"), text_at(event, "text")
    if subtype not in _SPOKEN or _is_no_person(event, me):
        return None
    turn = _turn(body, event, me)
    if turn is None:
        return None
    who = mentioned(text)
    if me.user in who or text_at(event, "type") == "app_mention" or text_at(event, "channel_type") == "im":
        return Asked(turn)
    if who and follow is not Follow.ALL:
        return None  # it is said to somebody else
    if follow is Follow.ALL:
        return Asked(turn)
    if follow is Follow.THREADS and text_at(event, "thread_ts"):
        return Asked(turn, only_if_joined=True)
    return None


def _is_no_person(event: Payload, me: Identity) -> bool:
    user, bot = text_at(event, "user"), text_at(event, "bot_id")
    return not user or bool(bot) or bool(map_at(event, "bot_profile")) or me.is_own(user=user, bot=bot)


def _turn(body: Payload, event: Payload, me: Identity) -> Turn | None:
    ts, channel, user = text_at(event, "ts"), text_at(event, "channel"), text_at(event, "user")
    if not ts or not channel or not user:
        return None
    thread = text_at(event, "thread_ts")
    text = _without_own_mention(text_at(event, "text")[:_MAX_TEXT], me)
    is_reset = as_word(text) == "reset"
    # A reset at the top of a channel is meant for the channel; everything else there opens a thread.
    session = SessionKey(RoomKey(PLATFORM, me.team, channel), thread or (None if is_reset else ts))
    reply_to = {"channel": channel, "thread_ts": thread or ts, "user": user, "since": ts}
    if text_at(event, "type") == "app_mention":
        reply_to["heard"] = "app_mention"  # such an event may lack the files that its message has
    if body.get("is_ext_shared_channel") is True:
        reply_to["shared"] = "yes"
    if team := text_at(event, "user_team") or text_at(event, "source_team") or text_at(event, "team"):
        reply_to["user_team"] = team
    return Turn(
        ts,
        session,
        Author(user, user),
        text,
        _milliseconds(ts),
        kind=TurnKind.RESET if is_reset else TurnKind.ASK,
        files=() if is_reset else brought_by(event),
        reply_to=reply_to,
    )


def brought_by(message: Payload) -> tuple[Attachment, ...]:
    """Give the files of a message and of those that it forwards, and a mark where it forwards any."""
    forwards = forwards_of(message)
    files = [file for holder in (message, *forwards) for file in list_at(holder, "files")]
    found = tuple(filter(None, map(attachment, files)))
    return (*found, Attachment("the forwarded message", FORWARDED)) if forwards else found


def _without_own_mention(text: str, me: Identity) -> str:
    """Give the words meant for Duet: its own mention goes at the start and becomes a name elsewhere."""
    for form in (f"<@{me.user}>", f"<@{me.user}|{me.user_name}>"):
        text = text.strip().removeprefix(form).replace(form, f"@{me.user_name}")
    return decoded(text).strip()


def attachment(file: Payload) -> Attachment | None:
    """Give a file object as an attachment; its address is `file:<id>` where Slack keeps the details back."""
    name = text_at(file, "name") or text_at(file, "title") or text_at(file, "id")
    size = file.get("size")
    return (
        Attachment(
            name,
            text_at(file, "url_private_download") or text_at(file, "url_private") or f"file:{text_at(file, 'id')}",
            size if isinstance(size, int) and size >= 0 else 0,
            text_at(file, "mimetype"),
        )
        if name
        else None
    )


def _milliseconds(ts: str) -> int:
    """Give a Slack timestamp (`1700000000.000100`) as UTC milliseconds."""
    seconds, _, fraction = ts.partition(".")
    if not seconds.isdecimal() or not seconds.isascii() or len(seconds) > 12:
        return 0
    return int(seconds) * 1000 + (int(fraction[:3].ljust(3, "0")) if fraction[:3].isdecimal() else 0)


# ── Slash commands and shortcuts ──────────────────────────────────────────────────────────────────────────────────


def hear_command(body: Payload, me: Identity, *, now_ms: int) -> Ordered:
    """Read a slash command. Whatever was typed gives something: an unknown word gives help."""
    channel, user = text_at(body, "channel_id"), text_at(body, "user_id")
    room = RoomKey(PLATFORM, me.team, channel)
    word, rest = [*text_at(body, "text").split(None, 1), "", ""][:2]
    word, rest = as_word(word), decoded(rest.strip())
    trigger = text_at(body, "trigger_id")
    if word in ("sources", "status") or not trigger or not channel or not user:
        return Wanted(word if word in ("sources", "status") else "help", room, rest)
    reply_to = {"channel": channel, "user": user, "since": _ts(now_ms)} | _way_back(body, now_ms)
    turn = Turn(trigger, SessionKey(room), Author(user, text_at(body, "user_name") or user), rest, now_ms)
    kinds = {"ask": TurnKind.ASK, "run": TurnKind.RUN, "get": TurnKind.RUN, "reset": TurnKind.RESET}
    if word not in kinds or (word != "reset" and not rest):
        return Wanted("help", room, "" if word == "help" else text_at(body, "text"))
    turn = _replaced(turn, kinds[word], reply_to)
    match word:
        case "reset":
            return ResetWanted(turn)
        case "get":
            return FileWanted(_replaced(turn, TurnKind.RUN, reply_to, text=rest.strip("`\"'")))
    return Asked(turn)


def hear_shortcut(body: Payload, me: Identity, *, now_ms: int) -> Ordered | None:
    """Read a message shortcut: it carries the message, so unlike a slash command it works inside threads."""
    message = map_at(body, "message")
    channel, user = text_at(body, "channel", "id"), text_at(body, "user", "id")
    trigger, ts = text_at(body, "trigger_id"), text_at(message, "ts")
    if text_at(body, "type") != "message_action" or not (channel and user and trigger and ts):
        return None
    thread = text_at(message, "thread_ts") or ts
    session = SessionKey(RoomKey(PLATFORM, me.team, channel), thread)
    reply_to = {"channel": channel, "thread_ts": thread, "user": user, "since": _ts(now_ms)} | _way_back(body, now_ms)
    turn = Turn(trigger, session, Author(user, text_at(body, "user", "name") or user), "", now_ms)
    match text_at(body, "callback_id"):
        case "ask_duet":
            said = "\n".join(one.text for one in said_in(message))[:_MAX_TEXT]
            text = f"{ABOUT_MESSAGE}\n\n" + "\n".join(f"> {line}" for line in said.split("\n"))
            files = tuple(file for file in brought_by(message) if file.where != FORWARDED)
            return Asked(_replaced(turn, TurnKind.ASK, reply_to, text=text, files=files))
        case "reset_duet":
            return ResetWanted(_replaced(turn, TurnKind.RESET, reply_to))
    return None


def _replaced(
    turn: Turn,
    kind: TurnKind,
    reply_to: Mapping[str, str],
    *,
    text: str | None = None,
    files: tuple[Attachment, ...] = (),
) -> Turn:
    words = turn.text if text is None else text
    return Turn(turn.id, turn.session, turn.author, words, turn.at, kind=kind, files=files, reply_to=reply_to)


def _way_back(body: Payload, now_ms: int) -> dict[str, str]:
    """Give where to answer if Duet is not in the channel: five times within half an hour."""
    url = text_at(body, "response_url")
    return {"response_url": url, "response_until": str(now_ms + 29 * 60_000)} if url else {}


def _ts(now_ms: int) -> str:
    return f"{now_ms // 1000}.{now_ms % 1000:03d}000"


# ── Buttons ───────────────────────────────────────────────────────────────────────────────────────────────────────


def hear_press(body: Payload, me: Identity, *, now_ms: int) -> Pressed | None:
    """Read a press. The button says only what is meant (`action_id`) and which ticket or turn (`value`)."""
    action = (list_at(body, "actions") or [{}])[0]
    channel = text_at(body, "channel", "id") or text_at(body, "container", "channel_id")
    user, trigger, value = text_at(body, "user", "id"), text_at(body, "trigger_id"), text_at(action, "value")
    if not (channel and user and trigger and value):
        return None
    room = RoomKey(PLATFORM, me.team, channel)
    match text_at(action, "action_id").partition(".")[0]:
        case "duet_feedback":
            verdict, _, turn = value.partition(":")
            return Feedback(room, turn, user, verdict) if verdict in ("good", "bad") and turn else None
        case "duet_sources":
            return SourcesWanted(room, value, trigger)
        case "duet_approve":
            return _press(body, me, now_ms, TurnKind.PRESS, value, Verdict.APPROVE)
        case "duet_deny":
            return _press(body, me, now_ms, TurnKind.PRESS, value, Verdict.DENY)
        case "duet_retry":
            return _press(body, me, now_ms, TurnKind.PRESS, value, Verdict.RETRY)
        case "duet_stop":
            return _press(body, me, now_ms, TurnKind.STOP, value, None)
        case "duet_reset":
            return _press(body, me, now_ms, TurnKind.RESET, value, None)
    return None


def _press(
    body: Payload, me: Identity, now_ms: int, kind: TurnKind, value: str, verdict: Verdict | None
) -> Asked | None:
    channel = text_at(body, "channel", "id") or text_at(body, "container", "channel_id")
    user, trigger = text_at(body, "user", "id"), text_at(body, "trigger_id")
    thread = text_at(body, "container", "thread_ts") or text_at(body, "message", "thread_ts")
    if kind is TurnKind.RESET:  # the button of the question names its session: the question itself is in no thread
        thread = value.removeprefix("thread:") if value.startswith("thread:") else ""
    session = SessionKey(RoomKey(PLATFORM, me.team, channel), thread or None)
    reply_to = {"channel": channel, "user": user, "since": _ts(now_ms)} | _way_back(body, now_ms)
    if thread:
        reply_to["thread_ts"] = thread
    if team := text_at(body, "user", "team_id"):
        reply_to["user_team"] = team
    author = Author(user, text_at(body, "user", "name") or text_at(body, "user", "username") or user)
    target = None if kind is TurnKind.RESET else value
    return Asked(
        Turn(trigger, session, author, "", now_ms, kind=kind, reply_to=reply_to, target=target, verdict=verdict)
    )
