"""What `duet doctor` looks at in Slack: tokens, permissions, the socket, channels; each with how to mend it."""

from __future__ import annotations

from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack import faults
from adapters.slack.app import api_url
from adapters.slack.calls import quiet
from adapters.slack.setup import manifest, shape_faults
from bot.checks import Check, Health
from bot.settings import Settings, masked

_CALL_FAULTS = (SlackClientError, aiohttp.ClientError, TimeoutError, OSError)
REINSTALL = "In api.slack.com/apps paste manifest/slack.json under App Manifest, then Install App > Reinstall."
TOKENS = "Copy it again (duet setup slack shows where) and put it into .env."


async def checks(settings: Settings, *, offline: bool = False) -> list[Check]:
    """Give every check of Slack; one that says so where Slack is not set up."""
    if not settings.slack_bot_token and not settings.slack_app_token:
        return [Check("slack", Health.OK, "not set up", "To use Slack, run duet setup slack.")]
    shapes = _shapes(settings)
    if offline or any(check.verdict is Health.FAIL for check in shapes):
        return shapes
    found = await _bot_token(settings)
    if found[0].verdict is Health.OK:
        found.append(await _channels(settings))
    return [*shapes, *found, await _way_in(settings)]


def _shapes(settings: Settings) -> list[Check]:
    """Look at the tokens' shapes alone: a swapped pair is seen without asking anybody."""
    given = {
        "SLACK_BOT_TOKEN": settings.slack_bot_token,
        "SLACK_APP_TOKEN": settings.slack_app_token,
    }
    wrong = shape_faults({name: value for name, value in given.items() if value})
    if not settings.slack_bot_token:
        wrong.append("SLACK_BOT_TOKEN is missing.")
    if wrong:
        return [Check("slack tokens", Health.FAIL, " ".join(wrong), TOKENS)]
    seen = ", ".join(f"{name} {masked(value)}" for name, value in given.items() if value)
    return [Check("slack tokens", Health.OK, seen)]


def _client(settings: Settings, token: str) -> AsyncWebClient:
    return AsyncWebClient(
        token, base_url=api_url(settings), timeout=10, retry_handlers=[], logger=quiet("adapters.slack.sdk")
    )


async def _bot_token(settings: Settings) -> list[Check]:
    try:
        said = await _client(settings, settings.slack_bot_token).auth_test()
    except _CALL_FAULTS as error:
        return [_fault("slack bot token", error, TOKENS)]
    who = Check("slack bot token", Health.OK, f"{said.get('user', '?')} in {said.get('team', '?')}")
    return [who, _scopes(said.headers)]


def _scopes(headers: Any) -> Check:
    """Compare the scopes that were granted with those of the manifest: a changed one needs a reinstall."""
    value = next((v for k, v in headers.items() if k.lower() == "x-oauth-scopes"), None)
    if value is None:
        return Check("slack permissions", Health.WARN, "Slack did not say which it granted")
    granted = {scope.strip() for scope in str(value).split(",")}
    missing = sorted(set(manifest()["oauth_config"]["scopes"]["bot"]) - granted)
    if missing:
        return Check("slack permissions", Health.FAIL, f"missing: {', '.join(missing)}", REINSTALL)
    return Check("slack permissions", Health.OK, "all of the manifest's are granted")


async def _channels(settings: Settings) -> Check:
    try:
        said = await _client(settings, settings.slack_bot_token).users_conversations(
            types="public_channel,private_channel", exclude_archived=True, limit=200
        )
    except _CALL_FAULTS as error:
        return _fault("slack channels", error, REINSTALL, verdict=Health.WARN)
    found = said.get("channels") or []
    if not found:
        return Check("slack channels", Health.WARN, "in no channel yet", "In a channel, type /invite @duet.")
    return Check("slack channels", Health.OK, f"in {len(found)}")


async def _way_in(settings: Settings) -> Check:
    """Look at how events come in: a socket can be asked for, or the signing secret is there."""
    if not settings.slack_app_token:
        if settings.slack_signing_secret:
            seen = "signed HTTP events; whether Slack reaches this address only Slack can tell"
            return Check("slack events", Health.OK, seen)
        return Check("slack events", Health.FAIL, "no way in", "Set SLACK_APP_TOKEN or SLACK_SIGNING_SECRET.")
    mend = "Basic Information > App-Level Tokens: make one with connections:write, put it into SLACK_APP_TOKEN."
    try:
        await _client(settings, settings.slack_app_token).apps_connections_open(app_token=settings.slack_app_token)
    except _CALL_FAULTS as error:
        return _fault("slack events", error, mend)
    return Check("slack events", Health.OK, "Socket Mode connections are granted")


def _fault(name: str, error: Exception, mend: str, *, verdict: Health = Health.FAIL) -> Check:
    if not isinstance(error, SlackApiError):
        return Check(
            name, verdict, f"Slack was not reached ({type(error).__name__})", "Check network and SLACK_API_URL."
        )
    told = faults.as_outlet_error(error)
    return Check(name, verdict, f"{faults.error_word(error) or 'refused'}: {told}", mend)
