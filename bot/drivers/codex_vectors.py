"""Sections by meaning: the vectors of a Codex in memory, compared with a question's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bot.drivers.codex_index import Index
from bot.drivers.codex_rows import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Bytes = NDArray[np.int8]
    Numbers = NDArray[np.int64]

DIMENSIONS = 384
FETCHED_AT_ONCE = 5_000
BLOCK_ROWS = 2_048  # rows made float at once: they stay in the processor's cache


class PassageLike(Protocol):
    """`vector` and `tokens` as int8 of value x 127; `token_ids` as uint16."""

    @property
    def vector(self) -> bytes: ...
    @property
    def tokens(self) -> bytes: ...
    @property
    def token_ids(self) -> bytes: ...


class QuestionLike(Protocol):
    @property
    def vector(self) -> Floats: ...
    @property
    def tokens(self) -> Floats: ...
    @property
    def token_ids(self) -> tuple[int, ...]: ...


class VectorModel(Protocol):
    """What the Codex needs of an embedding model. Blocking, safe in several threads."""

    @property
    def model_id(self) -> str: ...
    def passages(self, texts: Sequence[str]) -> Sequence[PassageLike]: ...
    def question(self, text: str) -> QuestionLike: ...
    def known_words(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Matrix:
    """Vectors as rows of int8, in order of `ids`. `present` is False where a text has none yet: its row is zero."""

    ids: Numbers
    hashes: NDArray[np.void]
    rows: Bytes
    present: NDArray[np.bool_]

    @classmethod
    def load(cls, index: Index, table: Table, before: Matrix | None, on_tokens: Callable[[bytes], None]) -> Matrix:
        """Read a table's vectors; those that stood in `before` are taken over."""
        import numpy as np

        keys = index.vector_keys(table)
        ids = np.fromiter((number for number, _ in keys), np.int64, len(keys))
        hashes = np.frombuffer(b"".join(digest for _, digest in keys), np.dtype("V16"))
        matrix = cls(ids, hashes, np.zeros((len(ids), DIMENSIONS), np.int8), np.zeros(len(ids), np.bool_))
        if before is not None:
            matrix._take_over(before)
        wanted = np.flatnonzero(~matrix.present)
        for start in range(0, len(wanted), FETCHED_AT_ONCE):
            some = wanted[start : start + FETCHED_AT_ONCE]
            for row, (_, vector, token_ids) in zip(*matrix._fetched(index, table, some), strict=True):
                matrix.rows[row] = np.frombuffer(vector, np.int8)
                matrix.present[row] = True
                on_tokens(token_ids)
        return matrix

    def _take_over(self, before: Matrix) -> None:
        there = before.places_of(self.ids)
        known = there >= 0
        known[known] = (before.hashes[there[known]] == self.hashes[known]) & before.present[there[known]]
        self.rows[known] = before.rows[there[known]]
        self.present[known] = True

    def _fetched(self, index: Index, table: Table, places: Numbers) -> tuple[list[int], list[tuple[int, bytes, bytes]]]:
        found = index.vectors(table, [int(number) for number in self.ids[places]])
        return [int(place) for place in self.places_of([number for number, _, _ in found])], found

    def places_of(self, ids: Sequence[int] | Numbers) -> Numbers:
        """Give the rows of `ids`; -1 for those that are not there."""
        import numpy as np

        wanted = np.asarray(ids, np.int64)
        if not len(self.ids):
            return np.full(len(wanted), -1, np.int64)
        places = np.searchsorted(self.ids, wanted)
        places[places == len(self.ids)] = 0
        return np.where(self.ids[places] == wanted, places, -1).astype(np.int64)

    def cosines(self, vector: Floats) -> Floats:
        """Give each row's likeness to `vector`."""
        import numpy as np

        out = np.empty(len(self.rows), np.float32)
        scaled = (vector / 127).astype(np.float32)
        for start in range(0, len(self.rows), BLOCK_ROWS):
            block = self.rows[start : start + BLOCK_ROWS].astype(np.float32)
            out[start : start + BLOCK_ROWS] = block @ scaled
        return out


@dataclass(frozen=True, slots=True)
class Vectors:
    """All vectors of one state of the index.

    An old state does no harm: numbers in the index are never used twice, and what is gone from it is not found there.
    `sections` and `documents` say where each chunk belongs; `name_starts` where each section's names begin in `names`,
    and `section_rows` which of these is a chunk's. `token_counts` is how many chunks hold each token.
    """

    texts: Matrix
    names: Matrix
    sections: Numbers
    documents: Numbers
    name_starts: Numbers
    section_rows: Numbers
    token_counts: Floats

    @property
    def chunks(self) -> Numbers:
        return self.texts.ids

    @property
    def coverage(self) -> float:
        """Give the share of chunks that have their vector."""
        return float(self.texts.present.mean()) if len(self.chunks) else 0.0

    @property
    def token_weights(self) -> Floats:
        """Give each token's weight: the rarer in the Codex, the heavier."""
        import numpy as np

        weights: Floats = np.log1p(len(self.chunks) / (1 + self.token_counts)).astype(np.float32)
        return weights

    @classmethod
    def load(cls, index: Index, before: Vectors | None = None) -> Vectors:
        """Read the vectors as they stand in the index now; from `before` what has not changed."""
        import numpy as np

        # What was removed stays in the counts until the next start: a weight is not that exact.
        counts = before.token_counts.copy() if before else np.zeros(1 << 16, np.float32)

        def count(token_ids: bytes) -> None:
            counts[np.unique(np.frombuffer(token_ids, np.uint16))] += 1

        texts = Matrix.load(index, "chunk", before.texts if before else None, count)
        names = Matrix.load(index, "name", before.names if before else None, lambda token_ids: None)
        places = index.places_of_chunks()
        sections = np.fromiter((section for section, _ in places), np.int64, len(places))
        documents = np.fromiter((document for _, document in places), np.int64, len(places))
        owners = np.array(index.sections_of_names(), np.int64)
        distinct, starts = np.unique(owners, return_index=True)
        rows = np.searchsorted(distinct, sections).astype(np.int64)
        return cls(texts, names, sections, documents, starts.astype(np.int64), rows, counts)

    def text_cosines(self, vector: Floats) -> Floats:
        """Give each chunk's likeness to `vector`."""
        return self.texts.cosines(vector)

    def name_cosines(self, vector: Floats, rows: Numbers) -> Floats:
        """Give the likeness by name of the sections of the chunks at `rows`: the best of each section's names."""
        import numpy as np

        places = self.section_rows[rows]
        starts = self.name_starts[places]
        ends = np.append(self.name_starts[1:], len(self.names.rows))[places]
        counts = ends - starts
        firsts = np.cumsum(counts) - counts
        names = np.arange(int(counts.sum())) - np.repeat(firsts - starts, counts)
        likeness = self.names.rows[names].astype(np.float32) @ (vector / 127)
        best: Floats = np.maximum.reduceat(likeness, firsts)
        return best


def late_interaction(question: QuestionLike, passages: Mapping[int, bytes], weights: Floats) -> dict[int, float]:
    """Give how well each passage's tokens meet the question's: the weighted mean of each token's best likeness."""
    import numpy as np

    if not len(question.tokens):
        return {}
    weight = weights[np.array(question.token_ids)]
    weight = weight / max(float(weight.sum()), 1e-9)
    out: dict[int, float] = {}
    for chunk, tokens in passages.items():
        matrix = np.frombuffer(tokens, np.int8).reshape(-1, DIMENSIONS).astype(np.float32)
        if len(matrix):
            out[chunk] = float((question.tokens @ matrix.T).max(axis=1) @ weight) / 127
    return out
