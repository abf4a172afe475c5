"""What Duet needs to be allowed in Discord: one list for the invite link, the manifest, the doctor and refusals."""

from __future__ import annotations

from typing import Any

import discord

NEEDED = {
    "view_channel": "View Channel",
    "send_messages": "Send Messages",
    "send_messages_in_threads": "Send Messages in Threads",
    "create_public_threads": "Create Public Threads",
    "read_message_history": "Read Message History",
    "attach_files": "Attach Files",
    "embed_links": "Embed Links",
}
SCOPES = ("bot", "applications.commands")


def needed() -> discord.Permissions:
    """Give the permissions that the invite link asks for."""
    return discord.Permissions(**dict.fromkeys(NEEDED, True))


def invite_url(application_id: int) -> str:
    """Give the link by which an admin adds Duet to a server."""
    return discord.utils.oauth_url(application_id, permissions=needed(), scopes=SCOPES)


def missing(client: discord.Client, channel_id: int, *, with_files: bool = False) -> list[str]:
    """Name the permissions that Duet lacks to answer in a channel; nothing where the channel is not known."""
    channel = client.get_channel(channel_id)
    guild = getattr(channel, "guild", None)
    if channel is None or guild is None:
        return []
    wanted = {"view_channel", "read_message_history"}
    wanted.add("send_messages_in_threads" if isinstance(channel, discord.Thread) else "send_messages")
    if with_files:
        wanted.add("attach_files")
    return lacking(channel, guild.me, wanted)


def lacking(channel: Any, member: discord.Member, wanted: set[str] | frozenset[str]) -> list[str]:
    """Name those of the wanted permissions that a member lacks in a channel, in the words of Discord's settings."""
    has = channel.permissions_for(member)
    return [words for name, words in NEEDED.items() if name in wanted and not getattr(has, name)]
