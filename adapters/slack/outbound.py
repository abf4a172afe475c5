"""An answer -> the messages that say it. Pure: what it gives is stored before anything is posted.

Limits: 50 blocks a message, about 13,200 characters of blocks (undocumented), 4,000 of `text` on an update.
https://docs.slack.dev/reference/methods/chat.postMessage https://github.com/slackapi/bolt-js/issues/2509
"""

from __future__ import annotations

from collections.abc import Sequence

from adapters.slack import blocks
from adapters.slack.blocks import Block
from adapters.slack.wording import escaped, one_line
from bot.conversation import Answer, Body, FileData, Json, Outcome, TicketState, TurnKind
from bot.markdown import Code, Prose, Segment, Table, plain, segments
from bot.splitting import split

PAGE_BYTES = 11_000
PAGE_BLOCKS = 40
PAGES = 3  # what does not fit into these goes out as a file
FALLBACK_CHARS = 2_500
NAMED_CHARS = 200  # of a command, where it only names what happened
DRAFT_CHARS = 2_600


def render(answer: Answer, *, markdown: bool = True) -> tuple[Body, ...]:
    """Give the messages of an answer, in order; a draft gives exactly one. `markdown=False` avoids newer blocks."""
    bodies = (_draft(answer),) if answer.outcome is Outcome.DRAFT else _final(answer)
    if markdown:
        return bodies
    return tuple(Body(blocks.downgraded(body.content), body.files) for body in bodies)


def _draft(answer: Answer) -> Body:
    """Give the text so far: its end where it is long, since that is what is new."""
    pieces = split(answer.text, DRAFT_CHARS) or ["" if answer.commands else "…"]
    shown = ("…\n\n" if len(pieces) > 1 else "") + pieces[-1]
    running = [block for result in answer.commands[-1:] for block in blocks.command_card(result)]
    content = _paged([*_body_blocks(shown), *running, *_notes(answer)], [])[-1]
    content.append(blocks.actions(blocks.button("Stop", "duet_stop", answer.turn)))
    return Body({"text": _fallback(shown) or _ran(answer), "blocks": list[Json](content)})


def _final(answer: Answer) -> tuple[Body, ...]:
    told = _told(answer)
    foot = _foot(answer)
    pages = _paged(told, foot)
    files = _files(answer)
    if len(pages) > PAGES:
        note = blocks.small("The answer is longer than fits here: the whole is in *answer.md*.")
        pages = [*pages[: PAGES - 1], *_paged(note, foot)]
        files = (FileData("answer.md", answer.text.encode("utf-8", "replace")), *files)
    bodies = [_page(page, number, len(pages), answer) for number, page in enumerate(pages, 1)]
    return (*bodies[:-1], Body(bodies[-1].content, files))


def _page(page: Sequence[Block], number: int, total: int, answer: Answer) -> Body:
    content = list(page)
    if total > 1:
        content += blocks.small(f"{number} of {total}")
    # The key of a part is written into a block's id, and ids on `markdown` blocks are ignored.
    if all(block["type"] == "markdown" for block in content):
        content += blocks.small(_signature(answer))
    whole = _notified(answer) if number == 1 else f"{number} of {total}"
    told: dict[str, Json] = {"text": whole, "blocks": list[Json](content)}
    if answer.outcome is Outcome.REFUSED:
        told["only_to_asker"] = True
    return Body(told)


def _told(answer: Answer) -> list[Block]:
    """Give what was said and done, in order."""
    content = _body_blocks(answer.text)
    for result in answer.commands:
        content += blocks.command_card(result)
    return content


def _foot(answer: Answer) -> list[Block]:
    """Give what stands below and may never be left out: a waiting command, sources, notes and the buttons."""
    foot = blocks.ticket(answer.ticket) if answer.ticket is not None else []
    foot += [*blocks.sources(answer.sources), *_notes(answer)]
    buttons = []
    if answer.sources:
        buttons.append(blocks.button("Read the sources", "duet_sources", answer.turn))
    if answer.outcome is Outcome.FAILED and answer.kind is not TurnKind.RESET:
        buttons.append(blocks.button("Try again", "duet_retry", answer.turn))
    if buttons:
        foot.append(blocks.actions(*buttons))
    if answer.outcome is Outcome.ANSWERED and answer.kind is TurnKind.ASK and answer.ticket is None:
        foot.append(blocks.feedback(answer.turn))
    return foot


def _notes(answer: Answer) -> list[Block]:
    lines = [escaped(note) for note in answer.notes]
    if answer.incident:
        lines.append(f"Incident {escaped(answer.incident)}: look for it in the log.")
    return blocks.small(*lines) if lines else []


def _signature(answer: Answer) -> str:
    return escaped(f"answered by {answer.model}") if answer.model else "Duet"


def _body_blocks(text: str) -> list[Block]:
    """Give the Markdown as blocks. Slack draws one table a message: further ones are text in columns."""
    content: list[Block] = []
    for segment in segments(text):
        content += _segment_blocks(segment)
    return content


def _segment_blocks(segment: Segment) -> list[Block]:
    match segment:
        case Prose(text):
            return blocks.prose(text)
        case Code(text):
            return blocks.preformatted(text)
        case Table():
            drawn = blocks.table(segment)
            if drawn is None or blocks.size([drawn]) > PAGE_BYTES // 2:
                return blocks.table_as_text(segment)
            return [drawn]


def _paged(content: Sequence[Block], foot: Sequence[Block]) -> list[list[Block]]:
    """Put blocks on pages within the budget; the foot stands together where it fits."""
    pages: list[list[Block]] = [[]]
    for block in [*content, *foot]:
        page = pages[-1]
        second_table = block["type"] == "table" and any(other["type"] == "table" for other in page)
        if page and (second_table or len(page) >= PAGE_BLOCKS or blocks.size([*page, block]) > PAGE_BYTES):
            pages.append([])
        pages[-1].append(block)
    return pages


def _files(answer: Answer) -> tuple[FileData, ...]:
    """Give the whole of each output that was shortened."""
    return tuple(
        FileData(f"output-{number}.txt", result.output.encode("utf-8", "replace"))
        for number, result in enumerate(answer.commands, 1)
        if blocks.clipped_output(result.output)[1]
    )


def _notified(answer: Answer) -> str:
    """Give what a notification says of an answer: what was said, and above all that a person is waited for."""
    said = _fallback(answer.text)
    if answer.ticket is not None and answer.ticket.state is TicketState.WAITING:
        said = f"Duet wants to run a command and waits for a person's yes. {said}".rstrip()
    return said or _ran(answer) or "Duet answered."


def _ran(answer: Answer) -> str:
    """Give which commands ran and how they ended, or what became of the one that waited."""
    told = [f"$ {one_line(result.code, NAMED_CHARS)} · {blocks.ended(result)}" for result in answer.commands]
    if answer.ticket is not None:
        told.append(f"$ {one_line(answer.ticket.code, NAMED_CHARS)} · {blocks.decided(answer.ticket)}")
    return _cut(escaped("; ".join(told)))


def _fallback(text: str) -> str:
    """Give plain text for notifications and screen readers."""
    return _cut(escaped(plain(text)))


def _cut(words: str) -> str:
    return words if len(words) <= FALLBACK_CHARS else words[: FALLBACK_CHARS - 1] + "…"
