"""From an interaction to a claimed, acknowledged turn: authorise, claim, acknowledge, and only then work.

https://docs.discord.com/developers/interactions/receiving-and-responding: the first answer within 3 seconds, one only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import discord

from adapters.discord import faults
from adapters.discord.gate import Gate
from adapters.discord.outlet import DiscordOutlet
from adapters.discord.tokens import Acknowledged, Tokens
from bot.conversation import Turn
from bot.errors import Incident, StoreUnavailable, attempt
from bot.policy import Action, unusable

if TYPE_CHECKING:
    from bot.duet import Duet

log = logging.getLogger(__name__)

Defer: TypeAlias = "Callable[[], Awaitable[discord.InteractionCallbackResponse[discord.Client] | None]]"

CLAIM_S = 2.0
NOT_STORED = "Duet cannot store anything right now, so this was not taken. Try again in a minute."


class Entry:
    """What slash commands, menus and buttons have in common."""

    def __init__(self, duet: Duet, gate: Gate, tokens: Tokens, outlet: DiscordOutlet) -> None:
        self.duet = duet
        self.gate = gate
        self._tokens = tokens
        self._outlet = outlet
        self._watches: set[asyncio.Task[None]] = set()

    async def admits(self, interaction: discord.Interaction, action: Action) -> bool:
        """Tell whether to go on with something that becomes a turn; a refusal is told to the person alone."""
        why_not = self.gate.at_once(interaction, action)
        if why_not is not None:
            await self.say(interaction, why_not)
        return why_not is None

    async def admits_reader(self, interaction: discord.Interaction, action: Action = Action.ASK) -> bool:
        """Tell whether to go on with something that is answered here and now."""
        if self.gate.needs_time(interaction) and not await self.defers(interaction, for_one=True):
            return False
        why_not = await self.gate.looked_up(interaction, action)
        if why_not is not None:
            await self.say(interaction, why_not)
        return why_not is None

    async def take(self, interaction: discord.Interaction, turn: Turn, *, is_private: bool = False) -> None:
        """Claim a command's turn, then show "thinking…"; what could not be stored is refused."""
        if why_not := (unusable(turn.text) if turn.text or not turn.files else None):
            await self.say(interaction, why_not)
            return
        defer = partial(interaction.response.defer, ephemeral=is_private, thinking=True)
        if await self._claimed(interaction, turn, defer):
            self._watch(turn)

    async def take_press(self, interaction: discord.Interaction, turn: Turn) -> None:
        """Claim a pressed button's turn; the card stays as it is until the core redraws it."""
        await self._claimed(interaction, turn, interaction.response.defer)

    async def _claimed(self, interaction: discord.Interaction, turn: Turn, defer: Defer) -> bool:
        """Claim, then acknowledge; a claim that takes too long is waited for after the acknowledgement."""
        self._tokens.expect(turn.id)
        claim = asyncio.ensure_future(self.duet.hear(turn))
        acknowledging = asyncio.ensure_future(self._after(claim, defer))
        try:
            is_new = await claim
        except StoreUnavailable as error:
            log.warning("Did not take a turn: %s", error, extra={"action": "not stored"})
            acknowledged = await acknowledging
            self._tokens.note(turn.id, acknowledged)
            await self.say(interaction, NOT_STORED)
            return False
        self._tokens.note(turn.id, await acknowledging)
        return is_new

    async def _after(self, claim: asyncio.Future[bool], defer: Defer) -> Acknowledged:
        """Acknowledge when the claim is there, or when Discord would wait no longer."""
        await asyncio.wait({claim}, timeout=CLAIM_S)
        if claim.done() and (claim.cancelled() or claim.exception() is not None):
            return Acknowledged(ok=False)
        try:
            made = await defer()
        except discord.HTTPException as error:
            # 10062: too late, so the answer goes to the channel. 40060: another process was faster.
            log.warning("Acknowledged too late: %s", error, extra={"action": "acknowledge", "code": error.code})
            return Acknowledged(ok=error.code == faults.ALREADY_ACKNOWLEDGED)
        except faults.RequestFailed as error:
            log.warning("Could not acknowledge: %s", error, extra={"action": "acknowledge"})
            return Acknowledged(ok=False)
        return Acknowledged(original=made.message_id or 0 if made else 0)

    async def say(self, interaction: discord.Interaction, text: str) -> None:
        """Tell something to the person alone: as first answer, in place of "thinking…", or after it. Never raises."""
        try:
            if interaction.response.type is discord.InteractionResponseType.deferred_channel_message:
                await self.fill(interaction, text)
            elif interaction.response.is_done():
                await interaction.followup.send(text, ephemeral=True)
            else:
                await interaction.response.send_message(text, ephemeral=True, suppress_embeds=True)
        except faults.RequestFailed as error:
            log.info("Could not tell a person: %s", error, extra={"action": "say", "code": faults.code_of(error)})

    async def defers(self, interaction: discord.Interaction, *, for_one: bool = False) -> bool:
        """Show "thinking…"; False when Discord waits no longer, or another process was faster."""
        try:
            await interaction.response.defer(thinking=True, ephemeral=for_one)
        except faults.RequestFailed as error:
            log.warning("Could not defer: %s", error, extra={"action": "defer", "code": faults.code_of(error)})
            return False
        return True

    async def fill(self, interaction: discord.Interaction, text: str, *files: discord.File) -> None:
        """Write where "thinking…" stands, with these files and no others. Raises what Discord raises."""
        await interaction.edit_original_response(content=text, attachments=files)

    async def guarded(self, interaction: discord.Interaction, work: Awaitable[None], *, where: str) -> None:
        """Do the work of an interaction; a fault becomes a sentence with its number."""
        done = await attempt(work, where=where)
        if isinstance(done, Incident):
            await self.say(interaction, f"{done.text} (incident {done.id})")

    # ── Answers that come late ────────────────────────────────────────────────────────────────────────────────────

    def _watch(self, turn: Turn) -> None:
        task = asyncio.create_task(self._say_late(turn), name=f"late {turn.session}:{turn.id}")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _say_late(self, turn: Turn) -> None:
        """Before the token ends, say where the answer will come, or stop what could never be shown."""
        await asyncio.sleep(self._tokens.remaining_s(turn.reply_to))
        if await self.duet.answer(turn.room, turn.id) is not None:
            return
        if turn.reply_to.get("member"):
            await self._outlet.tell_late(turn)
        else:
            await self._outlet.tell_too_late(turn)
            await self.duet.stop(turn.room, turn.id, by=turn.author, id=f"{turn.id}-late")

    async def close(self) -> None:
        """Watch no longer."""
        for task in self._watches:
            task.cancel()
        if self._watches:
            await asyncio.wait(set(self._watches))
