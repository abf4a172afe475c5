"""Values <-> the JSON and rows that hold them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bot.conversation import (
    Answer,
    Attachment,
    Author,
    Body,
    CommandResult,
    Ended,
    Outcome,
    RoomKey,
    SessionKey,
    Source,
    Standing,
    Ticket,
    TicketState,
    Turn,
    TurnKind,
    Verdict,
)
from bot.ports import Findings
from bot.records import CommandState, OpenTurn, PlannedCommand
from bot.redaction import well_formed


def dumped(value: Any) -> str:
    """Give a value, or a list of them, as JSON text."""
    return well_formed(json.dumps(value if isinstance(value, (dict, list)) else asdict(value), ensure_ascii=False))


def author_of(text: str) -> Author:
    raw = json.loads(text)
    return Author(raw["id"], raw["name"], Standing(raw["standing"]), tuple(raw["groups"]), raw.get("may_run", True))


def result_of(raw: Mapping[str, Any]) -> CommandResult:
    return CommandResult(**{**raw, "ended": Ended(raw["ended"])})


def answer_of(text: str) -> Answer:
    raw = json.loads(text)
    ticket = raw["ticket"] and Ticket(**{**raw["ticket"], "state": TicketState(raw["ticket"]["state"])})
    return Answer(
        **{
            **raw,
            "outcome": Outcome(raw["outcome"]),
            "kind": TurnKind(raw["kind"]),
            "sources": tuple(Source(**source) for source in raw["sources"]),
            "commands": tuple(result_of(command) for command in raw["commands"]),
            "ticket": ticket,
            "notes": tuple(raw["notes"]),
        }
    )


def turn_of(row: sqlite3.Row) -> Turn:
    return Turn(
        id=row["message_id"],
        session=SessionKey.parse(row["session"]),
        author=author_of(row["author_json"]),
        text=row["text"],
        at=row["at"],
        kind=TurnKind(row["kind"]),
        files=tuple(Attachment(**file) for file in json.loads(row["files_json"])),
        reply_to=json.loads(row["reply_to_json"]),
        target=row["target"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
    )


def open_turn_of(row: sqlite3.Row, *, parent: OpenTurn | None = None, is_void: bool = False) -> OpenTurn:
    return OpenTurn(
        seq=row["seq"],
        turn=turn_of(row),
        attempt=row["attempts"],
        generation=row["generation"],
        room_generation=row["room_generation"],
        parent=parent,
        is_void=is_void,
        stopped_by=row["stop"] or "",
    )


def command_of(row: sqlite3.Row) -> PlannedCommand:
    result = result_of(json.loads(row["result_json"])) if row["result_json"] else None
    return PlannedCommand(
        row["id"], row["step"], row["ordinal"], row["code"], CommandState(row["state"]), result, row["ticket"] or ""
    )


def body_of(row: sqlite3.Row, *, files: Mapping[str, bytes]) -> Body:
    from bot.conversation import FileData

    named = tuple(
        FileData(f["name"], files[f["sha256"]]) for f in json.loads(row["files_json"]) if f["sha256"] in files
    )
    return Body(json.loads(row["body_json"]), named)


def findings_json(findings: Findings) -> str:
    """Give what the prompt log keeps of the findings: sections with scores, not their text."""
    hits = [
        {
            "document": hit.section.document,
            "heading": hit.section.heading,
            "line": hit.section.line,
            "score": round(hit.score, 4),
        }
        for hit in findings.hits
    ]
    return dumped({"confidence": findings.confidence, "band": findings.band, "hits": hits})


def room_of(row: sqlite3.Row) -> RoomKey:
    return RoomKey.parse(row["room"])
