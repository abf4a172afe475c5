"""What Slack knows around a turn, looked up after the claim: who asks, what the thread said, what the files hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

from adapters.slack.calls import Calls
from adapters.slack.identity import Identity
from adapters.slack.inbound import Payload, attachment, map_at, text_at
from adapters.slack.wording import decoded, mentioned, named, one_line
from bot.conversation import Attachment, Author, Quoted, SessionKey, Standing, Surroundings, Turn, TurnKind
from bot.errors import OutletError, OutletUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

THREAD_MESSAGES = 400
QUOTED_MESSAGES = 60
FILES = 8
FILE_BYTES = 256 * 1024
NAMES = 40
KNOWN_FOR_S = 60.0  # how old a person's standing may be: a guest must not stay a member for long
LOOK_S = 20.0
TRIES = 3

_TEXT_TYPES = ("text/", "message/rfc822")
_TEXT_SUBTYPES = frozenset({"json", "xml", "yaml", "toml", "javascript", "python", "sh", "sql"})
_TEXT_ENDS = frozenset(
    {
        "md",
        "txt",
        "log",
        "py",
        "js",
        "ts",
        "go",
        "rs",
        "java",
        "c",
        "h",
        "cpp",
        "rb",
        "sh",
        "sql",
        "json",
        "yaml",
        "yml",
    }
    | {"toml", "ini", "cfg", "csv", "tsv", "xml", "html", "css", "diff", "patch"}
)


@dataclass(frozen=True, slots=True)
class _Person:
    name: str
    standing: Standing
    known_at: float


class Looking:
    """Looks around turns of one workspace. People are remembered for a minute."""

    def __init__(
        self,
        calls: Calls,
        me: Callable[[], Awaitable[Identity]],
        *,
        cleared_at: Callable[[SessionKey], Awaitable[int]],
        file_hosts: Iterable[str] = (),
    ) -> None:
        """`cleared_at` gives when a session was last reset (UTC ms); files come only from Slack and `file_hosts`."""
        self._calls = calls
        self._me = me
        self._cleared_at = cleared_at
        self._file_hosts = frozenset(file_hosts)
        self._people: dict[str, _Person] = {}

    async def look(self, turn: Turn) -> Surroundings:
        """Give what stands around a turn. What could not be looked up is a note; an unknown standing stays UNKNOWN."""
        author = await self._author(turn)
        if turn.kind not in (TurnKind.ASK, TurnKind.RUN) or author.standing not in (Standing.MEMBER, Standing.GUEST):
            return Surroundings(author)
        notes: list[str] = []
        try:
            async with asyncio.timeout(LOOK_S):
                thread = await self._thread(turn, notes)
                files = await self._files(turn, notes)
                text = named(turn.text, await self._names(mentioned(turn.text)))
        except TimeoutError:
            return Surroundings(author, notes=("Slack was slow: the thread and the files were not read.",))
        return Surroundings(author, text, thread, files, notes=tuple(notes))

    # People.

    async def _author(self, turn: Turn) -> Author:
        person = await self._person(turn.author.id)
        standing = person.standing
        team, me = turn.reply_to.get("user_team", ""), await self._me()
        if standing is Standing.MEMBER and team and team not in (me.team, me.enterprise) and not me.enterprise:
            standing = Standing.OUTSIDER  # what the event says of the person outweighs a profile without a team
        return replace(turn.author, name=person.name or turn.author.name, standing=standing)

    async def _person(self, user: str) -> _Person:
        now = asyncio.get_running_loop().time()
        known = self._people.get(user)
        if known and now - known.known_at < KNOWN_FOR_S:
            return known
        try:
            profile = await _patiently(lambda: self._calls.person(user))
        except OutletError as error:
            log.warning("Could not look up a person: %s", error, extra={"action": "look up"})
            return _Person(known.name if known else "", Standing.UNKNOWN, now)
        person = _Person(display_name(profile), standing_of(profile, await self._me()), now)
        if len(self._people) > 5_000:
            self._people.clear()
        self._people[user] = person
        return person

    async def _names(self, users: Iterable[str]) -> dict[str, str]:
        wanted = list(dict.fromkeys(users))[:NAMES]
        people = await asyncio.gather(*(self._person(user) for user in wanted))
        return {user: person.name for user, person in zip(wanted, people, strict=True) if person.name}

    # The thread.

    async def _thread(self, turn: Turn, notes: list[str]) -> tuple[Quoted, ...]:
        """Give what others said since Duet last spoke here, or since the last reset."""
        thread, since = turn.session.thread, turn.reply_to.get("since", "")
        if thread is None or thread == turn.id:
            return ()
        try:
            said = await _patiently(
                lambda: self._calls.messages(turn.room.channel, thread=thread, limit=THREAD_MESSAGES)
            )
        except OutletError as error:
            notes.append(f"The thread was not read: {error}")
            return ()
        cleared_ms = await self._cleared_at(turn.session)
        earlier = [
            m for m in said if cleared_ms / 1000 < _seconds(m) < _as_seconds(since) and text_at(m, "ts") != turn.id
        ]
        me = await self._me()
        own = [n for n, m in enumerate(earlier) if me.is_own(user=text_at(m, "user"), bot=text_at(m, "bot_id"))]
        news = earlier[own[-1] + 1 :] if own else earlier
        return await self._quoted(news[-QUOTED_MESSAGES:])

    async def _quoted(self, messages: list[Payload]) -> tuple[Quoted, ...]:
        texts = [decoded(text_at(message, "text")) for message in messages]
        speakers = [text_at(message, "user") for message in messages]
        names = await self._names([*filter(None, speakers), *(user for text in texts for user in mentioned(text))])
        return tuple(
            Quoted(names.get(speaker) or _bot_name(message) or speaker or "somebody", named(text, names))
            for message, speaker, text in zip(messages, speakers, texts, strict=True)
            if text.strip()
        )

    # Files.

    async def _files(self, turn: Turn, notes: list[str]) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for given in turn.files[:FILES]:
            file = given
            try:
                file = await self._known(file)
                found.append((file.name, await self._text_of(file)))
            except (OutletError, _NotRead) as error:
                notes.append(f"{one_line(file.name, 80)} was not read: {error}")
        notes += [f"{one_line(file.name, 80)} was not read: too many files." for file in turn.files[FILES:]]
        return tuple(found)

    async def _known(self, file: Attachment) -> Attachment:
        """Give the file with what Slack kept back in a shared channel: its name, kind and address."""
        if not file.where.startswith("file:"):
            return file
        id = file.where.removeprefix("file:")
        told = await _patiently(lambda: self._calls.file(id))
        return attachment(told) or file

    async def _text_of(self, file: Attachment) -> str:
        if not is_text(file):
            raise _NotRead("it is not text.")
        if file.size_bytes > FILE_BYTES:
            raise _NotRead(f"it is larger than {FILE_BYTES // 1024} KiB.")
        url = file.where
        if not self._is_slacks(url):
            raise _NotRead("it is kept outside Slack.")
        data = await _patiently(lambda: self._calls.download(url, limit_bytes=FILE_BYTES))
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if len(data) == FILE_BYTES and error.start > len(data) - 4:  # cut within a character
                return data[: error.start].decode("utf-8-sig")
            raise _NotRead("it is not UTF-8 text.") from error

    def _is_slacks(self, url: str) -> bool:
        """Tell whether the address may be asked for with our token."""
        parts = urlsplit(url)
        if parts.netloc in self._file_hosts:
            return True
        host = parts.hostname or ""
        return parts.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))


class _NotRead(Exception):
    """Why a file was not read, as the end of a sentence."""


def is_text(file: Attachment) -> bool:
    """Tell whether a file claims to be text. Whether it is, its bytes decide."""
    kind, _, subtype = file.media_type.partition("/")
    if file.media_type.startswith(_TEXT_TYPES):
        return True
    if kind == "application" and subtype.removeprefix("x-") in _TEXT_SUBTYPES:
        return True
    return "." in file.name and file.name.rpartition(".")[2].lower() in _TEXT_ENDS


def display_name(profile: Payload) -> str:
    """Give the name that people see, on one line."""
    candidates = (
        text_at(profile, "profile", "display_name"),
        text_at(profile, "real_name"),
        text_at(profile, "profile", "real_name"),
        text_at(profile, "name"),
    )
    return next((one_line(name, 60) for name in candidates if name.strip()), "")


def standing_of(profile: Payload, me: Identity) -> Standing:
    """Give what a profile says its owner is; anything that is not surely a member is something less.

    https://docs.slack.dev/reference/objects/user-object
    """
    if not profile:
        return Standing.UNKNOWN
    if profile.get("deleted") is True:
        return Standing.GONE
    if profile.get("is_bot") is True or text_at(profile, "id") == "USLACKBOT":
        return Standing.BOT
    grid = text_at(profile, "enterprise_user", "enterprise_id")
    team = text_at(profile, "team_id") or text_at(profile, "profile", "team")
    ours = team in ("", me.team) or (bool(me.enterprise) and (grid == me.enterprise or team == me.enterprise))
    if profile.get("is_stranger") is True or not ours:
        return Standing.OUTSIDER
    if profile.get("is_restricted") is True or profile.get("is_ultra_restricted") is True:
        return Standing.GUEST
    return Standing.MEMBER


def _bot_name(message: Payload) -> str:
    name = text_at(map_at(message, "bot_profile"), "name") or text_at(message, "username")
    return f"{one_line(name, 50)} (bot)" if name else ""


def _seconds(message: Payload) -> float:
    return _as_seconds(text_at(message, "ts"))


def _as_seconds(ts: str) -> float:
    try:
        return float(ts)
    except ValueError:
        return 0.0


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Make a reading call, again after a moment when Slack is busy. Raises: OutletError."""
    for attempt in range(1, TRIES):
        try:
            return await call()
        except OutletUnavailable as error:
            await asyncio.sleep(min(error.retry_after_s or 0.3 * attempt, 5.0))
    return await call()
