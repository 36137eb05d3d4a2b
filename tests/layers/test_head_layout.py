"""Heads of a fused kernel that is split over devices: the same numbers as from the whole one."""

import keras
import numpy as np
import pytest
from backend import array, jax_only
from keras import ops
from toy_model import D, H, N, U

from keras_transformer.config import TransformerConfig
from keras_transformer.layers import MultiHeadSelfAttention, multi_head
from keras_transformer.training import layout_map

pytestmark = jax_only("TensorFlow has no `keras.distribution`")
INPUTS = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")


def layouts_of_one_device():
    device = keras.distribution.list_devices("cpu")[:1]
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), device)
    return layout_map(TransformerConfig.preset("tiny", vocab_size=11), mesh)


@pytest.mark.parametrize(
    "options", [dict(value_dim=U), dict(use_bias=False), dict(rotary=True, key_dim=14)], ids=str
)
def test_heads_are_the_same(options, monkeypatch):
    layer = MultiHeadSelfAttention(num_heads=N, **{"key_dim": H, **options}, name="self_attention")
    layer.build(INPUTS.shape)
    for index, weight in enumerate(layer.weights):
        weight.assign(np.random.default_rng(index).normal(size=weight.shape))
    expected = array(layer(INPUTS))
    by_head, widths = multi_head.project_by_head, []

    def recorded(projection, inputs, heads, *arguments):
        widths.append(arguments[0])
        return by_head(projection, inputs, heads, *arguments)

    monkeypatch.setattr(multi_head, "project_by_head", recorded)
    np.testing.assert_array_equal(array(layer(INPUTS)), expected)
    assert not widths  # nothing is split
    distribution = keras.distribution.ModelParallel(
        layout_map=layouts_of_one_device(), batch_dim_name="batch"
    )
    with distribution.scope():
        found = array(ops.cast(layer(INPUTS), "float32"))
    assert widths == [(layer.key_dim, layer.key_dim, layer.value_dim)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
