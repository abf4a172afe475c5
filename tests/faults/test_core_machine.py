"""Any order of messages, duplicates, resets, presses, stops, crashes and platform faults, against a small model.

The model knows only what was said, what was reset and what was pressed; after each quiet moment the rows, the platform
and the sandbox must agree with it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from bot.conversation import Outcome, SessionKey, Ticket, Turn, TurnKind, Verdict
from bot.drivers.store import SqliteStore
from bot.duet import Duet
from bot.errors import OutletUnavailable
from bot.policy import Policy
from bot.ports import ModelCall
from bot.redaction import Redactor
from tests.crashing import crash
from tests.fakes import ANN, BOB, ROOM, FakeModel, FakeOutlet, FakeRetriever, FakeSandbox, turn

SESSIONS = (SessionKey(ROOM), SessionKey(ROOM, "t1"), SessionKey(ROOM, "t2"))
MEMORY = Path("/dev/shm")
# Drawn before it is known from how many: what there is to choose from may depend on time, and a draw must not.
WHICH = st.integers(0, 11)
_MARK = re.compile(r"mark\d+x")


def _reply(call: ModelCall) -> list[str | float]:
    mark = _MARK.search(call.question)
    return ["Branches ", 0.004, f"are named {mark[0] if mark else ''}", 0.004, " `feature/<ticket>-<words>` [1]."]


@dataclass
class Said:
    """A turn that was heard, and how many resets its session had seen."""

    turn: Turn
    mark: str
    epoch: int
    ticket: Ticket | None = None
    verdicts: list[Verdict] = field(default_factory=list)


class Core(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.outlet, self.sandbox = FakeOutlet(part_chars=60, latency_s=0.003), FakeSandbox()
        self.numbers = itertools.count(1)
        self.said: list[Said] = []
        self.resets: list[Turn] = []
        self.epochs = dict.fromkeys(SESSIONS, 0)
        self.do(self.open())

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def open(self) -> None:
        def now() -> int:
            return time.time_ns() // 1_000_000

        self.store = SqliteStore(self.home, now=now)
        await self.store.open()
        self.duet = Duet(
            self.store,
            FakeModel(_reply),
            FakeRetriever(),
            self.sandbox,
            policy=Policy(commands="ask"),
            redact=Redactor(()),
            now=now,
            new_id=lambda: f"id{next(self.numbers)}",
            reset_wait_s=5.0,
            find_after_s=0.02,
            first_wait_s=0.01,
        )
        self.duet.attach("fake", self.outlet)
        self.duet.start()

    # What people and the world do.

    @rule(session=st.sampled_from(SESSIONS), is_run=st.booleans(), wait=st.sampled_from([0.0, 0.003, 0.015]))
    def message(self, session: SessionKey, is_run: bool, wait: float) -> None:
        mark = f"mark{next(self.numbers)}x"
        kind = TurnKind.RUN if is_run else TurnKind.ASK
        asked = turn(f"echo {mark}" if is_run else f"Which branch, {mark}?", session=session, kind=kind)
        assert self.do(self.duet.hear(asked)) is True
        self.said.append(Said(asked, mark, self.epochs[session]))
        self.do(asyncio.sleep(wait))

    @precondition(lambda self: self.said)
    @rule(which=WHICH)
    def duplicate(self, which: int) -> None:
        assert self.do(self.duet.hear(self.said[which % len(self.said)].turn)) is False

    @rule(session=st.sampled_from(SESSIONS), wait=st.sampled_from([0.0, 0.003, 0.03]))
    def reset(self, session: SessionKey, wait: float) -> None:
        cleared = turn("", session=session, kind=TurnKind.RESET)
        assert self.do(self.duet.hear(cleared)) is True
        self.resets.append(cleared)
        for key in SESSIONS if session.thread is None else (session,):
            self.epochs[key] += 1
        self.do(asyncio.sleep(wait))

    def _tickets(self) -> list[Said]:
        for said in self.said:
            if said.turn.kind is TurnKind.RUN and said.ticket is None:
                answer = self.do(self.duet.answer(ROOM, said.turn.id))
                said.ticket = answer.ticket if answer else None
        return [said for said in self.said if said.ticket is not None]

    @precondition(lambda self: self.said)
    @rule(which=WHICH, verdict=st.sampled_from([Verdict.APPROVE, Verdict.DENY]), wait=st.sampled_from([0.0, 0.01]))
    def press(self, which: int, verdict: Verdict, wait: float) -> None:
        tickets = self._tickets()
        if not tickets:
            return
        said = tickets[-3:][which % len(tickets[-3:])]
        assert said.ticket is not None
        pressed = turn("", kind=TurnKind.PRESS, target=said.ticket.id, verdict=verdict, author=BOB)
        assert self.do(self.duet.hear(pressed)) is True
        said.verdicts.append(verdict)
        self.do(asyncio.sleep(wait))

    @precondition(lambda self: self.said)
    @rule(which=WHICH)
    def stop(self, which: int) -> None:
        said = self.said[-4:][which % len(self.said[-4:])]
        self.do(self.duet.stop(ROOM, said.turn.id, by=ANN, id=f"stop{next(self.numbers)}"))

    @rule(when=st.sampled_from(["before", "after"]))
    def platform_fault(self, when: str) -> None:
        self.outlet.faults.append((when, OutletUnavailable("503", retry_after_s=0.01)))

    @rule(wait=st.sampled_from([0.0, 0.005, 0.02]))
    def crash_and_restart(self, wait: float) -> None:
        self.do(asyncio.sleep(wait))
        self.do(crash(self.duet, self.store))
        self.do(self.open())

    @rule()
    def quiet(self) -> None:
        self.do(self._quiet())
        self.do(self._agree())

    # What must hold.

    async def _quiet(self) -> None:
        async with asyncio.timeout(20):
            while True:
                counts = await self.store.counts()
                is_open = counts.get("heard") or counts.get("running")
                if not is_open and await self.store.outbox_age_at() is None:
                    return
                await asyncio.sleep(0.005)

    async def _agree(self) -> None:
        for said in self.said:
            answer = await self.duet.answer(ROOM, said.turn.id)
            assert answer is not None
            assert answer.outcome in (Outcome.ANSWERED, Outcome.CANCELLED, Outcome.FAILED), answer
        for session in SESSIONS:
            history = await self.duet.history(session)
            heard = [message.text for message in history if message.role == "user"]
            standing = [s for s in self.said if s.turn.session == session and s.epoch == self.epochs[session]]
            assert [_MARK.findall(text)[0] for text in heard] == [said.mark for said in standing]
        ran = Counter(_MARK.findall(command.code)[0] for command in self.sandbox.ran)
        assert all(count == 1 for count in ran.values()), ran
        for said in self.said:
            assert said.mark not in ran or said.verdicts[0] is Verdict.APPROVE, said
        keys = Counter(posted.key for posted in self.outlet.messages.values())
        assert all(count == 1 for count in keys.values()), keys
        assert not any(posted.is_draft for posted in self.outlet.messages.values())
        self._nothing_old_after_cleared()

    def _nothing_old_after_cleared(self) -> None:
        """After the post that says "cleared", no act shows a turn of before it."""
        acts = [text for _, text in self.outlet.acts]
        cleared = [i for i, text in enumerate(acts) if "Ann cleared" in text]
        is_room = [i for i in cleared if "this channel" in acts[i]]
        if is_room and len(is_room) == sum(reset.session.thread is None for reset in self.resets):
            last = max(i for i, reset in enumerate(self.resets) if reset.session.thread is None)
            before = self.resets[last]
            old = {said.mark for said in self.said if int(said.turn.id[1:]) < int(before.id[1:])}
            late = [text for text in acts[is_room[-1] :] if old & set(_MARK.findall(text))]
            assert late == []

    def teardown(self) -> None:
        try:
            self.do(self._quiet())
            self.do(self._agree())
        finally:
            self.do(self.duet.close())
            self.do(self.store.close())
            self.loop.close()
            shutil.rmtree(self.home)


def _run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Core,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


def test_whatever_happens_in_whatever_order_rows_platform_and_sandbox_agree_with_the_model() -> None:
    _run(60, 25)


@pytest.mark.slow
def test_the_same_for_long() -> None:
    _run(2_000, 50)
