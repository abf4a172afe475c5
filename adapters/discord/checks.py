"""What `duet doctor` looks at in Discord: token, intents, servers, channels, commands; each with how to mend it."""

from __future__ import annotations

from typing import Any

import discord

from adapters.discord import faults
from adapters.discord.app import build_client, point
from adapters.discord.permissions import NEEDED, invite_url, lacking
from adapters.discord.setup import PORTAL, token_fault, wanted_commands
from bot.checks import Check, Health
from bot.settings import Settings, masked

COPY_ANEW = "Copy it anew: Developer Portal, your app, Bot, Reset Token (duet setup discord shows where)."
GUILDS = 10
CHANNELS_NAMED = 5
WANTED = frozenset(NEEDED) - {"create_public_threads"}


async def checks(settings: Settings, *, offline: bool = False) -> list[Check]:
    """Give every check of Discord; one that says so where Discord is not set up."""
    if not settings.discord_token:
        return [Check("discord", Health.OK, "not set up", "To use Discord, run duet setup discord.")]
    if (fault := token_fault(settings.discord_token)) and not settings.discord_api_base:
        return [Check("discord token", Health.FAIL, fault, COPY_ANEW)]
    if offline:
        return [Check("discord token", Health.OK, f"{masked(settings.discord_token)} (not tried: --offline)")]
    point(settings)
    client = build_client(settings)
    try:
        return await _asked(client, settings)
    finally:
        await client.close()


async def _asked(client: discord.Client, settings: Settings) -> list[Check]:
    try:
        await client.login(settings.discord_token)
        info = await client.application_info()
    except discord.LoginFailure:
        return [Check("discord token", Health.FAIL, "Discord does not take it", COPY_ANEW)]
    except faults.RequestFailed as error:
        return [_failed("discord token", error, verdict=Health.FAIL)]
    found = [Check("discord token", Health.OK, f"{client.user} ({masked(settings.discord_token)})")]
    found.append(_intents(info.flags, settings))
    try:
        guilds = [guild async for guild in client.fetch_guilds(limit=200)]
        found.append(_guilds(guilds, info.id))
        found += [check for guild in guilds[:GUILDS] for check in await _channels(client, guild.id)]
        found.append(await _commands(client, settings))
    except faults.RequestFailed as error:
        found.append(_failed("discord servers", error))
    return found


def _failed(name: str, error: Exception, *, verdict: Health = Health.WARN) -> Check:
    return Check(name, verdict, str(faults.to_outlet_error(error)), "Try again; see https://discordstatus.com.")


def _intents(flags: discord.ApplicationFlags, settings: Settings) -> Check:
    granted = flags.gateway_message_content or flags.gateway_message_content_limited
    if settings.discord_message_content and not granted:
        mend = f"Switch it on: {PORTAL}, your app, Bot, Message Content Intent; or set discord.message_content = false."
        return Check("discord intents", Health.FAIL, "Message Content is wanted but not granted", mend)
    seen = "Message Content, as set" if settings.discord_message_content else "none beyond the free ones is needed"
    return Check("discord intents", Health.OK, seen)


def _guilds(guilds: list[discord.Guild], application_id: int) -> Check:
    if not guilds:
        return Check("discord servers", Health.WARN, "in no server yet", f"Invite it: {invite_url(application_id)}")
    return Check("discord servers", Health.OK, f"in {len(guilds)}")


async def _channels(client: discord.Client, guild_id: int) -> list[Check]:
    """Look at what Duet may do in each text channel that it can see at all."""
    guild = await client.fetch_guild(guild_id, with_counts=False)
    me = await guild.fetch_member(client.user.id) if client.user else None
    channels = [c for c in await guild.fetch_channels() if isinstance(c, discord.TextChannel)]
    if me is None:
        return []
    seen = [channel for channel in channels if channel.permissions_for(me).view_channel]
    short = [(channel.name, lacks) for channel in seen if (lacks := lacking(channel, me, WANTED))]
    name = f"discord channels of {guild.name}"
    if not short:
        return [
            Check(name, Health.OK, f"{len(seen)} of {len(channels)} text channels can be seen, all with what is needed")
        ]
    named = "; ".join(f"#{channel}: {', '.join(lacks)}" for channel, lacks in short[:CHANNELS_NAMED])
    more = f" and {len(short) - CHANNELS_NAMED} more" if len(short) > CHANNELS_NAMED else ""
    return [
        Check(name, Health.WARN, f"missing in {named}{more}", "Edit the channel, Permissions, Duet, and allow them.")
    ]


async def _commands(client: discord.Client, settings: Settings) -> Check:
    """Compare what is registered with what this version has."""
    application = client.application_id
    if application is None:
        return Check("discord commands", Health.WARN, "not looked at", "Run duet serve once.")
    http, guild = client.http, settings.discord_guild
    registered = await (
        http.get_guild_commands(application, int(guild)) if guild else http.get_global_commands(application)
    )
    if _outline(registered) == _outline(wanted_commands()):
        return Check("discord commands", Health.OK, "registered" + (f" in server {guild}" if guild else ""))
    seen = "not registered yet" if not registered else "registered in another form than this version's"
    mend = "Run duet serve once; it registers them. In clients press Ctrl+R."
    return Check("discord commands", Health.WARN, seen, mend)


def _outline(commands: Any) -> set[tuple[str, int, tuple[str, ...]]]:
    """Give names, types and options: what a person would notice."""
    return {(c["name"], int(c.get("type", 1)), tuple(sorted(_option_names(c.get("options") or [])))) for c in commands}


def _option_names(options: list[dict[str, Any]], prefix: str = "") -> list[str]:
    names = []
    for option in options:
        names.append(prefix + option["name"])
        names += _option_names(option.get("options") or [], f"{prefix}{option['name']} ")
    return names
