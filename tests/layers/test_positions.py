"""Sinusoidal positions: the paper's table, any width, any length, distinct in any precision."""

import keras
import numpy as np
import pytest
from backend import array, dtype_of, tensorflow_only
from keras import ops

from keras_transformer.layers import LearnedPositions, SinusoidalPositions
from keras_transformer.layers.positions import rotate, sinusoidal_encoding


def table(length, dim):
    """Section 3.5 of the paper, in float64."""
    column = np.arange(dim)
    angles = np.arange(length)[:, None] / 10000.0 ** (2 * (column // 2) / dim)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 7, 8, 11])
def test_equals_the_table(dim):
    encoding = sinusoidal_encoding(np.arange(53), dim)
    assert dtype_of(encoding) == "float32"
    np.testing.assert_allclose(encoding, table(53, dim), atol=1e-5)


def test_has_no_longest_position():
    encoding = array(SinusoidalPositions()(np.zeros((1, 3001, 5), "float32")))[0]
    np.testing.assert_allclose(encoding, table(3001, 5), atol=3e-4)
    assert len(np.unique(encoding, axis=0)) == 3001


@pytest.mark.parametrize("first", [0, 1, 7])
def test_first_position_continues_the_sequence(first):
    layer, inputs = SinusoidalPositions(), np.random.default_rng(0).normal(size=(2, 13, 11))
    inputs = inputs.astype("float32")
    full = layer(inputs)
    for position in (first, ops.convert_to_tensor(first, "int32")):
        part = layer(inputs[:, first : first + 3], first_position=position)
        np.testing.assert_array_equal(part, full[:, first : first + 3])


@pytest.mark.parametrize(
    ("policy", "length"), [("mixed_bfloat16", 600), ("mixed_float16", 2100), ("float32", 2100)]
)
def test_neighbours_are_distinct_and_rounded_once(policy, length):
    layer = SinusoidalPositions(dtype=policy)
    encoding = layer(np.zeros((1, length, 11), "float32"))[0]
    assert dtype_of(encoding) == layer.compute_dtype
    exact = ops.cast(sinusoidal_encoding(np.arange(length), 11), layer.compute_dtype)
    encoding, exact = (np.float32(ops.cast(x, "float32")) for x in (encoding, exact))
    np.testing.assert_array_equal(encoding, exact)
    assert len(np.unique(encoding, axis=0)) == length


def test_the_sum_is_rounded_once():
    layer = SinusoidalPositions(dtype="mixed_bfloat16")
    inputs = ops.cast(np.full((1, 300, 3), 3.140625), "bfloat16")
    exact = ops.cast(3.140625 + sinusoidal_encoding(np.arange(300), 3), "bfloat16")
    actual, exact = (ops.cast(x, "float32") for x in (layer(inputs)[0], exact))
    np.testing.assert_array_equal(actual, exact)


GOLDEN = {  # position 1
    1: [0.841471],
    2: [0.841471, 0.540302],
    5: [0.841471, 0.540302, 0.025116, 0.999685, 0.000631],
    7: [0.841471, 0.540302, 0.071906, 0.997411, 0.005179, 0.999987, 0.000373],
}


@pytest.mark.parametrize(("dim", "row"), GOLDEN.items())
def test_golden_odd_widths(dim, row):
    encoding = SinusoidalPositions()(np.zeros((1, 2, dim), "float32"))
    np.testing.assert_allclose(encoding[0, 0], np.arange(dim) % 2, atol=1e-7)
    np.testing.assert_allclose(encoding[0, 1], row, atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("make", [SinusoidalPositions, lambda **k: LearnedPositions(300, **k)])
def test_positions_of_any_dtype_are_whole(make, policy):
    """Keras makes an input of them float32 by default, and would round it to the policy's."""
    layer, inputs, positions = make(dtype=policy), np.zeros((1, 300, 6), "float32"), np.arange(300)
    expected = array(ops.cast(layer(inputs, positions=positions), "float32"))
    actual = array(ops.cast(layer(inputs, positions=positions.astype("float32")), "float32"))
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(ValueError, match="`positions` must be whole numbers. Received: 1.5"):
        layer(inputs[:, :2], positions=np.array([0, 1.5]))
    given = keras.Input((None, 6)), keras.Input((None,))
    model = keras.Model(given, layer(given[0], positions=given[1]))
    places = np.array([[0, 1.5, 2, np.nan, 3e9, 3]], "float32")
    actual = model.predict([inputs[:, :6], places], verbose=0).astype("float32")
    np.testing.assert_array_equal(np.isnan(actual).all(axis=2), [[0, 1, 0, 1, 1, 0]])
    np.testing.assert_array_equal(actual[0, [0, 2, 5]], expected[0, [0, 2, 3]])


@tensorflow_only("float64, which JAX has where it is switched on")
def test_float64_stays_float64():
    states = np.full((1, 3, 4), 1 / 3)
    found = array(SinusoidalPositions(dtype="float64")(states))
    np.testing.assert_allclose(found[0, 0], 1 / 3 + np.array([0, 1, 0, 1]), rtol=1e-15)
    rotated = array(rotate(keras.ops.convert_to_tensor(states[None], "float64"), [0, 1, 2]))
    np.testing.assert_array_equal(rotated[0, 0, 0], states[0, 0])
