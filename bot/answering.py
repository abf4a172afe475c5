"""The steps of one turn: who asks, what the Codex says, the model, its commands, and the model again; then settle.

A turn taken up after a crash replays its recorded steps and goes on at the first that is not finished: a command is
never run twice, a model call may be. Whatever goes wrong becomes an answer that says so, and the question is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot import prompt
from bot.budget import day_of, overdrawn
from bot.citations import check, cite
from bot.conversation import (
    Answer,
    Author,
    Command,
    CommandEnded,
    CommandOutput,
    CommandResult,
    CommandStarted,
    Drafted,
    Ended,
    Event,
    Message,
    Outcome,
    Part,
    Settled,
    Standing,
    Surroundings,
    Ticket,
    TicketState,
    TurnKind,
    Verdict,
)
from bot.delivery import Draft
from bot.errors import (
    ContextTooLong,
    Incident,
    ModelError,
    ModelGarbled,
    ModelTimeout,
    SandboxUnavailable,
    StoreUnavailable,
    attempt,
)
from bot.intent import wants_action
from bot.parsing import ReplyParser, parse_reply
from bot.policy import Action, Policy, refusal, unusable
from bot.ports import Band, ChatModel, Findings, Finished, ModelCall, Outlet, Profile, Retriever, Sandbox, Store, Text
from bot.records import CommandState, NewPart, OpenTurn, PlannedCommand, Start, Step
from bot.redaction import Redactor
from bot.rendering import new_parts, part_key

MAX_STEPS = 4
MAX_ATTEMPTS = 3
MAX_PROMPTS = 3
SECTIONS_GIVEN = 5
TICKET_LIFE_MS = 60 * 60 * 1000
LIVE_OUTPUT_CHARS = 4_000
SAID_OUTPUT_CHARS = 2_000
NAME = "Duet"
NOT_FROM_CODEX = "Not from the Codex: no section of it fits this."


@dataclass(slots=True)
class Scene:
    """One turn while it is worked on: what was said and run so far, and how it is shown meanwhile."""

    turn: OpenTurn
    author: Author
    draft: Draft | None = None
    status: asyncio.Task[None] | None = None
    surroundings: Surroundings | None = None
    prose: list[str] = field(default_factory=list)
    writing: str = ""
    results: list[CommandResult] = field(default_factory=list)
    running: CommandResult | None = None
    said: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model: str = ""
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        return "\n\n".join(part for part in (*self.prose, self.writing) if part.strip())

    @property
    def question(self) -> str:
        given = self.surroundings.text if self.surroundings else None
        return given if given is not None else self.turn.asking.turn.text

    @property
    def elapsed_ms(self) -> int:
        return int((time.monotonic() - self.started) * 1000)


class Answering:
    """Does the work of ASK, RUN and PRESS turns."""

    def __init__(
        self,
        store: Store,
        model: ChatModel,
        retriever: Retriever,
        sandbox: Sandbox,
        outlets: Mapping[str, Outlet],
        *,
        policy: Policy,
        redact: Redactor,
        now: Callable[[], int],
        new_id: Callable[[], str],
        emit: Callable[[OpenTurn, Event], None],
        turn_timeout_s: float,
    ) -> None:
        self._store = store
        self._model = model
        self._retriever = retriever
        self._sandbox = sandbox
        self._outlets = outlets
        self._policy = policy
        self._redact = redact
        self._now = now
        self._new_id = new_id
        self._emit = emit
        self._turn_timeout_s = turn_timeout_s
        self._scenes: dict[int, Scene] = {}

    async def work(self, turn: OpenTurn) -> None:
        """Answer a turn and settle it. Raises: CancelledError, Superseded; after either comes `end`."""
        if turn.is_void or turn.stopped_by:
            await self.end(turn, turn.stopped_by)
            return
        scene = self._scenes[turn.seq] = self._opened(turn)
        try:
            answer = await attempt(self._within_deadline(scene), where=f"answering {turn}")
        finally:
            await self._finish_showing(scene)
        if isinstance(answer, Incident):
            answer = self._failed(scene, answer)
        await self._settle(scene, answer)
        self._scenes.pop(turn.seq, None)

    async def end(self, turn: OpenTurn, by: str) -> None:
        """Clean up after a turn that a person (`by`) or a reset ('') ended, and only then mark it cancelled."""
        scene = self._scenes.pop(turn.seq, None) or self._opened(turn)
        outlet = self._outlets.get(turn.turn.room.platform)
        if by:
            text = f"{scene.text}\n\n*Stopped by {by}.*".strip()
        else:
            text = "*Cancelled by a reset.*"
        kind = turn.asking.turn.kind
        answer = Answer(turn.turn.id, text, Outcome.CANCELLED, kind, commands=tuple(scene.results) if by else ())
        draft = await self._store.draft_of(turn)
        parts = await new_parts(self._store, outlet, turn, answer)
        if draft is not None and outlet is not None and not by:
            await self._take_back(outlet, replace(draft, body=parts[0].body))
            parts = ()
        said = (*scene.said, Message("agent", NAME, text, self._now())) if by else ()
        await self._store.settle_ended(turn, answer, said=said, parts=parts)
        self._emit(turn, Settled(answer))

    async def _take_back(self, outlet: Outlet, part: Part) -> None:
        """Turn the draft of a voided turn into the notice, while the reset waits for it."""
        if part.ref is None:
            found = await attempt(outlet.find(part), where="looking for the draft of a voided turn")
            part = replace(part, ref=None if isinstance(found, Incident) else found)
        if part.ref is not None:
            await attempt(outlet.show(part, draft=False), where="taking back the draft of a voided turn")
        await self._store.end_part(part.key, state="delivered" if part.ref else "dropped")

    # What a turn asks for.

    async def _within_deadline(self, scene: Scene) -> Answer:
        if scene.turn.attempt > MAX_ATTEMPTS:
            text = f"Duet stopped {MAX_ATTEMPTS} times over this, so it was put aside. Try it in other words."
            return Answer(scene.turn.turn.id, text, Outcome.FAILED, scene.turn.turn.kind)
        try:
            async with asyncio.timeout(self._turn_timeout_s):
                return await self._answer(scene)
        except TimeoutError as error:
            limit = f"{self._turn_timeout_s:g} seconds"
            raise ModelTimeout(f"The answer took longer than the {limit} a turn may take.") from error

    async def _answer(self, scene: Scene) -> Answer:
        turn = scene.turn.turn
        await self._look_around(scene)
        action = {TurnKind.RUN: Action.RUN, TurnKind.PRESS: Action.APPROVE}.get(turn.kind, Action.ASK)
        if turn.verdict is Verdict.RETRY:
            action = Action.RUN if scene.turn.asking.turn.kind is TurnKind.RUN else Action.ASK
        if why_not := refusal(action, scene.author, self._policy):
            return self._refused(scene, why_not)
        if turn.kind is TurnKind.PRESS:
            return await self._pressed(scene)
        return await self._run_or_ask(scene)

    async def _run_or_ask(self, scene: Scene) -> Answer:
        if why_not := unusable(scene.question):
            return self._refused(scene, why_not)
        if scene.turn.asking.turn.kind is TurnKind.RUN:
            return await self._run_directly(scene)
        if why_not := await self._overdrawn(scene):
            return self._refused(scene, why_not)
        return await self._ask(scene)

    async def _overdrawn(self, scene: Scene) -> str | None:
        """Give the sentence that refuses because a day's tokens are used up; None while there are some."""
        caps, day = self._policy.caps, day_of(self._now())
        if not caps.are_set:
            return None
        user, room = scene.author.id, str(scene.turn.turn.room)
        return overdrawn(
            caps,
            user=await self._store.used(day, user=user),
            room=await self._store.used(day, room=room),
            everyone=await self._store.used(day),
        )

    async def _look_around(self, scene: Scene) -> None:
        """Learn what the platform knows of author, thread and files, and show that work goes on."""
        outlet = self._outlets.get(scene.turn.turn.room.platform)
        if outlet is None:
            return
        scene.status = asyncio.create_task(outlet.status(scene.turn.turn, "is thinking…"), name="status")
        scene.surroundings = await outlet.surroundings(scene.turn.asking.turn)
        if scene.turn.parent is None:
            scene.author = scene.surroundings.author
        elif scene.turn.turn.author.standing is Standing.UNKNOWN:
            scene.author = (await outlet.surroundings(scene.turn.turn)).author
        if scene.surroundings.text is not None:
            scene.surroundings = replace(scene.surroundings, text=self._redact(scene.surroundings.text))
        scene.notes += scene.surroundings.notes
        is_run = scene.turn.asking.turn.kind is TurnKind.RUN
        await self._store.know_author(scene.turn, scene.author, f"run {scene.question}" if is_run else scene.question)
        for name, data in scene.surroundings.uploads:
            await attempt(
                self._sandbox.put(scene.turn.turn.room, scene.turn.room_generation, name, data),
                where=f"putting {name} into the workspace",
            )

    async def _run_directly(self, scene: Scene) -> Answer:
        await self._store.plan_run(scene.turn, scene.question.strip())
        ticket = await self._run_planned(scene, await self._store.commands(scene.turn))
        return self._made(scene, "", covered=None, ticket=ticket)

    async def _pressed(self, scene: Scene) -> Answer:
        turn = scene.turn.turn
        if scene.turn.parent is None:
            return self._refused(scene, "What this button belongs to is gone.")
        if turn.verdict is Verdict.RETRY:
            return await self._run_or_ask(scene)
        decision = await self._store.decide(
            scene.turn, turn.target or "", turn.verdict or Verdict.DENY, by=scene.author.name
        )
        if not decision.won or decision.command is None:
            said = {"void": "This was void by a reset.", "expired": "The time to decide this is over."}
            by = f" by {decision.decided_by}" if decision.decided_by else ""
            return self._refused(scene, said.get(decision.state, f"This was already {decision.state}{by}."))
        await self._show_decision(scene, decision.shown_in, turn.verdict or Verdict.DENY)
        if turn.verdict is Verdict.DENY:
            result = CommandResult(decision.command.code, Ended.NOT_STARTED, note=f"denied by {scene.author.name}")
            await self._store.end_command(decision.command, result, state=CommandState.DENIED)
            scene.results.append(result)
            return self._made(scene, "", covered=None)
        return await self._run_or_ask(scene)

    async def _show_decision(self, scene: Scene, shown_in: int, verdict: Verdict) -> None:
        """Edit the message that asked, so that it shows who decided."""
        outlet = self._outlets.get(scene.turn.turn.room.platform)
        known = await self._store.turn_at(shown_in)
        if known is None or known.answer is None or known.answer.ticket is None:
            return
        state = TicketState.APPROVED if verdict is Verdict.APPROVE else TicketState.DENIED
        ticket = replace(known.answer.ticket, state=state, decided_by=scene.author.name)
        answer = replace(known.answer, ticket=ticket)
        await self._store.redraw(known.seq, answer, outlet.render(answer) if outlet else ())

    # Asking.

    async def _ask(self, scene: Scene) -> Answer:
        turn = scene.turn
        history = [m for m in await self._store.history(turn.turn.session, before=turn) if m.role != "notice"]
        earlier = [message.text for message in history if message.role == "user"][-2:]
        question = scene.question
        findings = await self._retriever.search(question, earlier, room=turn.turn.room, limit=SECTIONS_GIVEN)
        steps = await self._store.steps(turn)
        if not steps and findings.band is Band.LOW and not wants_action(question):
            return self._not_covered(scene, findings)
        given = self._prompt_input(scene, history, findings)
        for number in range(MAX_STEPS):
            is_old = number < len(steps)
            step = steps[number] if is_old else await self._call(scene, number, given)
            self._hear_reply(scene, step, is_shown=is_old and turn.turn.verdict is Verdict.APPROVE)
            ticket = await self._run_planned(scene, step.commands)
            if ticket is not None:
                return self._made(scene, scene.text, covered=None, ticket=ticket)
            if not step.commands:
                break
            results = tuple(k.result for k in await self._commands_of(turn, number) if k.result)
            given = replace(given, steps=(*given.steps, prompt.PastStep(step.reply, results)))
        else:
            scene.notes.append(f"Stopped after {MAX_STEPS} steps.")
        return self._checked(scene, findings)

    def _prompt_input(self, scene: Scene, history: Sequence[Message], findings: Findings) -> prompt.PromptInput:
        around = scene.surroundings or Surroundings(scene.author)
        return prompt.PromptInput(
            question=scene.question,
            asker=scene.turn.asking.turn.author.name if scene.turn.parent else scene.author.name,
            findings=findings if findings.band is not Band.LOW else Findings(confidence=findings.confidence),
            history=tuple(history),
            thread=tuple(replace(quoted, text=self._redact(quoted.text)) for quoted in around.thread),
            files=self._files(scene),
            commands="ask" if self._policy.commands_wait else self._policy.commands,
        )

    def _files(self, scene: Scene) -> tuple[tuple[str, str], ...]:
        files = scene.surroundings.files if scene.surroundings else ()
        return tuple((name, self._redact(text)) for name, text in files)

    async def _call(self, scene: Scene, number: int, given: prompt.PromptInput) -> Step:
        """Ask the model, with another prompt where this one is too long or the next of several models answers."""
        profile = self._model.profile
        if prompt.needs_no_model(given, profile=profile):
            return Step(number, prompt.REFUSAL, "", ())
        for _ in range(MAX_PROMPTS - 1):
            try:
                return await self._call_once(scene, number, given, profile)
            except ContextTooLong as misfit:
                profile = misfit.build_for or prompt.tightened(profile, context_tokens=misfit.context_tokens)
        return await self._call_once(scene, number, given, profile)

    async def _call_once(self, scene: Scene, number: int, given: prompt.PromptInput, profile: Profile) -> Step:
        turn = scene.turn
        messages = prompt.build(given, profile=profile)
        await self._store.record_call(turn, number, model=self._model.name, request=messages, findings=given.findings)
        call = ModelCall(messages, given.question, given.findings, profile.max_reply_tokens, built_for=profile)
        parser, raw = ReplyParser(), list[str]()
        started, first_ms, finished, error = time.monotonic(), None, None, "cancelled"
        try:
            async for piece in self._model.stream(call):
                if isinstance(piece, Text):
                    first_ms = first_ms if first_ms is not None else _since_ms(started)
                    raw.append(piece.text)
                    if parser.feed(piece.text):
                        scene.writing = self._redact.draft(parser.visible)
                        self._show(scene)
                else:
                    finished = piece
            if finished is None:
                raise ModelGarbled("The language model's reply had no end.")
        except ModelError as fault:
            error = f"{type(fault).__name__}: {fault}"
            raise
        finally:
            if finished is None:  # failed or cancelled: the log keeps what had come
                await self._store.fail_call(
                    turn,
                    number,
                    error=self._redact(error),
                    reply=self._redact("".join(raw)),
                    total_ms=_since_ms(started),
                )
        reply = parser.finish()
        scene.notes += reply.notes
        recorded = Step(number, self._redact("".join(raw)), finished.model, ())
        await self._complete(scene, recorded, finished, reply.commands, first_ms, started)
        return replace(recorded, commands=tuple(await self._commands_of(turn, number)))

    async def _complete(
        self,
        scene: Scene,
        step: Step,
        finished: Finished,
        commands: Sequence[str],
        first_ms: int | None,
        started: float,
    ) -> None:
        scene.tokens += finished.usage.prompt_tokens + finished.usage.reply_tokens
        if finished.reason == "length":
            scene.notes.append("The reply was cut short: it reached the longest a reply may be.")
        await self._store.complete_call(
            scene.turn,
            step.step,
            reply=step.reply,
            finished=finished,
            first_piece_ms=first_ms,
            total_ms=_since_ms(started),
            commands=[self._redact(code) for code in commands],
        )

    def _hear_reply(self, scene: Scene, step: Step, *, is_shown: bool) -> None:
        """Take a step's prose into the answer, unless an earlier message shows it already."""
        scene.writing = ""
        scene.model = step.model or scene.model
        prose = parse_reply(step.reply).prose
        if prompt.says_not_covered(prose) and self._model.profile.prompts == "split":
            prose = prompt.REFUSAL
        if prose and not is_shown:
            scene.prose.append(prose)
            scene.said.append(Message("agent", NAME, prose, self._now()))

    async def _commands_of(self, turn: OpenTurn, step: int) -> list[PlannedCommand]:
        return [command for command in await self._store.commands(turn) if command.step == step]

    # Running.

    async def _run_planned(self, scene: Scene, commands: Sequence[PlannedCommand]) -> Ticket | None:
        """Run a step's commands in order; stop at the first that waits for a person and give its ticket."""
        for command in commands:
            if command.state in (CommandState.PLANNED, CommandState.WAITING) and self._policy.commands_wait:
                return await self._ticket(scene, command)
            result = command.result if command.is_over else await self._allowed_run(scene, command)
            if result is not None and not (command.is_over and scene.turn.turn.verdict is Verdict.APPROVE):
                scene.results.append(result)
                scene.said.append(Message("command", self._runner(scene), _as_said(result), self._now()))
                self._show(scene)
        return None

    def _runner(self, scene: Scene) -> str:
        return scene.author.name if scene.turn.asking.turn.kind is TurnKind.RUN else NAME

    async def _ticket(self, scene: Scene, command: PlannedCommand) -> Ticket:
        ticket, expires_at = command.ticket or self._new_id(), self._now() + TICKET_LIFE_MS
        if not command.ticket:
            await self._store.ask_a_person(scene.turn, command, ticket=ticket, expires_at=expires_at)
        return Ticket(ticket, command.code, expires_at=expires_at)

    async def _allowed_run(self, scene: Scene, command: PlannedCommand) -> CommandResult:
        if self._policy.commands == "off":
            result = CommandResult(command.code, Ended.NOT_STARTED, note="commands are switched off here")
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
        self._show(scene)
        self._emit(turn, CommandStarted(command.code))
        result = None
        try:
            result = await self._in_sandbox(scene, command)
        finally:
            scene.running = None
            ended = result or CommandResult(command.code, Ended.KILLED, note="stopped before it ended")
            await self._store.end_command(command, ended, state=CommandState.DONE)
        self._emit(turn, CommandEnded(result))
        return result

    async def _in_sandbox(self, scene: Scene, command: PlannedCommand) -> CommandResult:
        def on_output(text: str) -> None:
            text = self._redact(text)
            self._emit(scene.turn, CommandOutput(text))
            if scene.running is not None:
                shown = (scene.running.stdout + text)[-LIVE_OUTPUT_CHARS:]
                scene.running = replace(scene.running, stdout=shown)
                self._show(scene)

        key = f"{scene.turn.seq}-{command.step}-{command.ordinal}"
        asked = Command(key, scene.turn.turn.room, scene.turn.room_generation, command.code)
        try:
            result = await self._sandbox.run(asked, on_output=on_output)
        except SandboxUnavailable as error:
            return CommandResult(command.code, Ended.NOT_STARTED, note=str(error))
        return replace(result, stdout=self._redact(result.stdout), stderr=self._redact(result.stderr))

    # Showing and settling.

    def _opened(self, turn: OpenTurn) -> Scene:
        outlet = self._outlets.get(turn.turn.room.platform)
        draft = Draft(self._store, outlet, turn, key=part_key(turn, 0)) if outlet else None
        return Scene(turn, turn.turn.author, draft)

    def _show(self, scene: Scene) -> None:
        running = (scene.running,) if scene.running else ()
        text = scene.text
        if scene.draft is not None and (text or scene.results or running):
            scene.draft.update(
                Answer(scene.turn.turn.id, text, Outcome.DRAFT, commands=(*scene.results, *running), model=scene.model)
            )
        self._emit(scene.turn, Drafted(text))

    async def _finish_showing(self, scene: Scene) -> None:
        """Show no draft and no status after this."""
        if scene.draft is not None:
            await scene.draft.finish()
        if scene.status is not None:
            await asyncio.wait({scene.status})
            await self._outlets[scene.turn.turn.room.platform].status(scene.turn.turn, None)

    def _made(self, scene: Scene, text: str, *, covered: bool | None, ticket: Ticket | None = None) -> Answer:
        return Answer(
            turn=scene.turn.turn.id,
            text=self._redact(text),
            kind=scene.turn.asking.turn.kind,
            covered=covered,
            commands=tuple(scene.results),
            ticket=ticket,
            notes=tuple(dict.fromkeys(scene.notes)),
            model=scene.model,
            total_ms=scene.elapsed_ms,
        )

    def _checked(self, scene: Scene, findings: Findings) -> Answer:
        """Give the answer with its citations checked, or added where the model is not trusted to cite."""
        answer = self._made(scene, scene.text, covered=False)
        if findings.band is Band.LOW:
            return replace(answer, notes=(*answer.notes, NOT_FROM_CODEX))
        if answer.text.strip() == prompt.REFUSAL:
            return self._not_covered(scene, findings)
        checking = cite if self._model.profile.prompts == "split" else check
        also = [*(result.output for result in scene.results), *(text for _, text in self._files(scene))]
        checked = checking(answer.text, findings, url=self._retriever.url, also=also)
        if findings.band is Band.MIDDLE and not (checked.quoted or scene.results or wants_action(scene.question)):
            return self._not_covered(scene, findings)
        covered = checked.supported and not checked.declined
        notes = tuple(dict.fromkeys((*answer.notes, *checked.notes)))
        return replace(answer, text=checked.text, sources=checked.sources, covered=covered, notes=notes)

    def _not_covered(self, scene: Scene, findings: Findings) -> Answer:
        """Say, without a model, that the Codex does not cover this, and name what is nearest."""
        near = [
            f"- {hit.section.title} › {hit.section.heading} (`{hit.section.document}`)" for hit in findings.hits[:3]
        ]
        text = "The Codex does not cover this."
        if near:
            text += "\n\nNearest sections:\n" + "\n".join(dict.fromkeys(near))
        scene.said = [*(m for m in scene.said if m.role != "agent"), Message("agent", NAME, text, self._now())]
        return self._made(scene, text, covered=False)

    def _refused(self, scene: Scene, why_not: str) -> Answer:
        turn = scene.turn
        return Answer(turn.turn.id, why_not, Outcome.REFUSED, turn.asking.turn.kind, total_ms=scene.elapsed_ms)

    def _failed(self, scene: Scene, incident: Incident) -> Answer:
        partial = scene.text
        cut = f"{partial}\n\n*The answer was cut off here.* " if partial else ""
        text = f"{cut}{incident.text} Your question is kept; you can try again."
        return replace(self._made(scene, text, covered=None), outcome=Outcome.FAILED, incident=incident.id)

    async def _settle(self, scene: Scene, answer: Answer) -> None:
        """Write everything in one transaction. A database that cannot be written now is waited for, not given up."""
        turn = scene.turn
        said = tuple(scene.said)
        if answer.outcome in (Outcome.FAILED, Outcome.REFUSED):
            said = (*said, Message("notice", NAME, answer.text, self._now()))
        parts = await attempt(self._parts(turn, answer), where=f"rendering the answer to {turn}")
        while True:
            try:
                await self._store.settle(
                    turn,
                    answer,
                    said=said,
                    parts=() if isinstance(parts, Incident) else parts,
                    tokens=scene.tokens,
                )
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
        self._emit(turn, Settled(answer))

    async def _parts(self, turn: OpenTurn, answer: Answer) -> tuple[NewPart, ...]:
        return await new_parts(self._store, self._outlets.get(turn.turn.room.platform), turn, answer)


def _since_ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)


def _as_said(result: CommandResult) -> str:
    """Give a command and what came of it as one transcript entry, clipped."""
    ended = f"exit code {result.exit_code}" if result.ended is Ended.EXIT else str(result.ended).replace("_", " ")
    note = f", {result.note}" if result.note else ""
    output = result.output
    if len(output) > SAID_OUTPUT_CHARS:
        output = output[: SAID_OUTPUT_CHARS // 2] + "\n[…]\n" + output[-SAID_OUTPUT_CHARS // 2 :]
    return f"$ {result.code}\n{output}\n({ended}{note})"
