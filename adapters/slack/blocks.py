"""Blocks: the pieces of a Slack message as its own JSON, each within its limit.

https://docs.slack.dev/reference/block-kit/blocks. Text of a model, a document or a command stands only in `prose`
(tamed), `preformatted` (literal: nothing in it is read as markup) and `small` (escaped).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from adapters.slack.wording import escaped, link, mrkdwn, tamed
from bot.conversation import CommandResult, Ended, Json, Source, Ticket, TicketState
from bot.markdown import Table, aligned
from bot.redaction import spelled_out
from bot.splitting import split_code, split_prose

Block: TypeAlias = dict[str, Json]

SECTION_CHARS = 3_000
PROSE_CHARS = 2_800  # below the section's limit, so that each block has a fallback of one section
CODE_CHARS = 2_800
CONTEXT_CHARS = 1_900
BUTTON_VALUE_CHARS = 2_000
TABLE_ROWS, TABLE_COLUMNS = 100, 20
LONG_OUTPUT_LINES = 12
LIVE_CHARS = 1_200


def size(blocks: Sequence[Mapping[str, Json]]) -> int:
    """Give how much of a message's budget the blocks take: bytes of their JSON."""
    return sum(len(json.dumps(block, ensure_ascii=False).encode("utf-8", "replace")) + 1 for block in blocks)


def prose(markdown: str) -> list[Block]:
    """Give Markdown as `markdown` blocks."""
    return [{"type": "markdown", "text": tamed(piece)} for piece in _packed(split_prose(markdown, PROSE_CHARS))]


def _packed(paragraphs: Sequence[str]) -> list[str]:
    """Put paragraphs together as far as they fit."""
    packed: list[str] = []
    for paragraph in paragraphs:
        if packed and len(packed[-1]) + 2 + len(paragraph) <= PROSE_CHARS:
            packed[-1] += "\n\n" + paragraph
        else:
            packed.append(paragraph)
    return packed


def section(text: str) -> Block:
    """Give `mrkdwn` as a section; `text` is escaped already."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:SECTION_CHARS]}, "expand": True}


def small(*lines: str) -> list[Block]:
    """Give escaped `mrkdwn` lines in small print; Slack refuses empty ones."""
    packed: list[str] = []
    for line in filter(str.strip, lines):
        cut = line if len(line) <= CONTEXT_CHARS else line[: CONTEXT_CHARS - 1] + "…"
        if packed and len(packed[-1]) + 1 + len(cut) <= CONTEXT_CHARS:
            packed[-1] += "\n" + cut
        else:
            packed.append(cut)
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": text}]} for text in packed]


def preformatted(text: str) -> list[Block]:
    """Give text as it is, byte for byte, in as many blocks as it needs."""
    return [_preformatted(piece) for piece in split_code(text, CODE_CHARS)]


def _preformatted(text: str) -> Block:
    # Slack refuses an empty text element.
    element: Json = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text or " "}]}
    return {"type": "rich_text", "elements": [element]}


def table(value: Table) -> Block | None:
    """Give a table block, or None where it has more rows or columns than Slack draws."""
    rows = [value.head, *value.rows]
    if len(rows) > TABLE_ROWS or len(value.head) > TABLE_COLUMNS:
        return None
    cells: list[Json] = [[{"type": "raw_text", "text": cell or " "} for cell in row] for row in rows]
    return {"type": "table", "rows": cells}


def table_as_text(value: Table) -> list[Block]:
    return preformatted(aligned(value))


def button(label: str, action: str, value: str, *, style: str = "", confirm: str = "") -> Block:
    """Give a button. All it knows is in `action` and `value`, so it still works after a restart."""
    made: Block = {
        "type": "button",
        "text": {"type": "plain_text", "text": label},
        "action_id": action,
        "value": value[:BUTTON_VALUE_CHARS],
    }
    if style:
        made["style"] = style
    if confirm:
        made["confirm"] = {
            "title": {"type": "plain_text", "text": "Sure?"},
            "text": {"type": "plain_text", "text": confirm},
            "confirm": {"type": "plain_text", "text": label},
            "deny": {"type": "plain_text", "text": "Back"},
        }
    return made


def actions(*buttons: Block) -> Block:
    return {"type": "actions", "elements": list(buttons)}


def feedback(turn: str) -> Block:
    """Give the two thumbs under an answer."""

    def thumb(label: str, verdict: str, meaning: str) -> Json:
        text: Json = {"type": "plain_text", "text": label}
        return {"text": text, "value": f"{verdict}:{turn}", "accessibility_label": meaning}

    return {
        "type": "context_actions",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "duet_feedback",
                "positive_button": thumb("Helpful", "good", "This answer helped"),
                "negative_button": thumb("Not helpful", "bad", "This answer did not help"),
            }
        ],
    }


def command_card(result: CommandResult) -> list[Block]:
    """Give a command, how it ended and what it printed; long output is folded."""
    shown, is_clipped = clipped_output(result.output)
    head = small(escaped(ended(result)) + (" · output shortened, the whole is in the file" if is_clipped else ""))
    card = [*preformatted(f"$ {result.code}"), *head]
    if result.ended is Ended.NOT_STARTED:  # and of one that runs, what it printed last
        return [*card, *preformatted(result.stdout[-LIVE_CHARS:].strip("\n"))] if result.stdout.strip() else card
    output = preformatted(shown)
    lines = shown.count("\n") + 1
    if lines <= LONG_OUTPUT_LINES:
        return [*card, *output]
    folded: Block = {
        "type": "container",
        "title": {"type": "plain_text", "text": f"Output, {lines} lines"},
        "is_collapsible": True,
        "default_collapsed": True,
        "child_blocks": list(output),
    }
    return [*card, folded]


def clipped_output(output: str) -> tuple[str, bool]:
    """Give what of an output fits into a message, and whether that is less than all."""
    if len(output) <= CODE_CHARS:
        return output, False
    head, tail = output[:1_800], output[-800:]
    return f"{head}\n\n[… {len(output) - len(head) - len(tail)} characters left out …]\n\n{tail}", True


def ended(result: CommandResult) -> str:
    """Give how a command ended, in a few words."""
    match result.ended:
        case Ended.EXIT:
            how = f"exit code {result.exit_code}"
        case Ended.NOT_STARTED:
            return result.note or "not run"
        case how_else:
            how = result.note or {"timeout": "out of time", "memory": "out of memory"}.get(how_else, "killed")
            if not result.duration_ms:
                return how
    return f"{how} · {result.duration_ms / 1000:.1f} s"


def sources(found: Sequence[Source]) -> list[Block]:
    """Give the sources as numbered links, each with its verbatim line."""
    lines = []
    for source in found:
        place = " › ".join(filter(None, (source.document, source.heading.replace(" > ", " › "))))
        quote = escaped(" ".join(source.quote.split()))
        lines.append(f"{source.number}. {link(source.url, place)}" + (f" — “{quote}”" if quote else ""))
    return small(*lines)


def ticket(value: Ticket) -> list[Block]:
    """Give the command that waits, exactly as it would run, with its two buttons; or what was decided."""
    # What is shown must be what runs: characters that cannot be seen are spelled out.
    command = preformatted(spelled_out(value.code))
    if value.state is TicketState.WAITING:
        ask = section("*Duet wants to run this command.* It waits for a person's yes.")
        run = button("Run once", "duet_approve", value.id, style="primary", confirm="Run this command in the sandbox?")
        return [ask, *command, actions(run, button("Deny", "duet_deny", value.id, style="danger"))]
    state, by = value.state.value, escaped(value.decided_by)
    return [*command, *small(f"*{state.capitalize()}* by {by}" if by else f"*{state.capitalize()}*")]


def decided(value: Ticket) -> str:
    """Give what became of a command that waited, in a few words."""
    return f"{value.state.value} by {value.decided_by}" if value.decided_by else value.state.value


def downgraded(content: Mapping[str, Json]) -> Block:
    """Give a message in blocks that every workspace takes: for one that refused the newer ones."""
    found = content.get("blocks")
    old: list[Json] = []
    for block in found if isinstance(found, list) else []:
        if isinstance(block, dict):
            old += _older(block)
    return {**content, "blocks": old}


def _older(block: Block) -> list[Block]:
    match block:
        case {"type": "markdown", "text": str(text)}:
            return [section(piece) for piece in _packed(split_prose(mrkdwn(text), PROSE_CHARS))]
        case {"type": "table", "rows": [head, *rows]}:
            return table_as_text(Table(_cells(head), tuple(map(_cells, rows))))
        case {"type": "container", "child_blocks": list(children)}:
            return [child for child in children if isinstance(child, dict)]
        case {"type": "context_actions", "elements": [{"positive_button": dict(good), "negative_button": dict(bad)}]}:
            return [actions(_thumb(good, 1), _thumb(bad, 2))]
    return [{key: value for key, value in block.items() if key != "expand"}]


def _cells(row: Json) -> tuple[str, ...]:
    cells = row if isinstance(row, list) else []
    return tuple(str(cell.get("text", "")) if isinstance(cell, dict) else "" for cell in cells)


def _thumb(thumb: Block, number: int) -> Block:
    text = thumb.get("text")
    label = str(text.get("text", "")) if isinstance(text, dict) else ""
    # Buttons of one message need action ids of their own; the listener reads what stands before the dot.
    return button(label, f"duet_feedback.{number}", str(thumb.get("value", "")))
