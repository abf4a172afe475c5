"""What Duet shows beside answers: help, status, the list of standards, the home tab, the window with sources. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.slack import blocks
from adapters.slack.blocks import Block
from adapters.slack.wording import as_word, escaped, link, one_line
from bot.conversation import Json, Source, Turn
from bot.duet import Status
from bot.sections import Document, Section

WINDOW_BLOCKS = 95
MESSAGE_BLOCKS = 45
LISTED = 40

HELP = escaped("""*Ask me about our standards.* I answer from them, with sources.
• Mention me in a channel or a thread, or write to me directly.
• In a thread I have answered in, just go on writing.
• `/duet ask <question>` asks in this channel · `/duet run <command>` runs a command in this channel's sandbox
• `/duet get <path>` brings a file out of the sandbox · files you attach when you ask lie in it
• `/duet sources [words]` lists the standards, or searches them · `/duet status` tells how I am
• `/duet reset` clears this channel: every conversation and the sandbox
• In a thread, mention me with the word `reset`, or use “Reset Duet here” of a message: that clears one conversation
Slack does not allow slash commands inside threads.""")


def message(text: str, content: Sequence[Block] = ()) -> dict[str, Json]:
    """Give a reply that only the person who typed sees."""
    told: dict[str, Json] = {"response_type": "ephemeral", "text": text}
    return told | ({"blocks": list[Json](content)} if content else {})


_AFTER = {"ask": "<question>", "run": "<command>", "get": "<path>"}


def help_reply(unknown: str = "") -> dict[str, Json]:
    """Give how to use Duet, and what is wrong with a command that is not understood."""
    said, word = escaped(one_line(unknown, 80)).replace("`", ""), as_word(unknown)
    if word in _AFTER:
        said = f"Write what to {word}: `/duet {word} {escaped(_AFTER[word])}`\n"
    elif " " in word:
        said = f"I do not know `{said}`. To ask it: `/duet ask {said}`\n"
    elif word:
        said = f"I do not know `{said}`.\n"
    return message("How to use Duet", [blocks.section((said if word else "") + HELP)])


def status_reply(status: Status) -> dict[str, Json]:
    age = "nothing waits" if status.queue_age_ms is None else f"the oldest waits {status.queue_age_ms / 1000:.0f} s"
    lines = [
        f"*Model* {escaped(status.model)}",
        f"*Standards* {status.documents} documents",
        f"*Answers being made* {status.turns_running}; {age}",
    ]
    if status.outbox_age_ms is not None and status.outbox_age_ms > 5_000:
        lines.append(f"*Messages on their way* the oldest for {status.outbox_age_ms / 1000:.0f} s")
    return message("Duet's status", [blocks.section("\n".join(lines))])


def documents_reply(documents: Sequence[Document]) -> dict[str, Json]:
    if not documents:
        return message("There are no standards yet. Whoever runs Duet sets their folder with DUET_CODEX.")
    lines = [f"• *{escaped(d.title)}* ({escaped(d.name)}, {d.sections} sections)" for d in documents[:LISTED]]
    if len(documents) > LISTED:
        lines.append(f"… and {len(documents) - LISTED} more. Search them with `/duet sources &lt;words&gt;`.")
    return message("The standards", _in_sections(lines))


def findings_reply(words: str, found: Sequence[tuple[Section, str]]) -> dict[str, Json]:
    """Give what a search found; each section comes with its address or ''."""
    if not found:
        return message(f"No standard speaks of “{escaped(one_line(words, 100))}”.")
    return message("The standards", _in_sections([_found(section, url) for section, url in found]))


def _found(section: Section, url: str) -> str:
    place = " › ".join(filter(None, (section.document, *section.headings)))
    return f"• {link(url, place)}\n{escaped(one_line(section.text, 300))}"


def _in_sections(lines: Sequence[str]) -> list[Block]:
    """Give lines in as few sections as hold them."""
    packed = [""]
    for line in lines:
        if len(packed[-1]) + len(line) + 1 > blocks.SECTION_CHARS:
            packed.append("")
        packed[-1] += ("\n" if packed[-1] else "") + line[: blocks.SECTION_CHARS]
    return [blocks.section(text) for text in packed[:MESSAGE_BLOCKS]]


def reset_question(turn: Turn, others: int) -> dict[str, Json]:
    """Ask whether a reset is meant although somebody's answer is being made."""
    whom = "Somebody else is" if others == 1 else f"{others} other people are"
    where = "conversation" if turn.session.thread else "channel"
    value = f"thread:{turn.session.thread}" if turn.session.thread else "room"
    text = f"{whom} being answered in this {where}. Clearing it now cancels that."
    return message(
        text, [blocks.section(text), blocks.actions(blocks.button("Clear anyway", "duet_reset", value, style="danger"))]
    )


def home_view() -> dict[str, Json]:
    return {"type": "home", "blocks": [blocks.section(HELP)]}


def sources_window(sections: Sequence[tuple[Source, Section | None]]) -> dict[str, Json]:
    """Give a window with every section that an answer rests on, in full."""
    content: list[Block] = []
    for source, found in sections:
        place = " › ".join(filter(None, (source.document, source.heading.replace(" > ", " › "))))
        content.append(blocks.section(f"*{source.number}.* {link(source.url, place)}, line {source.line}"))
        content += (
            blocks.prose(found.text) if found and found.text.strip() else blocks.small(escaped(source.quote) or "gone")
        )
    if not content:
        content = [blocks.section("This answer is gone: the conversation was reset.")]
    title: Json = {"type": "plain_text", "text": "Sources"}
    return {"type": "modal", "title": title, "blocks": list[Json](content[:WINDOW_BLOCKS])}
