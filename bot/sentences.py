"""Sentences of Markdown as they stand, and how far one text supports another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
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
_ADDRESS = re.compile(r"\b(?:https?://|www\.)[^\s<>()\[\]]+|(?<![\w.+-])[\w.+-]+@[\w-]+\.\w+", re.IGNORECASE)
# Scripts written without spaces (Thai to Korean): their pairs of characters stand in for words.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af]+"
)
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
_HAN_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2}
_HAN_NUMBER = re.compile("[二两三四五六七八九]?十[一二三四五六七八九]?|[二两三四五六七八九]")
# form of a unit -> (what it measures, how many of the smallest)
_UNITS = {
    form: (dimension, size)
    for dimension, size, forms in (
        ("time", 1, "seconds second secs sec 秒"),
        ("time", 60, "minutes minute mins min 分钟"),
        ("time", 3_600, "hours hour hrs hr 小时"),
        ("time", 86_400, "days day 天"),
        ("time", 604_800, "weeks week 周"),
        ("time", 2_592_000, "months month 个月"),
        ("time", 31_104_000, "years year 年"),
        ("share", 1, "percent %"),
        ("bytes", 1, "kib kb"),
        ("bytes", 1_024, "mib mb"),
        ("bytes", 1_048_576, "gib gb"),
    )
    for form in forms.split()
}
_AMOUNT = rf"(?:\d+(?:[.,]\d+)*|{'|'.join(_NUMBER_WORDS)}|{_HAN_NUMBER.pattern})"
_MEASURE = re.compile(
    rf"(?<![a-z])((?:{_AMOUNT}(?:\s*(?:,|-|–|to|or|and)\s*))*{_AMOUNT}|(?:within|after|least|than|half)\s+an?)[\s-]*"
    rf"(?:(?:working|business|calendar|full|whole|consecutive|more)\s+)?({'|'.join(_UNITS)})(?![a-z])",
    re.IGNORECASE,
)
_UNIT = re.compile(rf"(?<![a-z])(?:{'|'.join(_UNITS)})(?![a-z])", re.IGNORECASE)
_TIME = re.compile(r"\b0?(\d{1,2}):(\d\d)\b")
_ENDINGS = re.findall(r"\w+", "ations ation ments ment ings ing edly als al ies ied ed es ly s e y")


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
    """What a text is about: stems of its content words, and what must be exact.

    `numbers` holds addresses and times of day too; `measures` is what the numbers with a unit measure: (what, how many
    of its smallest unit) -> the numbers as they are written.
    """

    stems: frozenset[str]
    numbers: frozenset[str]
    measures: frozenset[Measure] = frozenset()


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with its unit: `amount` counts the smallest unit of the `dimension`; `number` is as it was written."""

    dimension: str
    amount: float
    number: str


@lru_cache(maxsize=1024)
def gist(text: str) -> Gist:
    """Give the gist of a text that others rest on; a number written as a word is a number too."""
    exact = {address.rstrip(".,;:/").casefold() for address in _ADDRESS.findall(text)}
    text = _ADDRESS.sub(" ", text)
    for hour, minute in _TIME.findall(text):
        exact |= {f"{hour}:{minute}", hour}
    text = _TIME.sub(" ", text)
    words = {word.lower() for word in _WORD.findall(_UNSPACED.sub(_paired, text))}
    stems = {stem(word) for word in words if not (word in _COMMON or word in _NUMBER_WORDS or word.isdigit())}
    han = [] if text.isascii() else _HAN_NUMBER.findall(text)
    exact |= {_digits(word) for word in (*words, *han)} - {""}
    return Gist(frozenset(stems), frozenset({*exact, *_NUMBER.findall(text)}), frozenset(_measures(text)))


def _measures(text: str) -> Iterator[Measure]:
    if not _UNIT.search(text):  # most sentences measure nothing, and this is quickly seen
        return
    for amounts, unit in _MEASURE.findall(text):
        dimension, size = _UNITS[unit.lower()]
        for amount in re.findall(_AMOUNT, amounts, re.IGNORECASE):
            number = _digits(amount.lower()) or amount
            yield Measure(dimension, float(number.replace(",", "")) * size, number)
        if amounts.lower().endswith(("a", "an")):
            yield Measure(dimension, size / 2 if amounts.lower().startswith("half") else size, "")


def _paired(run: re.Match[str]) -> str:
    return f" {' '.join(run[0][i : i + 2] for i in range(max(1, len(run[0]) - 1)))} "


def _digits(word: str) -> str:
    """Give a number that is written in words as digits; '' for any other word."""
    if not _HAN_NUMBER.fullmatch(word):
        return _NUMBER_WORDS.get(word, "")
    tens, ten, ones = word.rpartition("十")
    return str((_HAN_DIGITS.get(tens, 1) * 10 if ten else 0) + _HAN_DIGITS.get(ones, 0))


_INLINE_CODE = re.compile(r"`[^`\n]+`")


def claim_gist(text: str) -> Gist:
    """Give the gist of a sentence that wants support: a number in code is an example, and "one" mostly no number."""
    prose = gist(_INLINE_CODE.sub(" ", text))
    ones = frozenset({"1"}) if not re.search(r"\b1\b", text) else frozenset()
    return Gist(gist(text).stems, prose.numbers - ones, prose.measures)


def support(claim: Gist, ground: Gist) -> float:
    """Give which share of the claim's content stands in the ground, 0 to 1.

    A number is what a rule is about: one that the ground lacks, or has in another unit, takes the support away.
    """
    if not claim.stems and not claim.numbers:
        return 0.0
    given = {(measure.dimension, measure.amount) for measure in ground.measures}
    borne = {measure for measure in claim.measures if (measure.dimension, measure.amount) in given}
    if not claim.numbers - {measure.number for measure in borne} <= ground.numbers:
        return 0.0
    measured = {measure.dimension for measure in ground.measures}
    numbers = {measure.number for measure in ground.measures}
    if any(measure.dimension in measured or measure.number in numbers for measure in claim.measures - borne):
        return 0.0
    return len(claim.stems & ground.stems) / len(claim.stems) if claim.stems else 1.0


_NEGATIVE = re.compile(
    r"\b(?:not|never|no|nobody|none|nothing|neither)\b|(?<=can)not\b|n['’]t\b|[不勿未没]|禁止", re.IGNORECASE
)
# Words that turn a sentence round without "not", or limit it: whether two such agree cannot be told by words.
_QUALIFIED = re.compile(
    r"\b(?:without|unless|until|except|but|only|than|before|instead|avoid|forbid\w*|prohibit\w*|refus\w*|reject\w*|"
    r"most|least|maximum|minimum|limit\w*|fail\w*|stop\w*)\b|[只除非外前]",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[,;:，；：]\s*|\s[-–—]\s")
_PART_END = re.compile(rf"{_CLAUSE_END.pattern}|\s(?:and|but|that|which|who|when|where|so|because)\s")
LEAST_MIRRORED = 3  # content words
MIRRORED = 0.75  # of the content words of two clauses taken together are in both


@lru_cache(maxsize=2_000)
def _clauses(sentence: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Give the clauses of a sentence, each with its content words but for "not"; every claim is held against them."""
    found = {sentence, *_CLAUSE_END.split(sentence), *_PART_END.split(sentence)}
    return tuple((clause, _affirmed(clause)) for clause in found)


@lru_cache(maxsize=2_000)
def _affirmed(text: str) -> frozenset[str]:
    """Give the content words of a text but for "not"."""
    return gist(_NEGATIVE.sub(" ", text)).stems


def mirrored(claim: str, grounds: Iterable[str]) -> Iterator[tuple[float, bool]]:
    """Give (how alike, whether they agree) for each clause of these sentences that has nearly the claim's words."""
    mine = _affirmed(claim)
    if len(mine) < LEAST_MIRRORED:
        return
    for clause, theirs in (clause for ground in grounds for clause in _clauses(ground)):
        if len(mine & theirs) < max(LEAST_MIRRORED, MIRRORED * len(mine | theirs)):
            continue
        if not (_QUALIFIED.search(claim) or _QUALIFIED.search(clause)):
            one, other = (set(_WORD.findall(_NEGATIVE.sub(" ", text.lower()))) for text in (claim, clause))
            yield len(one & other) / len(one | other), bool(_NEGATIVE.search(claim)) == bool(_NEGATIVE.search(clause))


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
