"""Weights copied into `keras.layers.MultiHeadAttention` give the same output, for everything that
it supports."""

import itertools

import keras
import numpy as np
import pytest
from backend import array
from toy_model import D, F, H, N, U, randomise

from keras_transformer.layers import CrossAttention, MultiHeadSelfAttention

B, T, S, E, G = 2, 5, 7, 29, 31


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


TARGET, SOURCE, KEYS = normal(B, T, D), normal(B, S, E, seed=1), normal(B, S, G, seed=2)


def masks(keys):
    """No mask, padding, one row a query, and both; none leaves a query without keys, where Keras
    gives the mean of all values instead of zeros."""
    padding = np.arange(keys) < np.array([[[keys]], [[3]]])
    band = np.arange(T)[:, None] >= np.arange(keys) - 2
    return [None, padding, band[None], padding & band]


WIDTHS = [
    dict(value_dim=value_dim, output_dim=output_dim, use_bias=use_bias)
    for value_dim, output_dim, use_bias in itertools.product((None, U), (None, F), (True, False))
]
CALLS = [
    dict(use_causal_mask=causal, return_attention_scores=scores)
    for causal, scores in itertools.product((False, True), (False, True))
]


def keras_attention(layer, *shapes):
    """Keras' layer with the weights of ours.

    On JAX, without dropout, it calls a fused operation that refuses values wider than keys.
    """
    refused = keras.backend.backend() == "jax" and layer.value_dim != layer.key_dim
    peer = keras.layers.MultiHeadAttention(
        layer.num_heads,
        layer.key_dim,
        layer.value_dim,
        dropout=0.3 if refused else layer.dropout,
        use_bias=layer.use_bias,
        output_shape=layer.output_dim,
    )
    peer.build(*shapes)
    values = {weight.path.split("/", 1)[1]: array(weight) for weight in layer.trainable_weights}
    for part in ("kernel", "bias"):
        if f"query_key_value/{part}" in values:
            edges = np.cumsum([layer.num_heads * layer.key_dim] * 2)
            thirds = np.split(values.pop(f"query_key_value/{part}"), edges, axis=-1)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                values[f"{name}/{part}"] = third
    for weight in peer.trainable_weights:
        name = weight.path.split("/", 1)[1].replace("attention_output", "output")
        weight.assign(values.pop(name).reshape(weight.shape))
    assert not values
    return peer


def assert_equal(ours, theirs):
    ours, theirs = (out if isinstance(out, tuple) else (out,) for out in (ours, theirs))
    for actual, expected in zip(ours, theirs, strict=True):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(array(actual), array(expected), atol=1e-5)


@pytest.mark.quick(4)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_self_attention(widths, dropout):
    layer = MultiHeadSelfAttention(N, H, dropout=dropout, **widths)
    layer.build(TARGET.shape)
    peer = keras_attention(randomise(layer), TARGET.shape, TARGET.shape)
    for mask, call in itertools.product(masks(T), CALLS):
        arguments = dict(attention_mask=mask, training=False, **call)
        assert_equal(layer(TARGET, **arguments), peer(TARGET, TARGET, **arguments))
    if not dropout and not (keras.backend.backend() == "jax" and widths["value_dim"]):
        arguments["training"] = True
        assert_equal(layer(TARGET, **arguments), peer(TARGET, TARGET, **arguments))


@pytest.mark.quick(6)
@pytest.mark.parametrize("keys", [None, KEYS], ids=["values as keys", "keys"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_cross_attention(widths, dropout, keys):
    shapes = [TARGET.shape, SOURCE.shape, None if keys is None else keys.shape]
    layer = CrossAttention(N, H, dropout=dropout, **widths)
    layer.build(*shapes)
    peer = keras_attention(randomise(layer), *shapes)
    for mask, scores in itertools.product(masks(S), (False, True)):
        arguments = dict(attention_mask=mask, return_attention_scores=scores, training=False)
        assert_equal(
            layer(TARGET, SOURCE, keys, **arguments), peer(TARGET, SOURCE, keys, **arguments)
        )


def test_dropout_in_training_is_keras_dropout_in_the_mean():
    """The masks are drawn differently; what they do to the output, on average, is not."""
    layer = MultiHeadSelfAttention(N, H, dropout=0.3)
    layer.build(TARGET.shape)
    peer = keras_attention(randomise(layer), TARGET.shape, TARGET.shape)
    inputs = np.repeat(TARGET[:1], 3000, axis=0)
    ours, theirs = array(layer(inputs, training=True)), array(peer(inputs, inputs, training=True))
    spread = theirs.std(axis=0)
    assert spread.min() > 1e-2
    assert (
        np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).max() < 6 * spread.max() * (2 / 3000) ** 0.5
    )
    np.testing.assert_allclose(ours.std(axis=0), spread, rtol=0.15)
