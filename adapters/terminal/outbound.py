"""Values -> text for a terminal and JSON for programs. All text is made safe to show: nothing a terminal would obey."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from adapters.terminal.inbound import name_of
from bot.budget import cost
from bot.checks import Check, Health
from bot.conversation import Answer, CommandResult, Ended, Outcome, RoomKey, SessionKey, Source, Ticket, TicketState
from bot.ports import Findings, Hit
from bot.records import LoggedCall, RoomSummary, UsageRow
from bot.redaction import neutralised, spelled_out, well_formed
from bot.sections import Document

JsonObject: TypeAlias = dict[str, Any]


def dumped(value: object) -> str:
    """Give one JSON object, readable, any script as it is."""
    return well_formed(json.dumps(value, ensure_ascii=False, indent=2))


# ── Answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def answer_text(answer: Answer) -> str:
    """Give a whole answer as it is read in a terminal."""
    return joined([answer.text, *map(command_text, answer.commands), *below(answer)])


def below(answer: Answer) -> list[str]:
    """Give what stands below the text and the commands: the ticket, the sources, the notes."""
    blocks = [ticket_text(answer.ticket)] if answer.ticket else []
    if answer.sources:
        blocks.append("Sources\n" + "\n".join(map(source_text, answer.sources)))
    notes = list(answer.notes)
    if answer.incident:
        notes.append(f"Incident {answer.incident}: look for it in duet.log, in the data folder.")
    return [*blocks, "\n".join(notes)]


def joined(blocks: Iterable[str]) -> str:
    """Give the blocks that hold something, an empty line between them, safe to show."""
    return neutralised("\n\n".join(block.strip("\n") for block in blocks if block.strip()))


def source_text(source: Source) -> str:
    lines = [_in_line(f"[{source.number}] {source.document} › {source.heading} (line {source.line})")]
    if source.quote:
        lines.append(f"    “{_in_line(source.quote)}”")
    if source.url:
        lines.append(f"    {source.url}")
    return "\n".join(lines)


def _in_line(text: str) -> str:
    """Give text on one line: a file's name may hold a newline."""
    return " ".join(text.split())


def command_text(result: CommandResult) -> str:
    """Give command, output and how it ended."""
    head = f"$ {spelled_out(result.code)}"
    if result.ended is Ended.NOT_STARTED:
        return f"{head}\n{ending(result)}"
    return f"{head}\n{result.output}\n{ending(result)}"


def ending(result: CommandResult) -> str:
    """Give one line in brackets: exit code or the other way it ended, how long it took, whether output was cut."""
    how = {
        Ended.EXIT: f"exit code {result.exit_code}",
        Ended.TIMEOUT: "stopped: it ran too long",
        Ended.MEMORY: "stopped: it used too much memory",
        Ended.KILLED: "stopped",
        Ended.NOT_STARTED: "not run",
    }[result.ended]
    note = result.note.rstrip(".")
    if note and result.ended in (Ended.TIMEOUT, Ended.MEMORY, Ended.KILLED):
        how, note = note, ""  # it says what stopped the command, and by which limit
    words = [f"{how}: {note}" if note else how]
    if result.ended is not Ended.NOT_STARTED:
        words.append(seconds(result.duration_ms))
    if result.truncated:
        words.append("output cut")
    return f"[{' · '.join(words)}]"


def ticket_text(ticket: Ticket) -> str:
    if ticket.state is not TicketState.WAITING:
        by = f" by {ticket.decided_by}" if ticket.decided_by else ""
        return f"$ {spelled_out(ticket.code)}\n[{ticket.state.value}{by}]"
    return f"This command waits for a yes or no:\n$ {spelled_out(ticket.code)}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"


def answer_json(answer: Answer, session: SessionKey) -> JsonObject:
    """Give `duet ask --json`; an answer that failed becomes the error object."""
    if answer.outcome is not Outcome.ANSWERED:
        return error_json(answer.outcome.value, answer.text, answer.incident)
    return {
        "answer": answer.text,
        "covered": answer.covered,
        "sources": [source_json(source) for source in answer.sources],
        "commands": [command_json(result) for result in answer.commands],
        "room": name_of(session.room),
        "thread": session.thread,
        "turn": answer.turn,
        "model": answer.model,
        "total_ms": answer.total_ms,
    }


def source_json(source: Source) -> JsonObject:
    return {
        "document": source.document,
        "heading": source.heading,
        "line": source.line,
        "url": source.url,
        "quote": source.quote,
    }


def command_json(result: CommandResult) -> JsonObject:
    return {
        "command": result.code,
        "exit_code": result.exit_code,
        "ended": result.ended.value,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "output": result.output,
        "truncated": result.truncated,
        "duration_ms": result.duration_ms,
    }


def run_json(answer: Answer, room: RoomKey) -> JsonObject:
    """Give `duet run --json`; a turn that holds no command failed before one."""
    if not answer.commands:
        return error_json(answer.outcome.value, answer.text, answer.incident)
    return {"commands": [command_json(result) for result in answer.commands], "room": name_of(room)}


def error_json(kind: str, message: str, incident: str = "") -> JsonObject:
    return {"error": {"kind": kind, "message": message, "incident": incident or None}}


def reset_json(answer: Answer, session: SessionKey) -> JsonObject:
    """Give `duet reset --json`."""
    if answer.outcome is not Outcome.ANSWERED:
        return error_json(answer.outcome.value, answer.text, answer.incident)
    return {
        "cleared": True,
        "message": answer.text,
        "notes": list(answer.notes),
        "room": name_of(session.room),
        "thread": session.thread,
    }


def is_remarkable(result: CommandResult) -> bool:
    """Tell whether more is to be said of a result than its output shows."""
    return result.ended is not Ended.EXIT or result.truncated


def exit_code(result: CommandResult) -> int:
    """Give what a shell would: the command's own code, 124 after a time-out, 137 when killed, 125 when not started."""
    if result.ended is Ended.EXIT and result.exit_code is not None:
        return result.exit_code
    return {Ended.TIMEOUT: 124, Ended.NOT_STARTED: 125}.get(result.ended, 137)


# ── Search and rooms ──────────────────────────────────────────────────────────────────────────────────────────────


def findings_json(findings: Findings, *, explain: bool = False) -> JsonObject:
    return {
        "confidence": round(findings.confidence, 4),
        "band": findings.band.value,
        "hits": [_hit_json(hit, explain=explain) for hit in findings.hits],
    }


def _hit_json(hit: Hit, *, explain: bool) -> JsonObject:
    shown = {
        "document": hit.section.document,
        "heading": hit.section.heading,
        "line": hit.section.line,
        "score": round(hit.score, 4),
    }
    return shown | ({"components": dict(hit.components)} if explain else {})


def findings_text(findings: Findings, *, explain: bool = False) -> str:
    lines = [f"Confidence {findings.confidence:.2f} ({findings.band.value})"]
    for hit in findings.hits:
        section = hit.section
        lines.append(f"{hit.score:8.3f}  {_in_line(f'{section.document} › {section.heading}')} (line {section.line})")
        if explain:
            lines.append("          " + " · ".join(f"{name} {value:.3f}" for name, value in hit.components.items()))
        lines.append("          " + textwrap.shorten(section.text, 100, placeholder=" …"))
    return neutralised("\n".join(lines))


def documents_json(folder: str, documents: Sequence[Document]) -> JsonObject:
    return {
        "folder": folder,
        "sections": sum(document.sections for document in documents),
        "documents": [
            {"document": d.name, "title": d.title, "sections": d.sections, "faults": list(d.faults)} for d in documents
        ],
    }


def documents_text(folder: str, documents: Sequence[Document]) -> str:
    sections = sum(document.sections for document in documents)
    rows = [("document", "sections", "title"), *((d.name, str(d.sections), d.title) for d in documents)]
    faults = [fault for d in documents for fault in d.faults]
    return joined(
        [
            f"{counted(len(documents), 'document')}, {counted(sections, 'section')} in {folder}",
            table(rows),
            "\n".join(faults),
        ]
    )


def rooms_json(rooms: Sequence[RoomSummary]) -> JsonObject:
    return {
        "rooms": [
            {
                "room": name_of(room.key),
                "key": str(room.key),
                "sessions": room.sessions,
                "turns": room.turns,
                "open_turns": room.open_turns,
                "last_active_at": room.last_active_at,
                "generation": room.generation,
            }
            for room in rooms
        ]
    }


def rooms_text(rooms: Sequence[RoomSummary]) -> str:
    if not rooms:
        return 'No rooms yet: `duet ask "…"` makes the first.'
    rows = [("room", "sessions", "turns", "open", "last active")]
    rows += [
        (str(room.key), str(room.sessions), str(room.turns), str(room.open_turns), moment(room.last_active_at))
        for room in rooms
    ]
    return table(rows)


def usage_json(day: str, rows: Sequence[UsageRow], price_of_a_million: float) -> JsonObject:
    """Give one day's use; `cost` is in the currency of the price, 0 where none is set."""
    return {
        "day": day,
        "usage": [
            {
                "user": row.user,
                "room": str(row.room),
                "turns": row.used.turns,
                "commands": row.used.commands,
                "tokens": row.used.tokens,
                "cost": cost(row.used.tokens, price_of_a_million=price_of_a_million),
            }
            for row in rows
        ],
    }


def usage_text(day: str, rows: Sequence[UsageRow], price_of_a_million: float) -> str:
    if not rows:
        return f"Nothing was asked on {day} (UTC)."
    lines = [("user", "room", "turns", "commands", "tokens", "cost")]
    for row in rows:
        used = row.used
        price = f"{cost(used.tokens, price_of_a_million=price_of_a_million):.2f}" if price_of_a_million else "-"
        lines.append((row.user, str(row.room), str(used.turns), str(used.commands), str(used.tokens), price))
    return table(lines)


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Give rows as columns, the first row their names."""
    clean = [tuple(neutralised(cell).replace("\n", " ") for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in clean)


def moment(at_ms: int) -> str:
    """Give UTC milliseconds as people read them, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000)) if at_ms else "never"


# ── Settings and checks ───────────────────────────────────────────────────────────────────────────────────────────


def settings_json(shown: Sequence[tuple[str, str, object, str]]) -> JsonObject:
    return {
        "settings": {
            key: {"value": list(value) if isinstance(value, tuple) else value, "origin": origin, "environment": env}
            for key, env, value, origin in shown
        }
    }


def settings_text(shown: Sequence[tuple[str, str, object, str]]) -> str:
    rows = [("setting", "environment", "value", "origin")]
    rows += [(key, env, _value_text(value), origin) for key, env, value, origin in shown]
    return table(rows)


def _value_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return str(value)


def have_failed(checks: Sequence[Check]) -> bool:
    return any(check.verdict is Health.FAIL for check in checks)


def checks_json(checks: Sequence[Check]) -> JsonObject:
    return {
        "ok": not have_failed(checks),
        "checks": [
            {"name": c.name, "verdict": c.verdict.value, "seen": c.seen, "mend": c.mend} for c in checks
        ],
    }  # fmt: skip


def checks_text(checks: Sequence[Check]) -> str:
    width = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        lines.append(f"{check.verdict.value:<4}  {check.name:<{width}}  {check.seen}")
        if check.mend:
            lines.append(f"{'':<4}  {'':<{width}}  → {check.mend}")
    return neutralised("\n".join(lines))


# ── The prompt log ────────────────────────────────────────────────────────────────────────────────────────────────


def log_json(room: RoomKey, calls: Sequence[tuple[SessionKey, LoggedCall]]) -> JsonObject:
    return {"room": name_of(room), "calls": [_call_json(session, call) for session, call in calls]}


def _call_json(session: SessionKey, call: LoggedCall) -> JsonObject:
    return {
        "turn": call.turn,
        "thread": session.thread,
        "author": call.author,
        "question": call.question,
        "step": call.step,
        "state": call.state,
        "model": call.model,
        "messages": [dict(message) for message in call.request],
        "sections": [dict(finding) for finding in call.findings],
        "confidence": call.confidence,
        "band": call.band,
        "reply": call.reply,
        "finish": call.finish,
        "commands": [command_json(result) for result in call.commands],
        "prompt_tokens": call.prompt_tokens,
        "reply_tokens": call.reply_tokens,
        "first_piece_ms": call.first_piece_ms,
        "total_ms": call.total_ms,
        "error": call.error,
        "at": call.at,
    }


def log_markdown(room: RoomKey, calls: Sequence[tuple[SessionKey, LoggedCall]]) -> str:
    """Give the prompt log as a document: for each call what was sent, the sections with scores, the reply, the time."""
    head = f"# Prompt log of {_code(str(room))}\n"
    if not calls:
        return neutralised(head + "\nNothing was sent to a model in this room.\n")
    return neutralised(head + "".join(_call_markdown(session, call) for session, call in calls))


def _call_markdown(session: SessionKey, call: LoggedCall) -> str:
    where = f" in thread {_code(session.thread)}" if session.thread else ""
    took = "not finished" if call.total_ms is None else f"{call.total_ms} ms"
    first = "" if call.first_piece_ms is None else f", first piece after {call.first_piece_ms} ms"
    tokens = f", {call.prompt_tokens} + {call.reply_tokens} tokens" if call.prompt_tokens else ""
    blocks = [
        f"## Turn {_code(call.turn)}{where}, step {call.step}",
        f"{moment(call.at)} · {_code(call.author)} asked {_code(call.model)} · {call.state}, {took}{first}{tokens}",
        "### Sections",
        _sections_markdown(call),
        "### Sent",
        *(f"**{message.get('role')}**\n\n{_fence(str(message.get('content', '')))}" for message in call.request),
        "### Reply",
        _fence(call.reply) if call.reply else "None.",
        *([f"### Error\n\n{_fence(call.error)}"] if call.error else []),
        *(["### Commands", *(_fence(command_text(result)) for result in call.commands)] if call.commands else []),
    ]
    return "\n" + "\n\n".join(blocks) + "\n"


def _sections_markdown(call: LoggedCall) -> str:
    sure = f"Confidence {call.confidence:.2f} ({call.band})."
    if not call.findings:
        return f"None. {sure}"
    rows = "\n".join(
        f"| {_cell(hit.get('document'))} | {_cell(hit.get('heading'))} | {hit.get('line')} | {hit.get('score')} |"
        for hit in call.findings
    )
    return f"{sure}\n\n| document | heading | line | score |\n|---|---|---|---|\n{rows}"


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _code(name: str) -> str:
    """Give a name as inline code, on one line."""
    return "`" + " ".join(name.replace("`", "'").split()) + "`"


def _fence(text: str) -> str:
    """Give text in a fence that nothing in it can close."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}text\n{text.rstrip()}\n{ticks}"
