"""The one authoriser for every way into Duet from Discord: mention, slash command, menu, button, autocomplete.

It fails closed. A person whose standing Discord did not send along (a direct message, a user-installed command) is
looked up before anything is told to them; turns of such people are decided by the core once it knows.
"""

from __future__ import annotations

import logging

import discord

from adapters.discord.inbound import author_of, is_present
from adapters.discord.surroundings import Looker
from bot.conversation import Author, Standing
from bot.policy import Action, Policy, refusal

log = logging.getLogger(__name__)


class Gate:
    """Say who may do what, and leave a line for each decision."""

    def __init__(self, policy: Policy, looker: Looker) -> None:
        self._policy = policy
        self._looker = looker

    def at_once(self, interaction: discord.Interaction, action: Action) -> str | None:
        """Give the sentence that refuses, without asking anybody; None allows, or leaves it to the core."""
        author = self._author(interaction)
        if action is Action.RUN and not is_present(interaction):
            return self._noted(interaction, action, "Commands run only in servers that Duet is in.")
        if author.standing is Standing.UNKNOWN:
            return self._noted(interaction, action, None)
        return self._noted(interaction, action, refusal(action, author, self._policy))

    async def looked_up(self, interaction: discord.Interaction, action: Action) -> str | None:
        """Give the sentence that refuses, for what no turn comes of; None allows."""
        author = await self._looker.known(self._author(interaction))
        return self._noted(interaction, action, refusal(action, author, self._policy))

    async def hears(self, message: discord.Message) -> str | None:
        """Give the sentence that refuses whoever said something that no turn comes of; None allows."""
        author = await self._looker.known(author_of(message.author, is_ours=message.guild is not None))
        return self._noted(message, Action.ASK, refusal(Action.ASK, author, self._policy))

    def needs_time(self, interaction: discord.Interaction) -> bool:
        """Tell whether the person must be looked up, which may take longer than Discord waits for an answer."""
        return self._author(interaction).standing is Standing.UNKNOWN

    def _author(self, interaction: discord.Interaction) -> Author:
        return author_of(interaction.user, is_ours=interaction.guild_id is not None and is_present(interaction))

    def _noted(self, event: discord.Interaction | discord.Message, action: Action, why_not: str | None) -> str | None:
        """Log who wanted what where, and what came of it; ids only, no names and no text."""
        if isinstance(event, discord.Message):
            who, where = event.author.id, event.channel.id
        else:
            who, where = event.user.id, event.channel_id or 0
        log.info(
            "%s %s to %s in %s",
            *("Refused" if why_not else "Admitted", who, action, where),
            extra={"action": "refused" if why_not else "admitted", "event": event.id, "wanted": str(action)},
        )
        return why_not
