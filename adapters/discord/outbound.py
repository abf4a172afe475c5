"""An answer -> Discord's messages. Pure: what is given here is stored first and posted later, perhaps twice.

A body's `content` is Discord's own JSON for a message: content, components, and flags where it concerns only the person
who asked (a refusal), which counts where Discord can show something to one person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from adapters.discord.formatting import (
    LIMIT_CHARS,
    Block,
    Fence,
    blocks,
    coloured,
    fence,
    inline,
    link,
    pieces,
    visible,
)
from bot.conversation import (
    Answer,
    Body,
    CommandResult,
    Ended,
    FileData,
    Json,
    Outcome,
    Source,
    Ticket,
    TicketState,
    TurnKind,
)

MAX_PARTS = 3
SHOWN_CHARS = MAX_PARTS * LIMIT_CHARS + 1  # what is beyond is not even looked at: the file has it
MAX_FILE_BYTES = 8_000_000  # below the 10 MiB that every server takes
OUTPUT_CHARS = 1400
OUTPUT_HEAD_CHARS = 900
CODE_CHARS = 1200
DRAFT_OUTPUT_CHARS = 500
SOURCE_CHARS = 200
TAIL_CHARS = 900

EPHEMERAL = 1 << 6  # https://docs.discord.com/developers/resources/message#message-object-message-flags

PRIMARY, SECONDARY, SUCCESS, DANGER = 1, 2, 3, 4
_DRAFT_MARK = "\n-# …"


def render(answer: Answer) -> tuple[Body, ...]:
    """Give the messages of an answer; a draft is exactly one, more than three become one and a file."""
    if answer.outcome is Outcome.DRAFT:
        return (_draft(answer),)
    files: list[FileData] = []
    middle = [*blocks(answer.text[:SHOWN_CHARS]), *_commands(answer.commands, files), *_ticket(answer.ticket, files)]
    tail = [*sources(answer.sources), *_small(answer)]
    texts = pieces(_nonempty([*middle, *tail], answer))
    if len(texts) > MAX_PARTS or len(answer.text) > SHOWN_CHARS:
        texts = [_shortened(middle, tail)]
        files.append(_file("answer.md", whole(answer)))
    bodies = [_body(text) for text in texts]
    bodies[-1] = _body(texts[-1], buttons=_buttons(answer), files=files, is_private=answer.outcome is Outcome.REFUSED)
    return tuple(bodies)


def listed(given: Sequence[Source]) -> str:
    """Give the sources of an answer as one message, for whoever asks for them again."""
    texts = pieces(sources(given)) or ["That answer rests on no section of the Codex."]
    return texts[0]


def whole(answer: Answer) -> str:
    """Give everything of an answer as one Markdown text, for a file."""
    parts = [answer.text]
    parts += [f"$ {result.code}\n({ended(result)})\n\n{result.output}" for result in answer.commands]
    parts += [
        f"[{s.number}] {s.document} > {s.heading}, line {s.line} {s.url}\n> {one_line(s)}" for s in answer.sources
    ]
    return "\n\n".join([*(part for part in parts if part), *answer.notes])


def ended(result: CommandResult) -> str:
    """Say in words how a command ended: `exit 0 · 0.3 s`."""
    seconds = f"{result.duration_ms / 1000:.1f} s"
    match result.ended:
        case Ended.EXIT:
            said = f"exit {result.exit_code} · {seconds}"
        case Ended.NOT_STARTED:
            said = "not run"
        case Ended.TIMEOUT:
            said = f"stopped after {seconds}: out of time"
        case Ended.MEMORY:
            said = f"stopped after {seconds}: out of memory"
        case Ended.KILLED:
            said = f"stopped after {seconds}"
    return f"{said} · {result.note}" if result.note else said


def sources(given: Sequence[Source]) -> list[Block]:
    """Give one entry for each source: its link and the verbatim line that the answer rests on."""
    return ["\n".join(map(_source, given))] if given else []


def one_line(source: Source) -> str:
    """Give the verbatim sentence without the line breaks that its paragraph was wrapped with."""
    return " ".join(source.quote.split())


def _source(source: Source) -> str:
    title = f"{source.document} › {source.heading}" if source.heading else source.document
    quote = one_line(source)
    quote = quote if len(quote) <= SOURCE_CHARS else quote[: SOURCE_CHARS - 1] + "…"
    return f"[{source.number}] {link(title, source.url)}, line {source.line}\n> {inline(quote)}"


def _draft(answer: Answer) -> Body:
    """Give the newest of an unfinished answer, with the button that stops it."""
    cards = [block for result in answer.commands for block in _draft_card(result)]
    texts = pieces([*blocks(newest(answer.text)), *cards], limit=LIMIT_CHARS - len(_DRAFT_MARK))
    text = texts[-1] + _DRAFT_MARK if texts else "-# thinking…"
    return _body(text, buttons=[_button("Stop", "stop", answer.turn, SECONDARY)])


def newest(text: str) -> str:
    """Give the end of a text that is still being written, as much as may be shown, with an open fence opened anew."""
    if len(text) <= SHOWN_CHARS:
        return text
    at = text.find("\n", len(text) - SHOWN_CHARS) + 1 or len(text) - SHOWN_CHARS
    is_in_fence = len(re.findall(r"^(?:```|~~~)", text[:at], re.MULTILINE)) % 2
    return ("```\n" if is_in_fence else "") + text[at:]


def _draft_card(result: CommandResult) -> list[Block]:
    said = result.note or "running" if result.ended is Ended.NOT_STARTED else ended(result)
    output = (result.stdout + result.stderr)[-DRAFT_OUTPUT_CHARS:].strip("\n")
    return [*_captioned(result.code, inline(said)), *([coloured(output)] if output else [])]


def _nonempty(wanted: list[Block], answer: Answer) -> list[Block]:
    return wanted or [f"-# {answer.outcome.value}"]


def _shortened(middle: Iterable[Block], tail: Iterable[Block]) -> str:
    """Give as much as one message holds, with sources and notes at its end."""
    end = [*tail, "-# The whole answer is in the file below."]
    ends = pieces(end, limit=TAIL_CHARS)
    last = ends[0] if len(ends) == 1 else "-# The whole answer, with its sources, is in the file below."
    head = pieces(middle, limit=LIMIT_CHARS - len(last) - 1)
    return f"{head[0]}\n{last}" if head else last


def _commands(results: Sequence[CommandResult], files: list[FileData]) -> list[Block]:
    """Give a card for each command; output that is too long to read goes whole into a file."""
    cards: list[Block] = []
    for number, result in enumerate(results, start=1):
        cards += _captioned(result.code, inline(ended(result)))
        if result.ended is Ended.NOT_STARTED:
            continue
        cards.append(_output(result))
        if len(result.output) > OUTPUT_CHARS:
            name = "output.txt" if len(results) == 1 else f"output-{number}.txt"
            files.append(_file(name, result.output))
    return cards


def _output(result: CommandResult) -> Fence:
    text = result.output
    if len(text) <= OUTPUT_CHARS:
        return coloured(result.painted if len(result.painted) <= OUTPUT_CHARS and result.painted else text)
    end = text[-(OUTPUT_CHARS - OUTPUT_HEAD_CHARS) :]
    left_out = len(text) - OUTPUT_CHARS
    return coloured(f"{text[:OUTPUT_HEAD_CHARS]}\n[… {left_out} characters are only in the file …]\n{end}")


def _shown_code(code: str) -> list[Block]:
    """Give a command as it will be run, to the last invisible character; a long one is cut and said so."""
    shown = "\n".join(visible(line) for line in code.split("\n"))
    if len(shown) > CODE_CHARS:
        return [fence(shown[:CODE_CHARS], "sh"), f"-# … and {len(shown) - CODE_CHARS} characters more"]
    if "\n" in shown or "`" in shown or len(shown) > 120:
        return [fence(shown, "sh")]
    return [f"**$** `{shown}`"]


def _captioned(code: str, caption: str) -> list[Block]:
    """Give a command with a small line below it."""
    *above, last = _shown_code(code)
    if isinstance(last, Fence):
        return [*above, last, f"-# {caption}"]
    return [*above, f"{last}\n-# {caption}"]


def _ticket(ticket: Ticket | None, files: list[FileData]) -> list[Block]:
    if ticket is None:
        return []
    if len(ticket.code) > CODE_CHARS or "```" in ticket.code:
        files.append(_file("command.sh", ticket.code))
    who = f" by {inline(ticket.decided_by)}" if ticket.decided_by else ""
    match ticket.state:
        case TicketState.WAITING:
            return ["**May this run in the sandbox?**", *_shown_code(ticket.code)]
        case TicketState.APPROVED:
            return _captioned(ticket.code, f"Approved{who}")
        case TicketState.DENIED:
            return _captioned(ticket.code, f"Denied{who}; it was not run")
        case TicketState.EXPIRED:
            return _captioned(ticket.code, "Nobody decided in time; it was not run")
        case TicketState.VOID:
            return _captioned(ticket.code, "Void since the reset; it was not run")


def _small(answer: Answer) -> list[Block]:
    lines = [f"-# {inline(note)}" for note in answer.notes]
    if answer.incident:
        lines.append(f"-# Incident {answer.incident}: say this number to whoever runs Duet")
    return ["\n".join(lines)] if lines else []


def _buttons(answer: Answer) -> list[Json]:
    ticket = answer.ticket
    if ticket is not None and ticket.state is TicketState.WAITING:
        return [_button("Approve", "approve", ticket.id, SUCCESS), _button("Deny", "deny", ticket.id, DANGER)]
    if answer.outcome is Outcome.FAILED:
        return [_button("Try again", "retry", answer.turn, PRIMARY)]
    if answer.outcome is not Outcome.ANSWERED or answer.kind is not TurnKind.ASK or ticket is not None:
        return []
    feedback = [_button("👍", "up", answer.turn, SECONDARY), _button("👎", "down", answer.turn, SECONDARY)]
    return [*feedback, _button("Sources", "sources", answer.turn, SECONDARY)] if answer.sources else feedback


def _button(label: str, action: str, target: str, style: int) -> Json:
    return {"type": 2, "style": style, "label": label, "custom_id": custom_id(action, target)}


def custom_id(action: str, target: str) -> str:
    """Give what a button carries, so that it works after a restart: at most 100 characters."""
    return f"duet:{action}:{target}"


def _body(text: str, *, buttons: Sequence[Json] = (), files: Iterable[FileData] = (), is_private: bool = False) -> Body:
    rows: list[Json] = [{"type": 1, "components": list(buttons)}] if buttons else []
    content: dict[str, Json] = {"content": text, "components": rows}
    if is_private:
        content["flags"] = EPHEMERAL
    return Body(content, tuple(files))


def _file(name: str, text: str) -> FileData:
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_FILE_BYTES:
        data = data[:MAX_FILE_BYTES].decode("utf-8", "ignore").encode() + b"\n[cut here]\n"
    return FileData(name, data)
