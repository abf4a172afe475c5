"""Sentences of Markdown as they stand, and how far one text supports another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

_FENCE = re.compile(r"^\s*(`{3,}(?![^\n]*`)|~{3,})")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
_QUOTE_MARK = re.compile(r"^\s*(?:>\s?)+")
_RULE = re.compile(r"^[\s|:*_=-]*$")
_ADMONITION = re.compile(r"^\s*(?:!!!|\?\?\?\+?|:::)")
# An end of sentence: not after an initial, "e.g." or a number of a list.
_END = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)[\"'”’)*_`\]]*\s+|(?<=[。！？])")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: `text[start:end]`."""

    start: int
    end: int


def sentences(markdown: str) -> list[str]:
    """Give the sentences of a section, each verbatim: prose cut at its ends, list items, table rows and lines of code.

    A sentence that was wrapped over lines keeps its line breaks. Fence marks, rules and blank lines are left out.
    """
    return [markdown[span.start : span.end] for span in sentence_spans(markdown)]


def sentence_spans(markdown: str) -> Iterator[Span]:
    """Give where each sentence of `markdown` stands."""
    for start, end, is_prose in _blocks(markdown):
        if not is_prose:
            yield from _trimmed(markdown, start, end)
            continue
        position = start
        for cut in _END.finditer(markdown, start, end):
            yield from _trimmed(markdown, position, cut.end())
            position = cut.end()
        yield from _trimmed(markdown, position, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    if piece.strip():
        yield Span(start + left, start + left + len(piece.strip()))


def _blocks(markdown: str) -> Iterator[tuple[int, int, bool]]:
    """Give (start, end, whether it is prose) of paragraphs, list items, table rows and lines of code."""
    position, fence, open_from = 0, "", -1
    for line in markdown.split("\n"):
        start, end = position, position + len(line)
        position = end + 1
        mark = _FENCE.match(line)
        begins_anew = bool(
            fence or mark or not line.strip() or line.lstrip().startswith("|") or _ADMONITION.match(line)
        )
        item = _LIST_ITEM.match(line) or _QUOTE_MARK.match(line)
        if open_from >= 0 and (begins_anew or item or _RULE.match(line)):
            yield open_from, start - 1, True
            open_from = -1
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif begins_anew or _RULE.match(line):
            if line.strip() and not _RULE.match(line):
                yield start, end, False
        elif open_from < 0:
            open_from = start + (item.end() if item else 0)
    if open_from >= 0:
        yield open_from, len(markdown), True


_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])|\d+")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """a about after again all also am an and any are as at be because been before being below both but by can could
        did do does doing don down each few for from further had has have having he her here him his how however i if in
        into is it its just let me more most my no nor not now of off on once only or other our out over own please same
        shall she should so some such t than that the their them then there these they this those through to too under
        until up us use used using very was we were what when where which while who whom whose why will with within
        without would you your must may might need needs means whether every""",
    )
)
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve")
    )
}
_ENDINGS = ("ations", "ation", "ments", "ment", "ings", "ing", "edly", "ies", "ied", "ed", "es", "ly", "s", "e", "y")


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Give a word without its commonest endings: enough to meet `merges`, `merged` and `merging`."""
    word = word.split("'")[0].split("’")[0]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "lsz" else root
    return word


@dataclass(frozen=True, slots=True)
class Gist:
    """What a text is about: stems of its content words, and its numbers."""

    stems: frozenset[str]
    numbers: frozenset[str]


@lru_cache(maxsize=1024)
def gist(text: str) -> Gist:
    """Give the gist of a text that others rest on; a number written as a word is a number too."""
    words = [word.lower() for word in _WORD.findall(text)]
    stems = {stem(word) for word in words if word not in _COMMON and not word.isdigit()}
    spelled = {_NUMBER_WORDS[word] for word in words if word in _NUMBER_WORDS}
    return Gist(frozenset(stems), frozenset(_NUMBER.findall(text)) | spelled)


_INLINE_CODE = re.compile(r"`[^`\n]+`")


def claim_gist(text: str) -> Gist:
    """Give the gist of a sentence that wants support: a number in code is an example, and "one" mostly no number."""
    prose = gist(_INLINE_CODE.sub(" ", text))
    ones = frozenset({"1"}) if not re.search(r"\b1\b", text) else frozenset()
    return Gist(gist(text).stems, prose.numbers - ones)


def support(claim: Gist, ground: Gist) -> float:
    """Give which share of the claim's content stands in the ground, 0 to 1.

    A number is what a rule is about: one that the ground lacks takes the support away.
    """
    if not claim.stems and not claim.numbers:
        return 0.0
    if not claim.numbers <= ground.numbers:
        return 0.0
    return len(claim.stems & ground.stems) / len(claim.stems) if claim.stems else 1.0


def best_sentence(claims: Sequence[Gist], candidates: Collection[str]) -> str:
    """Give the sentence that covers the claims best and says little else; '' where none shares a word."""
    best, best_score = "", 0.0
    for candidate in candidates:
        ground = gist(candidate)
        # What an answer says first is what it mainly says.
        shares = [_overlap(claim, ground) * (1 - 0.1 * min(order, 5)) for order, claim in enumerate(claims)]
        score = max(shares, default=0.0) + 0.1 * sum(shares)
        if score > best_score:
            best, best_score = candidate, score
    return best


def _overlap(claim: Gist, ground: Gist) -> float:
    """Weigh what is shared against both sides; a shared number counts as two words."""
    shared = len(claim.stems & ground.stems) + 2 * len(claim.numbers & ground.numbers)
    whole = len(claim.stems) + 2 * len(claim.numbers)
    if not shared or not whole:
        return 0.0
    return shared / whole + 0.3 * shared / (len(ground.stems) + 2 * len(ground.numbers))
