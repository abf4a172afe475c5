"""One step's model call: the prompt, the log's row before and after it, and the reply as it comes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from bot import prompt
from bot.errors import ContextTooLong, ModelError, ModelGarbled
from bot.parsing import ReplyParser
from bot.ports import ChatModel, Finished, ModelCall, Profile, Store, Text
from bot.records import Step
from bot.redaction import Redactor
from bot.scene import Scene

MAX_PROMPTS = 3


class Calling:
    """Asks the model, and writes down exactly what was sent and what came of it, also when that is a fault."""

    def __init__(self, store: Store, model: ChatModel, *, redact: Redactor) -> None:
        self._store = store
        self._model = model
        self._redact = redact

    async def call(self, scene: Scene, number: int, given: prompt.PromptInput) -> Step:
        """Ask the model, with another prompt where this one is too long or the next of several models answers.

        Raises: ModelError; Superseded.
        """
        profile = scene.profile = self._model.profile
        if prompt.needs_no_model(given, profile=profile):
            return Step(number, prompt.REFUSAL, "", ())
        for _ in range(MAX_PROMPTS - 1):
            try:
                return await self._call_once(scene, number, given, profile)
            except ContextTooLong as misfit:
                profile = misfit.build_for or prompt.tightened(profile, context_tokens=misfit.context_tokens)
        return await self._call_once(scene, number, given, profile)

    async def _call_once(self, scene: Scene, number: int, given: prompt.PromptInput, profile: Profile) -> Step:
        messages = prompt.build(given, profile=profile)
        scene.profile = profile
        await self._store.record_call(
            scene.turn, number, model=self._model.name, request=messages, findings=given.findings
        )
        call = ModelCall(messages, given.question, given.findings, profile.max_reply_tokens, built_for=profile)
        parser = ReplyParser(max_commands=prompt.commands_allowed(given, profile=profile))
        raw: list[str] = []
        started, first_ms, finished, error = time.monotonic(), None, None, "cancelled"
        scene.writing = lambda: parser.visible
        try:
            async for piece in self._model.stream(call):
                if isinstance(piece, Text):
                    first_ms = first_ms if first_ms is not None else _since_ms(started)
                    raw.append(piece.text)
                    if parser.feed(piece.text):
                        scene.show()
                else:
                    finished = piece
            if finished is None:
                raise ModelGarbled("The language model's reply had no end.")
        except ModelError as fault:
            error = f"{type(fault).__name__}: {fault}"
            raise
        finally:
            if finished is None:  # failed or cancelled: the log keeps what had come
                partial = self._redact("".join(raw))
                await self._store.fail_call(
                    scene.turn,
                    number,
                    error=self._redact(error),
                    reply=partial,
                    first_piece_ms=first_ms,
                    total_ms=_since_ms(started),
                )
        reply = parser.finish()
        scene.notes += reply.notes
        scene.tokens += finished.usage.prompt_tokens + finished.usage.reply_tokens
        if finished.note:
            scene.notes.append(finished.note)
        if finished.reason == "length":
            scene.notes.append("The reply was cut short: it reached the longest a reply may be.")
        step = Step(number, self._redact("".join(raw)), finished.model, ())
        return await self._recorded(scene, step, finished, reply.commands, first_ms, _since_ms(started))

    async def _recorded(
        self,
        scene: Scene,
        step: Step,
        finished: Finished,
        commands: Sequence[str],
        first_piece_ms: int | None,
        total_ms: int,
    ) -> Step:
        """Write the reply and plan its commands, which get their rows by it."""
        await self._store.complete_call(
            scene.turn,
            step.step,
            reply=step.reply,
            finished=finished,
            first_piece_ms=first_piece_ms,
            total_ms=total_ms,
            commands=[self._redact(code) for code in commands],
        )
        planned = await self._store.commands(scene.turn) if commands else ()
        return replace(step, commands=tuple(command for command in planned if command.step == step.step))


def _since_ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)
