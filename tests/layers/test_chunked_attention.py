"""Attention in chunks and in windows equals plain attention, in numbers and in gradients."""

import keras
import numpy as np
import pytest
from backend import array, compiled, gradients, in_graph
from toy_model import D, H, N, U, randomise

from keras_transformer.layers import CrossAttention, MultiHeadSelfAttention
from keras_transformer.layers.masks import position_mask

B, T, S = 2, 13, 11
WIDTHS = dict(num_heads=N, key_dim=H, value_dim=U)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


INPUTS, SOURCE = normal(B, T, D), normal(B, S, D, seed=1)
PADDING = np.arange(T) < np.array([[[T]], [[5]]])  # (B, 1, T)
MASKS = {
    "none": {},
    "padding": dict(attention_mask=PADDING),
    "padding by head": dict(attention_mask=PADDING[:, None]),
    "a row a query": dict(attention_mask=PADDING & (normal(B, T, T, seed=2) > -1)),
    "bias": dict(attention_bias=normal(B, N, T, T, seed=3)),
    "position bias": dict(position_bias=normal(N, 2 * T - 1, seed=4)),
    "all": dict(
        attention_mask=PADDING,
        attention_bias=normal(1, T, T, seed=3),
        position_bias=normal(N, 2 * T - 1, seed=4),
    ),
}


def pair(layer_class=MultiHeadSelfAttention, long=None, **arguments):
    """The same layer twice: plain, and with `long` options."""
    layers = []
    for options in ({}, long):
        layer = layer_class(**WIDTHS, **arguments, **options)
        layer.build(*([INPUTS.shape] if layer_class is MultiHeadSelfAttention else
                      [INPUTS.shape, SOURCE.shape]))  # fmt: skip
        layers.append(randomise(layer))
    return layers


@pytest.mark.quick(20)
@pytest.mark.parametrize("attention_chunk", [1, 4, 12, 13, 50])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_chunks_equal_plain_attention(mask, causal, attention_chunk):
    plain, chunks = pair(long=dict(attention_chunk=attention_chunk))
    expected = array(plain(INPUTS, use_causal_mask=causal, **mask))
    actual = array(chunks(INPUTS, use_causal_mask=causal, **mask))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.quick(24)
@pytest.mark.parametrize("attention_window", [1, 2, 5, 12, 13, 50])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_windows_equal_plain_attention_with_a_band_mask(mask, causal, attention_window):
    plain, window = pair(long=dict(attention_window=attention_window))
    positions = np.arange(T)
    band = np.abs(positions[:, None] - positions) < attention_window
    band = band & mask.get("attention_mask", True)
    arguments = dict(mask, attention_mask=band if band.ndim > 2 else band[None])
    expected = array(plain(INPUTS, use_causal_mask=causal, **arguments))
    actual = array(window(INPUTS, use_causal_mask=causal, **mask))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


LONG = {"chunks": dict(attention_chunk=4), "windows": dict(attention_window=T - 1)}


@pytest.mark.quick(3)
@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
@pytest.mark.parametrize("score", ["scaled_dot_product", "additive"])
@pytest.mark.parametrize("run", [lambda run: run, in_graph, compiled])
def test_gradients_equal_those_of_plain_attention(long, score, run):
    """Of inputs, of biases, of every weight: nothing that is recomputed loses its gradient."""
    plain, layer = pair(long=long, attention_score=score, rotary=False)
    biases = [normal(N, 2 * T - 1, seed=4)]
    if "attention_window" in long:  # the plain layer sees all but the farthest token
        band = position_mask(
            np.arange(T), np.arange(T), causal=True, window=long["attention_window"]
        )
    weigh = normal(B, T, D, seed=6)

    def gradients_of(layer, mask):
        def loss(inputs, position_bias, *values):
            with keras.StatelessScope(list(zip(layer.trainable_weights, values, strict=True))):
                outputs = layer(
                    inputs,
                    attention_mask=mask,
                    position_bias=position_bias,
                    use_causal_mask=True,
                    training=True,
                )
            return keras.ops.sum(outputs * weigh)

        values = [array(weight) for weight in layer.trainable_weights]
        return gradients(loss, INPUTS, *biases, *values, wrap=run)

    mask = array(band)[None] if "attention_window" in long else None
    for actual, expected in zip(gradients_of(layer, None), gradients_of(plain, mask), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-4)
        assert np.any(expected != 0)


@pytest.mark.parametrize("attention_chunk", [1, 4, 50])
def test_cross_attention_in_chunks(attention_chunk):
    plain, chunks = pair(CrossAttention, long=dict(attention_chunk=attention_chunk))
    mask = np.arange(S) < np.array([[[4]], [[0]]])  # the second source is empty
    expected = array(plain(INPUTS, SOURCE, attention_mask=mask))
    actual = array(chunks(INPUTS, SOURCE, attention_mask=mask))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_dropout_is_on_in_training_at_its_rate(long):
    """Weights of 1 on values of 1: the mean output is 1 whatever is dropped, and it varies."""
    layer = MultiHeadSelfAttention(num_heads=2, key_dim=4, dropout=0.3, **long)
    inputs = normal(20, T, 8)
    layer.build(inputs.shape)
    still = array(layer(inputs, training=False))
    np.testing.assert_array_equal(still, array(layer(inputs, training=False)))
    draws = [array(layer(inputs, training=True)) for _ in range(40)]
    assert np.abs(draws[0] - draws[1]).max() > 1e-3
    error = np.abs(np.mean(draws, axis=0) - still).mean()
    assert error < 0.35 * np.abs(draws[0] - still).mean()


def test_chunks_drop_different_weights():
    layer = MultiHeadSelfAttention(num_heads=1, key_dim=3, dropout=0.5, attention_chunk=4)
    inputs = np.ones((1, 16, 3), "float32")
    layer.build(inputs.shape)
    outputs = array(layer(inputs, training=True))[0]
    rows = {tuple(np.round(row, 5)) for row in outputs}
    assert len(rows) > 4  # of 16 equal queries; the same mask in every chunk would leave 4


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
def test_scores_are_those_of_plain_attention(long):
    plain, layer = pair(long=long)
    outputs, scores = layer(INPUTS, use_causal_mask=True, return_attention_scores=True)
    assert scores.shape == (B, N, T, T)
    np.testing.assert_allclose(outputs, layer(INPUTS, use_causal_mask=True), atol=1e-5)


@pytest.mark.parametrize("long", [dict(attention_chunk=3), dict(attention_window=3)])
def test_lengths_that_the_graph_does_not_know(long):
    _, layer = pair(long=long)
    call = in_graph(
        lambda inputs, mask: layer(inputs, attention_mask=mask),
        signature=[keras.KerasTensor((None, None, D)), keras.KerasTensor((None, 1, None), "bool")],
    )
    for length in (1, 2, 3, 7, 9):
        inputs, mask = INPUTS[:, :length], PADDING[:, :, :length]
        expected = array(layer(inputs, attention_mask=mask))
        np.testing.assert_allclose(array(call(inputs, mask)), expected, atol=1e-5)


def test_one_way_at_a_time():
    with pytest.raises(
        ValueError, match="at most one of `attention_chunk` and `attention_window`.*5 and 7"
    ):
        MultiHeadSelfAttention(2, 3, attention_chunk=5, attention_window=7)


@pytest.mark.parametrize("name", ["attention_chunk", "attention_window"])
@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_sizes_are_checked(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer. Received: {name}="):
        MultiHeadSelfAttention(2, 3, **{name: value})
