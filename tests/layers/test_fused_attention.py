"""Attention in one kernel gives the numbers of our own ops, and is left where it cannot."""

import keras
import numpy as np
import pytest
from backend import array, gradients, jax_only, value_and_gradients
from keras import ops
from toy_model import sources, toy_transformer

import keras_transformer as kt
from keras_transformer.layers.lowering.fused_attention import fits
from keras_transformer.layers.masks import AttentionMask
from keras_transformer.training import fuse_attention
from keras_transformer.training.fused_attention import set_implementation

RNG = np.random.default_rng(3)
STATES = RNG.normal(size=(3, 7, 10)).astype("float32")
SOURCE = RNG.normal(size=(3, 5, 6)).astype("float32")
# The second row begins with a pad, so that its first query sees nothing if it is causal; the third
# is pads alone.
REAL = np.array([[True] * 7, [False] * 2 + [True] * 3 + [False] * 2, [False] * 7])[:, None]
ONE_HEAD_MASK = RNG.random((3, 1, 7, 7)) < 0.6
SELF = [
    dict(layer={}, call={}),
    dict(layer={}, call={"attention_mask": REAL}),
    dict(layer={}, call={"attention_mask": REAL, "use_causal_mask": True}),
    dict(layer={}, call={"attention_mask": ONE_HEAD_MASK}),
    dict(layer={"attention_window": 2}, call={"attention_mask": ONE_HEAD_MASK}),
    dict(layer={"attention_score": "dot_product"}, call={"use_causal_mask": True}),
    dict(layer={"rotary": True, "dropout": 0.5}, call={"attention_mask": REAL}),
]


@pytest.fixture
def calls(monkeypatch):
    """Of JAX's implementation, whose options they are."""
    import jax

    calls, attend = [], jax.nn.dot_product_attention

    def counted(*states, **options):
        calls.append(options)
        return attend(*states, **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", counted)
    return calls


@jax_only("a fused kernel")
@pytest.mark.parametrize("case", SELF, ids=str)
def test_self_attention_has_the_same_numbers_and_gradients(case, calls):
    attention = kt.MultiHeadSelfAttention(num_heads=2, key_dim=4, **case["layer"])
    attention.build(STATES.shape)
    weighted = RNG.normal(size=STATES.shape)

    def run(states):
        return attention(states, **case["call"])

    def scalar(states):
        return ops.sum(run(states) * weighted)

    expected, (gradient,) = array(run(STATES)), gradients(scalar, STATES)
    assert not calls
    attention.fused = "xla"
    np.testing.assert_allclose(array(run(STATES)), expected, atol=1e-6)
    np.testing.assert_allclose(gradients(scalar, STATES)[0], gradient, atol=1e-5)
    assert len(calls) == 2


@jax_only("a fused kernel")
def test_cross_attention_has_the_same_numbers_and_a_row_without_keys_gives_zeros(calls):
    attention = kt.CrossAttention(num_heads=2, key_dim=4)
    real = np.array([[True] * 5, [True, True, False, False, False], [False] * 5])[:, None]
    attention.build(STATES.shape, SOURCE.shape)
    expected = array(attention(STATES, SOURCE, attention_mask=real))
    attention.fused = "xla"
    found = array(attention(STATES, SOURCE, attention_mask=real))
    assert len(calls) == 1
    np.testing.assert_allclose(found, expected, atol=1e-6)
    bias = array(attention.output_projection.bias)
    np.testing.assert_array_equal(found[2], np.broadcast_to(bias, found[2].shape))


@jax_only("a fused kernel")
@pytest.mark.parametrize(
    "layer, call",
    [
        ({}, {"attention_bias": np.zeros((3, 7, 7), "float32")}),
        ({}, {"position_bias": np.zeros((2, 13), "float32")}),
        ({}, {"return_attention_scores": True}),
        ({"dropout": 0.5}, {"training": True}),
        ({"attention_score": "additive"}, {}),
        ({"value_dim": 3}, {}),
        ({"attention_chunk": 3}, {}),
        ({"attention_window": 3}, {}),
    ],
    ids=str,
)
def test_what_a_kernel_cannot_do_is_left_to_our_own_ops(layer, call, calls):
    attention = kt.MultiHeadSelfAttention(num_heads=2, key_dim=4, **layer)
    attention.fused = "xla"
    attention(STATES, **call)
    assert not calls


@pytest.mark.parametrize(
    "length, width, dtype, fits_cudnn",
    [
        (8, 64, "bfloat16", True),
        (8, 64, "float16", True),
        (8, 64, "float32", False),
        (7, 64, "bfloat16", False),
        (8, 20, "bfloat16", False),
        (8, 256, "bfloat16", False),
    ],
)
def test_cudnn_is_asked_for_what_it_can(length, width, dtype, fits_cudnn):
    states = [keras.KerasTensor((3, 2, length, width), dtype)] * 3
    assert fits("cudnn", states, AttentionMask(), "scaled_dot_product") is fits_cudnn


@jax_only("a fused kernel")
def test_a_model_has_the_same_loss_and_gradients(calls):
    model = toy_transformer(value_dim=None)
    labels = sources([4, 2, 0], width=5, seed=1)
    inputs = {"source_ids": sources([3, 6, 0]), "target_ids": labels}
    loss = kt.SmoothedCrossEntropy(0.1, pad_id=model.config.pad_id)

    def found():
        weights = model.trainable_variables
        return value_and_gradients(lambda: loss(labels, model(inputs, training=True)), weights)

    value, expected = found()
    set_implementation(model, "xla")
    fused_value, fused_gradients = found()
    assert len(calls) == model.config.encoder_layers + 2 * model.config.decoder_layers
    assert fused_value == pytest.approx(value, rel=1e-6)
    for one, other in zip(fused_gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_it_is_refused_without_a_gpu_and_without_attention():
    with pytest.raises(RuntimeError, match="`fuse_attention` needs the JAX backend and a GPU"):
        fuse_attention(toy_transformer())
    with pytest.raises(ValueError, match="`fuse_attention` is for a model with attention"):
        set_implementation(keras.Sequential([keras.layers.Dense(1)], name="plain"), "cudnn")
