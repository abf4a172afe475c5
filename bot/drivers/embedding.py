"""Sentence and token vectors of bge-small-en-v1.5, computed here: no network, no GPU.

One pass gives a passage's vector (the first token's) and the vectors of its tokens for late interaction. All are of
length 1 and kept as int8 (value x 127). Blocking: call it from a thread of your own.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

log = logging.getLogger(__name__)

DIMENSIONS = 384
MODEL_ID = "bge-small-en-v1.5/float-activations/1"  # part of every cached vector's hash
QUERY_PREFIX = "Represent this sentence for searching relevant passages: "
WINDOW_TOKENS = 384
BATCH = 8  # passages in one pass: 16 is no faster on two cores and takes twice the memory
PARTS = ("numpy", "onnx", "onnxruntime", "tokenizers")


@dataclass(frozen=True, slots=True)
class PassageVectors:
    """`vector` and `tokens` as int8; `token_ids` are the tokens' numbers in the model's vocabulary."""

    vector: bytes
    tokens: bytes
    token_ids: bytes


@dataclass(frozen=True, slots=True)
class QuestionVectors:
    """A question's vector, and those of its own tokens (the instruction's left out)."""

    vector: Floats
    tokens: Floats
    token_ids: tuple[int, ...]


class Embedder:
    """The model, loaded. Safe to call from several threads."""

    model_id = MODEL_ID

    def __init__(self, session: Any, tokenizer: Any) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = {one.name for one in session.get_inputs()}
        self._lead = len(tokenizer.encode(QUERY_PREFIX).ids) - 1  # the start mark and the instruction

    @classmethod
    def load(cls, model: Path, tokenizer: Path, *, threads: int = 2) -> Embedder:
        """Load the model from the pack's two files, whose hashes have been checked.

        The first time, the graph is rewritten beside them (34 MB). Raises: ImportError when the extra
        `semantic` is not installed.
        """
        import onnxruntime
        from tokenizers import Tokenizer

        start = time.monotonic()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting must not take the processor
        options.enable_cpu_mem_arena = False  # the arena keeps the largest batch's memory for ever
        session = onnxruntime.InferenceSession(str(float_model(model)), options, providers=["CPUExecutionProvider"])
        words = Tokenizer.from_file(str(tokenizer))
        words.enable_truncation(WINDOW_TOKENS)
        words.enable_padding()
        _return_memory()
        log.debug("Loaded the embedding model", extra={"action": "embedder", "ms": _ms(start)})
        return cls(session, words)

    def known_words(self) -> frozenset[str]:
        """Give the whole words of the model's vocabulary: common English."""
        return frozenset(word for word in self._tokenizer.get_vocab() if word.isalpha() and len(word) > 2)

    def passages(self, texts: Sequence[str]) -> list[PassageVectors]:
        """Give the vectors of each text, in order."""
        import numpy as np

        found: dict[int, PassageVectors] = {}
        # Texts of like length go together: a batch is as slow as its longest.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            for number, ids, hidden in self._encoded(batch, [texts[number] for number in batch]):
                whole = np.round(hidden * 127).astype(np.int8)
                inner = slice(1, len(ids) - 1)  # without the marks of start and end
                tokens, token_ids = whole[inner].tobytes(), np.array(ids[inner], np.uint16).tobytes()
                found[number] = PassageVectors(whole[0].tobytes(), tokens, token_ids)
        _return_memory()
        return [found[number] for number in range(len(texts))]

    def question(self, text: str) -> QuestionVectors:
        """Give the vectors of a question."""
        [(_, ids, hidden)] = self._encoded([0], [QUERY_PREFIX + text])
        own = slice(self._lead, len(ids) - 1)
        return QuestionVectors(hidden[0], hidden[own], tuple(ids[own]))

    def _encoded(self, numbers: Sequence[int], texts: Sequence[str]) -> Iterator[tuple[int, list[int], Floats]]:
        import numpy as np

        encodings = self._tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in encodings], np.int64)
        mask = np.array([one.attention_mask for one in encodings], np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        hidden /= np.linalg.norm(hidden, axis=-1, keepdims=True).clip(1e-9)
        for row, number in enumerate(numbers):
            length = int(mask[row].sum())
            yield number, encodings[row].ids[:length], hidden[row, :length]


def float_model(shipped: Path) -> Path:
    """Give the model with float activations, written beside the shipped one the first time.

    The shipped graph quantises activations over the whole batch, so that a vector depends on what else was in the
    batch. The same weights with float activations find 5 of 100 questions more.
    """
    made, note = shipped.with_name("model_float.onnx"), shipped.with_name("model_float.sha256")
    try:
        if note.read_text("ascii") == _sha256(made):
            return made
        log.warning("Found %s damaged: it is made anew", made, extra={"action": "embedder"})
    except FileNotFoundError:
        pass
    _write_float_model(shipped, made, note)
    return made


def _write_float_model(shipped: Path, made: Path, note: Path) -> None:
    import onnx

    model = onnx.load(str(shipped))
    _Rewriter(model.graph).rewrite()
    scratch = made.with_name(f"{made.name}.{os.getpid()}.{threading.get_ident()}")
    onnx.save(model, str(scratch))
    digest = _sha256(scratch)
    os.replace(scratch, made)
    note.write_text(digest, "ascii")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Rewriter:
    """Turns a graph with dynamic quantisation into one with the same weights and float activations.

    The weights stay int8 in the file; what makes them float is folded when the model is loaded.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._weights = {weight.name: weight for weight in graph.initializer}
        self._maker = {output: node for node in graph.node for output in node.output}
        self._users: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self._made: list[Any] = []
        self._dropped: set[int] = set()
        self._swapped: dict[int, Any] = {}

    def rewrite(self) -> None:
        for node in self._graph.node:
            if node.op_type == "MatMulInteger":
                self._matmul(node)
            elif node.op_type == "DequantizeLinear" and node.input[0] in self._weights:
                self._dequantise(node.input[0], node.input[1], node.input[2:3], into=node.output[0])
                self._dropped.add(id(node))
        kept = [self._swapped.get(id(node), node) for node in self._graph.node if id(node) not in self._dropped]
        nodes = [*self._made, *kept]
        live = {name for node in nodes for name in node.input}
        weights = [weight for weight in self._graph.initializer if weight.name in live]
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        del self._graph.initializer[:]
        self._graph.initializer.extend(weights)

    def _matmul(self, node: Any) -> None:
        """x -> DynamicQuantizeLinear -> MatMulInteger -> Cast -> Mul(scales) becomes x -> MatMul."""
        from onnx import helper

        quantise = self._maker[node.input[0]]
        [cast] = self._users[node.output[0]]
        [scale] = self._users[cast.output[0]]
        scales = self._maker[next(name for name in scale.input if name != cast.output[0])]
        factor = next(name for name in scales.input if name in self._weights)
        weight = f"{node.output[0]}_weight"
        self._dequantise(node.input[1], factor, node.input[3:4], into=weight)
        self._swapped[id(scale)] = helper.make_node("MatMul", [quantise.input[0], weight], [scale.output[0]])
        self._dropped |= {id(node), id(quantise), id(cast), id(scales)}

    def _dequantise(self, weight: str, scale: str, zero: Sequence[str], *, into: str) -> None:
        """Add the nodes for (weight - zero) x scale."""
        from onnx import TensorProto, helper

        def cast(name: str, output: str) -> str:
            self._made.append(helper.make_node("Cast", [name], [output], to=TensorProto.FLOAT))
            return output

        value = cast(weight, f"{into}_int")
        if zero:
            self._made.append(helper.make_node("Sub", [value, cast(zero[0], f"{into}_zero")], [f"{into}_level"]))
            value = f"{into}_level"
        self._made.append(helper.make_node("Mul", [value, scale], [into]))


def load_embedder(located: Callable[[], dict[str, Path] | None], *, threads: int = 2) -> Embedder | None:
    """Give the embedder, or None where the pack or the extra `semantic` is missing.

    `located` finds and checks the pack's files: `lambda: packs.located(packs.SEMANTIC, home / "models")`.
    """
    import importlib.util

    # Small products by many spinning threads take ten times as long on a busy machine. Heeded before numpy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if any(importlib.util.find_spec(part) is None for part in PARTS):
        return None
    files = located()
    if files is None:
        return None
    return Embedder.load(files["model_quantized.onnx"], files["tokenizer.json"], threads=threads)


def _return_memory() -> None:
    """Give what the C library keeps for later back to the system: 200 MB after loading, where it is glibc."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _ms(start: float) -> int:
    return round((time.monotonic() - start) * 1000)
