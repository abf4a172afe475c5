"""The commands that do one thing and leave: each writes its result and gives the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from adapters.terminal import outbound
from adapters.terminal.app import Terminal
from adapters.terminal.cli import EXIT_FAILED, EXIT_NOT_STARTED
from adapters.terminal.inbound import room_named, session_named
from adapters.terminal.progress import Progress
from bot.conversation import Answer, Outcome, RoomKey, SessionKey, TicketState
from bot.errors import BadInput
from bot.redaction import neutralised

if TYPE_CHECKING:
    from adapters.terminal.measuring import Index
    from bot.ports import Retriever
    from bot.records import LoggedCall


@dataclass(frozen=True, slots=True)
class Once:
    """One command at a terminal; `as_json` makes its result one object."""

    terminal: Terminal
    as_json: bool

    async def ask(self, question: str, room: str, thread: str | None) -> int:
        """Give 0 where there is an answer, covered or not, and 1 where the turn failed."""
        session = session_named(room, thread)
        turn = self.terminal.keyboard.ask(session, question)
        answer = await self.terminal.answer(turn, shown=not self.as_json)
        self._hint(answer)
        if self.as_json:
            self._print(outbound.dumped(outbound.answer_json(answer, session)))
        return _code(answer)

    async def run(self, code: str, room: str) -> int:
        """Give the command's own exit code; 125 where it was not started."""
        session = session_named(room)
        answer = await self.terminal.answer(self.terminal.keyboard.run(session, code), shown=False)
        self._hint(answer)
        if self.as_json:
            self._print(outbound.dumped(outbound.run_json(answer, session.room)))
        else:
            self._pass_on(answer)
        return outbound.exit_code(answer.commands[-1]) if answer.commands else EXIT_NOT_STARTED

    def _hint(self, answer: Answer) -> None:
        """Say where a yes or no can be given: this command leaves before anybody could."""
        if answer.ticket and answer.ticket.state is TicketState.WAITING:
            print(
                "Commands wait for a yes here. Run it in `duet chat`, which takes /approve or /deny.",
                file=self.terminal.err,
            )

    def _pass_on(self, answer: Answer) -> None:
        """Write what the commands wrote, each stream to its own; what else is to be said goes to `err`."""
        for result in answer.commands:
            self.terminal.out.write(neutralised(result.stdout))
            self.terminal.err.write(neutralised(result.stderr))
            if outbound.is_remarkable(result):
                print(neutralised(outbound.ending(result)), file=self.terminal.err)
        if not answer.commands:
            print(outbound.answer_text(answer), file=self.terminal.err)

    async def reset(self, room: str, thread: str | None) -> int:
        session = session_named(room, thread)
        answer = await self.terminal.answer(self.terminal.keyboard.reset(session), shown=not self.as_json)
        if self.as_json:
            self._print(outbound.dumped(outbound.reset_json(answer, session)))
        return _code(answer)

    async def rooms(self) -> int:
        rooms = await self.terminal.duet.rooms()
        self._print(outbound.dumped(outbound.rooms_json(rooms)) if self.as_json else outbound.rooms_text(rooms))
        return 0

    async def usage(self, day: str, price_of_a_million: float) -> int:
        rows = await self.terminal.duet.usage(day)
        as_json = outbound.usage_json(day, rows, price_of_a_million)
        self._print(outbound.dumped(as_json) if self.as_json else outbound.usage_text(day, rows, price_of_a_million))
        return 0

    async def log(self, room: str) -> int:
        key = room_named(room)
        calls = await self._calls(key)
        text = outbound.dumped(outbound.log_json(key, calls)) if self.as_json else outbound.log_markdown(key, calls)
        self._print(text.rstrip("\n"))
        return 0

    async def _calls(self, room: RoomKey) -> Sequence[tuple[SessionKey, LoggedCall]]:
        """Give the model calls of all the room's sessions, oldest first."""
        duet = self.terminal.duet
        calls = [(session, call) for session in await duet.sessions(room) for call in await duet.prompt_log(session)]
        return sorted(calls, key=lambda pair: pair[1].at)

    def _print(self, text: str) -> None:
        print(text, file=self.terminal.out, flush=True)


def _code(answer: Answer) -> int:
    return 0 if answer.outcome is Outcome.ANSWERED else EXIT_FAILED


async def search(codex: Retriever, question: str, room: str, *, limit: int, explain: bool, as_json: bool) -> str:
    """Give what `duet search` prints."""
    findings = await codex.search(question, (), room=room_named(room), limit=limit)
    if as_json:
        return outbound.dumped(outbound.findings_json(findings, explain=explain))
    return outbound.findings_text(findings, explain=explain)


async def index(codex: Index, folder: str, *, as_json: bool) -> str:
    """Give what `duet index` prints, once every section has its vectors."""
    progress = Progress(sys.stderr, is_live=sys.stderr.isatty())
    await codex.embedded(progress=lambda done, whole: progress.show("Making vectors", done, whole))
    progress.end()
    documents = codex.documents(room_named("main"))
    if as_json:
        return outbound.dumped(outbound.documents_json(folder, documents))
    return outbound.documents_text(folder, documents)


def written_out(data: bytes, path: str, output: str | None) -> str:
    """Write a file of the sandbox to `output`, or under its own name here; say where. Raises: BadInput."""
    if output == "-":
        sys.stdout.buffer.write(data)
        return f"{len(data):,} bytes"
    # The name is the sandbox's word: its last part alone, and never over what is there.
    place = Path(output or PurePosixPath(path).name)
    try:
        with place.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise BadInput(f"{place} is there already; name another place with --output.") from None
    except OSError as error:
        raise BadInput(f"{place} cannot be written: {error.strerror}. Name another place with --output.") from error
    return f"{place}: {len(data):,} bytes"
