"""Turns: claimed, taken up in order, settled once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from bot.conversation import (
    Answer,
    Author,
    CommandResult,
    Ended,
    Message,
    Outcome,
    RoomKey,
    SessionKey,
    Turn,
    TurnKind,
    Verdict,
)
from bot.drivers.database import Database
from bot.drivers.outbox_rows import insert_parts
from bot.drivers.reset_rows import forget_turns
from bot.drivers.rows import answer_of, dumped, open_turn_of, turn_of
from bot.errors import Superseded
from bot.records import WITHDRAWN, NewPart, OpenTurn, SettledTurn

BESIDE = "('reset', 'stop')"

# The generation fence, in the statement that writes: the turn is still ours, and no reset came since it was heard.
FENCE = """EXISTS(SELECT 1 FROM turns t JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room
  WHERE t.seq = :seq AND t.owner = :owner AND t.attempts = :attempt AND t.state = 'running' AND t.stop IS NULL
  AND s.generation = t.generation AND r.generation = t.room_generation)"""


# The head of its lane. What was heard after a reset waits until the reset has raised the generation, or it would be
# cancelled as if it were of before.
_IS_HEAD = f"""NOT EXISTS(SELECT 1 FROM turns o WHERE o.session = t.session AND o.seq < t.seq
  AND o.state IN ('heard', 'running') AND o.kind NOT IN {BESIDE})
  AND NOT EXISTS(SELECT 1 FROM turns o JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room
    WHERE o.session IN (t.session, t.room) AND o.seq < t.seq AND o.state IN ('heard', 'running') AND o.kind = 'reset'
    AND NOT o.raised AND t.generation = s.generation AND t.room_generation = r.generation)"""

# A turn that leaves nothing behind: a reset came, which may be over before the turn is, or its message was deleted.
_IS_UNSAID = f"""EXISTS(SELECT 1 FROM turns t JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room
  WHERE t.seq = :seq AND t.kind NOT IN {BESIDE}
  AND (t.stop = :withdrawn OR s.generation <> t.generation OR r.generation <> t.room_generation))"""


class TurnRows:
    """The verbs about turns; each is one transaction."""

    def __init__(self, db: Database, now: Callable[[], int]) -> None:
        self._db = db
        self._now = now

    @property
    def owner(self) -> str:
        return self._db.owner

    def fenced(self, turn: OpenTurn, **values: object) -> dict[str, object]:
        """Give the parameters of `FENCE`, and others."""
        return {"seq": turn.seq, "owner": self._db.owner, "attempt": turn.attempt, **values}

    async def claim(self, turn: Turn, *, direct: bool = False) -> bool:
        """Store a turn that was heard; False when it had been heard before.

        `direct` says that this process's own front waits for it: another takes it up only when this one is dead.
        """
        return await self._db.write(lambda c: self._claim(c, turn, self._db.owner if direct else None))

    def _claim(self, c: sqlite3.Connection, turn: Turn, owner: str | None) -> bool:
        parent = _parent_row(c, turn)
        session = SessionKey.parse(parent["session"]) if parent else turn.session
        _touch(c, session, self._now())
        generations = (parent["generation"], parent["room_generation"]) if parent else _generations(c, session)
        inserted = c.execute(
            """INSERT OR IGNORE INTO turns(platform, space, channel, message_id, kind, parent_seq, target, verdict,
                 room, session, author_json, text, files_json, at, generation, room_generation, reply_to_json, owner)
               VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(turn.room.platform, turn.room.space, turn.room.channel, turn.id, turn.kind),
                *(parent["seq"] if parent else None, turn.target, turn.verdict, str(session.room), str(session)),
                *(dumped(turn.author), turn.text, _files_json(turn), turn.at, *generations),
                *(dumped(dict(turn.reply_to)), owner),
            ),
        )
        if inserted.rowcount and turn.kind in (TurnKind.ASK, TurnKind.RUN):
            said = turn.text if turn.kind is TurnKind.ASK else f"run {turn.text}"
            _say(c, inserted.lastrowid or 0, Message("user", turn.author.name, said, turn.at))
        return inserted.rowcount == 1

    async def amend(self, turn: Turn) -> bool:
        """Add a twin delivery's files to a turn that is still only heard."""

        def work(c: sqlite3.Connection) -> bool:
            row = c.execute(f"SELECT * FROM turns WHERE {_ID} AND state = 'heard'", _id(turn.room, turn.id)).fetchone()
            if row is None:
                return False
            known = turn_of(row)
            more = tuple(file for file in turn.files if file.where not in {old.where for old in known.files})
            files_json = _files_json(replace(known, files=known.files + more))
            c.execute("UPDATE turns SET files_json = ? WHERE seq = ?", (files_json, row["seq"]))
            return bool(more)

        return await self._db.write(work)

    async def withdraw(self, turn: Turn) -> None:
        """Take back a turn whose message was deleted: stopped while open, a tombstone when it was never heard."""

        def work(c: sqlite3.Connection) -> None:
            if self._claim(c, turn, None):
                c.execute(f"UPDATE turns SET state = 'cancelled' WHERE {_ID}", _id(turn.room, turn.id))
                c.execute(
                    f"DELETE FROM messages WHERE turn = (SELECT seq FROM turns WHERE {_ID})", _id(turn.room, turn.id)
                )
            else:
                self._stop(c, turn.room, turn.id, WITHDRAWN)

        await self._db.write(work)

    async def begin(
        self, platforms: Collection[str], *, only_beside: bool = False, without: Collection[RoomKey] = ()
    ) -> OpenTurn | None:
        """Take the next turn that nobody alive holds; None when there is none.

        Resets and stops come first, since they wait for no lane; then the heads of the lanes, unless `only_beside`, and
        of no room in `without`. A turn of this process's own front is taken whatever its platform.
        """
        if not await self._db.read(lambda c: self._takeable(c, platforms, only_beside=only_beside, without=without)):
            return None  # the usual case costs no transaction
        return await self._db.write(
            lambda c: self._begin(c, platforms, only_beside=only_beside, without=without), is_news=False
        )

    def _takeable(
        self, c: sqlite3.Connection, platforms: Collection[str], *, only_beside: bool, without: Collection[RoomKey]
    ) -> int | None:
        marks, sated = ", ".join("?" * len(platforms)), ", ".join("?" * len(without))
        in_lanes = f"NOT IN {BESIDE} AND t.room NOT IN ({sated}) AND {_IS_HEAD}"
        for kinds, rooms in ((f"IN {BESIDE}", ()), (in_lanes, without))[: 1 if only_beside else 2]:
            rows = c.execute(
                f"""SELECT t.seq, t.state, t.owner FROM turns t INDEXED BY open_in_order
                    WHERE t.state IN ('heard', 'running') AND t.kind {kinds}
                    AND (t.platform IN ({marks}) OR t.owner = ?) ORDER BY t.seq""",
                (*map(str, rooms), *platforms, self._db.owner),
            )
            for row in rows:
                if self._is_free(row):
                    return int(row["seq"])
        return None

    def _is_free(self, row: sqlite3.Row) -> bool:
        """Tell whether this process may take a turn: nobody has it, it waits for us, or who had it is dead."""
        if row["owner"] == self._db.owner:
            return bool(row["state"] == "heard")
        return not self._db.is_alive(row["owner"])

    def _begin(
        self, c: sqlite3.Connection, platforms: Collection[str], *, only_beside: bool, without: Collection[RoomKey]
    ) -> OpenTurn | None:
        seq = self._takeable(c, platforms, only_beside=only_beside, without=without)
        if seq is None:
            return None
        sql = "UPDATE turns SET state = 'running', owner = ?, attempts = attempts + 1 WHERE seq = ?"
        c.execute(sql, (self._db.owner, seq))
        return _loaded(c, seq)

    async def let_go(self, turn: OpenTurn) -> None:
        """Give a turn back that could not be ended: it is taken up again as if its process had died."""

        def work(c: sqlite3.Connection) -> None:
            _end_commands(c, turn, self._db.owner)
            c.execute(
                """UPDATE turns SET state = 'heard'
                   WHERE seq = :seq AND owner = :owner AND attempts = :attempt AND state = 'running'""",
                self.fenced(turn),
            )

        await self._db.write(work)

    async def doomed(self, seqs: Collection[int]) -> dict[int, str]:
        """Give, of these running turns, those that a reset (value '') or a person (the name) has ended."""

        def work(c: sqlite3.Connection) -> dict[int, str]:
            marks = ", ".join("?" * len(seqs))
            rows = c.execute(
                f"""SELECT t.seq, t.stop, s.generation <> t.generation OR r.generation <> t.room_generation AS void
                    FROM turns t JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room
                    WHERE t.seq IN ({marks}) AND t.kind NOT IN {BESIDE}""",
                tuple(seqs),
            ).fetchall()
            return {row["seq"]: "" if row["void"] else row["stop"] for row in rows if row["void"] or row["stop"]}

        return await self._db.read(work) if seqs else {}

    async def know_author(self, turn: OpenTurn, author: Author, text: str) -> None:
        """Write what the surroundings told about author and text into the transcript."""

        def work(c: sqlite3.Connection) -> None:
            c.execute(
                f"""UPDATE messages SET author = :name, text = :text
                    WHERE session = (SELECT session FROM turns WHERE seq = :seq) AND turn = :seq AND role = 'user'
                    AND {FENCE}""",
                self.fenced(turn, name=author.name, text=text),
            )

        await self._db.write(work, is_news=False)

    async def settle(
        self, turn: OpenTurn, answer: Answer, *, said: tuple[Message, ...], parts: tuple[NewPart, ...], tokens: int = 0
    ) -> None:
        """Write transcript, answer and outbox in one transaction, if the turn still stands. Raises: Superseded."""

        def work(c: sqlite3.Connection) -> None:
            changed = c.execute(
                f"""UPDATE turns SET state = :state, answer_json = :answer, settled_at = :at
                    WHERE seq = :seq AND {FENCE}""",
                self.fenced(turn, state=answer.outcome, answer=dumped(answer), at=self._now()),
            )
            if not changed.rowcount:
                raise Superseded(str(turn))
            _end_commands(c, turn, self._db.owner)
            _tell(c, turn, said, answer)
            insert_parts(c, turn, parts)
            _use(c, turn, self._now(), commands=len(answer.commands), tokens=tokens)

        await self._db.write(work)

    async def settle_ended(
        self, turn: OpenTurn, answer: Answer, *, said: tuple[Message, ...] = (), parts: tuple[NewPart, ...] = ()
    ) -> None:
        """Settle a turn that was cancelled, or one that runs beside the lanes: fenced by owner and attempt only.

        What it still says (`parts`) belongs to the generation of now.
        """

        def work(c: sqlite3.Connection) -> None:
            changed = c.execute(
                """UPDATE turns SET state = :state, answer_json = :answer, settled_at = :at
                   WHERE seq = :seq AND owner = :owner AND attempts = :attempt AND state = 'running'""",
                self.fenced(turn, state=answer.outcome, answer=dumped(answer), at=self._now()),
            )
            if not changed.rowcount:
                raise Superseded(str(turn))
            _end_commands(c, turn, self._db.owner)
            _tell(c, turn, said, answer)
            insert_parts(c, turn, parts)  # first: the row of a part that was delivered says not to post it again
            if c.execute(f"SELECT {_IS_UNSAID}", {"seq": turn.seq, "withdrawn": WITHDRAWN}).fetchone()[0]:
                forget_turns(c, f"({turn.seq}, {turn.asking.seq})")

        await self._db.write(work)

    async def stop(self, room: RoomKey, turn_id: str, by: str) -> bool:
        """Ask whoever owns the turn to end it; False when it is not open."""
        return await self._db.write(lambda c: self._stop(c, room, turn_id, by))

    def _stop(self, c: sqlite3.Connection, room: RoomKey, turn_id: str, by: str) -> bool:
        changed = c.execute(
            f"UPDATE turns SET stop = ? WHERE {_ID} AND state IN ('heard', 'running') AND kind NOT IN {BESIDE}",
            (by or "someone", *_id(room, turn_id)),
        )
        return changed.rowcount > 0

    async def find_turn(self, room: RoomKey, turn_id: str) -> SettledTurn | None:
        """Give what became of a turn; None when it was never heard."""
        sql = f"SELECT * FROM turns WHERE {_ID}"
        row = await self._db.read(lambda c: c.execute(sql, _id(room, turn_id)).fetchone())
        return _settled(row) if row else None

    async def turn_at(self, seq: int) -> SettledTurn | None:
        """Give what became of the turn with this number."""
        row = await self._db.read(lambda c: c.execute("SELECT * FROM turns WHERE seq = ?", (seq,)).fetchone())
        return _settled(row) if row else None

    async def history(
        self, session: SessionKey, *, before: OpenTurn | None = None, limit: int | None = None
    ) -> list[Message]:
        """Give the transcript since the last reset, in the order of the turns.

        Only of turns before `before`; with `limit`, only the last so many messages.
        """

        def work(c: sqlite3.Connection) -> list[Message]:
            rows = c.execute(
                """SELECT m.role, m.author, m.text, m.at, t.message_id FROM messages m JOIN turns t ON t.seq = m.turn
                   JOIN sessions s ON s.key = m.session WHERE m.session = ? AND m.generation = s.generation
                   AND m.turn < ? ORDER BY m.turn DESC, m.id DESC LIMIT ?""",
                (str(session), before.asking.seq if before else 1 << 62, -1 if limit is None else limit),
            )
            return [Message(*row) for row in rows.fetchall()[::-1]]

        return await self._db.read(work)

    async def is_joined(self, session: SessionKey) -> bool:
        """Tell whether Duet has been asked in this session since its last reset."""
        sql = """SELECT EXISTS(SELECT 1 FROM turns t JOIN sessions s ON s.key = t.session WHERE t.session = ?
                 AND t.generation = s.generation AND t.kind IN ('ask', 'run') AND t.state <> 'refused'
                 AND NOT (t.state = 'cancelled' AND t.attempts = 0))"""  # no tombstones
        return bool(await self._db.read(lambda c: c.execute(sql, (str(session),)).fetchone()[0]))

    async def open_askers(self, session: SessionKey) -> list[str]:
        """Give the ids of the people whose turns are open in a session; for a room's own session, in the whole room."""
        where, key = ("session", session) if session.thread is not None else ("room", session.room)
        sql = f"""SELECT DISTINCT json_extract(author_json, '$.id') FROM turns
                  WHERE {where} = ? AND state IN ('heard', 'running') AND kind NOT IN {BESIDE}"""
        return await self._db.read(lambda c: [str(row[0]) for row in c.execute(sql, (str(key),))])

    async def counts(self) -> Mapping[str, int]:
        """Give how many turns are in each state, and how many rooms have a sandbox (`sandbox_rooms`)."""

        def work(c: sqlite3.Connection) -> dict[str, int]:
            states = dict(c.execute("SELECT state, count(*) FROM turns GROUP BY state").fetchall())
            rooms = c.execute("SELECT count(*) FROM sandboxes WHERE state <> 'none'").fetchone()[0]
            return states | {"sandbox_rooms": rooms}

        return await self._db.read(work)

    async def oldest_open_at(self) -> int | None:
        """Give when the oldest turn that still waits was asked; None when none does."""
        sql = "SELECT min(at) FROM turns INDEXED BY open_turns WHERE state IN ('heard', 'running') AND state = 'heard'"
        found: int | None = await self._db.read(lambda c: c.execute(sql).fetchone()[0])
        return found


_ID = "platform = ? AND space = ? AND channel = ? AND message_id = ?"


def _id(room: RoomKey, turn_id: str) -> tuple[str, str, str, str]:
    return room.platform, room.space, room.channel, turn_id


def _files_json(turn: Turn) -> str:
    from dataclasses import asdict

    return dumped([asdict(file) for file in turn.files])


def _touch(c: sqlite3.Connection, session: SessionKey, now: int) -> None:
    """Make room and session known, and note that something happened there."""
    c.execute(
        """INSERT INTO rooms(key, created_at, last_active_at) VALUES(?1, ?2, ?2)
           ON CONFLICT DO UPDATE SET last_active_at = ?2""",
        (str(session.room), now),
    )
    c.execute(
        """INSERT INTO sessions(key, room, last_active_at) VALUES(?1, ?2, ?3)
           ON CONFLICT DO UPDATE SET last_active_at = ?3""",
        (str(session), str(session.room), now),
    )


def _generations(c: sqlite3.Connection, session: SessionKey) -> tuple[int, int]:
    row = c.execute(
        "SELECT s.generation, r.generation FROM sessions s JOIN rooms r ON r.key = s.room WHERE s.key = ?",
        (str(session),),
    ).fetchone()
    return row[0], row[1]


def _parent_row(c: sqlite3.Connection, turn: Turn) -> sqlite3.Row | None:
    """Give the row of the turn that a press or a stop means, whose session and generations it inherits."""
    if turn.target is None:
        return None
    if turn.verdict in (Verdict.APPROVE, Verdict.DENY):
        sql = """SELECT t.* FROM turns t JOIN commands k ON k.turn = t.seq JOIN tickets i ON i.command = k.id
                 WHERE i.id = ? AND t.room = ?"""
        found: sqlite3.Row | None = c.execute(sql, (turn.target, str(turn.room))).fetchone()
    else:
        sql = f"SELECT * FROM turns WHERE {_ID}"
        found = c.execute(sql, _id(turn.room, turn.target)).fetchone()
        while turn.verdict is Verdict.RETRY and found and found["kind"] == TurnKind.PRESS and found["parent_seq"]:
            found = c.execute("SELECT * FROM turns WHERE seq = ?", (found["parent_seq"],)).fetchone()
    return found


def _tell(c: sqlite3.Connection, turn: OpenTurn, said: tuple[Message, ...], answer: Answer) -> None:
    """Write what was said in a turn into the transcript. A question that was tried again has one answer, the last."""
    seq = turn.seq
    if turn.turn.verdict is Verdict.RETRY and turn.parent is not None and answer.outcome is not Outcome.REFUSED:
        seq = turn.parent.seq
        values = {"session": str(turn.turn.session), "seq": seq, "state": answer.outcome, "answer": dumped(answer)}
        tries = "session = :session AND seq >= :seq AND :seq IN (seq, parent_seq)"
        c.execute(
            f"""DELETE FROM messages WHERE session = :session AND role <> 'user'
                AND turn IN (SELECT seq FROM turns WHERE {tries})""",
            values,
        )
        c.execute(
            f"""UPDATE turns SET state = :state, answer_json = :answer
                WHERE {tries} AND (seq = :seq OR state = 'failed')""",
            values,
        )
    for message in said:
        _say(c, seq, message)


def _say(c: sqlite3.Connection, seq: int, message: Message) -> None:
    c.execute(
        """INSERT INTO messages(turn, session, role, author, text, at, generation)
           SELECT seq, session, ?, ?, ?, ?, generation FROM turns WHERE seq = ?""",
        (message.role, message.author, message.text, message.at, seq),
    )


def _end_commands(c: sqlite3.Connection, turn: OpenTurn, owner: str) -> None:
    """End what still counts as running in a turn that is over: its start was cut off, or its end was not written.

    While it counts, nothing else can run in the room.
    """
    rows = c.execute(
        "SELECT id, code FROM commands WHERE turn = ? AND state = 'running' AND owner = ?", (turn.asking.seq, owner)
    )
    for row in rows.fetchall():
        result = CommandResult(row["code"], Ended.KILLED, note="it was cut off; how it ended is not known")
        c.execute("UPDATE commands SET state = 'done', result_json = ? WHERE id = ?", (dumped(result), row["id"]))


def _settled(row: sqlite3.Row) -> SettledTurn:
    answer = answer_of(row["answer_json"]) if row["answer_json"] else None
    if answer is None and row["state"] not in ("heard", "running"):  # forgotten by a reset
        answer = Answer(row["message_id"], "", Outcome(row["state"]), TurnKind(row["kind"]))
    return SettledTurn(row["seq"], SessionKey.parse(row["session"]), row["state"], row["owner"] or "", answer)


def _loaded(c: sqlite3.Connection, seq: int) -> OpenTurn:
    row = c.execute(
        """SELECT t.*, s.generation <> t.generation OR r.generation <> t.room_generation AS void
           FROM turns t JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room WHERE t.seq = ?""",
        (seq,),
    ).fetchone()
    parent = None
    if row["kind"] == TurnKind.PRESS and row["parent_seq"] is not None:
        parent = open_turn_of(c.execute("SELECT * FROM turns WHERE seq = ?", (row["parent_seq"],)).fetchone())
    return open_turn_of(row, parent=parent, is_void=bool(row["void"]) and row["kind"] not in ("reset", "stop"))


def _use(c: sqlite3.Connection, turn: OpenTurn, now: int, *, commands: int, tokens: int) -> None:
    from datetime import UTC, datetime

    c.execute(
        """INSERT INTO usage(user, room, day, turns, commands, tokens) VALUES(?, ?, ?, 1, ?, ?)
           ON CONFLICT(user, room, day) DO UPDATE SET turns = turns + 1, commands = commands + excluded.commands,
           tokens = tokens + excluded.tokens""",
        (
            *(turn.turn.author.id, str(turn.turn.room)),
            *(datetime.fromtimestamp(now / 1000, UTC).date().isoformat(), commands, tokens),
        ),
    )
