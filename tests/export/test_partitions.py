"""Copies at the border of XNNPACK's part of a graph are left to LiteRT, and give the same."""

import json

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from keras_transformer.export.litert import flatbuffer
from keras_transformer.export.litert.conversion import float_file
from keras_transformer.export.litert.partitions import (
    _join_as_integers,
    border_copies,
    without_border_copies,
)

# Before, one in five of them gave a wrong text.
FRESH_RUNNERS = """
import json, sys
from keras_transformer_runner.runner import Runner
texts = json.loads(sys.argv[2])
print(json.dumps([Runner(sys.argv[1]).translate(texts) for _ in range(100)]))
"""


def test_fresh_runners_give_what_python_gives(device, live, texts, run_json):
    """Where a fresh runner's memory lies is chance, and must not show."""
    (answers,) = run_json(FRESH_RUNNERS, device.path, json.dumps(texts), package=True)
    assert {tuple(answer) for answer in answers} == {tuple(live.translate(texts))}


# --- Each kind of copy, between a cumulative sum, which is LiteRT's, and a product ----------------


def outer(values):
    return tf.cumsum(values, axis=-1)


def split(values):
    first, second = tf.split(outer(values), 2, axis=1)
    return outer(first * 2.0 + second)


KINDS = {
    "in": lambda values: outer(tf.reshape(outer(values), (-1, 2, 3)) * 2.0),
    "out": lambda values: outer(tf.reshape(outer(values) * 2.0, (-1, 2, 3))),
    "split": split,
    "concatenation": lambda values: outer(tf.concat([outer(values), outer(-values)], -1) * 2.0),
    "unlike": lambda values: outer(tf.concat([outer(values), outer(values[:, 2:])], 1) * 2.0),
    "chain": lambda values: outer(
        tf.reshape(tf.split(outer(values), 2, axis=1)[0], (-1, 3, 1)) * 2.0
    ),
}


def file_of(function):
    module = tf.Module()
    traced = tf.function(lambda values: {"outputs": function(values)})
    specification = tf.TensorSpec((None, 6), tf.float32, name="values")
    return float_file(module, {"run": traced.get_concrete_function(specification)})


def outputs(content, rows):
    run = Interpreter(model_content=content).get_signature_runner("run")
    return run(values=rows)["outputs"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_made_by_other_means(kind):
    content = file_of(KINDS[kind])
    model = flatbuffer.read(content)
    before = border_copies(model, 0)
    assert before
    assert without_border_copies(model) >= len(before)
    assert border_copies(model, 0) == []
    rewritten = flatbuffer.write(model)
    for rows in (1, 5):
        values = np.random.default_rng(rows).normal(size=(rows, 6)).astype("float32")
        expected = KINDS[kind](tf.constant(values)).numpy()
        np.testing.assert_allclose(outputs(content, values), expected, rtol=1e-5)
        np.testing.assert_array_equal(outputs(rewritten, values), outputs(content, values))


def test_copies_elsewhere_stay():
    """Inside of XNNPACK's part, and outside of it."""
    softmax = tf.nn.softmax
    inside = file_of(
        lambda values: outer(softmax(tf.reshape(softmax(outer(values)), (-1, 3))) + 1.0)
    )
    outside = file_of(lambda values: outer(tf.reshape(outer(values), (-1, 2, 3))) * 2.0)
    for content in (inside, outside):
        model = flatbuffer.read(content)
        assert "RESHAPE" in flatbuffer.op_names(model)
        assert without_border_copies(model) == 0
        assert flatbuffer.write(model) == flatbuffer.write(flatbuffer.read(content))


def test_only_float32_can_be_joined_otherwise():
    model = flatbuffer.read(file_of(KINDS["concatenation"]))
    (op,) = border_copies(model, 0)
    model.subgraphs[0].tensors[op.inputs[1]].type = schema.TensorType.INT8
    with pytest.raises(RuntimeError, match="must be of float32. Received: type 9"):
        _join_as_integers(model, model.subgraphs[0], op)
