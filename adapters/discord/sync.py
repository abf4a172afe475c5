"""Registering commands: once, when they changed, in one scope. Discord counts registrations (200 a day and server).

https://docs.discord.com/developers/interactions/application-commands#registering-a-command
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import discord
from discord import app_commands

from adapters.discord import faults

log = logging.getLogger(__name__)

EVERYWHERE = "global"


def payload(tree: app_commands.CommandTree[Any]) -> list[dict[str, Any]]:
    """Give the commands as Discord is told them."""
    return [command.to_dict(tree) for command in tree.get_commands()]


def fingerprint(commands: list[dict[str, Any]]) -> str:
    """Give what changes whenever a command does."""
    return hashlib.sha256(json.dumps(commands, sort_keys=True).encode()).hexdigest()


class Sync:
    """Register the tree's commands and remember that in `file`."""

    def __init__(self, client: discord.Client, tree: app_commands.CommandTree[Any], *, file: Path, guild: str) -> None:
        """`guild` is the one server to register in; empty means everywhere."""
        self._client = client
        self._tree = tree
        self._file = file
        self._scope = guild or EVERYWHERE

    async def run(self) -> bool:
        """Register if commands, scope or application changed since; False when nothing had to be done.

        A refusal is logged and not remembered, so that the next start tries again: Duet works without new commands.
        """
        wanted = {
            "application": str(self._client.application_id),
            "scope": self._scope,
            "hash": fingerprint(payload(self._tree)),
        }
        before = self.remembered()
        if before == wanted:
            return False
        try:
            await self._register()
            if before.get("application") == wanted["application"] and before.get("scope", self._scope) != self._scope:
                await self._clear(before["scope"])
        except faults.RequestFailed as error:
            log.error("Commands could not be registered: %s", error, extra={"action": "sync"})
            return False
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(wanted), "utf-8")
        log.info("Commands were registered in %s", self._scope, extra={"action": "sync"})
        return True

    def remembered(self) -> dict[str, str]:
        """Give what was registered last; nothing when that is not known."""
        try:
            found = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    async def _register(self) -> None:
        if self._scope == EVERYWHERE:
            await self._tree.sync()
            return
        guild = discord.Object(int(self._scope))
        self._tree.copy_global_to(guild=guild)
        await self._tree.sync(guild=guild)

    async def _clear(self, scope: str) -> None:
        """Take the commands out of the scope they were in, else menus show each twice."""
        application = self._client.application_id
        if application is None:
            return
        if scope == EVERYWHERE:
            await self._client.http.bulk_upsert_global_commands(application, [])
        else:
            await self._client.http.bulk_upsert_guild_commands(application, int(scope), [])

    async def clear_strays(self, *, at_most: int = 25) -> int:
        """Take away commands that stand in a server beside those that stand everywhere; give in how many servers."""
        application, cleared = self._client.application_id, 0
        if self._scope != EVERYWHERE or application is None:
            return 0
        for guild in self._client.guilds[:at_most]:
            try:
                if await self._client.http.get_guild_commands(application, guild.id):
                    await self._clear(str(guild.id))
                    cleared += 1
            except faults.RequestFailed as error:
                log.info("Could not look for stale commands: %s", error, extra={"action": "sync"})
        return cleared
