"""Resets, rooms and what stands beside the conversation: sandboxes, feedback, usage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from bot.conversation import RoomKey, SessionKey
from bot.drivers.database import Database
from bot.drivers.rows import dumped
from bot.records import OpenTurn, RoomSummary, UsageRow, Used

# What a reset covers: a room with all its sessions, or one session.
_IN_ROOM, _IN_SESSION = "t.session IN (SELECT key FROM sessions WHERE room = :room)", "t.session = :session"


class ResetRows:
    """The verbs about resets and rooms; each is one transaction."""

    def __init__(self, db: Database, now: Callable[[], int]) -> None:
        self._db = db
        self._now = now

    async def raise_generation(self, reset: OpenTurn) -> None:
        """Make everything older void, once for this reset turn: the fence goes up before anything is cleaned.

        Two resets may be at work at once. Each raises, and spares what was heard after it and is not void already.
        """

        def work(c: sqlite3.Connection) -> None:
            values = _scope(reset)
            if not c.execute("UPDATE turns SET raised = 1 WHERE seq = :seq AND NOT raised", values).rowcount:
                return  # before a crash
            values["later"] = dumped(_heard_later(c, reset, values))
            if _is_room(reset):
                c.execute("UPDATE rooms SET generation = generation + 1 WHERE key = :room", values)
            sessions = _where(reset).replace("t.session", "key")
            c.execute(f"UPDATE sessions SET generation = generation + 1 WHERE {sessions}", values)
            _carry_over(c, reset, values)
            old = f"(SELECT t.seq FROM turns t WHERE {_where(reset)} AND {_OLD} AND t.kind NOT IN ('reset', 'stop'))"
            c.execute(
                f"""UPDATE outbox SET next_try_at = 0, state = iif(ref IS NULL AND attempts = 0, 'dropped', state)
                    WHERE state = 'ready' AND turn IN {old}""",
                values,
            )
            c.execute(
                f"""UPDATE tickets SET state = 'void' WHERE state = 'waiting' AND command IN (
                    SELECT id FROM commands WHERE turn IN {old})""",
                values,
            )

        await self._db.write(work)

    async def unfinished(self, reset: OpenTurn) -> int:
        """Count the turns and posts of before the reset that are not over."""

        def work(c: sqlite3.Connection) -> int:
            values = _scope(reset)
            turns = c.execute(
                f"""SELECT count(*) FROM turns t WHERE {_where(reset)} AND t.state IN ('heard', 'running')
                    AND t.kind NOT IN ('reset', 'stop') AND {_OLD}""",
                values,
            ).fetchone()[0]
            parts = c.execute(
                f"""SELECT count(*) FROM outbox o JOIN turns t ON t.seq = o.turn JOIN sessions s ON s.key = t.session
                    JOIN rooms r ON r.key = t.room WHERE {_where(reset)} AND o.state IN ('draft', 'ready', 'posting')
                    AND (o.generation <> s.generation OR o.room_generation <> r.generation)""",
                values,
            ).fetchone()[0]
            return int(turns + parts)

        return await self._db.read(work)

    async def forget(self, reset: OpenTurn) -> None:
        """Delete what was said, sent and run before the reset; the turns' ids stay, so that nothing is heard twice."""

        def work(c: sqlite3.Connection) -> None:
            values = _scope(reset)
            old = f"""(SELECT t.seq FROM turns t WHERE {_where(reset)} AND {_OLD}
                       AND t.kind NOT IN ('reset', 'stop') AND t.state NOT IN ('heard', 'running'))"""
            forget_turns(c, old, values)
            c.execute(f"UPDATE turns SET answer_json = NULL WHERE seq IN {old}", values)
            c.execute(
                "UPDATE sessions SET cleared_mark = max(:at, coalesce(cleared_mark, 0)) WHERE "
                + ("room = :room" if _is_room(reset) else "key = :session"),
                values | {"at": reset.turn.at},
            )

        await self._db.write(work)

    async def cleared_mark(self, session: SessionKey) -> int:
        """Give the time of the last reset of a session: what was said before it must not be read back. 0: never."""
        sql = "SELECT max(cleared_mark) FROM sessions WHERE key = ? OR key = ?"
        found = await self._db.read(lambda c: c.execute(sql, (str(session), str(session.room))).fetchone()[0])
        return int(found or 0)

    async def room_generation(self, room: RoomKey) -> int:
        """Give the room's generation of now; 0 for a room never seen."""
        sql = "SELECT generation FROM rooms WHERE key = ?"
        row = await self._db.read(lambda c: c.execute(sql, (str(room),)).fetchone())
        return int(row[0]) if row else 0

    async def rooms(self) -> list[RoomSummary]:
        """Give every room, the last active first."""
        sql = """SELECT r.*, (SELECT count(*) FROM sessions WHERE room = r.key) AS sessions,
                   (SELECT count(*) FROM turns t WHERE t.room = r.key AND t.kind IN ('ask', 'run')) AS turns,
                   (SELECT count(*) FROM turns t WHERE t.room = r.key AND t.state IN ('heard', 'running')) AS open
                 FROM rooms r ORDER BY last_active_at DESC"""

        def work(c: sqlite3.Connection) -> list[RoomSummary]:
            return [
                RoomSummary(
                    *(RoomKey.parse(row["key"]), row["sessions"], row["turns"], row["open"]),
                    *(row["last_active_at"], row["generation"]),
                )
                for row in c.execute(sql)
            ]

        return await self._db.read(work)

    async def sessions(self, room: RoomKey) -> list[SessionKey]:
        """Give the sessions of a room, the last active first."""
        sql = "SELECT key FROM sessions WHERE room = ? ORDER BY last_active_at DESC"
        return await self._db.read(lambda c: [SessionKey.parse(row[0]) for row in c.execute(sql, (str(room),))])

    async def feedback(self, room: RoomKey, turn_id: str, *, user: str, verdict: str) -> bool:
        """Keep a person's last word about an answer; False when there is no such turn."""

        def work(c: sqlite3.Connection) -> bool:
            return (
                c.execute(
                    """INSERT OR REPLACE INTO feedback(turn, user, verdict, at) SELECT seq, ?, ?, ? FROM turns
                       WHERE platform = ? AND space = ? AND channel = ? AND message_id = ?""",
                    (user, verdict, self._now(), room.platform, room.space, room.channel, turn_id),
                ).rowcount
                > 0
            )

        return await self._db.write(work)

    async def used(self, day: str, *, user: str = "", room: str = "") -> Used:
        """Add up one UTC day's use by a person, in a room, or (both empty) by all."""
        sql = """SELECT coalesce(sum(turns), 0), coalesce(sum(commands), 0), coalesce(sum(tokens), 0) FROM usage
                 WHERE day = ? AND (? = '' OR user = ?) AND (? = '' OR room = ?)"""
        row = await self._db.read(lambda c: c.execute(sql, (day, user, user, room, room)).fetchone())
        return Used(*row)

    async def usage(self, day: str) -> list[UsageRow]:
        """Give who used what, in which room, on one UTC day; the most tokens first."""
        sql = "SELECT * FROM usage WHERE day = ? ORDER BY tokens DESC, turns DESC, user, room"

        def work(c: sqlite3.Connection) -> list[UsageRow]:
            return [
                UsageRow(
                    *(row["day"], row["user"], RoomKey.parse(row["room"])),
                    Used(row["turns"], row["commands"], row["tokens"]),
                )
                for row in c.execute(sql, (day,))
            ]

        return await self._db.read(work)


# Of before the reset: the generation it was heard under is not today's.
_OLD = """EXISTS(SELECT 1 FROM sessions s JOIN rooms r ON r.key = s.room WHERE s.key = t.session
          AND (s.generation <> t.generation OR r.generation <> t.room_generation))"""


def forget_turns(c: sqlite3.Connection, turns: str, values: Mapping[str, object] | None = None) -> None:
    """Delete what was said, sent, run and posted in these turns (a subquery, or numbers in brackets)."""
    values = values or {}
    session = f"session IN (SELECT session FROM turns WHERE seq IN {turns})"  # by its index
    c.execute(f"DELETE FROM messages WHERE {session} AND turn IN {turns}", values)
    c.execute(f"DELETE FROM calls WHERE turn IN {turns}", values)
    c.execute(f"DELETE FROM tickets WHERE command IN (SELECT id FROM commands WHERE turn IN {turns})", values)
    c.execute(f"DELETE FROM commands WHERE state <> 'running' AND turn IN {turns}", values)
    c.execute(f"DELETE FROM outbox WHERE state IN ('delivered', 'dropped', 'failed') AND turn IN {turns}", values)
    c.execute(f"UPDATE turns SET text = '', files_json = '[]' WHERE seq IN {turns}", values)


def _heard_later(c: sqlite3.Connection, reset: OpenTurn, values: dict[str, object]) -> list[int]:
    """Give what was heard after the reset, but before it raises: it belongs to the time after.

    Not a button of before, which stays of before; and not what another reset, that raised earlier, made void.
    """
    rows = c.execute(
        f"""SELECT t.seq FROM turns t JOIN sessions s ON s.key = t.session JOIN rooms r ON r.key = t.room
            WHERE {_where(reset)} AND t.seq > :seq AND t.state IN ('heard', 'running') AND t.state = 'heard'
            AND t.generation = s.generation AND t.room_generation = r.generation
            AND (t.parent_seq IS NULL OR t.parent_seq > :seq OR t.kind = 'stop')""",
        values,
    )
    return [row[0] for row in rows]


def _carry_over(c: sqlite3.Connection, reset: OpenTurn, values: dict[str, object]) -> None:
    """Bring what is spared into the generation of now: turns heard later, their messages, and what resets say."""
    session = "(SELECT s.generation FROM sessions s WHERE s.key = {0}.session)"
    room = "(SELECT r.generation FROM rooms r JOIN sessions s ON s.room = r.key WHERE s.key = {0}.session)"
    later = "(SELECT value FROM json_each(:later))"
    sessions = _where(reset).replace("t.session", "session")
    c.execute(
        f"""UPDATE turns SET generation = {session.format("turns")}, room_generation = {room.format("turns")}
            WHERE seq IN {later}""",
        values,
    )
    c.execute(
        f"UPDATE messages SET generation = {session.format('messages')} WHERE {sessions} AND turn IN {later}", values
    )
    c.execute(
        f"""UPDATE outbox SET generation = {session.format("outbox")}, room_generation = {room.format("outbox")}
            WHERE {sessions} AND state IN ('draft', 'ready', 'posting')
            AND EXISTS(SELECT 1 FROM turns t WHERE t.seq = outbox.turn AND t.kind IN ('reset', 'stop'))""",
        values,
    )


def _is_room(reset: OpenTurn) -> bool:
    return reset.turn.session.thread is None


def _where(reset: OpenTurn) -> str:
    return _IN_ROOM if _is_room(reset) else _IN_SESSION


def _scope(reset: OpenTurn) -> dict[str, object]:
    return {
        "seq": reset.seq,
        "room": str(reset.turn.room),
        "session": str(reset.turn.session),
    }
