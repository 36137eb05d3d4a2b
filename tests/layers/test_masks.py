"""Masks: who sees whom, what becomes of a row that sees nothing, and float32 throughout."""

import numpy as np
import pytest
from backend import array, dtype_of, gradients, in_graph
from keras import KerasTensor, ops
from numpy_reference import visible_keys

from keras_transformer.layers import masks
from keras_transformer.layers.attention import masked_softmax

B, N, T, S = 2, 3, 5, 7


def scores(seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(scale=scale, size=(B, N, T, S)).astype("float32")


def boolean(*shape, seed=0):
    mask = np.random.default_rng(seed).random(shape) < 0.5
    mask[..., 0] = True
    return mask


def softmax(values, mask=True):
    """The definition, over the keys that may be seen, in float64; zeros where there are none."""
    values, mask = np.broadcast_arrays(np.float64(values), mask)
    powers = np.where(mask, np.exp(values - values.max(-1, keepdims=True)), 0)
    total = powers.sum(-1, keepdims=True)
    return np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)


@pytest.mark.parametrize("pad_id", [0, 4, 22])
def test_padding_mask_is_of_any_pad_id(pad_id):
    ids = np.array([[5, pad_id, pad_id], [7, 9, 11]])
    mask = array(masks.padding_mask(ids, pad_id))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, [[True, False, False], [True, True, True]])


def causal(queries, keys, first=0, window=None):
    """The mask of `queries` positions from `first` on, and of `keys` positions."""
    positions = first + ops.arange(queries)
    return masks.position_mask(positions, ops.arange(keys), causal=True, window=window)


def test_causal_mask_of_a_full_pass():
    mask = array(causal(3, 3))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


@pytest.mark.parametrize("window", [None, 1, 2, 7])
@pytest.mark.parametrize("position", [0, 1, 3, 6])
def test_causal_mask_of_one_query_sees_the_slots_so_far(position, window):
    expected = visible_keys(S, S, causal=True, window=window)[position : position + 1]
    np.testing.assert_array_equal(causal(1, S, position, window), expected)


def test_rows_of_the_full_mask_are_the_masks_of_the_steps():
    full = array(causal(S, S))
    for position in range(S - 2):
        np.testing.assert_array_equal(causal(3, S, position), full[position:][:3])


def test_causal_mask_takes_tensors():
    def mask_of(queries, keys, first_position):
        return causal(ops.shape(queries)[0], ops.shape(keys)[0], first_position)

    row, number = KerasTensor((None,), "bool"), KerasTensor((), "int32")
    call = in_graph(mask_of, signature=[row, row, number])
    mask = call(np.zeros(2, bool), np.zeros(5, bool), np.int32(1))
    np.testing.assert_array_equal(mask, [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])


def test_merge_is_the_logical_and():
    padding, causal = boolean(B, 1, S), boolean(1, T, S, seed=1)
    assert masks.merge() is None
    assert masks.merge(None, None) is None
    np.testing.assert_array_equal(masks.merge(padding, None), padding)
    np.testing.assert_array_equal(masks.merge(padding, causal), padding & causal)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_merge_makes_numbers_boolean(dtype):
    mask = boolean(B, T, S)
    np.testing.assert_array_equal(masks.merge(mask.astype(dtype)), mask)


@pytest.mark.parametrize("shape", [(B, 1, S), (1, T, S), (B, T, S), (B, N, T, S), (B, 1, T, S)])
def test_softmax_over_what_the_mask_leaves(shape):
    mask = boolean(*shape)
    aligned = mask if mask.ndim == 4 else mask[:, None]
    weights = array(masked_softmax(scores(), masks.with_heads(mask)))
    np.testing.assert_allclose(weights, softmax(scores(), aligned), atol=1e-6)
    assert np.all(weights[~np.broadcast_to(aligned, weights.shape)] == 0)


@pytest.mark.parametrize("shape", [(B, T, S), (B, N, T, S)])
def test_bias_is_added_and_masks_win_over_it(shape):
    bias = np.random.default_rng(3).normal(scale=2, size=shape).astype("float32")
    mask = boolean(B, 1, S)
    mask, bias = mask[:, None], bias if bias.ndim == 4 else bias[:, None]
    biased = scores() + bias
    np.testing.assert_allclose(masked_softmax(scores(), None, bias), softmax(biased), atol=1e-6)
    np.testing.assert_allclose(
        masked_softmax(scores(), mask, bias), softmax(biased, mask), atol=1e-6
    )


@pytest.mark.parametrize("score", [-20.0, 0.0, 3.0, 1e4, -1e4])
def test_a_row_without_keys_gives_zeros_and_no_gradient(score):
    mask = np.array([[[[True] * S]], [[[False] * S]]])
    values = scores() + np.float32(score)

    def loss(values):
        return ops.sum(masked_softmax(values, mask) * scores(seed=1))

    weights, (gradient,) = masked_softmax(values, mask), gradients(loss, values)
    np.testing.assert_array_equal(weights[1], np.zeros((N, T, S)))
    np.testing.assert_allclose(weights[0], softmax(values[0]), atol=1e-6)
    np.testing.assert_array_equal(gradient[1], np.zeros((N, T, S)))
    assert np.all(np.isfinite(gradient)) and np.any(gradient[0] != 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_scores_are_normalised_in_float32(dtype):
    low = ops.cast(scores() - 20, dtype)
    mask = boolean(B, 1, 1, S)
    bias = np.where(boolean(1, 1, T, S, seed=1), 0, -1e9).astype("float32")
    weights = masked_softmax(low, mask, bias)
    assert dtype_of(weights) == "float32"
    rounded = array(ops.cast(low, "float32"))
    expected = softmax(rounded + np.float64(bias), mask)
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_golden_softmax():
    # e^1 / (e^1 + e^2) and e^2 / (e^1 + e^2); the third key is masked.
    weights = masked_softmax(np.array([[[[1.0, 2, 3]]]]), np.array([[[1, 1, 0]]]) > 0)
    np.testing.assert_allclose(weights, [[[[0.268941, 0.731059, 0]]]], atol=1e-6)


def test_a_mask_of_two_sizes_is_refused():
    sizes = (2, 3, 5, 7)
    for name, check, given in (
        ("attention_mask", masks.checked_mask, np.ones((5, 7), bool)),
        ("attention_bias", masks.checked_bias, np.zeros((2, 7), "float32")),
    ):
        with pytest.raises(ValueError, match=rf"`{name}` must have shape.*Received: shape=\("):
            check(name, given, sizes)


def test_a_masked_score_never_wins_however_large():
    scores = np.array([[[[3e9, 1.0, 2.0]]]], "float32")
    weights = masked_softmax(scores, np.array([[[False, True, True]]]))
    assert float(weights[0, 0, 0, 0]) == 0.0


def test_a_row_of_minus_infinity_as_bias_is_not_nan():
    bias = np.full((1, 1, 3), -np.inf, "float32")
    assert np.isfinite(masked_softmax(np.ones((1, 2, 1, 3), "float32"), None, bias)).all()


def test_what_the_bias_forbids_never_meets_the_mask_as_an_equal():
    mask = np.array([[[True, False, False]]])
    bias = np.array([[[-np.inf, 0.0, 0.0]]], "float32")
    weights = masked_softmax(np.ones((1, 2, 1, 3), "float32"), mask, bias)
    np.testing.assert_array_equal(weights, np.zeros((1, 2, 1, 3)))
    alone = masked_softmax(np.ones((1, 2, 1, 3), "float32"), None, bias)
    np.testing.assert_allclose(alone[0, 0, 0], [0.0, 0.5, 0.5], atol=1e-6)
    forbidden = np.full_like(bias, -np.inf)
    nothing = masked_softmax(np.ones((1, 2, 1, 3), "float32"), None, forbidden)
    np.testing.assert_array_equal(nothing, np.zeros((1, 2, 1, 3)))
