"""A step's commands: run, refused, or waiting for a person; never twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bot.conversation import (
    Answer,
    Command,
    CommandEnded,
    CommandOutput,
    CommandResult,
    CommandStarted,
    Ended,
    Message,
    Ticket,
    TicketState,
    Verdict,
)
from bot.errors import SandboxUnavailable
from bot.policy import Action, Policy, refusal
from bot.ports import Sandbox, Store
from bot.records import CommandState, PlannedCommand, Start
from bot.redaction import painted
from bot.scene import NAME, Scene

TICKET_LIFE_MS = 60 * 60 * 1000
LIVE_OUTPUT_CHARS = 4_000
SAID_OUTPUT_CHARS = 2_000


class Running:
    """Carries planned commands out as the policy allows, and decides tickets."""

    def __init__(
        self,
        store: Store,
        sandbox: Sandbox,
        *,
        policy: Policy,
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._sandbox = sandbox
        self._policy = policy
        self._now = now
        self._new_id = new_id

    async def carry_out(self, scene: Scene, commands: Sequence[PlannedCommand]) -> Ticket | None:
        """Run a step's commands in order; stop at the first that waits for a person and give its ticket."""
        for command in commands:
            is_open = command.state in (CommandState.PLANNED, CommandState.WAITING)
            if is_open and self._policy.commands_for(scene.author) == "ask":
                return await self._ticket(scene, command)
            result = command.result if command.is_over else await self._allowed(scene, command)
            is_shown_before = command.is_over and scene.turn.turn.verdict is Verdict.APPROVE
            if result is not None and not is_shown_before:
                scene.results.append(result)
                runner = scene.author.name if scene.is_run else NAME
                scene.said.append(Message("command", runner, _as_said(result), self._now()))
                scene.show()
        return None

    async def results(self, scene: Scene, step: int) -> tuple[CommandResult, ...]:
        """Give what came of a step's commands, for the model's next call."""
        planned = await self._store.commands(scene.turn)
        return tuple(command.result for command in planned if command.step == step and command.result)

    async def decide(self, scene: Scene) -> Answer | None:
        """Decide the ticket that was pressed: None when it was approved just now and its command may run."""
        turn, verdict = scene.turn.turn, scene.turn.turn.verdict or Verdict.DENY
        decision = await self._store.decide(scene.turn, turn.target or "", verdict, by=scene.author.name)
        if not decision.won or decision.command is None:
            said = {"void": "This was void by a reset.", "expired": "The time to decide this is over."}
            by = f" by {decision.decided_by}" if decision.decided_by else ""
            if decision.state == TicketState.EXPIRED:
                await self._redraw(scene, decision.shown_in, TicketState.EXPIRED)
            return scene.refused(said.get(decision.state, f"This was already {decision.state}{by}."))
        state = TicketState.APPROVED if verdict is Verdict.APPROVE else TicketState.DENIED
        is_shown = await self._redraw(scene, decision.shown_in, state, by=scene.author.name)
        if verdict is Verdict.APPROVE:
            return None
        result = CommandResult(decision.command.code, Ended.NOT_STARTED, note=f"denied by {scene.author.name}")
        await self._store.end_command(decision.command, result, state=CommandState.DENIED)
        scene.results.append(result)
        scene.said.append(Message("command", NAME, _as_said(result), self._now()))
        scene.is_told = is_shown
        return scene.made("", covered=None)

    async def _redraw(self, scene: Scene, shown_in: int, state: TicketState, *, by: str = "") -> bool:
        """Edit the message that asked, so that it shows what was decided; False when there is none."""
        known = await self._store.turn_at(shown_in)
        if known is None or known.answer is None or known.answer.ticket is None:
            return False
        ticket = replace(known.answer.ticket, state=state, decided_by=by)
        answer = replace(known.answer, ticket=ticket)
        return await self._store.redraw(known.seq, answer, scene.outlet.render(answer) if scene.outlet else ())

    async def _ticket(self, scene: Scene, command: PlannedCommand) -> Ticket:
        ticket, expires_at = command.ticket or self._new_id(), self._now() + TICKET_LIFE_MS
        if not command.ticket:
            await self._store.ask_a_person(scene.turn, command, ticket=ticket, expires_at=expires_at)
        return Ticket(ticket, command.code, expires_at=expires_at)

    async def _allowed(self, scene: Scene, command: PlannedCommand) -> CommandResult:
        if why_not := refusal(Action.RUN, scene.author, self._policy):
            result = CommandResult(command.code, Ended.NOT_STARTED, note=why_not)
            await self._store.end_command(command, result, state=CommandState.REFUSED)
            return result
        return await self._run(scene, command)

    async def _run(self, scene: Scene, command: PlannedCommand) -> CommandResult:
        """Run a command when the room is free; what a dead process left there is interrupted first."""
        turn, room = scene.turn, scene.turn.turn.room
        tick = self._store.tick
        while (start := await self._store.start_command(turn, command)) is not Start.STARTED:
            if start is Start.ORPHANED:
                await self._sandbox.interrupt(room)
                await self._store.interrupt_orphans(room)
            else:
                tick = await self._store.wait_for_change(tick, timeout_s=0.2)
            command = next(k for k in await self._store.commands(turn) if k.id == command.id)
            if command.result is not None:
                return command.result
        scene.running = CommandResult(command.code, Ended.NOT_STARTED, note="running")
        scene.show()
        scene.emit(turn, CommandStarted(command.code))
        result = None
        try:
            result = await self._in_sandbox(scene, command)
        finally:
            printed, scene.running = scene.running.stdout if scene.running else "", None
            ended = result or CommandResult(command.code, Ended.KILLED, stdout=printed, note="stopped before it ended")
            if result is None:
                scene.results.append(ended)
            await self._store.end_command(command, ended, state=CommandState.DONE)
        scene.emit(turn, CommandEnded(result))
        return result

    async def _in_sandbox(self, scene: Scene, command: PlannedCommand) -> CommandResult:
        def on_output(text: str) -> None:
            text = scene.redact(text)
            scene.emit(scene.turn, CommandOutput(text))
            if scene.running is not None:
                shown = (scene.running.stdout + text)[-LIVE_OUTPUT_CHARS:]
                scene.running = replace(scene.running, stdout=shown)
                scene.show()

        key = f"{scene.turn.seq}-{command.step}-{command.ordinal}"
        asked = Command(key, scene.turn.turn.room, scene.turn.room_generation, command.code)
        try:
            result = await self._sandbox.run(asked, on_output=on_output)
        except SandboxUnavailable as error:
            return CommandResult(command.code, Ended.NOT_STARTED, note=str(error))
        shown = replace(result, stdout=scene.redact(result.stdout), stderr=scene.redact(result.stderr))
        # Colours within a secret would hide it: they are shown only where the text without them is the masked one.
        return replace(shown, painted=painted(scene.redact(result.painted), shown.output))


def _as_said(result: CommandResult) -> str:
    """Give a command and what came of it as one transcript entry, clipped."""
    ended = f"exit code {result.exit_code}" if result.ended is Ended.EXIT else str(result.ended).replace("_", " ")
    note = f", {result.note}" if result.note else ""
    output = result.output
    if len(output) > SAID_OUTPUT_CHARS:
        output = output[: SAID_OUTPUT_CHARS // 2] + "\n[…]\n" + output[-SAID_OUTPUT_CHARS // 2 :]
    return f"$ {result.code}\n{output}\n({ended}{note})"
