"""Which sections answer a question best, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bot.drivers.codex_index import Index
from bot.drivers.codex_text import content_words, is_follow_up
from bot.ports import Band, Findings, Hit

FOLLOW_UP_WEIGHT = 0.6  # of the earlier question together with the new one; the new one alone has the rest

LOW_LEXICAL, HIGH_LEXICAL = 0.3, 0.6


def asked(question: str, earlier: Sequence[str]) -> list[tuple[str, float]]:
    """Give what is looked for, with weights: a question that leans on the one before is asked in two ways."""
    if earlier and is_follow_up(question):
        return [(question, 1 - FOLLOW_UP_WEIGHT), (f"{earlier[-1]} {question}", FOLLOW_UP_WEIGHT)]
    return [(question, 1.0)]


def search_lexically(
    index: Index, question: str, earlier: Sequence[str], *, shut: Collection[int], limit: int
) -> Findings:
    """Rank by words alone. `shut` holds the documents that must not be found."""
    scores: dict[int, float] = {}
    for text, weight in asked(question, earlier):
        best: dict[int, float] = {}
        terms = max(1, len(set(content_words(text))))
        for match in index.matches(text, shut=shut):
            best[match.section] = max(best.get(match.section, 0.0), squashed(match.score / terms, 2.5))
        for section, score in best.items():
            scores[section] = scores.get(section, 0.0) + weight * score
    ranked = sorted(scores, key=lambda section: (-scores[section], section))[:limit]
    sections = index.sections(ranked)
    hits = tuple(Hit(sections[number], scores[number], {"lexical": scores[number]}) for number in ranked)
    confidence = hits[0].score if hits else 0.0
    return Findings(hits, confidence, band_of(confidence, LOW_LEXICAL, HIGH_LEXICAL))


def squashed(value: float, half: float) -> float:
    """Bring a score without bound into 0 to 1; `half` gives 0.5."""
    return max(value, 0.0) / (max(value, 0.0) + half)


def band_of(confidence: float, low: float, high: float) -> Band:
    return Band.LOW if confidence < low else Band.HIGH if confidence >= high else Band.MIDDLE
