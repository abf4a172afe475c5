"""The terminal front: one turn to its end, and a conversation."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from adapters.terminal.inbound import Keyboard, Line, name_of, read_line
from adapters.terminal.outbound import counted, joined, log_markdown, source_text
from adapters.terminal.screen import Screen
from bot.conversation import Answer, Event, Outcome, SessionKey, Settled, TicketState, Turn, Verdict
from bot.errors import BadInput, StoreUnavailable

if TYPE_CHECKING:
    from bot.duet import Duet

HELP = """\
Type a question, or one of these:
  /run CMD    run a shell command in this room's sandbox
  /sources    the sources of the last answer again
  /retry      ask the last question once more
  /approve    run the command that waits; /deny refuses it
  /reset      clear this conversation and the sandbox
  /log        what was sent to the model for the last answer
  /help       this list
  /quit       leave (also Ctrl-D); Ctrl-C stops an answer
A question that begins with a slash is typed with two: //etc/hosts is what?"""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Duet at one keyboard. Answers go to `out`; `is_live` says that it is a screen; all else goes to `err`."""

    duet: Duet
    keyboard: Keyboard
    out: TextIO
    err: TextIO
    is_live: bool = False

    async def answer(self, turn: Turn, *, shown: bool = True) -> Answer:
        """Ask and wait to the end, streaming where `shown`; Ctrl-C stops the turn. Raises: StoreUnavailable."""
        screen = Screen(self.out, is_live=self.is_live)
        answer = None

        def told() -> None:
            screen.remark("Stopping…") if self.is_live and shown else print("Stopping…", file=self.err)

        async for event in self._events(turn, told):
            if shown:
                screen.show(event)
            if isinstance(event, Settled):
                answer = event.answer
        if answer is None:
            raise StoreUnavailable(
                "The turn ended without an answer: a reset came first, or its row is gone. Ask again."
            )
        return answer

    async def _events(self, turn: Turn, stopping: Callable[[], None]) -> AsyncIterator[Event]:
        stops: list[asyncio.Task[bool]] = []

        def stop() -> None:
            stopping()
            by, key = self.keyboard.author, self.keyboard.new_id()
            stops.append(asyncio.create_task(self.duet.stop(turn.room, turn.id, by=by, id=key)))

        with interrupts(stop):
            async for event in self.duet.ask(turn):
                yield event
            await asyncio.gather(*stops)


def this_terminal(duet: Duet, new_id: Callable[[], str], now_ms: Callable[[], int]) -> Terminal:
    """Give the terminal that the program was started from, and who sits there."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this uid, as in some containers
        user = "you"
    is_live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return Terminal(duet, Keyboard(user, new_id, now_ms), sys.stdout, sys.stderr, is_live)


@contextmanager
def interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first Ctrl-C inside the block; the second ends the program as ever."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    try:
        loop.add_signal_handler(signal.SIGINT, first)
    except (NotImplementedError, RuntimeError, ValueError):  # not on Windows, and not in a thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@dataclass(slots=True)
class Chat:
    """A conversation: `lines` gives what is typed, in order."""

    terminal: Terminal
    session: SessionKey
    lines: AsyncIterator[str]
    last: Answer | None = None
    question: str = ""

    async def hold(self) -> None:
        """Greet, answer line by line, and end with the input."""
        await self._greet()
        async for typed in self.lines:
            line = read_line(typed)
            if line.name in ("quit", "exit"):
                return
            try:
                await self._take(line)
            except (BadInput, StoreUnavailable) as error:
                self._say(str(error))

    async def _greet(self) -> None:
        duet, room = self.terminal.duet, self.session.room
        status = await duet.status()
        messages = await duet.history(self.session)
        if messages and (turn := messages[-1].turn):
            self.last = await duet.answer(room, turn)
        asked = [m for m in messages if m.role == "user"]
        self.question = asked[-1].text if asked else ""
        remembered = f" · {counted(len(asked), 'earlier question')} remembered" if asked else ""
        self._say(
            f"Duet · {status.model} · {counted(status.documents, 'document')} · room {name_of(room)}{remembered}\n"
            "Ask anything about your team's standards; /help lists what else there is."
        )

    async def _take(self, line: Line) -> None:
        keyboard, session = self.terminal.keyboard, self.session
        match line.name:
            case "" if line.rest:
                self.question = line.rest
                await self._turn(keyboard.ask(session, line.rest))
            case "":
                return
            case "run":
                await self._turn(keyboard.run(session, line.rest))
            case "retry":
                await self._turn(self._again())
            case "approve" | "deny":
                await self._turn(self._decided(Verdict(line.name)))
            case "reset":
                await self._turn(keyboard.reset(session))
                self.last, self.question = None, ""
            case "sources":
                self._print(self._sources())
            case "log":
                self._print(await self._log())
            case "help":
                self._say(HELP)
            case _:
                self._say(
                    f"There is no /{line.name}. /help lists what there is; two slashes begin a question with one."
                )

    async def _turn(self, turn: Turn) -> None:
        self.last = await self.terminal.answer(turn)
        if self.last.ticket and self.last.ticket.state is TicketState.WAITING:
            self._say("Type /approve to run it or /deny to refuse.")
        elif self.last.outcome is Outcome.FAILED:
            self._say("The question is kept: /retry asks it again.")

    def _again(self) -> Turn:
        """Give the failed turn's retry; a turn that was answered is asked anew."""
        if self.last is None or not self.question:
            raise BadInput("There is nothing to ask again; type a question.")
        if self.last.outcome is Outcome.FAILED:
            return self.terminal.keyboard.retry(self.session, self.last.turn)
        return self.terminal.keyboard.ask(self.session, self.question)

    def _decided(self, verdict: Verdict) -> Turn:
        if self.last is None or self.last.ticket is None:
            raise BadInput("No command waits for a yes or no.")
        return self.terminal.keyboard.decide(self.session, self.last.ticket.id, verdict)

    def _sources(self) -> str:
        sources: Sequence[str] = [source_text(source) for source in self.last.sources] if self.last else ()
        return joined(["\n".join(sources)]) or "The last answer rests on no section."

    async def _log(self) -> str:
        calls = await self.terminal.duet.prompt_log(self.session)
        last = calls[-1].turn if calls else ""
        return log_markdown(self.session.room, [(self.session, call) for call in calls if call.turn == last])

    def _print(self, text: str) -> None:
        print(text, file=self.terminal.out, flush=True)

    def _say(self, text: str) -> None:
        print(joined([text]), file=self.terminal.err, flush=True)
