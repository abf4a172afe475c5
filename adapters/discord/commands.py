"""`/duet …` and the message menu: what people type and pick, each through the one gate."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import discord
from discord import app_commands

from adapters.discord.buttons import Buttons
from adapters.discord.entry import Entry
from adapters.discord.formatting import LIMIT_CHARS, Block, inline, link, pieces
from adapters.discord.inbound import about, place_of_interaction, to_interaction_turn
from adapters.discord.outbound import sources as sources_of
from adapters.discord.workspace import bring
from bot.conversation import RoomKey, SessionKey, Turn, TurnKind
from bot.policy import Action

if TYPE_CHECKING:
    from bot.duet import Status
    from bot.sections import Section

log = logging.getLogger(__name__)

MENU = "Ask Duet about this"
CHOICES = 25  # https://docs.discord.com/developers/interactions/application-commands#autocomplete
CHOICE_CHARS = 100
LISTED_CHARS = 1500
LOOK_BACK = 20  # answers in which the last sources are looked for
LONGEST_TEXT = 6000
LONGEST_PATH = 1000

HELP = """**Duet** answers from your team's standards, with sources, and runs commands in this channel's sandbox.
- Mention me, reply to me, or write to me directly: `@Duet what is our branch naming convention?`
- `/duet ask` asks; `private` shows the answer to you alone, `file` adds a text file
- `/duet run` runs a shell command in the sandbox, `/duet get` brings a file out of it
- `/duet sources` lists what the last answer rests on
- `/duet reset` clears this channel's conversations and sandbox; in a thread, that thread's conversation
- `/duet status` tells how I am
- Right-click a message, Apps, **Ask Duet about this**"""

_GUILD_OR_USER = app_commands.AppInstallationType(guild=True, user=True)
_ANYWHERE = app_commands.AppCommandContext(guild=True, dm_channel=True, private_channel=True)


class Tree(app_commands.CommandTree[Any]):
    """The command tree whose faults become sentences."""

    def __init__(self, client: discord.Client, entry: Entry) -> None:
        super().__init__(client)
        self._entry = entry

    async def on_error(self, interaction: discord.Interaction, error: app_commands.AppCommandError, /) -> None:
        """Answer what discord.py could not hand on: a command of yesterday, an option that is none."""
        if isinstance(error, app_commands.CommandInvokeError):
            log.error("A command failed", exc_info=error, extra={"action": "command"})
            await self._entry.say(interaction, "Something went wrong inside Duet. Try again in a minute.")
            return
        log.warning("A command was not understood: %s", error, extra={"action": "command"})
        await self._entry.say(interaction, "Discord showed an old form of this command. Try again in a minute.")


class DuetCommands(app_commands.Group):
    """`/duet`."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(
            name="duet",
            description="Ask the team's standards, run commands in the sandbox",
            allowed_installs=_GUILD_OR_USER,
            allowed_contexts=_ANYWHERE,
        )
        self._entry = entry

    @app_commands.command(name="ask", description="Ask; the answer comes with its sources")
    @app_commands.describe(question="What to ask", file="A text file to read", private="Show the answer to you alone")
    async def ask(
        self,
        interaction: discord.Interaction,
        question: app_commands.Range[str, 1, LONGEST_TEXT],
        file: discord.Attachment | None = None,
        private: bool = False,
    ) -> None:
        files = [file] if file else []
        turn = to_interaction_turn(interaction, kind=TurnKind.ASK, text=question, files=files, is_private=private)
        await self._entered(interaction, Action.ASK, turn, is_private=private)

    @app_commands.command(name="run", description="Run a shell command in this channel's sandbox")
    @app_commands.describe(command="The command")
    async def run(self, interaction: discord.Interaction, command: app_commands.Range[str, 1, LONGEST_TEXT]) -> None:
        turn = to_interaction_turn(interaction, kind=TurnKind.RUN, text=command)
        await self._entered(interaction, Action.RUN, turn)

    @app_commands.command(name="get", description="Bring a file out of this channel's sandbox")
    @app_commands.describe(path="The file, such as report.csv")
    async def get(self, interaction: discord.Interaction, path: app_commands.Range[str, 1, LONGEST_PATH]) -> None:
        await self._entry.guarded(interaction, bring(self._entry, interaction, path), where="taking /duet get")

    @app_commands.command(name="reset", description="Clear this channel, or in a thread this conversation")
    @app_commands.describe(scope="What to clear, in a thread")
    @app_commands.choices(
        scope=[
            app_commands.Choice(name="here: in a thread its conversation, else the channel", value="here"),
            app_commands.Choice(name="the whole channel: every conversation and the sandbox", value="channel"),
        ]
    )
    async def reset(self, interaction: discord.Interaction, scope: str = "here") -> None:
        turn = to_interaction_turn(interaction, kind=TurnKind.RESET, text="reset")
        if scope == "channel":
            turn = replace(turn, session=SessionKey(turn.room))
        await self._entered(interaction, Action.RESET, turn)

    @app_commands.command(name="sources", description="List what the last answer rests on, or a document's sections")
    @app_commands.describe(document="A document of the Codex, or words to find in it")
    async def sources(self, interaction: discord.Interaction, document: str = "") -> None:
        await self._entry.guarded(interaction, self._sources(interaction, document), where="listing sources")

    @sources.autocomplete("document")
    async def documents(self, interaction: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
        if await self._entry.gate.looked_up(interaction, Action.ASK) is not None:
            return []
        known = self._entry.duet.documents(place_of_interaction(interaction).room)
        fitting = [d for d in known if typed.lower() in f"{d.title} {d.name}".lower() and len(d.name) <= CHOICE_CHARS]
        return [app_commands.Choice(name=(d.title or d.name)[:CHOICE_CHARS], value=d.name) for d in fitting[:CHOICES]]

    @app_commands.command(name="status", description="Tell how Duet is")
    async def status(self, interaction: discord.Interaction) -> None:
        await self._entry.guarded(interaction, self._status(interaction), where="telling the status")

    @app_commands.command(name="help", description="Tell what Duet can do")
    async def help(self, interaction: discord.Interaction) -> None:
        await self._entry.guarded(interaction, self._help(interaction), where="helping")

    async def _entered(
        self, interaction: discord.Interaction, action: Action, turn: Turn, *, is_private: bool = False
    ) -> None:
        await self._entry.guarded(
            interaction,
            self._admitted(interaction, action, turn, is_private=is_private),
            where=f"taking /duet {action}",
        )

    async def _admitted(
        self, interaction: discord.Interaction, action: Action, turn: Turn, *, is_private: bool
    ) -> None:
        if await self._entry.admits(interaction, action):
            await self._entry.take(interaction, turn, is_private=is_private)

    async def _sources(self, interaction: discord.Interaction, document: str) -> None:
        if not await self._entry.admits_reader(interaction):
            return
        session = place_of_interaction(interaction).session
        wanted = self._about(session.room, document) if document else self._last_sources(session)
        await self._entry.say(interaction, pieces(await wanted)[0])

    async def _about(self, room: RoomKey, document: str) -> list[Block]:
        """Give the sections of a document, or, where there is none of that name, those in which its words are found."""
        known = self._entry.duet.sections(room, document)
        if known:
            return [_listed(f"**{inline(known[0].title)}** ({inline(document)})", map(self._section, known))]
        found = await self._entry.duet.search(document, room)
        if not found.hits:
            return [f"The Codex holds nothing about “{inline(document[:CHOICE_CHARS])}”."]
        lines = [self._section(hit.section, of=f"{hit.section.title} › ") for hit in found.hits]
        return [_listed(f"**Found for** {inline(document[:CHOICE_CHARS])}", lines)]

    def _section(self, section: Section, *, of: str = "") -> str:
        return f"{link(of + section.heading, self._entry.duet.url(section))}, line {section.line}"

    async def _last_sources(self, session: SessionKey) -> list[Block]:
        """Give the sources of the last answer here that had some, and what documents there are."""
        said = await self._entry.duet.history(session)
        turns = [message.turn for message in reversed(said) if message.role == "agent" and message.turn]
        above: list[Block] = ["Nothing was answered from the Codex here yet."]
        for turn in dict.fromkeys(turns[:LOOK_BACK]):
            answer = await self._entry.duet.answer(session.room, turn)
            if answer and answer.sources:
                above = sources_of(answer.sources)
                break
        known = [f"{inline(d.title)} ({inline(d.name)})" for d in self._entry.duet.documents(session.room)]
        return [*above, _listed("**The Codex**", known)]

    async def _status(self, interaction: discord.Interaction) -> None:
        if await self._entry.admits_reader(interaction):
            await self._entry.say(interaction, told(await self._entry.duet.status(), interaction.client))

    async def _help(self, interaction: discord.Interaction) -> None:
        if await self._entry.admits_reader(interaction):
            await self._entry.say(interaction, HELP)


def _listed(head: str, lines: Iterable[str]) -> str:
    """Give lines below a head, as many as one message holds with what stands above them."""
    every = [f"- {line}" for line in lines]
    kept = sum(end <= LISTED_CHARS for end in accumulate(len(line) + 1 for line in every))
    more = [f"- … and {len(every) - kept} more"] if kept < len(every) else []
    return "\n".join([head, *every[:kept], *more])


def told(status: Status, client: discord.Client) -> str:
    """Give the state of Duet in lines; nothing of it is secret."""
    servers = "1 server" if len(client.guilds) == 1 else f"{len(client.guilds)} servers"
    lines = [
        f"**Model** {inline(status.model)}",
        f"**Standards** {status.documents} documents",
        f"**Answers being made** {status.turns_running}; {_waiting(status.queue_age_ms)}",
        f"**Answers to be posted** {_waiting(status.outbox_age_ms)}",
        f"**Discord** {servers}{_latency(client)}",
    ]
    return "\n".join(lines)[:LIMIT_CHARS]


def _latency(client: discord.Client) -> str:
    """Give the time a heartbeat takes, once there was one."""
    return "" if math.isnan(client.latency) else f", {client.latency * 1000:.0f} ms"


def _waiting(ms: int | None) -> str:
    return "nothing waits" if ms is None else f"the oldest waits {ms / 1000:.0f} s"


def menu(entry: Entry) -> app_commands.ContextMenu:
    """Give the message menu "Ask Duet about this"."""

    async def ask_about(interaction: discord.Interaction, message: discord.Message) -> None:
        await entry.guarded(interaction, asked(interaction, message), where="taking the menu")

    async def asked(interaction: discord.Interaction, message: discord.Message) -> None:
        me = interaction.client.user
        if me is None or not await entry.admits(interaction, Action.ASK):
            return
        text = about(message, me)
        turn = to_interaction_turn(interaction, kind=TurnKind.ASK, text=text, files=message.attachments)
        await entry.take(interaction, turn)

    return app_commands.ContextMenu(
        name=MENU, callback=ask_about, allowed_installs=_GUILD_OR_USER, allowed_contexts=_ANYWHERE
    )


def build_tree(client: discord.Client, entry: Entry) -> Tree:
    """Give the tree with every command, and register the buttons."""
    tree = Tree(client, entry)
    tree.add_command(DuetCommands(entry))
    tree.add_command(menu(entry))
    client.add_dynamic_items(Buttons(entry).item())
    return tree
