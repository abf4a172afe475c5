"""The tables, as numbered migrations. Times are UTC milliseconds; `generation` columns are the fence."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

migrations = Migrations("duet")

TABLES = """
CREATE TABLE rooms(
    key TEXT PRIMARY KEY, generation INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL, last_active_at INTEGER NOT NULL);
CREATE TABLE sessions(
    key TEXT PRIMARY KEY, room TEXT NOT NULL, generation INTEGER NOT NULL DEFAULT 0,
    cleared_mark INTEGER, last_active_at INTEGER NOT NULL);
CREATE INDEX sessions_of_room ON sessions(room);
CREATE TABLE turns(
    seq INTEGER PRIMARY KEY, platform TEXT NOT NULL, space TEXT NOT NULL, channel TEXT NOT NULL,
    message_id TEXT NOT NULL, kind TEXT NOT NULL, parent_seq INTEGER, target TEXT, verdict TEXT,
    room TEXT NOT NULL, session TEXT NOT NULL, author_json TEXT NOT NULL, text TEXT NOT NULL, files_json TEXT NOT NULL,
    at INTEGER NOT NULL, generation INTEGER NOT NULL, room_generation INTEGER NOT NULL, reply_to_json TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'heard', stop TEXT, owner TEXT, attempts INTEGER NOT NULL DEFAULT 0,
    answer_json TEXT, settled_at INTEGER, UNIQUE(platform, space, channel, message_id));
CREATE UNIQUE INDEX one_running_turn ON turns(session) WHERE state = 'running' AND kind NOT IN ('reset', 'stop');
CREATE INDEX open_turns ON turns(session, seq) WHERE state IN ('heard', 'running');
CREATE INDEX turns_of_session ON turns(session, seq);
CREATE TABLE messages(
    id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, session TEXT NOT NULL, role TEXT NOT NULL, author TEXT NOT NULL,
    text TEXT NOT NULL, at INTEGER NOT NULL, generation INTEGER NOT NULL);
CREATE INDEX messages_of_session ON messages(session, turn, id);
CREATE TABLE calls(
    id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, step INTEGER NOT NULL, state TEXT NOT NULL, model TEXT NOT NULL,
    request_json TEXT NOT NULL, findings_json TEXT NOT NULL, reply TEXT NOT NULL DEFAULT '',
    finish TEXT NOT NULL DEFAULT '', prompt_tokens INTEGER NOT NULL DEFAULT 0, reply_tokens INTEGER NOT NULL DEFAULT 0,
    first_piece_ms INTEGER, total_ms INTEGER, error TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL, UNIQUE(turn, step));
CREATE TABLE commands(
    id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, step INTEGER NOT NULL, ordinal INTEGER NOT NULL, room TEXT NOT NULL,
    room_generation INTEGER NOT NULL, code TEXT NOT NULL, state TEXT NOT NULL, owner TEXT, result_json TEXT,
    asked_by TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL, UNIQUE(turn, step, ordinal));
CREATE UNIQUE INDEX one_running_command ON commands(room) WHERE state = 'running';
CREATE TABLE tickets(
    id TEXT PRIMARY KEY, command INTEGER NOT NULL UNIQUE, shown_in INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting', decided_by TEXT, decided_turn INTEGER, decided_at INTEGER,
    expires_at INTEGER NOT NULL);
CREATE TABLE outbox(
    key TEXT PRIMARY KEY, turn INTEGER NOT NULL, session TEXT NOT NULL, platform TEXT NOT NULL,
    ordinal INTEGER NOT NULL, body_json TEXT NOT NULL, files_json TEXT NOT NULL DEFAULT '[]',
    generation INTEGER NOT NULL, room_generation INTEGER NOT NULL, state TEXT NOT NULL, owner TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_try_at INTEGER NOT NULL DEFAULT 0, shown_at INTEGER, ref TEXT, error TEXT NOT NULL DEFAULT '');
CREATE INDEX open_parts ON outbox(session, turn, ordinal) WHERE state IN ('draft', 'ready', 'posting');
CREATE INDEX parts_of_turn ON outbox(turn, ordinal);
CREATE TABLE sandboxes(
    room TEXT PRIMARY KEY, generation INTEGER NOT NULL, host TEXT NOT NULL, container_id TEXT NOT NULL,
    snapshot INTEGER NOT NULL, dirty INTEGER NOT NULL, state TEXT NOT NULL, last_used_at INTEGER NOT NULL,
    doomed_through INTEGER NOT NULL, destroyed_through INTEGER NOT NULL);
CREATE TABLE feedback(
    turn INTEGER NOT NULL, user TEXT NOT NULL, verdict TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY(turn, user));
CREATE TABLE usage(
    user TEXT NOT NULL, room TEXT NOT NULL, day TEXT NOT NULL, turns INTEGER NOT NULL DEFAULT 0,
    commands INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(user, room, day));
"""


@migrations()
def m001_tables(db: Database) -> None:
    """Make every table of the first version."""
    for statement in TABLES.split(";"):
        if statement.strip():
            db.execute(statement)


@migrations()
def m002_open_in_order(db: Database) -> None:
    """Let the oldest open turn be found without a look at those that are over, or at all that are open."""
    db.execute("CREATE INDEX open_in_order ON turns(seq, kind) WHERE state IN ('heard', 'running')")


@migrations()
def m003_raised(db: Database) -> None:
    """Let a reset say that it raised the generation: the number alone tells not which of two resets did."""
    db.execute("ALTER TABLE turns ADD COLUMN raised INTEGER NOT NULL DEFAULT 0")


@migrations()
def m004_failed_calls_stay(db: Database) -> None:
    """Let a call that failed stay in the prompt log when its step is asked again: what was sent was sent."""
    db.execute("ALTER TABLE calls RENAME TO calls_before")
    db.execute(
        """CREATE TABLE calls(
               id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, step INTEGER NOT NULL, state TEXT NOT NULL,
               model TEXT NOT NULL, request_json TEXT NOT NULL, findings_json TEXT NOT NULL,
               reply TEXT NOT NULL DEFAULT '', finish TEXT NOT NULL DEFAULT '',
               prompt_tokens INTEGER NOT NULL DEFAULT 0, reply_tokens INTEGER NOT NULL DEFAULT 0,
               first_piece_ms INTEGER, total_ms INTEGER, error TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL)"""
    )
    db.execute("INSERT INTO calls SELECT * FROM calls_before")
    db.execute("DROP TABLE calls_before")
    db.execute("CREATE INDEX calls_of_turn ON calls(turn, step)")
    db.execute("CREATE UNIQUE INDEX one_call_a_step ON calls(turn, step) WHERE state <> 'failed'")
