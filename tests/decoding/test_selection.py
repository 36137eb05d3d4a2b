"""The best of many scores, ties included."""

import numpy as np
import pytest
from backend import array, in_graph, tensor
from keras import ops

from keras_transformer.decoding.selection import (
    argmax,
    best_sums,
    gather_rows,
    log_total,
    one_hot_rows,
)
from keras_transformer.layers.lowering.tracing import ANYTHING, TENSORFLOW_CPU, XLA, traced


def expected_best(scores, offsets, count):
    """Sums, rows and columns by a stable sort of all sums."""
    sums = (scores + offsets[:, :, None]).reshape(len(scores), -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, :count]
    vocab_size = scores.shape[2]
    return np.take_along_axis(sums, order, axis=1), order // vocab_size, order % vocab_size


@pytest.mark.parametrize("vocab_size", [7, 512, 1001, 1536, 5003])
@pytest.mark.parametrize("batch, beams, count", [(1, 4, 4), (3, 2, 5), (2, 1, 1)])
@pytest.mark.parametrize("ties", [False, True])
def test_best_sums_equal_a_sort(vocab_size, batch, beams, count, ties):
    rng = np.random.default_rng(vocab_size + beams)
    run = in_graph(lambda scores, offsets: best_sums(scores, offsets, count))
    for _ in range(5):
        shape = (batch, beams, vocab_size)
        scores = rng.integers(0, 3, shape) if ties else rng.normal(size=shape)
        scores = scores.astype("float32")
        scores[:, :, -1] += 2  # the last block, which may not be full, counts too
        offsets = rng.integers(0, 2, (batch, beams)).astype("float32")
        found = [array(field) for field in run(tensor(scores), tensor(offsets))]
        for actual, expected in zip(found, expected_best(scores, offsets, count), strict=True):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("vocab_size", [7, 1001, 5003])
@pytest.mark.parametrize("banned", [[0], [0, 1, 2], [3, 700, 1000], [6, 4999]])
@pytest.mark.parametrize("batch, beams, count", [(1, 4, 4), (3, 2, 5), (2, 1, 1)])
def test_banned_scores_are_impossible_and_hide_no_other(vocab_size, banned, batch, beams, count):
    rng = np.random.default_rng(vocab_size + beams)
    banned = [index for index in banned if index < vocab_size]
    run = in_graph(lambda scores, offsets: best_sums(scores, offsets, count, banned))
    for highest in (9, 0):  # leads its block, or not even that
        scores = rng.integers(0, 3, (batch, beams, vocab_size)).astype("float32")
        scores[:, :, banned] += highest
        offsets = rng.integers(0, 2, (batch, beams)).astype("float32")
        found = [array(field) for field in run(tensor(scores), tensor(offsets))]
        scores[:, :, banned] = -1e30
        for actual, expected in zip(found, expected_best(scores, offsets, count), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_impossible_scores_come_last_and_padding_never():
    scores = np.full((1, 2, 1001), -1e30, "float32")
    scores[0, 1, 1000] = -5e29
    sums, rows, columns = (
        array(field) for field in best_sums(tensor(scores), tensor(np.zeros((1, 2), "float32")), 4)
    )
    np.testing.assert_array_equal(rows[0], [1, 0, 0, 0])
    np.testing.assert_array_equal(columns[0], [1000, 0, 1, 2])
    assert np.all(sums > -2e30)


@pytest.mark.parametrize("target", [ANYTHING, TENSORFLOW_CPU, XLA])
def test_argmax_takes_the_lowest_of_equals(target):
    scores = np.array([[1, 5, 2, 5], [0, 0, 0, 0], [-3, -2, -1, -1]], "float32")
    with traced(compiled_for=target):
        np.testing.assert_array_equal(argmax(tensor(scores)), [1, 0, 2])
        nothing = array(argmax(tensor(scores + np.nan)))
    assert np.all((nothing >= 0) & (nothing < 4))  # an id, whatever it is


@pytest.mark.parametrize("target", [ANYTHING, TENSORFLOW_CPU, XLA])
def test_log_total_is_that_of_the_exponentials(target):
    logits = np.random.default_rng(0).normal(size=(5, 703)).astype("float32")
    logits[1] *= 60  # exponentials beyond float32
    logits[2] -= 2000
    logits[3, 7] = 3000  # and one that is all there is
    logits[4] = -1e30
    logits[4, -1] = 0
    with traced(compiled_for=target):
        found = array(log_total(tensor(logits)))
    expected = np.logaddexp.reduce(logits.astype("float64"), axis=1)
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-6)


def test_gathered_rows_are_those_of_an_index():
    rng = np.random.default_rng(0)
    index = np.array([[2, 0], [1, 1]], "int32")
    for values in (rng.normal(size=(2, 3, 5)).astype("float32"), np.arange(6).reshape(2, 3)):
        values = tensor(values, None if values.dtype == "float32" else "int32")
        rows = array(gather_rows(one_hot_rows(tensor(index), 3), values))
        np.testing.assert_array_equal(rows, np.stack([array(values)[i][index[i]] for i in (0, 1)]))
    large = tensor(np.array([[2**24 - 1, 7]], "int32"))
    first = one_hot_rows(tensor(np.array([[0]], "int32")), 2)
    assert array(gather_rows(first, large))[0, 0] == 2**24 - 1
    assert ops.shape(large) == (1, 2)
