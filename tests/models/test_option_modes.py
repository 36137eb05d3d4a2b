"""Every option of a model, eager and compiled: the same numbers in every mode."""

import keras
import numpy as np
import pytest
from backend import in_graph
from toy_options import COMBINED, assert_near, batch, rebuilt, toy_logits

# What branches on its sizes or its numbers when it is traced.
QUICK = ("rotary, window, b2t", "alibi, chunk, additive", "relative, window, pre, batch")
QUICK += ("like Flan-T5", "like M2M-100 and mBART", "ssru, tensor2tensor", "packed, relative")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in COMBINED],
)
def test_eager_graph_predict_and_xla_agree(name):
    """On ids in the vocabulary, and on one that is not, which gives NaN to its own row only."""
    model, (source_ids, target_ids) = rebuilt(name), batch(name)
    wrong_ids = source_ids.copy()
    wrong_ids[0, 1] = model.config.vocab_size

    def check(function):
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        assert_near(function(inputs), toy_logits(name))
        actual = keras.ops.convert_to_numpy(function({**inputs, "source_ids": wrong_ids}))
        assert np.all(np.isnan(actual[0]))
        assert_near(actual[1:], toy_logits(name)[1:])

    ids = keras.KerasTensor((None, None), "int32")
    check(in_graph(model, of=model, signature=[{"source_ids": ids, "target_ids": ids}]))
    for jit in (False, True):
        model.compile(jit_compile=jit)
        check(lambda inputs: model.predict(inputs, verbose=0))
