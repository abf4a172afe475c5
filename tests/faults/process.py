"""A process of its own that hears turns on a shared home: `python -m tests.faults.process JSON`.

The platform is a file, `wall`: each post appends one line, so that several processes post to the same place and
order can be read from it. What to do comes as JSON: `home`, `hear` (list of [id, session thread, text, kind]),
`die_at` (a point at which the process kills itself), `model` (reply), `stay_s`, `latency_s`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.conversation import (
    Answer,
    Body,
    Command,
    CommandResult,
    Part,
    SessionKey,
    Standing,
    Surroundings,
    Turn,
    TurnKind,
)
from bot.drivers.store import SqliteStore
from bot.duet import Duet
from bot.policy import Policy
from bot.ports import ModelCall, Piece
from bot.redaction import Redactor
from tests.fakes import ANN, ROOM, FakeModel, FakeRetriever, FakeSandbox


class Wall:
    """The file that everybody posts to, and reads back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **line: Any) -> None:
        data = (json.dumps(line) + "\n").encode()
        fd = os.open(self.path, os.O_APPEND | os.O_WRONLY | os.O_CREAT)
        os.write(fd, data)
        os.close(fd)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


class WallOutlet:
    """Posts to the wall. `fault` is called at the named points and may kill the process."""

    def __init__(self, wall: Wall, *, latency_s: float, fault: Callable[[str], None]) -> None:
        self._wall = wall
        self._latency_s = latency_s
        self._fault = fault

    def render(self, answer: Answer) -> tuple[Body, ...]:
        text = "\n".join([answer.text, *(f"$ {c.code} {c.ended} {c.output} {c.note}" for c in answer.commands)])
        cuts = range(0, max(len(text), 1), 4_000) if answer.outcome != "draft" else range(1)
        return tuple(Body({"text": text[at : at + 4_000]}) for at in cuts)

    async def surroundings(self, turn: Turn) -> Surroundings:
        return Surroundings(replace(turn.author, standing=Standing.MEMBER))

    async def status(self, turn: Turn, text: str | None) -> None: ...

    async def show(self, part: Part, *, draft: bool) -> str:
        self._fault("before draft" if draft else "before post")
        await asyncio.sleep(self._latency_s)
        kind = "edit" if part.ref else "post"
        self._wall.write(do=kind, key=part.key, draft=draft, turn=part.turn, text=part.body.content["text"])
        await asyncio.sleep(self._latency_s)
        self._fault("after draft" if draft else "after post")
        return part.key

    async def find(self, part: Part) -> str | None:
        return part.key if any(line["key"] == part.key for line in self._wall.lines()) else None

    async def delete(self, part: Part) -> None:
        self._wall.write(do="delete", key=part.key, draft=False, turn=part.turn, text="")


class MarkingSandbox(FakeSandbox):
    """Leaves a line on the wall for each command that took effect."""

    def __init__(self, wall: Wall, fault: Callable[[str], None]) -> None:
        super().__init__()
        self._wall = wall
        self._fault = fault

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        self._fault("before command")
        self._wall.write(do="effect", key=command.key, draft=False, turn="", text=command.code)
        self._fault("after command")
        return await super().run(command, on_output=on_output)


class MarkingModel(FakeModel):
    def __init__(self, reply: str, fault: Callable[[str], None], delay_s: float) -> None:
        super().__init__(lambda call: [delay_s, self._reply(call, reply)])
        self._fault = fault

    def _reply(self, call: ModelCall, reply: str) -> str:
        if "Output of the commands" in call.messages[-1].content:
            return "Done with it."
        return reply

    async def stream(self, call: ModelCall) -> AsyncIterator[Piece]:
        self._fault("before model")
        async for piece in super().stream(call):
            self._fault("in model")
            yield piece
        self._fault("after model")


def faulting(store: SqliteStore, point: str, fault: Callable[[str], None]) -> None:
    """Let a store verb kill the process before or after it committed: `before settle`, `after claim`…"""
    when, _, verb = point.partition(" ")
    inner = getattr(store, verb, None)
    if inner is None:
        return

    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        if when == "before":
            fault(point)
        result = await inner(*args, **kwargs)
        if result is not None or verb not in ("begin", "next_part"):
            fault(point)
        return result

    setattr(store, verb, wrapped)


async def main(what: dict[str, Any]) -> None:
    home = Path(what["home"])
    die_at, left = what.get("die_at", ""), what.get("die_after", 1)

    def fault(point: str) -> None:
        nonlocal left
        if point == die_at:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    wall = Wall(home / "wall")
    store = SqliteStore(home, now=lambda: time.time_ns() // 1_000_000)
    await store.open()
    faulting(store, die_at, fault)
    model = MarkingModel(what.get("model", "Named `feature/x` [1]."), fault, what.get("delay_s", 0.0))
    duet = Duet(
        store,
        model,
        FakeRetriever(),
        MarkingSandbox(wall, fault),
        policy=Policy(),
        redact=Redactor(()),
        now=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: os.urandom(6).hex(),
        find_after_s=0.2,
    )
    duet.attach("fake", WallOutlet(wall, latency_s=what.get("latency_s", 0.0), fault=fault))
    duet.start()
    wall.write(do="up", key="", draft=False, turn="", text=str(os.getpid()))
    for id, thread, text, kind in what.get("hear", []):
        turn = Turn(id, SessionKey(ROOM, thread), ANN, text, time.time_ns() // 1_000_000, TurnKind(kind))
        if await duet.hear(turn) and kind != "reset":
            wall.write(do="heard", key="", draft=False, turn=id, text=text)
        await asyncio.sleep(what.get("pause_s", 0.0))
    until = time.monotonic() + what.get("stay_s", 20.0)
    while time.monotonic() < until:
        counts = await store.counts()
        is_idle = not counts.get("heard") and not counts.get("running") and await store.outbox_age_at() is None
        if is_idle and not what.get("must_stay"):
            break
        await asyncio.sleep(0.02)
    await duet.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
