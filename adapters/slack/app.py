"""Slack, wired: events are claimed and then acknowledged; everything else happens after.

What Bolt really does (slack-bolt 1.30): its own authorisation asks Slack before any listener runs and acknowledges the
event when Slack fails to answer; an event that no listener matches is never acknowledged. So `identity` asks nobody,
and one catch-all listener a kind does nothing but claim. What could not be stored raises: Slack delivers it again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from adapters.pacing import Pacer
from adapters.slack import panels
from adapters.slack.calls import Calls, quiet
from adapters.slack.identity import Identity
from adapters.slack.inbound import (
    PLATFORM,
    Asked,
    Feedback,
    FileWanted,
    Follow,
    HomeOpened,
    ResetWanted,
    RoomGone,
    SourcesWanted,
    Uninstalled,
    Wanted,
    Withdrawn,
    hear_command,
    hear_event,
    hear_press,
    hear_shortcut,
)
from adapters.slack.ingress import Handler, events_handler
from adapters.slack.outlet import SlackOutlet
from adapters.slack.payload import Payload, text_at
from adapters.slack.socket import Clocks, Socket
from adapters.slack.surroundings import Looking
from adapters.slack.workspace import bring
from bot.checks import Link
from bot.conversation import Turn, TurnKind
from bot.errors import BadInput, DuetError, Incident, OutletUnavailable, attempt

if TYPE_CHECKING:
    from bot.duet import Duet
    from bot.settings import Settings

log = logging.getLogger(__name__)

EVENTS_PATH = "/slack/events"
EVERYTHING = re.compile(".*", re.DOTALL)
PATIENCE_S = 10.0  # how long a start waits for Slack before it goes on without
LONGEST_WAIT_S = 60.0
CLOSE_S, CLEAR_S = 8.0, 2.0
# https://docs.slack.dev/apis/web-api/rate-limits: one post a second and channel; edits are tier 3, 50 a minute.
POST_S, EDIT_S = 1.0, 1.2


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class SlackFront:
    """Duet in Slack. Attach `outlet` before the core starts, mount `events_handler` if there is one, then `start`."""

    def __init__(
        self,
        duet: Duet,
        settings: Settings,
        *,
        now: Callable[[], int] = now_ms,
        pacer: Pacer | None = None,
        edits: Pacer | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Raises: BadInput when Slack could not be heard with these settings."""
        check_settings(settings)
        self._duet = duet
        self._settings = settings
        self._now = now
        self._clocks = clocks
        self._follow = Follow(settings.slack_follow)
        self.calls = Calls(
            settings.slack_bot_token,
            api_url=api_url(settings),
            pacer=pacer or Pacer(period_s=POST_S),
            edits=edits or Pacer(period_s=EDIT_S),
        )
        # Team -> who Duet is there; filled once. One entry, by token: installing into many workspaces comes later.
        self.installed: dict[str, Identity] = {}
        self._known = asyncio.Event()
        self._done: deque[str] = deque(maxlen=1_000)  # ids of what became no turn that the store would know again
        self._looking = self._looks()
        self.outlet = SlackOutlet(self.calls, self._looking, now=now, markdown=settings.slack_markdown)
        self._app = self._bolt()
        secret = settings.slack_signing_secret
        self.events_handler: Handler | None = events_handler(self._app, secret) if secret else None
        self._sockets: list[Socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # Life.

    async def start(self) -> None:
        """Learn who we are and listen. Where Slack does not answer, this goes on trying behind."""
        await self.calls.open()
        self._later(self._connect(), "connecting to Slack")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._known.wait()
                for socket in self._sockets[:1]:
                    await socket.wait_up()
        except TimeoutError:
            log.warning("Slack does not answer yet; still trying", extra={"action": "slack start"})

    async def close(self) -> None:
        """Stop listening first, then end what is under way; never longer than some seconds."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        await self.outlet.close(timeout_s=CLEAR_S)
        await self.calls.close()

    @property
    def is_listening(self) -> bool:
        """Tell whether events can come in now."""
        by_socket = any(socket.is_up for socket in self._sockets)
        return bool(self.installed) and not self.calls.dead and (by_socket or self.events_handler is not None)

    @property
    def link(self) -> Link:
        """Tell whether Slack can be heard, and how often a socket had to be opened again."""
        return Link(self.is_listening, sum(max(0, socket.lives - 1) for socket in self._sockets))

    async def _connect(self) -> None:
        wait_s = 1.0
        while True:
            found = await attempt(self.calls.identity(), where="asking Slack who Duet is")
            if not isinstance(found, Incident):
                break
            if self.calls.dead:
                return
            asked = found.error.retry_after_s if isinstance(found.error, OutletUnavailable) else None
            await asyncio.sleep(asked or wait_s)
            wait_s = min(LONGEST_WAIT_S, wait_s * 2)
        self.installed[found.team] = found
        if self._settings.slack_app_token:
            self._sockets = [
                Socket(self._app, self._settings.slack_app_token, new_client=self._socket_client, clocks=self._clocks)
                for _ in range(self._settings.slack_sockets)
            ]
            for socket in self._sockets:
                self._later(socket.run(), "listening to Slack")
        self._known.set()
        log.info("In Slack as %s", found.user_name, extra={"action": "slack ready"})

    def _socket_client(self) -> AsyncWebClient:
        """Give a client with the app's token: the SDK writes that into the client it is given."""
        token, address = self._settings.slack_app_token, api_url(self._settings)
        return AsyncWebClient(token, base_url=address, retry_handlers=[], logger=quiet("adapters.slack.sdk"))

    def _looks(self) -> Looking:
        host = urlsplit(self._settings.slack_api_url).netloc
        hosts = () if host == "slack.com" else (host,)
        return Looking(self.calls, self._me, cleared_at=self._duet.cleared_at, file_hosts=hosts)

    async def _me(self) -> Identity:
        """Give who we are, waiting for Slack to say it. Raises: OutletUnavailable."""
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                await self._known.wait()
        except TimeoutError as error:
            raise OutletUnavailable("Slack does not answer.") from error
        return next(iter(self.installed.values()))

    def _later(self, work: Coroutine[Any, Any, Any], where: str) -> None:
        """Do something beside the acknowledgement; its fault is logged."""

        async def do() -> None:
            await attempt(work, where=where)

        task = asyncio.create_task(do(), name=f"slack: {where}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Hearing.

    def _bolt(self) -> AsyncApp:
        async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
            return self._authorized(enterprise_id or "", team_id or "")  # Bolt calls no bound method here

        app = AsyncApp(
            client=AsyncWebClient(base_url=api_url(self._settings), retry_handlers=[]),  # Bolt itself calls nothing
            signing_secret=self._settings.slack_signing_secret or "none",
            process_before_response=True,
            authorize=authorize,
            # `inbound` knows our own messages; this one would fall over an event that is no object.
            ignoring_self_events_enabled=False,
            attaching_function_token_enabled=False,
            logger=quiet("adapters.slack.bolt", logging.ERROR),  # it warns of what is meant here
        )
        app.event(EVERYTHING)(self._heard)
        app.command(EVERYTHING)(self._commanded)
        app.action(EVERYTHING)(self._pressed)
        app.shortcut(EVERYTHING)(self._shortcut)
        app.view(EVERYTHING)(self._closed)
        app.error(self._failed)
        return app

    def _authorized(self, enterprise: str, team: str) -> AuthorizeResult:
        """Give who Duet is in the event's team, without asking anybody. KeyError: not acknowledged, sent again."""
        me = self._identity(enterprise, team)
        return AuthorizeResult(
            enterprise_id=me.enterprise or None,
            team_id=me.team,
            bot_token=self._settings.slack_bot_token,
            bot_id=me.bot,
            bot_user_id=me.user,
        )

    def _identity(self, enterprise: str, team: str) -> Identity:
        if team in self.installed:
            return self.installed[team]
        # An installation for a whole Grid names no team; an event of it may come from any of its workspaces.
        for me in self.installed.values():
            if me.enterprise and enterprise == me.enterprise:
                return me
        raise KeyError(team)

    def _of(self, context: Any) -> Identity:
        return self.installed[context.authorize_result.team_id]

    async def _heard(self, context: Any, body: dict[str, Any]) -> None:
        me = self._of(context)
        match hear_event(body, me, self._follow):
            case Asked(turn, only_if_joined):
                # Read for every message of a thread, so that none overtakes another on its way to the store.
                joined = turn.session.thread == turn.id or await self._duet.is_joined(turn.session)
                if joined or not only_if_joined:
                    await self._claim(turn)
            case Withdrawn(turn, only_if_joined):
                if not only_if_joined or await self._duet.is_joined(turn.session):
                    await self._duet.withdraw(turn)
            case RoomGone(room):
                await self._duet.end(room)
            case Uninstalled(space):
                await self._uninstalled(space)
            case HomeOpened(user, "home"):
                self._later(self.calls.publish_home(user, panels.home_view()), "showing the home tab")

    async def _claim(self, turn: Turn) -> None:
        if turn.kind is TurnKind.RESET:
            question = await self._reset(turn)
            if question.get("text") and self._is_first(turn):
                thread = turn.session.thread or ""
                asking = self.calls.whisper(turn.room.channel, turn.author.id, question, thread=thread)
                self._later(asking, "asking whether to reset")
            return
        if not await self._duet.hear(turn) and turn.files:
            await self._duet.amend(turn)  # the twin that carries the files came second

    def _is_first(self, turn: Turn) -> bool:
        """Tell whether this is heard for the first time, of what is done at once."""
        is_first = turn.id not in self._done
        self._done.append(turn.id)
        return is_first

    async def _uninstalled(self, space: str) -> None:
        for room in await self._duet.rooms():
            if (room.key.platform, room.key.space) == (PLATFORM, space):
                await self._duet.end(room.key)
        self.calls.dead = self.calls.dead or "app_uninstalled"
        log.error("Duet was removed from the workspace %s", space, extra={"action": "slack uninstalled"})

    async def _commanded(self, ack: AsyncAck, context: Any, body: dict[str, Any]) -> None:
        ordered = hear_command(body, self._of(context), now_ms=self._now())
        match ordered:
            case Wanted():
                await ack(await self._reply(ordered))
            case ResetWanted(turn):
                await ack(await self._reset(turn))
            case FileWanted(turn):
                await ack({"response_type": "in_channel"})
                if self._is_first(turn):
                    self._later(bring(self._duet, self.calls, self._looking, turn), "bringing a file")
            case Asked(turn):
                await self._duet.hear(turn)
                # Shows the channel what was typed: the answer will stand below it.
                await ack({"response_type": "in_channel"})

    async def _shortcut(self, ack: AsyncAck, context: Any, body: dict[str, Any]) -> None:
        ordered = hear_shortcut(body, self._of(context), now_ms=self._now())
        question: Payload = {}
        match ordered:
            case ResetWanted(turn):
                question = await self._reset(turn)
            case Asked(turn):
                await self._duet.hear(turn)
        await ack()
        if question.get("text") and (url := text_at(body, "response_url")):  # a shortcut's ack can hold no message
            self._later(self.calls.respond(url, question, in_channel=False), "asking whether to reset")

    async def _reset(self, turn: Turn) -> dict[str, Any]:
        """Claim a reset, unless somebody's answer is being made: then give the question whether it is meant."""
        others = set(await self._duet.open_askers(turn.session)) - {turn.author.id}
        if others:
            return panels.reset_question(turn, len(others))
        await self._duet.hear(turn)
        return {"response_type": "in_channel"}

    async def _reply(self, wanted: Wanted) -> dict[str, Any]:
        match wanted.word:
            case "status":
                return panels.status_reply(await self._duet.status())
            case "sources" if wanted.text:
                findings = await self._duet.search(wanted.text, wanted.room)
                found = [(hit.section, self._duet.url(hit.section)) for hit in findings.hits]
                return panels.findings_reply(wanted.text, found)
            case "sources":
                return panels.documents_reply(self._duet.documents(wanted.room))
        return panels.help_reply(wanted.text)

    async def _pressed(self, ack: AsyncAck, context: Any, body: dict[str, Any]) -> None:
        pressed = hear_press(body, self._of(context), now_ms=self._now())
        match pressed:
            case Asked(turn):
                await self._duet.press(turn)
            case Feedback(room, turn_id, user, verdict):
                await self._duet.feedback(room, turn_id, user=user, verdict=verdict)
                thanks = {"text": "Thank you, noted."}
                self._later(self.calls.whisper(room.channel, user, thanks, thread=_thread(body)), "thanking")
            case SourcesWanted():
                self._later(self._show_sources(pressed), "showing sources")
        await ack()

    async def _show_sources(self, wanted: SourcesWanted) -> None:
        answer = await self._duet.answer(wanted.room, wanted.turn)
        found = [(s, self._duet.section(wanted.room, s.section_id)) for s in answer.sources] if answer else []
        await self.calls.open_window(wanted.trigger, panels.sources_window(found))

    async def _closed(self, ack: AsyncAck) -> None:
        await ack()

    async def _failed(self, error: Exception) -> BoltResponse:
        """Leave unacknowledged what could not be claimed, and say why in one line."""
        expected = isinstance(error, DuetError)
        log.log(
            logging.WARNING if expected else logging.ERROR,
            "An event was not taken: %s",
            error,
            exc_info=None if expected else error,
            extra={"action": "not acknowledged"},
        )
        return BoltResponse(status=503)


def check_settings(settings: Settings) -> None:
    """Raises: BadInput when Slack cannot be spoken to, or not be heard."""
    if not settings.slack_bot_token:
        raise BadInput("SLACK_BOT_TOKEN is missing. Run `duet setup slack`.")
    if not settings.slack_app_token and not settings.slack_signing_secret:
        raise BadInput(
            "Slack cannot be heard: set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP events). "
            "Run `duet setup slack`."
        )


def api_url(settings: Settings) -> str:
    return settings.slack_api_url.rstrip("/") + "/"


def _thread(body: Payload) -> str:
    return text_at(body, "container", "thread_ts") or text_at(body, "message", "thread_ts")
