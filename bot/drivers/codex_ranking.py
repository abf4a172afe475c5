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
from bot.drivers.codex_synonyms import synonyms
from bot.drivers.codex_text import content_words, is_follow_up, words
from bot.drivers.codex_vectors import VectorModel, Vectors, late_interaction
from bot.ports import Band, Findings, Hit

if TYPE_CHECKING:
    from bot.drivers.codex_vectors import Floats, Numbers, QuestionLike

FOLLOW_UP_WEIGHT = 0.6  # of the earlier question together with the new one; the new one alone has the rest
CONSIDERED = 4_000  # chunks by words and text whose names are compared too
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


def word_scores(index: Index, text: str, shut: Collection[int], *, count: int = 0) -> dict[int, tuple[int, float]]:
    """Give for each chunk that shares words with `text` (its section, its score from 0 to 1 over `count` words)."""
    terms = count or max(1, len(set(content_words(text))))
    matches = index.matches(text, shut=shut)
    return {match.chunk: (match.section, squashed(match.score / terms, 2.5)) for match in matches}


def search_by_words(
    index: Index, question: str, earlier: Sequence[str], *, shut: Collection[int], limit: int
) -> tuple[dict[int, Scored], float]:
    """Rank by words alone: give sections by number, best first, and the confidence.

    How much of the question the first section holds tells "covered" better than its score does.
    """
    totals: dict[int, dict[str, float]] = {}
    owners: dict[int, int] = {}
    for text, weight in asked(question, earlier):
        for name, scores in _word_components(index, text, shut).items():
            for chunk, (section, score) in scores.items():
                parts = totals.setdefault(chunk, dict.fromkeys(_WORD_COMPONENTS, 0.0))
                parts[name] += weight * score
                owners[chunk] = section
    scored = {chunk: sum(parts.values()) / len(parts) for chunk, parts in totals.items()}
    ranked = sorted(scored, key=lambda chunk: (-scored[chunk], chunk))
    found: dict[int, Scored] = {}
    for chunk in ranked:
        found.setdefault(owners[chunk], Scored(chunk, scored[chunk], totals[chunk]))
        if len(found) == limit:
            break
    if not ranked:
        return found, 0.0
    return found, sum(weight * coverage(index, text, ranked[0]) for text, weight in asked(question, earlier))


_WORD_COMPONENTS = ("words", "synonyms", "letters")


def _word_components(index: Index, text: str, shut: Collection[int]) -> dict[str, dict[int, tuple[int, float]]]:
    """Give scores by the question's words, by these with their synonyms, and by runs of letters."""
    by_words = word_scores(index, text, shut)
    others = synonyms(text)
    count = max(1, len(set(content_words(text))))
    letters = index.letter_matches(text, shut=shut)
    return {
        "words": by_words,
        "synonyms": word_scores(index, f"{text} {others}", shut, count=count) if others else by_words,
        "letters": {match.chunk: (match.section, squashed(match.score / count, 8.0)) for match in letters},
    }


def coverage(index: Index, text: str, chunk: int) -> float:
    """Give which share of the question's words the chunk holds, the rare ones counting more."""
    terms = dict.fromkeys(content_words(text) or words(text))
    whole = index.chunk_count()
    weights = {term: math.log1p(whole / (1 + count)) for term, count in index.holders(terms).items()}
    held = index.held_by(chunk, terms)
    # Always in the same order: a sum in another one differs in its last digit, and that broke ties by chance.
    return sum(weights[term] for term in terms if term in held) / max(sum(weights.values()), 1e-9)


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
    parts = [Part(text, weight, model.question(text)) for text, weight in asked(question, earlier)]
    stage = _first_stage(index, vectors, parts, shut)
    order = stage.best(max(RERANKED, 4 * limit))
    chunks = {place: int(vectors.chunks[stage.rows[place]]) for place in order}
    tokens = _token_scores(index, vectors, parts, list(chunks.values())[:RERANKED])
    ranked: list[tuple[int, Scored]] = []
    for place, chunk in chunks.items():
        components = {name: float(values[place]) for name, values in stage.components.items()}
        components["tokens"] = tokens.get(chunk, components["text"])  # a large Codex keeps no token vectors
        score = (1 - TOKEN_SHARE) * float(stage.total[place]) + TOKEN_SHARE * components["tokens"]
        ranked.append((int(vectors.sections[stage.rows[place]]), Scored(chunk, score, components)))
    ranked.sort(key=lambda one: -one[1].score)
    best: dict[int, Scored] = {}
    for section, scored in ranked:
        if len(best) < limit:
            best.setdefault(section, scored)
    return best, _confidence(ranked[0][1]) if ranked else 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """One way of asking: the text, its weight and its vectors."""

    text: str
    weight: float
    vectors: QuestionLike


@dataclass(frozen=True, slots=True)
class Stage:
    """The first stage's scores of the chunks at `rows`; `total` adds the weighted components up."""

    rows: Numbers
    components: Mapping[str, Floats]
    total: Floats

    def best(self, count: int) -> list[int]:
        """Give the places of the best `count`, best first."""
        import numpy as np

        order = np.argsort(-self.total, kind="stable")[:count]
        return [int(place) for place in order if np.isfinite(self.total[place])]


def _first_stage(index: Index, vectors: Vectors, parts: Sequence[Part], shut: Collection[int]) -> Stage:
    import numpy as np

    words_score, text = (np.zeros(len(vectors.chunks), np.float32) for _ in range(2))
    for part in parts:
        found = word_scores(index, part.text, shut)
        rows = vectors.texts.places_of(list(found))
        values = np.array([score for _, score in found.values()], np.float32)
        words_score[rows[rows >= 0]] += part.weight * values[rows >= 0]
        text += part.weight * levelled(vectors.text_cosines(part.vectors.vector), TEXT_MEAN, TEXT_SPREAD)
    text[~vectors.texts.present] = 0.0  # not embedded yet: neither like nor unlike
    total = WORDS_WEIGHT * words_score + TEXT_WEIGHT * text
    if shut:
        total[np.isin(vectors.documents, list(shut))] = -np.inf
    if len(total) > CONSIDERED:
        rows = np.sort(np.argpartition(-total, CONSIDERED)[:CONSIDERED])
    else:
        rows = np.arange(len(total))
    name = np.zeros(len(rows), np.float32)
    for part in parts:
        name += part.weight * levelled(vectors.name_cosines(part.vectors.vector, rows), NAME_MEAN, NAME_SPREAD)
    components = {"words": words_score[rows], "text": text[rows], "name": name}
    return Stage(rows, components, total[rows] + NAME_WEIGHT * name)


def _token_scores(index: Index, vectors: Vectors, parts: Sequence[Part], chunks: Sequence[int]) -> dict[int, float]:
    """Give the levelled late-interaction score of each chunk that has token vectors."""
    passages, weights = index.tokens(chunks), vectors.token_weights
    totals: dict[int, float] = {}
    for part in parts:
        for chunk, value in late_interaction(part.vectors, passages, weights).items():
            totals[chunk] = totals.get(chunk, 0.0) + part.weight * (value - TOKEN_MEAN) / TOKEN_SPREAD * SPREAD
    return totals


def _confidence(first: Scored) -> float:
    """Give how sure it is that the section ranked first covers the question."""
    return sureness((first.components["text"] + first.components["tokens"]) / 2)


def levelled(cosines: Floats, mean: float, spread: float) -> Floats:
    """Bring cosines to mean 0 and the common spread."""
    return (cosines - mean) / spread * SPREAD


def sureness(level: float) -> float:
    """Bring a levelled score into 0 to 1: about half of what lies at 0.27 was covered."""
    return 1 / (1 + math.exp(-(level - 0.27) / 0.08))


def findings(index: Index, found: Mapping[int, Scored], confidence: float, *, thresholds: Thresholds) -> Findings:
    """Give the sections themselves, of long ones the passage too."""
    found = _with_text(index, found)
    sections = index.sections(list(found))
    passages = index.passages([scored.chunk for scored in found.values()])
    hits = tuple(
        Hit(sections[number], scored.score, dict(scored.components), passages.get(scored.chunk, ""))
        for number, scored in found.items()
        if number in sections
    )
    sure = confidence if hits else 0.0
    return Findings(hits, sure, thresholds.band(sure))


def _with_text(index: Index, found: Mapping[int, Scored]) -> dict[int, Scored]:
    """Put before each heading without text of its own the first section below it, which has the answer."""
    below = index.first_below(list(found))
    full: dict[int, Scored] = {}
    for number, scored in found.items():
        if number in below:
            child, chunk = below[number]
            full.setdefault(child, found.get(child, Scored(chunk, scored.score, scored.components)))
        full.setdefault(number, scored)
    return dict(list(full.items())[: len(found)])
