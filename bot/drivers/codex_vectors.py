"""Sections by meaning: the vectors of a Codex in memory, compared with a question's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bot.drivers.codex_index import Index

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Bytes = NDArray[np.int8]
    Numbers = NDArray[np.int64]

DIMENSIONS = 384
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
class Vectors:
    """All vectors of one state of the index. Rows of `texts` are chunks in order of their number.

    `named` holds a row for each name of a section, `name_rows` where each section's names begin; `section_rows` maps
    a chunk to its section's place there. `missing` is how many chunks have no vector yet: their rows are zero.
    """

    chunks: Numbers
    sections: Numbers
    documents: Numbers
    texts: Bytes
    named: Bytes
    name_starts: Numbers
    section_rows: Numbers
    token_weights: Floats
    missing: int

    @property
    def coverage(self) -> float:
        """Give the share of chunks that have their vector."""
        return 1 - self.missing / len(self.chunks) if len(self.chunks) else 0.0

    @classmethod
    def load(cls, index: Index) -> Vectors:
        import numpy as np

        rows = index.chunk_vectors()
        blank = bytes(DIMENSIONS)
        texts = np.frombuffer(b"".join(row.vector or blank for row in rows), np.int8).reshape(-1, DIMENSIONS)
        sections = np.array([row.section for row in rows], np.int64)
        names = index.name_vectors()
        named = np.frombuffer(b"".join(vector or blank for _, vector in names), np.int8).reshape(-1, DIMENSIONS)
        owners = np.array([section for section, _ in names], np.int64)
        distinct, starts = np.unique(owners, return_index=True)
        return cls(
            np.array([row.chunk for row in rows], np.int64),
            sections,
            np.array([row.document for row in rows], np.int64),
            texts,
            named,
            starts.astype(np.int64),
            np.searchsorted(distinct, sections).astype(np.int64),
            _token_weights([row.token_ids for row in rows if row.token_ids]),
            sum(row.vector is None for row in rows),
        )

    def text_cosines(self, vector: Floats) -> Floats:
        """Give each chunk's likeness to `vector`."""
        return _cosines(self.texts, vector)

    def name_cosines(self, vector: Floats) -> Floats:
        """Give each chunk's section's likeness by name: the best of its names."""
        import numpy as np

        by_name = _cosines(self.named, vector)
        best: Floats = np.maximum.reduceat(by_name, self.name_starts)
        return best[self.section_rows]

    def rows_of(self, chunks: Sequence[int]) -> Numbers:
        """Give the rows of chunks that are there; -1 for others."""
        import numpy as np

        wanted = np.array(chunks, np.int64)
        rows = np.searchsorted(self.chunks, wanted)
        rows[rows == len(self.chunks)] = 0
        return np.where(self.chunks[rows] == wanted, rows, -1).astype(np.int64)


def _cosines(matrix: Bytes, vector: Floats) -> Floats:
    import numpy as np

    out = np.empty(len(matrix), np.float32)
    scaled = (vector / 127).astype(np.float32)
    for start in range(0, len(matrix), BLOCK_ROWS):
        block = matrix[start : start + BLOCK_ROWS].astype(np.float32)
        out[start : start + BLOCK_ROWS] = block @ scaled
    return out


def _token_weights(ids: Sequence[bytes]) -> Floats:
    """Give each token's weight: the rarer in the Codex, the heavier."""
    import numpy as np

    counts = np.zeros(1 << 16, np.float32)
    for one in ids:
        counts[np.unique(np.frombuffer(one, np.uint16))] += 1
    weights: Floats = np.log1p(len(ids) / (1 + counts)).astype(np.float32)
    return weights


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
