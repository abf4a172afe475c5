"""Values -> JSON, server-sent events and Markdown. HTML is made by `bot.markdown` alone, which sanitises it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bot.conversation import (
    Answer,
    CommandEnded,
    CommandOutput,
    CommandResult,
    CommandStarted,
    Drafted,
    Ended,
    Event,
    Message,
    Outcome,
    Settled,
    Source,
    Ticket,
)
from bot.markdown import html, plain

if TYPE_CHECKING:
    from bot.ports import Findings
    from bot.records import LoggedCall
    from bot.sections import Document, Section

OUTPUT_PREVIEW_CHARS = 500
LAST_MESSAGES = 50

JsonObject = dict[str, Any]


def answer_json(answer: Answer) -> JsonObject:
    """Give everything of an answer; `html` is sanitised, every other text is plain or Markdown."""
    return {
        "turnId": answer.turn,
        "kind": answer.kind.value,
        "outcome": answer.outcome.value,
        "text": answer.text,
        "html": html(answer.text),
        "covered": answer.covered,
        "sources": [source_json(source) for source in answer.sources],
        "commands": [command_json(result) for result in answer.commands],
        "ticket": ticket_json(answer.ticket) if answer.ticket else None,
        "notes": list(answer.notes),
        "model": answer.model,
        "incident": answer.incident,
        "totalMs": answer.total_ms,
    }


def source_json(source: Source) -> JsonObject:
    return {
        "number": source.number,
        "sectionId": source.section_id,
        "document": source.document,
        "heading": source.heading,
        "line": source.line,
        "url": source.url,
        "quote": source.quote,
    }


def command_json(result: CommandResult) -> JsonObject:
    """Give a command's result: both streams, never one for the other, and how it ended."""
    return {
        "success": result.ended is Ended.EXIT and result.exit_code == 0,
        "command": result.code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exitCode": result.exit_code,
        "ended": result.ended.value,
        "truncated": result.truncated,
        "duration": result.duration_ms,
        "note": result.note,
        "painted": result.painted,
    }


def ticket_json(ticket: Ticket) -> JsonObject:
    return {
        "id": ticket.id,
        "command": ticket.code,
        "state": ticket.state.value,
        "decidedBy": ticket.decided_by,
        "expiresAt": ticket.expires_at,
    }


def document_names(sources: Iterable[Source]) -> list[str]:
    """Give each source document once, in the order of first mention."""
    return list(dict.fromkeys(source.document for source in sources))


def chat_json(session_id: str, answer: Answer) -> JsonObject:
    """Give the reply of `POST /chat`: Copilot's three fields, and the whole answer beside them."""
    return {
        "sessionId": session_id,
        "answer": reply_text(answer),
        "sources": document_names(answer.sources),
        "turnId": answer.turn,
        "outcome": answer.outcome.value,
        "citations": [source_json(source) for source in answer.sources],
        "commands": [command_json(result) for result in answer.commands],
        "ticket": ticket_json(answer.ticket) if answer.ticket else None,
        "notes": list(answer.notes),
        "model": answer.model,
        "incident": answer.incident,
    }


def reply_text(answer: Answer) -> str:
    """Give the answer as one text for clients that show nothing else: its words, commands' output and notes."""
    parts = [answer.text, *(output_text(result) for result in answer.commands), *answer.notes]
    if answer.ticket:
        parts.append(f"Waiting for approval (ticket {answer.ticket.id}): {answer.ticket.code}")
    return "\n\n".join(part for part in parts if part)


def output_text(result: CommandResult) -> str:
    """Give a command's output as Duet always put it into a reply; a cut and a bad end are said."""
    if result.ended is not Ended.EXIT:
        return f"Error ({result.code}): {result.note or result.ended.value}"
    output = result.output
    cut = result.truncated or len(output) > OUTPUT_PREVIEW_CHARS
    ending = ("\n[output cut]" if cut else "") + (f"\n[exit code {result.exit_code}]" if result.exit_code else "")
    return f"Output ({result.code}):\n{output[:OUTPUT_PREVIEW_CHARS]}{ending}"


# ── Transcripts ───────────────────────────────────────────────────────────────────────────────────────────────────


def room_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """Give the last messages of a room as Duet always did: roles `user` and `agent`, `ts` in milliseconds."""
    return [_room_message(message) for message in messages[-LAST_MESSAGES:]]


def _room_message(message: Message) -> JsonObject:
    if message.role == "user":
        return {"role": "user", "userId": message.author, "text": message.text, "ts": message.at}
    return {"role": "agent", "text": message.text, "ts": message.at}


def history_json(session_id: str, messages: Sequence[Message]) -> JsonObject:
    """Give a whole transcript."""
    return {
        "sessionId": session_id,
        "messages": [
            {"role": m.role, "author": m.author, "text": m.text, "ts": m.at, "turnId": m.turn} for m in messages
        ],
    }


# ── The prompt log ────────────────────────────────────────────────────────────────────────────────────────────────


def prompt_log_json(session_id: str, calls: Sequence[LoggedCall]) -> JsonObject:
    return {"sessionId": session_id, "calls": [call_json(call) for call in calls]}


def call_json(call: LoggedCall) -> JsonObject:
    """Give one model call: exactly what was sent, what was found with which scores, and what came back."""
    return {
        "turnId": call.turn,
        "author": call.author,
        "question": call.question,
        "step": call.step,
        "state": call.state,
        "model": call.model,
        "messages": [dict(message) for message in call.request],
        "retrieved": [dict(finding) for finding in call.findings],
        "confidence": call.confidence,
        "band": call.band,
        "response": call.reply,
        "finish": call.finish,
        "promptTokens": call.prompt_tokens,
        "replyTokens": call.reply_tokens,
        "firstPieceMs": call.first_piece_ms,
        "latencyMs": call.total_ms,
        "error": call.error,
        "ts": call.at,
        "commands": [command_json(result) for result in call.commands],
    }


def prompt_log_markdown(session_id: str, calls: Sequence[LoggedCall]) -> str:
    """Give the prompt log as a document that can be attached to a ticket."""
    head = f"# Prompt history of {fenced_name(session_id)}\n"
    return head + "".join(_call_markdown(number, call) for number, call in enumerate(calls, 1))


def _call_markdown(number: int, call: LoggedCall) -> str:
    latency = "unknown" if call.total_ms is None else f"{call.total_ms} ms"
    lines = [
        f"\n## Call {number}: turn {fenced_name(call.turn)}, step {call.step}\n",
        f"Model {fenced_name(call.model)} · {call.state} · latency {latency} · "
        f"{call.prompt_tokens} + {call.reply_tokens} tokens\n",
        "### Retrieved\n",
        *(f"- {_found(finding)}" for finding in call.findings),
        "\n### Sent\n",
        *(f"{message.get('role')}:\n\n{fence(str(message.get('content', '')))}\n" for message in call.request),
        "### Response\n",
        fence(call.reply or call.error),
    ]
    return "\n".join(lines) + "\n"


def _found(finding: Mapping[str, Any]) -> str:
    where = f"{finding.get('document', '')} > {finding.get('heading', '')}"
    return f"{fenced_name(where)}, line {finding.get('line', '')}: {finding.get('score', '')}"


def fence(text: str) -> str:
    """Give `text` in a fence that it cannot close."""
    ticks = "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}\n{text}\n{ticks}"


def fenced_name(name: str) -> str:
    """Give a name as inline code, on one line."""
    return "`" + " ".join(name.replace("`", "'").split()) + "`"


# ── The Codex ─────────────────────────────────────────────────────────────────────────────────────────────────────


def document_json(document: Document) -> JsonObject:
    return {
        "name": document.name,
        "title": document.title,
        "sections": document.sections,
        "faults": list(document.faults),
    }


def section_line_json(section: Section) -> JsonObject:
    """Give what a list of sections shows."""
    return {
        "id": section.id,
        "document": section.document,
        "title": section.title,
        "heading": section.heading,
        "depth": len(section.headings),
        "line": section.line,
    }


def section_json(section: Section, url: str = "") -> JsonObject:
    return section_line_json(section) | {
        "endLine": section.end_line,
        "text": section.text,
        "html": html(section.text),
        "url": url,
    }


def findings_json(findings: Findings) -> JsonObject:
    return {
        "confidence": findings.confidence,
        "band": findings.band.value,
        "hits": [
            section_line_json(hit.section)
            | {"score": hit.score, "components": dict(hit.components), "excerpt": excerpt(hit.section.text)}
            for hit in findings.hits
        ],
    }


def excerpt(text: str, *, limit_chars: int = 240) -> str:
    """Give the beginning of a section on one line, as it reads."""
    line = " ".join(plain(text).replace("─", "").split())
    return line if len(line) <= limit_chars else line[:limit_chars].rsplit(" ", 1)[0] + " …"


# ── Server-sent events ────────────────────────────────────────────────────────────────────────────────────────────


def sse(name: str, data: JsonObject) -> bytes:
    """Give one event; JSON holds no bare newline, so one `data` line is enough."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class EventWriter:
    """Turns a turn's events into server-sent ones; drafts become what was added to the last draft."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._drafted = ""

    def begin(self) -> bytes:
        return sse("heard", {"turnId": self._turn_id})

    def render(self, event: Event) -> bytes:
        match event:
            case Drafted(text):
                return self._draft(text)
            case CommandStarted(code):
                return sse("command", {"command": code})
            case CommandOutput(text):
                return sse("output", {"text": text})
            case CommandEnded(result):
                return sse("result", command_json(result))
            case Settled(answer):
                return self._settled(answer)

    def _draft(self, text: str) -> bytes:
        """Give what is new; `replace` where the draft did not merely grow."""
        grown = text.startswith(self._drafted)
        data: JsonObject = {"text": text[len(self._drafted) :] if grown else text, "replace": not grown}
        self._drafted = text
        return sse("draft", data)

    def _settled(self, answer: Answer) -> bytes:
        sources = sse("sources", {"sources": [source_json(source) for source in answer.sources]})
        return sources + sse("done", {"answer": answer_json(answer)})


# ── Resets ────────────────────────────────────────────────────────────────────────────────────────────────────────


def reset_refusal(answer: Answer) -> str:
    """Give why a reset was refused, or ''."""
    return answer.text if answer.outcome is Outcome.REFUSED else ""


def cleanup_errors(answer: Answer) -> list[str]:
    """Give what a reset could not remove: empty when everything went."""
    if answer.outcome is Outcome.FAILED:
        return [f"reset: {answer.text}"]
    # With an incident the sandbox could not be destroyed, and the first note says so.
    return [f"sandbox: {note}" if answer.incident and note == answer.notes[0] else note for note in answer.notes]
