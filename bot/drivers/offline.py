"""Answers with no model, no network and no key, by quoting the best sentences of the best sections."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from bot.checks import Check, Health
from bot.conversation import Usage
from bot.intent import wants_action
from bot.parsing import parse_reply
from bot.ports import Band, Findings, Finished, Hit, ModelCall, Piece, Profile, Text
from bot.prompt import REFUSAL, Task, task_of

NO_MODEL = "_No language model is configured, so this is quoted from the standards._"
STANDS_IN = "_The language model does not answer just now, so this is quoted from the standards._"
NO_MODEL_AT_ALL = (
    "_No language model is configured, so only the standards can be quoted; `run <command>` still runs a command._"
)
NEEDS_MODEL = (
    "That needs a language model, and none answers here. Questions about the standards are answered by quoting them; "
    "`run <command>` runs a command."
)
SECTIONS = 3
QUOTES = 3
TABLE_LINES = 12  # a longer one is quoted by the row
CLOSE_TO_BEST = 0.7  # a second quote is worth showing from this part of the best one's score
SECTION_WEIGHTS = (1.0, 0.75, 0.55)
ENOUGH_WORDS = 8  # less, as "Branch names matter.", hardly says a rule: what follows is quoted too

_WORD = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9`*\"'(\[])")
_TAG = re.compile(r"<(/?(?:run|think))>", re.IGNORECASE)
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_FUNCTION_WORDS = """
    a about all an and any are as at be but by can could do does for from get has have how i if in is it its long many
    may me much must my need of on or our out should so than that the their them there these they this to us use was we
    what when where which who whom why will with would you your please tell
"""
_STOP = frozenset(_FUNCTION_WORDS.split())


@dataclass(frozen=True, slots=True)
class Passage:
    """Something that can be quoted by itself: a sentence, a list item, a table or a row with its head, a code block."""

    number: int  # the section's marker
    order: int
    text: str
    words: frozenset[str]
    score: float = 0.0


class Offline:
    """A ChatModel that only quotes. It is the floor: always there, and it says what it is.

    `stands_in` says that it is the last of several models, not the only one.
    """

    name = "offline"
    profile = Profile(context_tokens=1_000_000)

    def __init__(self, *, stands_in: bool = False) -> None:
        self._stands_in = stands_in

    async def stream(self, call: ModelCall) -> AsyncIterator[Piece]:
        text = NEEDS_MODEL if _needs_model(call.question, call.findings) else _inert(_quoted(call))
        if self._stands_in:
            text = text.replace(NO_MODEL_AT_ALL, STANDS_IN).replace(NO_MODEL, STANDS_IN)
        yield Text(text)
        yield Finished("stop", Usage(), self.name)

    async def checks(self) -> list[Check]:
        if self._stands_in:
            return [Check("language model", Health.OK, "quotes from the standards where no other model answers")]
        mend = "Set DUET_MODEL_URL and DUET_MODEL, or run `duet model install local` and set DUET_MODEL_URL=local."
        return [Check("language model", Health.WARN, "none is configured; answers are quoted", mend)]


def answer_from(question: str, hits: Sequence[Hit], *, band: Band = Band.HIGH) -> str:
    """Give the quotes with their markers, or the refusal where nothing fits."""
    asked = words_of(question)
    if band is Band.LOW or not hits:
        return f"{REFUSAL}\n\n{NO_MODEL_AT_ALL}"
    best = _best(asked, list(_passages(hits[:SECTIONS])), hits)
    quotes = "\n\n".join(_with_marker(passage) for passage in best)
    return f"{quotes}\n\n{NO_MODEL}"


def _quoted(call: ModelCall) -> str:
    return answer_from(call.question, call.findings.hits, band=call.findings.band)


def _needs_model(question: str, findings: Findings) -> bool:
    """Tell whether the question asks for work, not for a rule that happens to be found with the same words."""
    if task_of(question, findings) is Task.RUN:
        return True
    if findings.band is Band.HIGH or not wants_action(question):
        return False
    asked = words_of(question)
    found = frozenset[str]().union(
        *(words_of(f"{hit.section.heading} {hit.section.text}") for hit in findings.hits[:1])
    )
    return len(asked & found) <= len(asked) / 2


def _inert(quoted: str) -> str:
    """Take the meaning from tags in what is quoted: the words of a section are never a command."""
    if parse_reply(quoted).prose == quoted.strip():
        return quoted
    return _TAG.sub(r"&lt;\1&gt;", quoted)


def words_of(text: str) -> frozenset[str]:
    """Give the words that carry meaning, lower case, endings off."""
    return frozenset(_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP)


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word.removesuffix(ending)
    return word.removesuffix("e") if len(word) > 4 else word


def _best(asked: frozenset[str], passages: list[Passage], hits: Sequence[Hit]) -> list[Passage]:
    """Choose up to three passages, the most fitting section's first, in the order they stand in it."""
    scored = [_scored(passage, asked, passages, hits[passage.number - 1]) for passage in passages]
    ranked = sorted(scored, key=lambda passage: -passage.score)
    chosen = [p for p in ranked[:QUOTES] if p.score >= CLOSE_TO_BEST * ranked[0].score]
    first = chosen[0].number
    chosen += _what_follows(chosen, passages)
    return sorted(chosen, key=lambda passage: (passage.number != first, passage.number, passage.order))


def _what_follows(chosen: Sequence[Passage], passages: Sequence[Passage]) -> list[Passage]:
    """Give the passages after the best one, of the same section, that it takes to say something."""
    best, said = chosen[0], sum(len(passage.words) for passage in chosen)
    known = {passage.order for passage in chosen if passage.number == best.number}
    rest = [p for p in passages if p.number == best.number and p.order > best.order and p.order not in known]
    more: list[Passage] = []
    for passage in rest[: QUOTES - len(chosen)]:
        if said >= ENOUGH_WORDS:
            break
        more.append(passage)
        said += len(passage.words)
    return more


def _scored(passage: Passage, asked: frozenset[str], passages: list[Passage], hit: Hit) -> Passage:
    """Weigh shared words by how rare they are here; the heading's words count a little for all that stands below."""

    def rarity(word: str) -> float:
        return math.log(1 + len(passages) / (1 + sum(word in other.words for other in passages)))

    heading = words_of(f"{hit.section.title} {hit.section.heading}")
    shared = sum(rarity(word) for word in asked & passage.words)
    above = sum(rarity(word) for word in asked & heading)
    is_opening = 0.2 if passage.order == 0 else 0.0
    length_penalty = 1 + 0.01 * max(0, len(passage.words) - 25)
    score = SECTION_WEIGHTS[passage.number - 1] * (shared + 0.4 * above + is_opening) / length_penalty
    return Passage(passage.number, passage.order, passage.text, passage.words, score)


def _passages(hits: Sequence[Hit]) -> Iterator[Passage]:
    for number, hit in enumerate(hits, start=1):
        texts = list(_quotable(hit.section.text)) or [hit.section.heading]
        for order, text in enumerate(texts):
            yield Passage(number, order, text, words_of(text))


def _quotable(markdown: str) -> Iterator[str]:
    """Cut a section into passages; one that announces what follows (`:`) takes it along."""
    announced = ""
    for block in _blocks(markdown):
        pieces = list(_pieces(block))
        if announced:
            pieces = [f"{announced}\n\n{block}"]
            announced = ""
        elif block.rstrip().endswith(":") and not block.startswith("```"):
            announced = pieces.pop() if pieces else ""
        yield from pieces
    if announced:
        yield announced


def _blocks(markdown: str) -> Iterator[str]:
    """Give paragraphs, lists, tables and code blocks, each whole."""
    block: list[str] = []
    fence = ""
    for line in markdown.splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if not fence and (not line.strip() or mark or (block and _changes_kind(block[-1], line))):
            if block:
                yield "\n".join(block)
            block = []
        if line.strip() or fence:
            block.append(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip().startswith(fence):
            fence = ""
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)


def _changes_kind(before: str, line: str) -> bool:
    starts_list = bool(_ITEM.match(line)) and not _ITEM.match(before) and not before.startswith((" ", "\t"))
    return starts_list or line.lstrip().startswith("|") != before.lstrip().startswith("|")


def _pieces(block: str) -> Iterator[str]:
    lines = block.splitlines()
    if lines[0].lstrip().startswith(("```", "~~~")):
        yield block
    elif lines[0].lstrip().startswith("|") and len(lines) > TABLE_LINES:
        head = lines[:2]
        yield from ("\n".join([*head, row]) for row in lines[2:])
    elif _ITEM.match(lines[0]):
        yield from _items(lines)
    elif lines[0].lstrip().startswith("|"):
        yield block
    else:
        yield from (sentence for sentence in _SENTENCE_END.split(" ".join(line.strip() for line in lines)) if sentence)


def _items(lines: Sequence[str]) -> Iterator[str]:
    item: list[str] = []
    for line in lines:
        if _ITEM.match(line) and not line.startswith(("  ", "\t")) and item:
            yield "\n".join(item)
            item = []
        item.append(line)
    yield "\n".join(item)


def _with_marker(passage: Passage) -> str:
    """Give the quote with its marker: on the line itself, or below a block that a marker would break."""
    last = passage.text.splitlines()[-1]
    is_block = last.lstrip().startswith(("|", "```", "~~~"))
    return f"{passage.text}\n\n[{passage.number}]" if is_block else f"{passage.text} [{passage.number}]"
