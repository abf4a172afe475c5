"""The outbox: what is to be posted is a row first, and each row is posted once."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Collection

from bot.conversation import Answer, Body, Part, SessionKey
from bot.drivers.database import Database
from bot.drivers.rows import body_of, dumped
from bot.errors import Superseded
from bot.records import NewPart, OpenTurn, ToDeliver

FILE_WITHOUT_ROW_S = 600.0
# Put as the index `open_parts` has it, or SQLite would read through every part that was ever posted.
_UNPOSTED = "{0}.state IN ('draft', 'ready', 'posting') AND {0}.state <> 'draft'"
# What will not be shown need not be kept: a reset may have forgotten the rest of its turn already.
_EMPTIED = "body_json = '{}', files_json = '[]'"


class OutboxRows:
    """The verbs about parts; each is one transaction."""

    def __init__(self, db: Database, now: Callable[[], int]) -> None:
        self._db = db
        self._now = now
        self._in_memory: dict[str, bytes] = {}

    async def keep_files(self, body: Body) -> None:
        """Write the files of a body where a later process finds them: before the row that names them."""
        for file in body.files:
            name = hashlib.sha256(file.data).hexdigest()
            if self._db.home is None:
                self._in_memory[name] = file.data
            else:
                path = self._db.home / "files" / name
                new = path.with_suffix(f".{self._db.owner}")
                new.write_bytes(file.data)
                new.rename(path)

    async def sweep_files(self) -> None:
        """Remove the files of parts that are over; one that was just written may have no row yet."""
        if self._db.home is None:
            return
        sql = "SELECT files_json FROM outbox INDEXED BY open_parts WHERE state IN ('draft', 'ready', 'posting')"
        found = await self._db.read(lambda c: [json.loads(row[0]) for row in c.execute(sql)])
        named = {file["sha256"] for files in found for file in files}
        for path in (self._db.home / "files").iterdir():
            if path.stem not in named and time.time() - path.stat().st_mtime > FILE_WITHOUT_ROW_S:
                path.unlink(missing_ok=True)

    def _files(self, row: sqlite3.Row) -> dict[str, bytes]:
        names = [file["sha256"] for file in json.loads(row["files_json"])]
        if self._db.home is None:
            return {name: self._in_memory[name] for name in names if name in self._in_memory}
        found = [(name, self._db.home / "files" / name) for name in names]
        return {name: path.read_bytes() for name, path in found if path.exists()}

    async def open_draft(self, turn: OpenTurn, part: NewPart) -> tuple[Part, bool] | None:
        """Store part 0 as a draft before it is shown, or give the one a dead process left, and whether it is new.

        One that is not new and has no `ref` may stand on the platform all the same.
        None: parts of an earlier turn still wait, so a draft would stand above them. Raises: Superseded.
        """

        def work(c: sqlite3.Connection) -> tuple[Part, bool] | None:
            row = c.execute("SELECT * FROM outbox WHERE turn = ? AND ordinal = 0", (turn.seq,)).fetchone()
            if row is not None:
                c.execute(
                    "UPDATE outbox SET owner = ?, attempts = attempts + 1 WHERE key = ?", (self._db.owner, row["key"])
                )
                return self._part(row, turn), False
            if c.execute(
                f"SELECT 1 FROM outbox o WHERE session = ? AND {_UNPOSTED.format('o')}", (str(turn.turn.session),)
            ).fetchone():
                return None
            _fence(c, turn, self._db.owner)
            _insert(c, turn, part, "draft", self._db.owner, self._now())
            return Part(part.key, turn.turn.id, turn.turn.session, 0, turn.turn.reply_to, part.body), True

        return await self._db.write(work, is_news=False)

    async def note_ref(self, key: str, ref: str) -> None:
        """Write down the platform's id of a message as soon as it is known."""
        await self._db.write(lambda c: c.execute("UPDATE outbox SET ref = ? WHERE key = ?", (ref, key)), is_news=False)

    async def draft_of(self, turn: OpenTurn) -> Part | None:
        """Give the draft that stands for a turn, if any."""

        def work(c: sqlite3.Connection) -> Part | None:
            row = c.execute("SELECT * FROM outbox WHERE turn = ? AND state = 'draft'", (turn.seq,)).fetchone()
            return self._part(row, turn) if row else None

        return await self._db.read(work)

    async def next_part(self, platforms: Collection[str]) -> ToDeliver | None:
        """Take the next part that may be posted: parts of one session go in order, sessions side by side.

        A part whose room or session was reset since is dropped, or, when it may have been posted by a process that
        died, given with `is_final=False`: to be looked for and deleted.
        """
        if await self._db.read(lambda c: self._open_parts(c, platforms)):  # the usual case costs no transaction
            return await self._db.write(lambda c: self._next_part(c, platforms), is_news=False)
        return None

    def _open_parts(self, c: sqlite3.Connection, platforms: Collection[str]) -> list[sqlite3.Row]:
        marks = ", ".join("?" * len(platforms))
        rows = c.execute(
            f"""SELECT o.*, t.message_id, t.reply_to_json,
                  s.generation <> o.generation OR r.generation <> o.room_generation AS void
                FROM outbox o INDEXED BY open_parts JOIN turns t ON t.seq = o.turn
                JOIN sessions s ON s.key = o.session JOIN rooms r ON r.key = t.room
                WHERE o.platform IN ({marks}) AND {_UNPOSTED.format("o")} AND o.next_try_at <= ?
                AND NOT EXISTS(SELECT 1 FROM outbox e INDEXED BY open_parts WHERE e.session = o.session
                               AND {_UNPOSTED.format("e")} AND (e.turn, e.ordinal) < (o.turn, o.ordinal))
                ORDER BY o.turn, o.ordinal""",
            (*platforms, self._now()),
        ).fetchall()
        return [row for row in rows if row["state"] == "ready" or not self._db.is_alive(row["owner"])]

    def _next_part(self, c: sqlite3.Connection, platforms: Collection[str]) -> ToDeliver | None:
        for row in self._open_parts(c, platforms):
            may_stand = row["ref"] is not None or row["attempts"] > 0
            if row["void"] and not may_stand:
                c.execute(f"UPDATE outbox SET state = 'dropped', {_EMPTIED} WHERE key = ?", (row["key"],))
                continue
            c.execute(
                "UPDATE outbox SET state = 'posting', owner = ?, attempts = attempts + 1, shown_at = ? WHERE key = ?",
                (self._db.owner, self._now(), row["key"]),
            )
            return self._to_deliver(row)
        return None

    def _to_deliver(self, row: sqlite3.Row) -> ToDeliver:
        part = Part(
            row["key"],
            row["message_id"],
            SessionKey.parse(row["session"]),
            row["ordinal"],
            json.loads(row["reply_to_json"]),
            body_of(row, files=self._files(row)),
            row["ref"],
        )
        return ToDeliver(
            part,
            attempt=row["attempts"] + 1,
            look_first=row["ref"] is None and row["attempts"] > 0,
            shown_at=row["shown_at"] or 0,
            is_final=not row["void"],
        )

    async def posted(self, part: Part, ref: str) -> bool:
        """Note that a part stands on the platform; False when a reset came meanwhile and it must be deleted.

        One that was redrawn while it was posted is to be posted again.
        """

        def work(c: sqlite3.Connection) -> bool:
            changed = c.execute(
                """UPDATE outbox SET state = iif(body_json = ?, 'delivered', 'ready'), ref = ?
                   WHERE key = ? AND owner = ? AND state = 'posting'
                   AND generation = (SELECT generation FROM sessions WHERE key = outbox.session)
                   AND room_generation = (SELECT r.generation FROM rooms r JOIN sessions s ON s.room = r.key
                                          WHERE s.key = outbox.session)""",
                (dumped(dict(part.body.content)), ref, part.key, self._db.owner),
            )
            if not changed.rowcount:
                c.execute("UPDATE outbox SET ref = ? WHERE key = ?", (ref, part.key))
            return changed.rowcount == 1

        return await self._db.write(work)

    async def put_back(self, key: str, *, next_try_at: int, error: str) -> None:
        """Leave a part for a later try."""
        sql = "UPDATE outbox SET state = 'ready', next_try_at = ?, error = ? WHERE key = ? AND owner = ?"
        await self._db.write(lambda c: c.execute(sql, (next_try_at, error, key, self._db.owner)))

    async def end_part(self, key: str, *, state: str, error: str = "") -> None:
        """Give a part up (`failed`) or take it back (`dropped`)."""
        sql = f"UPDATE outbox SET state = ?, error = ?, {_EMPTIED} WHERE key = ?"
        await self._db.write(lambda c: c.execute(sql, (state, error, key)))

    async def redraw(self, seq: int, answer: Answer, bodies: tuple[Body, ...]) -> bool:
        """Change the messages of a turn to what its answer says now (a ticket that was decided).

        False when none of them stands or will stand anywhere. Files that went out with a message stay as they are.
        """

        def work(c: sqlite3.Connection) -> bool:
            c.execute("UPDATE turns SET answer_json = ? WHERE seq = ?", (dumped(answer), seq))
            changed = 0
            for ordinal, body in enumerate(bodies):
                changed += c.execute(
                    """UPDATE outbox SET body_json = ?, next_try_at = 0,
                         files_json = iif(state = 'delivered', '[]', files_json),
                         state = iif(state = 'posting', state, 'ready')
                       WHERE turn = ? AND ordinal = ? AND state IN ('ready', 'posting', 'delivered')""",
                    (dumped(dict(body.content)), seq, ordinal),
                ).rowcount
            return bool(changed)

        return await self._db.write(work)

    async def outbox_age_at(self) -> int | None:
        """Give when the turn of the oldest unposted part was settled; None when all is posted."""
        sql = f"""SELECT min(t.settled_at) FROM outbox o INDEXED BY open_parts JOIN turns t ON t.seq = o.turn
                  WHERE {_UNPOSTED.format("o")}"""
        found: int | None = await self._db.read(lambda c: c.execute(sql).fetchone()[0])
        return found

    def _part(self, row: sqlite3.Row, turn: OpenTurn) -> Part:
        body = body_of(row, files=self._files(row))
        return Part(row["key"], turn.turn.id, turn.turn.session, row["ordinal"], turn.turn.reply_to, body, row["ref"])


def insert_parts(c: sqlite3.Connection, turn: OpenTurn, parts: tuple[NewPart, ...]) -> None:
    """Store an answer's parts as ready; a draft becomes the first, and is given up when there is none."""
    draft = c.execute("SELECT key FROM outbox WHERE turn = ? AND state = 'draft'", (turn.seq,)).fetchone()
    if draft and not parts:
        c.execute(f"UPDATE outbox SET state = 'failed', {_EMPTIED} WHERE key = ?", (draft["key"],))
    for part in parts:
        if part.ordinal == 0 and draft:
            c.execute(
                """UPDATE outbox SET state = 'ready', body_json = ?, files_json = ?,
                   generation = (SELECT generation FROM sessions WHERE key = outbox.session),
                   room_generation = (SELECT r.generation FROM rooms r JOIN sessions s ON s.room = r.key
                                      WHERE s.key = outbox.session) WHERE key = ?""",
                (dumped(dict(part.body.content)), _files_json(part.body), draft["key"]),
            )
        else:
            _insert(c, turn, part, "ready", None, None)


def _insert(
    c: sqlite3.Connection, turn: OpenTurn, part: NewPart, state: str, owner: str | None, shown_at: int | None
) -> None:
    """Insert a part under the generations of now; in a fenced statement they are the turn's own.

    A part that has a row already is this one: its turn is settled again after a crash.
    """
    c.execute(
        """INSERT OR IGNORE INTO outbox(key, turn, session, platform, ordinal, body_json, files_json, generation,
             room_generation, state, owner, attempts, shown_at)
           SELECT ?, t.seq, t.session, t.platform, ?, ?, ?, s.generation, r.generation, ?, ?, ?, ?
           FROM turns t JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room WHERE t.seq = ?""",
        (
            *(part.key, part.ordinal, dumped(dict(part.body.content)), _files_json(part.body)),
            *(state, owner, 1 if state == "draft" else 0, shown_at, turn.seq),
        ),
    )


def _files_json(body: Body) -> str:
    return dumped([{"name": file.name, "sha256": hashlib.sha256(file.data).hexdigest()} for file in body.files])


def _fence(c: sqlite3.Connection, turn: OpenTurn, owner: str) -> None:
    """Raise Superseded unless the turn still stands."""
    from bot.drivers.turn_rows import FENCE

    values = {"seq": turn.seq, "owner": owner, "attempt": turn.attempt}
    if not c.execute(f"SELECT {FENCE}", values).fetchone()[0]:
        raise Superseded(str(turn))
