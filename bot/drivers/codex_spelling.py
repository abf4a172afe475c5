"""Mistyped words of a question, put right from the words of the Codex."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

from bot.drivers.codex_text import STOP_WORDS

_WORD = re.compile(r"[A-Za-z]+")
_ENDINGS = ("s", "es", "ed", "d", "ing", "er", "ly")
LEAST_LETTERS, MOST_LETTERS = 4, 24
LIMIT_WORDS = 40  # a longer text is pasted, not typed
SURE_LETTERS = 8  # from here on two mistakes are one word's, even if nobody knows the language


class Speller:
    """Knows the Codex's words. `language` holds common words that are never put right; it may be empty."""

    def __init__(self, vocabulary: Mapping[str, int], language: Collection[str]) -> None:
        self._counts = vocabulary
        self._language = language
        self._pools: dict[str, list[str]] = defaultdict(list)
        for word, count in vocabulary.items():
            # A word that stands once and is no English may be a mistake of the Codex's own.
            if len(word) >= LEAST_LETTERS and word.isalpha() and (count > 1 or word in language):
                self._pools[word[0]].append(word)
        self._mended: dict[str, str] = {}

    def mend(self, text: str) -> str:
        """Give `text` with the words put right that neither the Codex nor the language knows."""
        if len(text.split()) > LIMIT_WORDS:
            return text
        return _WORD.sub(lambda match: self._word(match[0]), text)

    def _word(self, word: str) -> str:
        lower = word.lower()
        if self._is_known(lower):
            return word
        if lower not in self._mended:
            self._mended[lower] = self._nearest(lower)
        return word if self._mended[lower] == lower else self._mended[lower]

    def _is_known(self, word: str) -> bool:
        if not LEAST_LETTERS <= len(word) <= MOST_LETTERS or word in STOP_WORDS or word in self._language:
            return True
        counts = self._counts
        return (
            counts.get(word, 0) > 2
            or (not self._language and word in counts)
            or any(word + ending in counts for ending in _ENDINGS)
            or any(word.endswith(ending) and word[: -len(ending)] in counts for ending in _ENDINGS)
        )

    def _nearest(self, word: str) -> str:
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        if self._language:
            reach = 1 if len(word) < 6 else 2
            pools = [self._pools[word[0]], [other for pool in self._pools.values() for other in pool]]
        else:
            # Without a list of the language's words any of them looks like a mistake: only near ones are put right.
            reach = 1 if len(word) < SURE_LETTERS else 2
            pools = [self._pools[word[0]]]
        for pool in pools:
            near = process.extract(word, pool, scorer=OSA.distance, score_cutoff=reach, limit=10)
            if near:
                return min((distance, -self._counts[other], other) for other, distance, _ in near)[2]
        return word
