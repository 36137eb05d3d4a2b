"""Every option of a model, eager and compiled: the same numbers in every mode."""

import keras
import numpy as np
import pytest
from toy_options import OPTIONS, SAME_OPERATIONS, assert_near, batch, toy, toy_logits

# XLA takes more than a second for a model: a quick run leaves out what another option covers.
compiled_option = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SAME_OPERATIONS else [])
        for name in OPTIONS
    ],
)


@compiled_option
def test_eager_graph_predict_and_xla_agree(name):
    """On ids in the vocabulary, and on one that is not, which gives NaN to its own row only."""
    model, (source_ids, target_ids) = toy(name), batch(name)
    wrong_ids = source_ids.copy()
    wrong_ids[0, 1] = model.config.vocab_size

    def check(function):
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        assert_near(function(inputs), toy_logits(name))
        actual = keras.ops.convert_to_numpy(function({**inputs, "source_ids": wrong_ids}))
        assert np.all(np.isnan(actual[0]))
        assert_near(actual[1:], toy_logits(name)[1:])

    check(graph(model))
    for jit in (False, True):
        model.compile(jit_compile=jit)
        check(lambda inputs: model.predict(inputs, verbose=0))


def graph(model):
    """The model as a function of ids of unknown shape. Here alone a backend is named."""
    if keras.backend.backend() != "tensorflow":
        return model
    import tensorflow as tf

    ids = tf.TensorSpec((None, None), "int32")
    return tf.function(model, input_signature=[{"source_ids": ids, "target_ids": ids}])
