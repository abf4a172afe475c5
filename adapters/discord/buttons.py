"""Buttons that survive a restart: everything they need stands in their ids, everything else in the store."""

from __future__ import annotations

from typing import Any

import discord

from adapters.discord.entry import Entry
from adapters.discord.inbound import author_of, is_present, place_of_interaction, to_press
from adapters.discord.outbound import listed
from bot.conversation import Verdict
from bot.policy import Action

# `outbound.custom_id` writes these.
TEMPLATE = r"duet:(?P<action>approve|deny|retry|stop|sources|up|down):(?P<target>[^:]{1,80})"

_VERDICTS = {"approve": Verdict.APPROVE, "deny": Verdict.DENY, "retry": Verdict.RETRY}
_WANTED = {"approve": Action.APPROVE, "deny": Action.APPROVE, "stop": Action.STOP}


class Buttons:
    """What each button does."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def item(self) -> type[discord.ui.DynamicItem[discord.ui.Button[discord.ui.View]]]:
        """Give the class that discord.py makes an object of for each press."""
        buttons = self

        class TurnButton(discord.ui.DynamicItem[discord.ui.Button[discord.ui.View]], template=TEMPLATE):
            def __init__(self, item: discord.ui.Button[discord.ui.View], action: str, target: str) -> None:
                super().__init__(item)
                self.action = action
                self.target = target

            @classmethod
            async def from_custom_id(
                cls, interaction: discord.Interaction[Any], item: discord.ui.Item[Any], match: Any, /
            ) -> TurnButton:
                assert isinstance(item, discord.ui.Button)
                return cls(item, match["action"], match["target"])

            async def callback(self, interaction: discord.Interaction[Any]) -> None:
                await buttons.pressed(interaction, self.action, self.target)

        return TurnButton

    async def pressed(self, interaction: discord.Interaction, action: str, target: str) -> None:
        """Do what a button stands for, once the person may."""
        do = {"stop": self._stop, "sources": self._sources, "up": self._feedback, "down": self._feedback}
        work = do.get(action, self._decide)(interaction, action, target)
        await self._entry.guarded(interaction, work, where=f"pressing {action}")

    async def _decide(self, interaction: discord.Interaction, action: str, target: str) -> None:
        if await self._entry.admits(interaction, _WANTED.get(action, Action.ASK)):
            turn = to_press(interaction, target=target, verdict=_VERDICTS[action])
            await self._entry.take_press(interaction, turn)

    async def _stop(self, interaction: discord.Interaction, action: str, target: str) -> None:
        if not await self._entry.admits(interaction, Action.STOP):
            return
        is_ours = interaction.guild_id is not None and is_present(interaction)
        by = author_of(interaction.user, is_ours=is_ours)
        room = place_of_interaction(interaction).room
        await self._entry.duet.stop(room, target, by=by, id=str(interaction.id))
        await self._entry.say(interaction, "Stopping.")

    async def _sources(self, interaction: discord.Interaction, action: str, target: str) -> None:
        if await self._entry.admits_reader(interaction):
            answer = await self._entry.duet.answer(place_of_interaction(interaction).room, target)
            gone = "That answer is gone: the conversation was reset."
            await self._entry.say(interaction, listed(answer.sources) if answer else gone)

    async def _feedback(self, interaction: discord.Interaction, action: str, target: str) -> None:
        if await self._entry.admits_reader(interaction):
            room, user = place_of_interaction(interaction).room, str(interaction.user.id)
            kept = await self._entry.duet.feedback(room, target, user=user, verdict=action)
            await self._entry.say(interaction, "Thank you, noted." if kept else "That answer is gone.")
