"""Steps: model calls, the commands they asked for, and the tickets of those that wait for a person."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from bot.conversation import CommandResult, Ended, RoomKey, SessionKey, Verdict
from bot.drivers.database import Database
from bot.drivers.rows import author_of, command_of, dumped, findings_json
from bot.drivers.turn_rows import FENCE
from bot.errors import Superseded
from bot.ports import ChatMessage, Findings, Finished
from bot.records import CommandState, Decision, LoggedCall, OpenTurn, PlannedCommand, Start, Step

FORGOTTEN_AT_ONCE = 500
_COMMANDS = "SELECT k.*, i.id AS ticket FROM commands k LEFT JOIN tickets i ON i.command = k.id"


class StepRows:
    """The verbs about steps; each is one transaction."""

    def __init__(self, db: Database, now: Callable[[], int]) -> None:
        self._db = db
        self._now = now

    async def steps(self, turn: OpenTurn) -> list[Step]:
        """Give the steps recorded so far: what a turn taken up again need not repeat."""

        def work(c: sqlite3.Connection) -> list[Step]:
            seq = turn.asking.seq
            calls = c.execute(
                "SELECT * FROM calls WHERE turn = ? AND state = 'complete' ORDER BY step", (seq,)
            ).fetchall()
            commands = [
                command_of(r) for r in c.execute(f"{_COMMANDS} WHERE k.turn = ? ORDER BY step, ordinal", (seq,))
            ]
            return [
                Step(call["step"], call["reply"], call["model"], tuple(k for k in commands if k.step == call["step"]))
                for call in calls
            ]

        return await self._db.read(work)

    async def record_call(
        self, turn: OpenTurn, step: int, *, model: str, request: Sequence[ChatMessage], findings: Findings
    ) -> None:
        """Write a call's row before it is sent; one of the same step that a crash cut off has failed then.

        Raises: Superseded.
        """
        values = self._fenced(
            turn,
            asking=turn.asking.seq,
            step=step,
            model=model,
            request=dumped([{"role": message.role, "content": message.content} for message in request]),
            findings=findings_json(findings),
            at=self._now(),
        )

        def work(c: sqlite3.Connection) -> None:
            c.execute(
                """UPDATE calls SET state = 'failed', error = 'The process was stopped.'
                   WHERE turn = :asking AND step = :step AND state = 'sent'""",
                values,
            )
            sql = f"""INSERT INTO calls(turn, step, state, model, request_json, findings_json, at)
                      SELECT :asking, :step, 'sent', :model, :request, :findings, :at WHERE {FENCE}"""
            _must_change(c.execute(sql, values), turn)

        await self._db.write(work, is_news=False)

    async def complete_call(
        self, turn: OpenTurn, step: int, *, reply: str, finished: Finished, first_piece_ms: int | None, total_ms: int,
        commands: Sequence[str],
    ) -> None:  # fmt: skip
        """Write the reply and plan its commands in one transaction. Raises: Superseded."""
        values = self._fenced(
            turn,
            asking=turn.asking.seq,
            step=step,
            reply=reply,
            finish=finished.reason,
            model=finished.model,
            prompt_tokens=finished.usage.prompt_tokens,
            reply_tokens=finished.usage.reply_tokens,
            first=first_piece_ms,
            total=total_ms,
        )

        def work(c: sqlite3.Connection) -> None:
            changed = c.execute(
                f"""UPDATE calls SET state = 'complete', reply = :reply, finish = :finish, model = :model,
                    prompt_tokens = :prompt_tokens, reply_tokens = :reply_tokens, first_piece_ms = :first,
                    total_ms = :total WHERE turn = :asking AND step = :step AND state = 'sent' AND {FENCE}""",
                values,
            )
            _must_change(changed, turn)
            for ordinal, code in enumerate(commands):
                self._plan(c, turn, step, ordinal, code)

        await self._db.write(work, is_news=False)

    async def fail_call(
        self, turn: OpenTurn, step: int, *, error: str, reply: str, first_piece_ms: int | None, total_ms: int
    ) -> None:
        """Write how a call failed or was cut off; this ends something, so no generation is asked."""
        sql = """UPDATE calls SET state = 'failed', error = ?, reply = ?, first_piece_ms = ?, total_ms = ?
                 WHERE turn = ? AND step = ? AND state = 'sent'"""
        values = (error, reply, first_piece_ms, total_ms, turn.asking.seq, step)
        await self._db.write(lambda c: c.execute(sql, values), is_news=False)

    async def plan_run(self, turn: OpenTurn, code: str) -> None:
        """Plan a person's own command as step 0: no call, one command. Raises: Superseded."""

        def work(c: sqlite3.Connection) -> None:
            if not c.execute(f"SELECT {FENCE}", self._fenced(turn)).fetchone()[0]:
                raise Superseded(str(turn))
            self._plan(c, turn, 0, 0, code)

        await self._db.write(work, is_news=False)

    def _plan(self, c: sqlite3.Connection, turn: OpenTurn, step: int, ordinal: int, code: str) -> None:
        c.execute(
            """INSERT OR IGNORE INTO commands(turn, step, ordinal, room, room_generation, code, state, asked_by, at)
               VALUES(?, ?, ?, ?, ?, ?, 'planned', ?, ?)""",
            (
                *(turn.asking.seq, step, ordinal, str(turn.turn.room), turn.room_generation, code),
                *(turn.asking.turn.author.name, self._now()),
            ),
        )

    async def commands(self, turn: OpenTurn) -> list[PlannedCommand]:
        """Give every command of the turn, in order."""
        sql = f"{_COMMANDS} WHERE k.turn = ? ORDER BY step, ordinal"
        return await self._db.read(lambda c: [command_of(row) for row in c.execute(sql, (turn.asking.seq,))])

    async def start_command(self, turn: OpenTurn, command: PlannedCommand) -> Start:
        """Take the room for this command. Raises: Superseded.

        BUSY: a living process runs one there. ORPHANED: a dead process left one; interrupt it first.
        """

        def work(c: sqlite3.Connection) -> Start:
            running = c.execute(
                "SELECT owner FROM commands WHERE room = ? AND state = 'running'", (str(turn.turn.room),)
            ).fetchone()
            if running is not None:
                return Start.BUSY if self._db.is_alive(running["owner"]) else Start.ORPHANED
            changed = c.execute(
                f"""UPDATE commands SET state = 'running', owner = :owner
                    WHERE id = :id AND state IN ('planned', 'approved') AND {FENCE}""",
                self._fenced(turn, id=command.id),
            )
            _must_change(changed, turn)
            return Start.STARTED

        return await self._db.write(work)

    async def interrupt_orphans(self, room: RoomKey) -> None:
        """Say of the commands that dead processes left running in a room that they were interrupted."""

        def work(c: sqlite3.Connection) -> None:
            rows = c.execute("SELECT id, code, owner FROM commands WHERE room = ? AND state = 'running'", (str(room),))
            for row in rows.fetchall():
                if not self._db.is_alive(row["owner"]):
                    note = "interrupted: Duet stopped while it ran, so it may have had some of its effect"
                    result = CommandResult(row["code"], Ended.KILLED, note=note)
                    c.execute(
                        "UPDATE commands SET state = 'interrupted', result_json = ? WHERE id = ?",
                        (dumped(result), row["id"]),
                    )

        await self._db.write(work)

    async def end_command(self, command: PlannedCommand, result: CommandResult, *, state: CommandState) -> None:
        """Write what came of a command."""
        sql = "UPDATE commands SET state = ?, result_json = ? WHERE id = ?"
        await self._db.write(lambda c: c.execute(sql, (state, dumped(result), command.id)))

    async def ask_a_person(self, turn: OpenTurn, command: PlannedCommand, *, ticket: str, expires_at: int) -> None:
        """Make a planned command wait for a yes or no. Raises: Superseded."""

        def work(c: sqlite3.Connection) -> None:
            changed = c.execute(
                f"UPDATE commands SET state = 'waiting' WHERE id = :id AND state = 'planned' AND {FENCE}",
                self._fenced(turn, id=command.id),
            )
            _must_change(changed, turn)
            c.execute(
                "INSERT INTO tickets(id, command, shown_in, expires_at) VALUES(?, ?, ?, ?)",
                (ticket, command.id, turn.seq, expires_at),
            )

        await self._db.write(work, is_news=False)

    async def decide(self, turn: OpenTurn, ticket: str, verdict: Verdict, *, by: str) -> Decision:
        """Decide a ticket by compare-and-set; deciding again with the same press gives the same."""

        def work(c: sqlite3.Connection) -> Decision:
            state = "approved" if verdict is Verdict.APPROVE else "denied"
            c.execute(
                """UPDATE tickets SET state = ?, decided_by = ?, decided_turn = ?, decided_at = ?
                   WHERE id = ? AND state = 'waiting' AND expires_at > ?""",
                (state, by, turn.seq, self._now(), ticket, self._now()),
            )
            row = c.execute("SELECT * FROM tickets WHERE id = ?", (ticket,)).fetchone()
            if row is None:
                return Decision(False, "unknown", "", None, 0)
            won = row["decided_turn"] == turn.seq
            if won:
                c.execute("UPDATE commands SET state = ? WHERE id = ? AND state = 'waiting'", (state, row["command"]))
            expired = row["state"] == "waiting" and row["expires_at"] <= self._now()
            command = command_of(c.execute(f"{_COMMANDS} WHERE k.id = ?", (row["command"],)).fetchone())
            state = "expired" if expired else row["state"]
            return Decision(won, state, row["decided_by"] or "", command, row["shown_in"])

        return await self._db.write(work)

    async def expire_tickets(self) -> int:
        """Close the tickets whose time is over; give how many."""

        def work(c: sqlite3.Connection) -> int:
            return c.execute(
                "UPDATE tickets SET state = 'expired' WHERE state = 'waiting' AND expires_at <= ?", (self._now(),)
            ).rowcount

        return await self._db.write(work)

    async def prompt_log(self, session: SessionKey) -> list[LoggedCall]:
        """Give every model call of a session since its last reset, with the commands it led to."""

        def work(c: sqlite3.Connection) -> list[LoggedCall]:
            rows = c.execute(
                """SELECT c.*, t.message_id, t.author_json, t.text AS question, t.seq FROM calls c
                   JOIN turns t ON t.seq = c.turn JOIN sessions s ON s.key = t.session
                   WHERE t.session = ? AND t.generation = s.generation ORDER BY c.turn, c.id""",
                (str(session),),
            ).fetchall()
            return [_logged(row, self._commands_of(c, row)) for row in rows]

        return await self._db.read(work)

    async def forget_calls(self, before: int) -> int:
        """Remove the oldest calls made before a time, of turns that are over; a bounded number, which it gives."""

        def work(c: sqlite3.Connection) -> int:
            return c.execute(
                """DELETE FROM calls WHERE id IN (
                       SELECT o.id FROM (SELECT id, turn, at FROM calls ORDER BY id LIMIT ?) o
                       JOIN turns t ON t.seq = o.turn WHERE o.at < ? AND t.state NOT IN ('heard', 'running'))""",
                (FORGOTTEN_AT_ONCE, before),
            ).rowcount

        return await self._db.write(work, is_news=False)

    def _commands_of(self, c: sqlite3.Connection, call: sqlite3.Row) -> tuple[CommandResult, ...]:
        if call["state"] != "complete":
            return ()
        rows = c.execute(f"{_COMMANDS} WHERE k.turn = ? AND k.step = ? ORDER BY ordinal", (call["turn"], call["step"]))
        planned = [command_of(row) for row in rows]
        return tuple(k.result or CommandResult(k.code, Ended.NOT_STARTED, note=k.state) for k in planned)

    def _fenced(self, turn: OpenTurn, **values: object) -> dict[str, object]:
        return {"seq": turn.seq, "owner": self._db.owner, "attempt": turn.attempt, **values}


def _must_change(cursor: sqlite3.Cursor, turn: OpenTurn) -> None:
    if not cursor.rowcount:
        raise Superseded(str(turn))


def _logged(row: sqlite3.Row, commands: tuple[CommandResult, ...]) -> LoggedCall:
    findings = json.loads(row["findings_json"])
    return LoggedCall(
        turn=row["message_id"],
        author=author_of(row["author_json"]).name,
        question=row["question"],
        step=row["step"],
        state=row["state"],
        model=row["model"],
        request=tuple(json.loads(row["request_json"])),
        findings=tuple(findings["hits"]),
        confidence=findings["confidence"],
        band=findings["band"],
        reply=row["reply"],
        finish=row["finish"],
        prompt_tokens=row["prompt_tokens"],
        reply_tokens=row["reply_tokens"],
        first_piece_ms=row["first_piece_ms"],
        total_ms=row["total_ms"],
        error=row["error"],
        at=row["at"],
        commands=commands,
    )
