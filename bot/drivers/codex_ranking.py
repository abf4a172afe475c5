"""Which sections answer a question best, and how sure that is.

By words alone, or by words and meaning: a first stage over all chunks adds up bounded scores (weighted sums measured
better than fusing ranks), then the best thirty are compared token by token. The constants were set on two public
handbooks and measured on others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.drivers.codex_index import Index
from bot.drivers.codex_text import content_words, is_follow_up, words
from bot.drivers.codex_vectors import VectorModel, Vectors, late_interaction
from bot.ports import Band, Findings, Hit

if TYPE_CHECKING:
    from bot.drivers.codex_vectors import Floats, QuestionLike

FOLLOW_UP_WEIGHT = 0.6  # of the earlier question together with the new one; the new one alone has the rest
RERANKED = 30

# Cosines of this model lie close together: each is brought to the same mean and spread, or words would swamp them.
TEXT_MEAN, TEXT_SPREAD = 0.499, 0.068
NAME_MEAN, NAME_SPREAD = 0.492, 0.068
TOKEN_MEAN, TOKEN_SPREAD = 0.426, 0.074
SPREAD = 0.12
WORDS_WEIGHT, TEXT_WEIGHT, NAME_WEIGHT = 0.15, 0.65, 0.10
TOKEN_SHARE = 0.6  # of the final score


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Below `low` the Codex does not cover the question, from `high` on it surely does."""

    low: float
    high: float

    def band(self, confidence: float) -> Band:
        return Band.LOW if confidence < self.low else Band.HIGH if confidence >= self.high else Band.MIDDLE


DEFAULT_THRESHOLDS: Mapping[Literal["words", "meaning"], Thresholds] = {
    "words": Thresholds(0.2, 0.5),
    "meaning": Thresholds(0.25, 0.62),
}


@dataclass(frozen=True, slots=True)
class Scored:
    """A section's score, what it is made of, and the chunk that gave it."""

    chunk: int
    score: float
    components: Mapping[str, float]


def asked(question: str, earlier: Sequence[str]) -> list[tuple[str, float]]:
    """Give what is looked for, with weights: a question that leans on the one before is asked in two ways."""
    if earlier and is_follow_up(question):
        return [(question, 1 - FOLLOW_UP_WEIGHT), (f"{earlier[-1]} {question}", FOLLOW_UP_WEIGHT)]
    return [(question, 1.0)]


def squashed(value: float, half: float) -> float:
    """Bring a score without bound into 0 to 1; `half` gives 0.5."""
    return max(value, 0.0) / (max(value, 0.0) + half)


def word_scores(index: Index, text: str, shut: Collection[int]) -> dict[int, tuple[int, float]]:
    """Give for each chunk that shares words with `text` (its section, its score from 0 to 1)."""
    terms = max(1, len(set(content_words(text))))
    matches = index.matches(text, shut=shut)
    return {match.chunk: (match.section, squashed(match.score / terms, 2.5)) for match in matches}


def search_by_words(
    index: Index, question: str, earlier: Sequence[str], *, shut: Collection[int], limit: int
) -> tuple[dict[int, Scored], float]:
    """Rank by words alone: give sections by number, best first, and the confidence.

    How much of the question the first section holds tells "covered" better than its score does.
    """
    totals: dict[int, float] = {}
    owners: dict[int, int] = {}
    for text, weight in asked(question, earlier):
        for chunk, (section, score) in word_scores(index, text, shut).items():
            totals[chunk] = totals.get(chunk, 0.0) + weight * score
            owners[chunk] = section
    ranked = sorted(totals, key=lambda chunk: (-totals[chunk], chunk))
    found: dict[int, Scored] = {}
    for chunk in ranked:
        found.setdefault(owners[chunk], Scored(chunk, totals[chunk], {"words": totals[chunk]}))
        if len(found) == limit:
            break
    if not ranked:
        return found, 0.0
    return found, sum(weight * coverage(index, text, ranked[0]) for text, weight in asked(question, earlier))


def coverage(index: Index, text: str, chunk: int) -> float:
    """Give which share of the question's words the chunk holds, the rare ones counting more."""
    terms = dict.fromkeys(content_words(text) or words(text))
    whole = index.chunk_count()
    weights = {term: math.log1p(whole / (1 + count)) for term, count in index.holders(terms).items()}
    held = index.held_by(chunk, terms)
    return sum(weights[term] for term in held) / max(sum(weights.values()), 1e-9)


def search_by_meaning(
    index: Index,
    vectors: Vectors,
    model: VectorModel,
    question: str,
    earlier: Sequence[str],
    *,
    shut: Collection[int],
    limit: int,
) -> tuple[dict[int, Scored], float]:
    """Rank by words and meaning: give sections by number, best first, and the confidence."""
    import numpy as np

    parts = [(text, weight, model.question(text)) for text, weight in asked(question, earlier)]
    scores = {name: np.zeros(len(vectors.chunks), np.float32) for name in ("words", "text", "name")}
    for text, weight, asked_vectors in parts:
        found = word_scores(index, text, shut)
        rows = vectors.texts.places_of(list(found))
        known = rows >= 0
        values = np.array([score for _, score in found.values()], np.float32)
        scores["words"][rows[known]] += weight * values[known]
        scores["text"] += weight * levelled(vectors.text_cosines(asked_vectors.vector), TEXT_MEAN, TEXT_SPREAD)
        scores["name"] += weight * levelled(vectors.name_cosines(asked_vectors.vector), NAME_MEAN, NAME_SPREAD)
    first = WORDS_WEIGHT * scores["words"] + TEXT_WEIGHT * scores["text"] + NAME_WEIGHT * scores["name"]
    if shut:
        first[np.isin(vectors.documents, list(shut))] = -np.inf
    order = np.argsort(-first, kind="stable")[: max(RERANKED, 4 * limit)]
    order = order[np.isfinite(first[order])]
    tokens = _token_scores(index, vectors, parts, [int(vectors.chunks[row]) for row in order[:RERANKED]])
    ranked: list[tuple[int, Scored, float]] = []
    for row in order:
        chunk = int(vectors.chunks[row])
        token = tokens.get(chunk, float(scores["text"][row]))  # a large Codex keeps no token vectors
        score = (1 - TOKEN_SHARE) * float(first[row]) + TOKEN_SHARE * token
        components = {name: float(values[row]) for name, values in scores.items()} | {"tokens": token}
        sure = (components["text"] + token) / 2
        ranked.append((int(vectors.sections[row]), Scored(chunk, score, components), sure))
    ranked.sort(key=lambda one: -one[1].score)
    best: dict[int, Scored] = {}
    for section, scored, _ in ranked:
        best.setdefault(section, scored)
        if len(best) == limit:
            break
    return best, sureness(ranked[0][2]) if ranked else 0.0


def _token_scores(
    index: Index, vectors: Vectors, parts: Sequence[tuple[str, float, QuestionLike]], chunks: Sequence[int]
) -> dict[int, float]:
    """Give the levelled late-interaction score of each chunk that has token vectors."""
    passages = index.tokens(chunks)
    totals: dict[int, float] = {}
    for _, weight, question in parts:
        for chunk, value in late_interaction(question, passages, vectors.token_weights).items():
            totals[chunk] = totals.get(chunk, 0.0) + weight * (value - TOKEN_MEAN) / TOKEN_SPREAD * SPREAD
    return totals


def levelled(cosines: Floats, mean: float, spread: float) -> Floats:
    """Bring cosines to mean 0 and the common spread."""
    return (cosines - mean) / spread * SPREAD


def sureness(level: float) -> float:
    """Bring a levelled score into 0 to 1: about half of what lies at 0.27 was covered."""
    return 1 / (1 + math.exp(-(level - 0.27) / 0.08))


def findings(index: Index, found: Mapping[int, Scored], confidence: float, *, thresholds: Thresholds) -> Findings:
    """Give the sections themselves, of long ones the passage too."""
    sections = index.sections(list(found))
    passages = index.passages([scored.chunk for scored in found.values()])
    hits = tuple(
        Hit(sections[number], scored.score, dict(scored.components), passages.get(scored.chunk, ""))
        for number, scored in found.items()
        if number in sections
    )
    sure = confidence if hits else 0.0
    return Findings(hits, sure, thresholds.band(sure))
