"""What Slack refuses -> what the core does about it: try again later, give up and say why, or end the room.

Error words: https://docs.slack.dev/reference/methods/chat.postMessage#errors
"""

from __future__ import annotations

from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

from bot.errors import OutletError, OutletRefused, OutletUnavailable

LATER = {
    "ratelimited",
    "rate_limited",
    "message_limit_exceeded",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "accesslimited",
    "team_added_to_org",
}
# The channel or thread itself has ended.
GONE = {"is_archived", "channel_not_found", "thread_not_found"}
# Duet may not speak in this channel; a person can change that.
NOT_HERE = {"not_in_channel", "channel_not_found"}
# The installation is dead: every call would fail, so none is made.
DEAD = {
    "invalid_auth",
    "not_authed",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "org_login_required",
    "team_access_not_granted",
}
# What stands there cannot be edited any more: a new message says it.
NOT_EDITABLE = {"message_not_found", "cant_update_message", "edit_window_closed", "update_failed", "not_editable"}
TOO_LONG = {"msg_too_long", "msg_blocks_too_long"}
BAD_BLOCKS = {"invalid_blocks", "invalid_blocks_format", "invalid_attachments", "unsupported_block"}

_SAYS = {
    "not_in_channel": "Duet is not in this channel. Invite it: /invite @duet",
    "channel_not_found": "Slack knows no such channel, or Duet is not in it. Invite it: /invite @duet",
    "is_archived": "The channel is archived.",
    "thread_not_found": "The thread was deleted.",
    "missing_scope": "Duet lacks a permission in Slack. Update its manifest and reinstall the app.",
    "restricted_action": "This workspace does not let Duet post here. Ask an administrator.",
    "restricted_action_read_only_channel": "This channel is read-only for Duet. Ask an administrator.",
    "restricted_action_thread_only_channel": "Only replies in threads are allowed in this channel.",
    "restricted_action_non_threadable_channel": "This channel does not allow threads.",
    "restricted_action_thread_locked": "This thread is locked.",
    "cannot_reply_to_message": "Slack allows no reply to this message.",
    "msg_too_long": "The answer is too long for Slack.",
    "msg_blocks_too_long": "The answer is too long for Slack.",
    "invalid_blocks": "Slack did not take the form of this answer.",
    "account_inactive": "Duet's account in this workspace is deactivated. Reinstall the app.",
    "token_revoked": "The token was revoked. Reinstall the app and put the new one into SLACK_BOT_TOKEN.",
    "token_expired": "The token has expired. Put a new one into SLACK_BOT_TOKEN.",
    "invalid_auth": "Slack does not accept SLACK_BOT_TOKEN. Run `duet doctor`.",
}


def error_word(error: BaseException) -> str:
    """Give Slack's own word for what went wrong, or ''."""
    if not isinstance(error, SlackApiError):
        return ""
    data = _data(error)
    word = data.get("error")
    if isinstance(word, str):
        return word
    return "ratelimited" if _status(error) == 429 else "internal_error" if _status(error) >= 500 else ""


def word_of(error: OutletError) -> str:
    """Give Slack's word behind an error of ours, or ''."""
    return error_word(error.__cause__) if error.__cause__ is not None else ""


def retry_after_s(error: SlackApiError) -> float | None:
    """Give how long Slack asked to wait, or None."""
    headers = getattr(error.response, "headers", None) or {}
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
    value = value[0] if isinstance(value, list) and value else value
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        return None


def needed_scope(error: BaseException) -> str:
    """Give the scope that was missing, or ''."""
    needed = _data(error).get("needed") if isinstance(error, SlackApiError) else None
    return needed if isinstance(needed, str) else ""


def as_outlet_error(error: Exception) -> OutletError:
    """Give the core's error for a fault of a call to Slack."""
    if isinstance(error, OutletError):
        return error
    if isinstance(error, SlackApiError):
        word = error_word(error)
        if word in LATER or _status(error) == 429 or _status(error) >= 500:
            return OutletUnavailable(f"Slack said {word or _status(error)}.", retry_after_s=retry_after_s(error))
        says = _SAYS.get(word) or f"Slack refused this ({word or _status(error)})."
        if scope := needed_scope(error):
            says += f" Missing: {scope}."
        return OutletRefused(says, room_is_gone=word in GONE)
    if isinstance(error, (aiohttp.ClientError, TimeoutError, OSError)):
        return OutletUnavailable(f"Slack was not reached ({type(error).__name__}).")
    if isinstance(error, SlackClientError):
        return OutletRefused(f"The call to Slack was not made: {error}")
    raise error


def _data(error: SlackApiError) -> dict[str, Any]:
    data = getattr(error.response, "data", None)
    return data if isinstance(data, dict) else {}


def _status(error: SlackApiError) -> int:
    status = getattr(error.response, "status_code", None) or getattr(error.response, "status", None)
    return status if isinstance(status, int) else 0
