"""The steps of one turn: who asks, what the Codex says, the model, its commands, and the model again; then settle.

A turn taken up after a crash replays its recorded steps and goes on at the first that is not finished: a command is
never run twice, a model call may be. Whatever goes wrong becomes an answer that says so, and the question is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from bot import prompt
from bot.budget import day_of, overdrawn
from bot.calling import Calling
from bot.citations import NOT_FOUND_NOTE, Checked, check, cite
from bot.conversation import (
    Answer,
    Event,
    Message,
    Outcome,
    Part,
    Settled,
    Source,
    Standing,
    Surroundings,
    TurnKind,
    Verdict,
)
from bot.errors import Incident, ModelTimeout, SandboxUnavailable, StoreUnavailable, attempt
from bot.intent import wants_action
from bot.parsing import parse_reply
from bot.policy import Action, Policy, refusal, unusable
from bot.ports import Band, ChatModel, Findings, Outlet, Retriever, Sandbox, Store
from bot.records import WITHDRAWN, OpenTurn, Step
from bot.redaction import Redactor, well_formed
from bot.rendering import new_parts
from bot.running import Running
from bot.scene import NAME, Scene, opened

MAX_STEPS = 4
MAX_ATTEMPTS = 3
SECTIONS_GIVEN = 5
# More than a prompt replays: how long a session grew must not matter to its next turn.
MESSAGES_REPLAYED = 200
NOT_FROM_CODEX = "Not from the Codex: no section of it fits this."
LONG_CHARS = 8_000  # checking a text this long takes a while


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
        self._emit = emit
        self._calling = Calling(store, model, redact=redact)
        self._running = Running(store, sandbox, policy=policy, now=now, new_id=new_id)
        self._turn_timeout_s = turn_timeout_s
        self._scenes: dict[int, Scene] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="duet-check")

    async def work(self, turn: OpenTurn) -> None:
        """Answer a turn and settle it. Raises: CancelledError, Superseded; after either comes `end`."""
        if turn.is_void or turn.stopped_by:
            await self.end(turn, turn.stopped_by)
            return
        scene = self._scenes[turn.seq] = self._opened(turn)
        try:
            answer = await attempt(self._within_deadline(scene), where=f"answering {turn}")
        finally:
            await scene.finish()
        if isinstance(answer, Incident):
            answer = self._failed(scene, answer)
        await self._settle(scene, answer)
        self._scenes.pop(turn.seq, None)

    def _opened(self, turn: OpenTurn) -> Scene:
        return opened(turn, store=self._store, outlets=self._outlets, redact=self._redact, emit=self._emit)

    async def end(self, turn: OpenTurn, by: str) -> None:
        """Clean up after a turn that a person (`by`) or a reset ('') ended, and only then mark it cancelled."""
        scene = self._scenes.pop(turn.seq, None) or self._opened(turn)
        await scene.finish()  # it may have been cancelled in the midst of it, with a post still on its way
        if by == WITHDRAWN:
            await self._vanish(scene)
            return
        if by:
            text = f"{scene.text}\n\n*Stopped by {by}.*".strip()
        else:
            text = "*Cancelled by a reset.*"
        kind = turn.asking.turn.kind
        answer = Answer(turn.turn.id, text, Outcome.CANCELLED, kind, commands=tuple(scene.results) if by else ())
        draft = await self._store.draft_of(turn)
        parts = await new_parts(self._store, scene.outlet, turn, answer)
        if draft is not None and scene.outlet is not None and not by:
            is_back = await self._take_back(scene.outlet, replace(draft, body=parts[0].body))
            parts = () if is_back else parts  # what could not be edited now is edited by delivery
        said = (*scene.said, Message("agent", NAME, text, self._now())) if by else ()
        await self._store.settle_ended(turn, answer, said=said, parts=parts)
        self._emit(turn, Settled(answer))

    async def _vanish(self, scene: Scene) -> None:
        """End a turn whose message was deleted: what was shown for it goes, and nothing is said."""
        draft = await self._store.draft_of(scene.turn)
        if draft is not None and scene.outlet is not None:
            found = draft.ref or await attempt(scene.outlet.find(draft), where="looking for a withdrawn turn's draft")
            if isinstance(found, str):
                gone = scene.outlet.delete(replace(draft, ref=found))
                await attempt(gone, where="deleting a withdrawn turn's draft")
            await self._store.end_part(draft.key, state="dropped")
        answer = Answer(scene.turn.turn.id, "", Outcome.CANCELLED, scene.turn.asking.turn.kind)
        await self._store.settle_ended(scene.turn, answer)
        self._emit(scene.turn, Settled(answer))

    async def _take_back(self, outlet: Outlet, part: Part) -> bool:
        """Turn the draft of a voided turn into the notice, while the reset waits for it; False when that failed."""
        if part.ref is None:
            found = await attempt(outlet.find(part), where="looking for the draft of a voided turn")
            part = replace(part, ref=None if isinstance(found, Incident) else found)
        if part.ref is None:
            return False
        shown = await attempt(outlet.show(part, draft=False), where="taking back the draft of a voided turn")
        if isinstance(shown, Incident):
            return False
        await self._store.note_ref(part.key, shown)
        await self._store.end_part(part.key, state="delivered")
        return True

    # What a turn asks for.

    async def _within_deadline(self, scene: Scene) -> Answer:
        if scene.turn.attempt > MAX_ATTEMPTS:
            text = f"Duet stopped {MAX_ATTEMPTS} times over this, so it was put aside. Try it in other words."
            return Answer(scene.turn.turn.id, text, Outcome.FAILED, scene.turn.turn.kind)
        try:
            async with asyncio.timeout(self._turn_timeout_s) as deadline:
                return await self._answer(scene)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            limit = f"{self._turn_timeout_s:g} seconds"
            raise ModelTimeout(f"The answer took longer than the {limit} a turn may take.") from error

    async def _answer(self, scene: Scene) -> Answer:
        turn = scene.turn.turn
        await self._look_around(scene)
        action = {TurnKind.RUN: Action.RUN, TurnKind.PRESS: Action.APPROVE}.get(turn.kind, Action.ASK)
        if turn.verdict is Verdict.RETRY:
            action = Action.RUN if scene.is_run else Action.ASK
        if why_not := refusal(action, scene.author, self._policy):
            return scene.refused(why_not)
        if turn.kind is TurnKind.PRESS:
            return await self._pressed(scene)
        return await self._run_or_ask(scene)

    async def _run_or_ask(self, scene: Scene) -> Answer:
        laid = await self._lay_out(scene)
        if laid and not scene.question.strip():
            return scene.made(f"In the sandbox now: {', '.join(laid)}. Say what to do with it.", covered=None)
        if why_not := unusable(scene.question):
            return scene.refused(why_not)
        if scene.is_run:
            return await self._run_directly(scene)
        if why_not := await self._overdrawn(scene):
            return scene.refused(why_not)
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
        outlet = scene.outlet
        if outlet is None:
            return
        scene.status = asyncio.create_task(outlet.status(scene.turn.turn, "is thinking…"), name="status")
        scene.surroundings = await outlet.surroundings(scene.turn.asking.turn)
        if scene.turn.parent is None:
            scene.author = replace(scene.surroundings.author, name=well_formed(scene.surroundings.author.name))
        elif scene.turn.turn.author.standing is Standing.UNKNOWN:
            scene.author = (await outlet.surroundings(scene.turn.turn)).author
        if scene.surroundings.text is not None:
            scene.surroundings = replace(scene.surroundings, text=self._redact(scene.surroundings.text))
        scene.notes += scene.surroundings.notes
        said = f"run {scene.question}" if scene.is_run else scene.question
        if (scene.author.name, scene.question) != (scene.turn.turn.author.name, scene.turn.turn.text):
            await self._store.know_author(scene.turn, scene.author, said)

    async def _lay_out(self, scene: Scene) -> list[str]:
        """Put the files that came with the turn into the room's workspace, if its author may work there; name them."""
        around, laid = scene.surroundings, list[str]()
        if around is None or refusal(Action.RUN, scene.author, self._policy):
            return laid
        texts = dict(around.files)
        for name, data in around.uploads:
            putting = self._sandbox.put(scene.turn.turn.room, scene.turn.room_generation, name, data)
            done = await attempt(putting, where=f"putting {name} into the workspace")
            if isinstance(done, Incident):
                scene.notes.append(f"{name} was not put into the sandbox: {done.text}")
                if isinstance(done.error, SandboxUnavailable):
                    break
                continue
            text = texts.pop(name, f"[{len(data):,} bytes, not shown here]")
            texts[f"{name} (in the working folder)"] = text
            laid.append(f"`{name.replace('`', '_')}`")
        scene.surroundings = replace(around, files=tuple(texts.items()))
        return laid

    async def _run_directly(self, scene: Scene) -> Answer:
        await self._store.plan_run(scene.turn, scene.question.strip())
        ticket = await self._running.carry_out(scene, await self._store.commands(scene.turn))
        return scene.made("", covered=None, ticket=ticket)

    async def _pressed(self, scene: Scene) -> Answer:
        turn = scene.turn.turn
        if scene.turn.parent is None:
            return scene.refused("What this button belongs to is gone.")
        if turn.verdict is Verdict.RETRY:
            known = await self._store.find_turn(turn.room, turn.target or "")
            if known is not None and known.state == Outcome.ANSWERED:
                return scene.refused("This was answered meanwhile.")
            return await self._run_or_ask(scene)
        return await self._running.decide(scene) or await self._run_or_ask(scene)

    # Asking.

    async def _ask(self, scene: Scene) -> Answer:
        turn = scene.turn
        said = await self._store.history(turn.turn.session, before=turn, limit=MESSAGES_REPLAYED)
        history = [message for message in said if message.role != "notice"]
        question = scene.question
        earlier = [message.text for message in history if message.role == "user"][-2:] or self._around(scene)[-1:]
        findings = await self._retriever.search(question, earlier, room=turn.turn.room, limit=SECTIONS_GIVEN)
        steps = await self._store.steps(turn)
        if not steps and findings.band is Band.LOW and not wants_action(question):
            return self._not_covered(scene, findings)
        given = self._prompt_input(scene, history, findings)
        for number in range(MAX_STEPS):
            is_old = number < len(steps)
            step = steps[number] if is_old else await self._calling.call(scene, number, given)
            self._hear_reply(scene, step, is_shown=is_old and turn.turn.verdict is Verdict.APPROVE)
            ticket = await self._running.carry_out(scene, step.commands)
            if ticket is not None:
                return scene.made(scene.text, covered=None, ticket=ticket)
            if not step.commands:
                break
            results = await self._running.results(scene, number)
            given = replace(given, steps=(*given.steps, prompt.PastStep(step.reply, results)))
        else:
            scene.notes.append(f"Stopped after {MAX_STEPS} steps.")
        return await self._checked(scene, findings)

    def _around(self, scene: Scene) -> list[str]:
        """Give what a first question may lean on ("is this allowed?"): files, the thread, what is forwarded."""
        around = scene.surroundings or Surroundings(scene.author)
        return [*(text for _, text in scene.files()), *(self._redact(quoted.text) for quoted in around.thread)]

    def _prompt_input(self, scene: Scene, history: Sequence[Message], findings: Findings) -> prompt.PromptInput:
        around = scene.surroundings or Surroundings(scene.author)
        return prompt.PromptInput(
            question=scene.question,
            asker=scene.asker,
            findings=findings if findings.band is not Band.LOW else Findings(confidence=findings.confidence),
            history=tuple(history),
            thread=tuple(replace(quoted, text=self._redact(quoted.text)) for quoted in around.thread),
            files=scene.files(),
            commands=self._policy.commands_for(scene.author),
        )

    def _hear_reply(self, scene: Scene, step: Step, *, is_shown: bool) -> None:
        """Take a step's prose into the answer, unless an earlier message shows it already."""
        scene.writing = None
        scene.model = step.model or scene.model
        prose = parse_reply(step.reply).prose
        if prompt.says_not_covered(prose) and self._is_small(scene):
            prose = prompt.REFUSAL
        if prose and not is_shown:
            scene.prose.append(prose)
            scene.said.append(Message("agent", NAME, prose, self._now()))

    # Showing and settling.

    async def _checked(self, scene: Scene, findings: Findings) -> Answer:
        """Give the answer with its citations checked, or added where the model is not trusted to cite."""
        answer = scene.made(scene.text, covered=False)
        if findings.band is Band.LOW:
            # No marker can mean anything here.
            bare = await self._aside(partial(check, answer.text, Findings(), url=self._retriever.url), answer.text)
            return replace(answer, text=bare.text, notes=(*answer.notes, NOT_FROM_CODEX))
        if answer.text.strip() == prompt.REFUSAL:
            return self._not_covered(scene, findings)
        checking = cite if self._is_small(scene) else check
        also = [*(result.output for result in scene.results), *(text for _, text in scene.files())]
        work = partial(checking, answer.text, findings, url=self._retriever.url, also=also)
        checked = await self._aside(work, answer.text)
        is_work = bool(scene.results) or wants_action(scene.question)
        text = checked.text
        if findings.band is Band.MIDDLE and not (checked.quoted or is_work):
            if checked.declined or not checked.sources:
                return self._not_covered(scene, findings)
            text = f"{_quoted(checked.sources)}\n\n{text}"  # so sure and no further: the rule itself comes first
        covered = checked.supported and not checked.declined
        told = [note for note in checked.notes if not (is_work and note == NOT_FOUND_NOTE)]
        notes = tuple(dict.fromkeys((*answer.notes, *told)))
        return replace(answer, text=text, sources=checked.sources, covered=covered, notes=notes)

    async def _aside(self, work: Callable[[], Checked], text: str) -> Checked:
        """Do the work, in a thread where the text is so long that it would hold the loop up."""
        return work() if len(text) < LONG_CHARS else await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _is_small(self, scene: Scene) -> bool:
        """Tell whether the model that answered is one that the program adds the sources for."""
        return (scene.profile or self._model.profile).prompts == "split"

    def _not_covered(self, scene: Scene, findings: Findings) -> Answer:
        """Say, without a model, that the Codex does not cover this, and name what is nearest."""
        near = [
            f"- {hit.section.title} › {hit.section.heading} (`{hit.section.document}`)" for hit in findings.hits[:3]
        ]
        text = "The Codex does not cover this."
        if near:
            text += "\n\nNearest sections:\n" + "\n".join(dict.fromkeys(near))
        scene.said = [*(m for m in scene.said if m.role != "agent"), Message("agent", NAME, text, self._now())]
        return scene.made(text, covered=False)

    def _failed(self, scene: Scene, incident: Incident) -> Answer:
        partial = scene.text
        cut = f"{partial}\n\n*The answer was cut off here.* " if partial else ""
        text = f"{cut}{incident.text} Your question is kept; you can try again."
        return replace(scene.made(text, covered=None), outcome=Outcome.FAILED, incident=incident.id)

    async def _settle(self, scene: Scene, answer: Answer) -> None:
        """Write everything in one transaction. A database that cannot be written now is waited for, not given up."""
        turn = scene.turn
        said = tuple(scene.said)
        is_refused_press = answer.outcome is Outcome.REFUSED and turn.turn.kind is TurnKind.PRESS
        if answer.outcome in (Outcome.FAILED, Outcome.REFUSED) and not is_refused_press:
            said = (*said, Message("notice", NAME, answer.text, self._now()))
        rendering = f"rendering the answer to {turn}"
        outlet = None if scene.is_told else scene.outlet
        parts = await attempt(new_parts(self._store, outlet, turn, answer), where=rendering)
        if isinstance(parts, Incident):  # as by a file that cannot be kept: said plainly rather than not at all
            kind = turn.asking.turn.kind
            answer = Answer(turn.turn.id, parts.text, Outcome.FAILED, kind, incident=parts.id)
            parts = await attempt(new_parts(self._store, scene.outlet, turn, answer), where=rendering)
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


def _quoted(sources: Sequence[Source]) -> str:
    """Give the verbatim lines of the sources as a block quotation, each with its marker."""
    return "\n>\n".join(f"> {' '.join(source.quote.split())} [{source.number}]" for source in sources if source.quote)
