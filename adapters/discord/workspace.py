"""`/duet get`: a file out of the room's sandbox, uploaded where it was asked for."""

from __future__ import annotations

import io
import logging
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import discord

from adapters.discord import faults
from adapters.discord.entry import Entry
from adapters.discord.formatting import inline
from adapters.discord.inbound import place_of_interaction
from bot.conversation import SessionKey
from bot.errors import BadInput, SandboxUnavailable
from bot.policy import Action

if TYPE_CHECKING:
    from bot.duet import Duet

log = logging.getLogger(__name__)

SENTENCE_CHARS = 600  # a sentence may hold a long path
NOT_TAKEN = "Discord did not take the file. Duet may lack the permission Attach Files here."
RESET = "The channel was reset meanwhile."


async def bring(entry: Entry, interaction: discord.Interaction, path: str) -> None:
    """Show the file, or what went wrong, to all who see the channel; a refusal to the person alone."""
    if not await entry.admits(interaction, Action.RUN) or not await entry.defers(interaction):
        return
    gate = entry.gate
    if gate.needs_time(interaction) and (why_not := await gate.looked_up(interaction, Action.RUN)):
        await entry.fill(interaction, why_not)
        return
    session = SessionKey(place_of_interaction(interaction).room)
    cleared_at = await entry.duet.cleared_at(session)
    found = await _fetched(entry.duet, session, path, limit_bytes=interaction.filesize_limit)
    if isinstance(found, str):
        await entry.fill(interaction, inline(found[:SENTENCE_CHARS]))
        return
    name = PurePosixPath(path).name
    try:
        await entry.fill(interaction, inline(name), discord.File(io.BytesIO(found), name))
    except faults.RequestFailed as error:
        log.warning("Discord took no file: %s", error, extra={"action": "get", "code": faults.code_of(error)})
        await entry.fill(interaction, NOT_TAKEN)
    # An upload is no statement that a reset could fence, so what came after one is taken back.
    if await entry.duet.cleared_at(session) != cleared_at:
        await entry.fill(interaction, RESET)


async def _fetched(duet: Duet, session: SessionKey, path: str, *, limit_bytes: int) -> bytes | str:
    """Give the file, or the sentence that says why it cannot be brought."""
    try:
        data = await duet.get_file(session.room, path)
    except (BadInput, SandboxUnavailable) as error:
        return str(error)
    if not data:
        return f"{path} is empty."
    if len(data) > limit_bytes:
        most, size = limit_bytes / 2**20, len(data) / 2**20
        return f"{path} has {size:.1f} MB; Discord takes files of at most {most:.0f} MB here."
    return data
