"""What Slack knows around a turn, looked up after the claim: who asks, what the thread said, what the files hold."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from adapters.slack.calls import TRIES, Calls, patiently
from adapters.slack.files import Files
from adapters.slack.identity import Identity
from adapters.slack.inbound import ABOUT_THIS, FORWARDED, brought_by
from adapters.slack.messages import Said, forwarded_in, forwards_of, said_in
from adapters.slack.payload import Payload, text_at
from adapters.slack.wording import mentioned, named, one_line
from bot.conversation import Attachment, Author, Quoted, SessionKey, Standing, Surroundings, Turn, TurnKind
from bot.errors import OutletError

log = logging.getLogger(__name__)

THREAD_MESSAGES = 1_000
QUOTED_MESSAGES = 60
NAMES = 40
KNOWN_FOR_S = 60.0  # how old a person's standing may be: a guest must not stay a member for long
LOOK_S = 20.0
# A link to a message, which Slack follows by itself: a moment later the preview stands in the message that has it.
LINK = re.compile(r"https://[\w.-]+\.slack\.com/archives/\w+/p\d{16}")
PREVIEW_S = (0.4, 1.2)


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
        self._files = Files(calls, hosts=file_hosts)
        self._people: dict[str, _Person] = {}

    async def look(self, turn: Turn) -> Surroundings:
        """Give what stands around a turn. What could not be looked up is a note; an unknown standing stays UNKNOWN."""
        author = await self.author(turn)
        if turn.kind not in (TurnKind.ASK, TurnKind.RUN) or author.standing not in (Standing.MEMBER, Standing.GUEST):
            return Surroundings(author)
        notes: list[str] = []
        try:
            async with asyncio.timeout(LOOK_S):
                me, said, own = await self._me(), *await self._said_and_own(turn, notes)
                thread = await self._quoted([one for message in _news(turn, said, me) for one in said_in(message)])
                forwarded = await self._quoted(forwarded_in(own))
                texts, uploads = await self._files.fetched(_files_of(turn, own), notes)
                text = named(turn.text, await self._names(mentioned(turn.text)))
        except TimeoutError:
            return Surroundings(author, notes=("Slack was slow: the thread and the files were not read.",))
        text = text or (ABOUT_THIS if forwarded or texts else "")
        return Surroundings(author, text, (*thread, *forwarded), texts, uploads, notes=tuple(notes))

    # People.

    async def author(self, turn: Turn) -> Author:
        """Give a turn's author with name and standing; what could not be looked up stays UNKNOWN."""
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
            profile = await patiently(lambda: self._calls.person(user))
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

    # The thread, and the message itself.

    async def _said_and_own(self, turn: Turn, notes: list[str]) -> tuple[list[Payload], Payload]:
        """Give the thread as `_said` does, and the turn's own message out of it: with what its links lead to."""
        has_link = _has_link(turn)
        for pause_s in (0.0, *(PREVIEW_S if has_link else ())):
            await asyncio.sleep(pause_s)
            told: list[str] = []
            said = await self._said(turn, told)
            own = next((message for message in said if text_at(message, "ts") == turn.id), {})
            if not has_link or forwards_of(own):
                break
        else:
            told.append("A linked message was not read: Slack shows no preview of it here.")
        notes += told
        return said, own

    async def _said(self, turn: Turn, notes: list[str]) -> list[Payload]:
        """Give the thread since the last reset with the turn's message; a lone message only where it holds more."""
        thread, is_own = turn.session.thread, turn.session.thread == turn.id
        forwards = any(file.where == FORWARDED for file in turn.files)
        is_wanted = forwards or not is_own or _has_link(turn)
        if thread is None or not (is_wanted or turn.reply_to.get("heard") == "app_mention"):
            return []
        cleared_ms = 0 if is_own else await self._cleared_at(turn.session)
        oldest = f"{cleared_ms / 1000:.3f}" if cleared_ms else ""
        try:
            said = await patiently(
                lambda: self._calls.messages(turn.room.channel, thread=thread, oldest=oldest, limit=THREAD_MESSAGES),
                tries=TRIES if is_wanted else 1,
            )
        except OutletError as error:
            if forwards or not is_own:
                notes.append(f"The {'forwarded message' if is_own else 'thread'} was not read: {error}")
            return []
        if len(said) >= THREAD_MESSAGES:
            notes.append(f"Of the thread only the first {len(said):,} messages were read.")
        return [message for message in said if _seconds(message) > cleared_ms / 1000]

    async def _quoted(self, said: list[Said]) -> tuple[Quoted, ...]:
        """Give what was said under the names of who said it."""
        known = await self._names(
            [*(one.user for one in said if one.user), *(user for one in said for user in mentioned(one.text))]
        )
        quoted = []
        for one in said:
            name = known.get(one.user) or one_line(one.name, 50) or one.user or "somebody"
            quoted.append(Quoted(f"{name} (forwarded)" if one.is_forwarded else name, named(one.text, known)))
        return tuple(quoted)


def _has_link(turn: Turn) -> bool:
    """Tell whether the turn is a message that holds a link to another."""
    return turn.id == turn.reply_to.get("since") and LINK.search(turn.text) is not None


def _news(turn: Turn, said: list[Payload], me: Identity) -> list[Payload]:
    """Give what others said before the turn, since Duet last spoke here."""
    until = _as_seconds(turn.reply_to.get("since", ""))
    earlier = [m for m in said if _seconds(m) < until and text_at(m, "ts") != turn.id]
    own = [n for n, m in enumerate(earlier) if me.is_own(user=text_at(m, "user"), bot=text_at(m, "bot_id"))]
    return (earlier[own[-1] + 1 :] if own else earlier)[-QUOTED_MESSAGES:]


def _files_of(turn: Turn, own: Payload) -> list[Attachment]:
    """Give the turn's files, with those of its message that the event which was heard did not carry."""
    known = {file.where for file in turn.files}
    files = [*turn.files, *(file for file in brought_by(own) if file.where not in known)]
    return [file for file in files if file.where != FORWARDED]


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


def _seconds(message: Payload) -> float:
    return _as_seconds(text_at(message, "ts"))


def _as_seconds(ts: str) -> float:
    try:
        return float(ts)
    except ValueError:
        return 0.0
