"""Dropout by hashing: the rate, the scale, and masks that depend on nothing but the seed."""

import itertools

import numpy as np
import pytest
from backend import array, compiled, dtype_of, gradients, in_graph
from keras import ops

from keras_transformer.layers import Dropout
from keras_transformer.layers.dropout import keep_mask

SHAPE = (7, 11, 13, 101)
COUNT = np.prod(SHAPE)


def seed(*words):
    return np.array(words, "uint32")


def correlation(first, second):
    """Pearson's r of two masks, in units of its standard deviation for independent masks."""
    return np.corrcoef(first.ravel(), second.ravel())[0, 1] * np.sqrt(first.size)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("words", [(0, 0), (1, 0), (0, 1), (2**32 - 1, 12345)])
def test_rate(rate, words):
    kept = array(keep_mask(SHAPE, rate, seed(*words)))
    assert kept.shape == SHAPE and kept.dtype == bool
    assert abs(kept.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / COUNT)
    for axis in range(4):  # no row, column or head is treated differently
        others = tuple(other for other in range(4) if other != axis)
        means = kept.mean(others)
        spread = np.sqrt(rate * (1 - rate) * SHAPE[axis] / COUNT)
        assert np.abs(means - (1 - rate)).max() < 5 * spread


def test_masks_of_different_seeds_are_independent():
    seeds = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (7, 3), (2**31, 0)]
    kept = [array(keep_mask(SHAPE, 0.5, seed(*words))) for words in seeds]
    for first, second in itertools.combinations(kept, 2):
        assert abs(correlation(first, second)) < 5


def test_masks_are_not_windows_of_one_sequence():
    """No 64 neighbours of one of 2000 masks occur in another, nor at another place."""
    seeds = np.stack([np.full(2000, 7), np.arange(2000)], axis=1).astype("uint32")
    kept = ops.vectorized_map(lambda words: keep_mask((3000,), 0.5, words), seeds)
    kept = array(kept).astype("uint64")
    length = 1
    while length < 64:  # bits of the neighbours so far, and of as many more
        kept = (kept[:, :-length] << np.uint64(length)) | kept[:, length:]
        length *= 2
    assert np.all(np.diff(np.sort(kept, axis=None)))


def test_elements_are_independent_of_their_neighbours():
    kept = array(keep_mask((COUNT,), 0.3, seed(3, 5)))
    for lag in (1, 2, 3, 8, 64, 101, 1024):
        assert abs(correlation(kept[lag:], kept[:-lag])) < 5


def test_kept_elements_are_scaled_and_the_mean_stays():
    inputs = np.random.default_rng(0).normal(1, 0.1, size=SHAPE).astype("float32")
    outputs = array(Dropout(0.2, seed=1)(inputs, training=True))
    kept = outputs != 0
    np.testing.assert_allclose(outputs[kept], inputs[kept] / 0.8, rtol=1e-6)
    assert abs(outputs.mean() - 1) < 0.01


@pytest.mark.parametrize("rate", [0, 0.3])
@pytest.mark.parametrize("training", [False, None])
def test_passes_everything_when_not_training(rate, training):
    inputs = np.random.default_rng(0).normal(size=(5, 7)).astype("float32")
    np.testing.assert_array_equal(Dropout(rate)(inputs, training=training), inputs)
    np.testing.assert_array_equal(Dropout(0)(inputs, training=True), inputs)


def test_each_call_drops_other_elements_and_a_seed_repeats_the_sequence():
    inputs = np.ones((7, 11), "float32")
    first, second = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    calls = [array(first(inputs, training=True)) for _ in range(4)]
    for one, other in itertools.combinations(calls, 2):
        assert np.any(one != other)
    for expected in calls:
        np.testing.assert_array_equal(second(inputs, training=True), expected)
    assert np.any(Dropout(0.5, seed=4)(inputs, training=True) != calls[0])


@pytest.mark.parametrize("jit", [False, True])
def test_a_graph_draws_the_same_masks_and_moves_on(jit):
    inputs = np.ones((7, 11), "float32")
    eager, traced = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    run = compiled if jit else in_graph
    call = run(lambda inputs: traced(inputs, training=True), of=traced)
    for _ in range(3):
        np.testing.assert_array_equal(call(inputs), eager(inputs, training=True))


def test_gradient_goes_through_kept_elements_only():
    inputs = np.ones((7, 11), "float32")
    layer, same = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    (gradient,) = gradients(lambda inputs: ops.sum(layer(inputs, training=True)), inputs)
    np.testing.assert_array_equal(gradient, same(inputs, training=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision(dtype):
    inputs = ops.ones((7, 11), dtype)
    outputs = Dropout(0.5, seed=3, dtype=dtype)(inputs, training=True)
    assert dtype_of(outputs) == dtype
    exact = Dropout(0.5, seed=3)(np.ones((7, 11), "float32"), training=True)
    np.testing.assert_array_equal(ops.cast(outputs, "float32"), exact)


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan"), "0.1", None])
def test_rate_is_checked(rate):
    with pytest.raises(ValueError, match=r"`rate` must be a rate in \[0, 1\)\. Received: rate="):
        Dropout(rate)
