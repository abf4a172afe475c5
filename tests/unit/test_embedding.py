"""A quantised graph is rewritten to float activations with the same weights, once, and made anew when damaged."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bot.drivers.embedding import float_model, load_embedder

WEIGHTS = np.array([[10, -20], [30, 40], [-50, 60]], np.int8)
TABLE = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)


@pytest.fixture
def shipped(tmp_path):
    """A small graph as dynamic quantisation leaves it: a dequantised table, then a quantised product."""
    nodes = [
        helper.make_node("DequantizeLinear", ["table", "table_scale", "table_zero"], ["table_float"]),
        helper.make_node("Gather", ["table_float", "ids"], ["x"]),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["x_q", "x_scale", "x_zero"]),
        helper.make_node("MatMulInteger", ["x_q", "w", "x_zero", "w_zero"], ["y_int"]),
        helper.make_node("Cast", ["y_int"], ["y_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x_scale", "w_scale"], ["scales"]),
        helper.make_node("Mul", ["y_float", "scales"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(TABLE, "table"),
        numpy_helper.from_array(np.float32(0.5), "table_scale"),
        numpy_helper.from_array(np.uint8(2), "table_zero"),
        numpy_helper.from_array(WEIGHTS, "w"),
        numpy_helper.from_array(np.float32(0.1), "w_scale"),
        numpy_helper.from_array(np.int8(5), "w_zero"),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [None])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph(nodes, "g", [ids], [y], weights)
    path = tmp_path / "model_quantized.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def run(path, ids):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"ids": np.array(ids, np.int64)})[0]


def test_the_rewritten_graph_computes_with_the_same_weights_exactly(shipped):
    table = (TABLE.astype(np.float32) - 2) * 0.5
    weights = (WEIGHTS.astype(np.float32) - 5) * np.float32(0.1)
    assert np.allclose(run(float_model(shipped), [0, 1]), table @ weights, atol=1e-5)


def test_a_row_no_longer_depends_on_its_batch(shipped):
    made = float_model(shipped)
    assert np.array_equal(run(made, [0])[0], run(made, [0, 1])[0])
    assert not np.allclose(run(shipped, [0])[0], run(shipped, [0, 1])[0], atol=1e-5)


def test_the_graph_is_rewritten_once_and_again_when_it_is_damaged(shipped):
    made = float_model(shipped)
    before = made.stat().st_mtime_ns
    assert float_model(shipped).stat().st_mtime_ns == before
    made.write_bytes(made.read_bytes()[:-1])
    assert run(float_model(shipped), [0]).shape == (1, 2)


def test_without_the_pack_there_is_no_embedder():
    assert load_embedder(lambda: None) is None
