"""What Discord's refusals mean: the codes that this adapter knows, and the outlet error that each becomes.

https://docs.discord.com/developers/topics/opcodes-and-status-codes#json-json-error-codes
"""

from __future__ import annotations

import asyncio

import aiohttp
import discord

from bot.errors import OutletError, OutletRefused, OutletUnavailable

UNKNOWN_CHANNEL = 10003
UNKNOWN_GUILD = 10004
UNKNOWN_MESSAGE = 10008
UNKNOWN_WEBHOOK = 10015
UNKNOWN_INTERACTION = 10062
SLOWMODE = 20016
WRITE_LIMIT = 20028
OLD_MESSAGE_EDITS = 30046
ALREADY_ACKNOWLEDGED = 40060
MISSING_ACCESS = 50001
EMPTY_MESSAGE = 50006
CANNOT_DIRECT_MESSAGE = 50007
MISSING_PERMISSIONS = 50013
WRONG_CHANNEL_TYPE = 50024
INVALID_TOKEN = 50027
INVALID_FORM = 50035
THREAD_ARCHIVED = 50083
NO_MUTUAL_GUILD = 50278
NO_HISTORY_PERMISSION = 160002
THREAD_EXISTS = 160004
THREAD_LOCKED = 160005
TOO_MANY_THREADS = 160006
BLOCKED_BY_RULE = 200000
HARMFUL_LINK = 240000

TOKEN_ENDED = frozenset({INVALID_TOKEN, UNKNOWN_WEBHOOK, UNKNOWN_INTERACTION})
CLOSED_TO_US = frozenset({MISSING_ACCESS, MISSING_PERMISSIONS, THREAD_LOCKED, THREAD_ARCHIVED})
NO_THREAD = frozenset(
    {MISSING_ACCESS, MISSING_PERMISSIONS, WRONG_CHANNEL_TYPE, TOO_MANY_THREADS, INVALID_FORM, UNKNOWN_MESSAGE}
)
UNREACHABLE = frozenset({CANNOT_DIRECT_MESSAGE, NO_MUTUAL_GUILD})

# What may be raised by a request that discord.py makes: its own family, and what it lets through from the connection.
ConnectionLost = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
RequestFailed = (discord.DiscordException, *ConnectionLost)

_REASONS = {
    MISSING_ACCESS: "Duet cannot see this channel.",
    MISSING_PERMISSIONS: "Duet lacks a permission in this channel.",
    THREAD_LOCKED: "The thread is locked.",
    THREAD_ARCHIVED: "The thread is archived and Duet may not open it again.",
    CANNOT_DIRECT_MESSAGE: "The person takes no direct messages from Duet.",
    NO_MUTUAL_GUILD: "The person shares no server with Duet.",
    BLOCKED_BY_RULE: "A moderation rule of this server blocked the answer.",
    HARMFUL_LINK: "Discord takes a link in the answer for harmful and blocked it.",
    INVALID_FORM: "Discord did not accept the form of the answer.",
    EMPTY_MESSAGE: "Discord did not accept the form of the answer.",
    INVALID_TOKEN: "Discord closed this answer; ask again in a channel that Duet is in.",
    UNKNOWN_WEBHOOK: "Discord closed this answer; ask again in a channel that Duet is in.",
    UNKNOWN_INTERACTION: "Discord closed this answer; ask again in a channel that Duet is in.",
}
_GONE = {UNKNOWN_CHANNEL: "The channel is gone.", UNKNOWN_GUILD: "The server is gone."}
_BAD_TOKEN_REST_S = 60.0


def code_of(error: BaseException) -> int:
    """Give Discord's code for `error`, 0 where there is none."""
    return error.code if isinstance(error, discord.HTTPException) else 0


def to_outlet_error(error: Exception) -> OutletError:
    """Give what `error` means to whoever wanted something shown: later, or never."""
    code = code_of(error)
    if code in _GONE:
        return OutletRefused(_GONE[code], room_is_gone=True)
    match error:
        case OutletError():
            return error
        case discord.RateLimited():
            return OutletUnavailable("Discord asks to wait.", retry_after_s=error.retry_after)
        case discord.HTTPException() if error.status == 429 or code in (SLOWMODE, WRITE_LIMIT):
            return OutletUnavailable("Discord asks to wait.", retry_after_s=_retry_after(error))
        case discord.HTTPException() if error.status >= 500:
            return OutletUnavailable(f"Discord answered {error.status}.")
        case discord.HTTPException() if error.status == 401 and code not in TOKEN_ENDED:
            return OutletUnavailable("Discord does not take the bot's token.", retry_after_s=_BAD_TOKEN_REST_S)
        case discord.HTTPException():
            return OutletRefused(_REASONS.get(code, f"Discord refused the answer ({error.status}, code {code})."))
        case _:
            return OutletUnavailable(f"Discord could not be reached ({type(error).__name__}).")


def _retry_after(error: discord.HTTPException) -> float | None:
    """Give the pause that the answer's header asks for; discord.py keeps no more of it."""
    stated = getattr(error.response, "headers", {}).get("Retry-After")
    try:
        return float(stated) if stated else None
    except ValueError:
        return None
