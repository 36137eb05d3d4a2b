"""The position-wise feed-forward network against its equation."""

import keras
import numpy as np
import pytest
from backend import array
from toy_model import D, F, U, randomise

from keras_transformer.layers import PositionwiseFFN

B, T = 2, 5
INPUTS = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")


def weights(layer):
    return [weight.numpy() for weight in layer.weights]


@pytest.mark.parametrize(("output_dim", "width"), [(None, D), (U, U)])
def test_equation_2(output_dim, width):
    layer = PositionwiseFFN(F, output_dim)
    layer(INPUTS)
    w1, b1, w2, b2 = weights(randomise(layer))
    assert (w1.shape, w2.shape) == ((D, F), (F, width))
    expected = np.maximum(INPUTS @ w1 + b1, 0) @ w2 + b2
    np.testing.assert_allclose(layer(INPUTS), expected, atol=1e-4)


def test_activation_and_no_bias():
    layer = PositionwiseFFN(F, activation="gelu", use_bias=False)
    layer(INPUTS)
    w1, w2 = weights(randomise(layer))
    expected = keras.activations.gelu(INPUTS @ w1) @ w2
    np.testing.assert_allclose(layer(INPUTS), expected, atol=1e-4)


@pytest.mark.parametrize("shape", [(D,), (B, D), (B, T, D), (B, 3, T, D)])
def test_any_rank_and_every_position_alike(shape):
    layer = PositionwiseFFN(F, U)
    layer(INPUTS)
    inputs = np.random.default_rng(1).normal(size=(2, *shape)).astype("float32")
    outputs = layer(inputs)
    assert outputs.shape == (2, *shape[:-1], U)
    rows = array(layer(inputs.reshape(-1, 1, D)))
    np.testing.assert_allclose(np.reshape(outputs, (-1, 1, U)), rows, atol=1e-5)


def test_dropout_is_of_the_inner_activations_and_of_training_only():
    layer = randomise(_built(PositionwiseFFN(F, dropout=0.5)))
    exact = layer(INPUTS)
    np.testing.assert_array_equal(layer(INPUTS, training=False), exact)
    w1, b1, w2, b2 = weights(layer)
    layer.dropout_layer.seed_generator.state.assign([3, 0])
    dropped = layer(INPUTS, training=True)
    layer.dropout_layer.seed_generator.state.assign([3, 0])
    hidden = array(layer.dropout_layer(np.maximum(INPUTS @ w1 + b1, 0), training=True))
    assert np.any(hidden == 0) and np.any(dropped != exact)
    np.testing.assert_allclose(dropped, hidden @ w2 + b2, atol=1e-4)


def test_kernels_start_with_different_values():
    layer = _built(PositionwiseFFN(D, kernel_initializer=keras.initializers.RandomNormal()))
    assert np.any(weights(layer)[0] != weights(layer)[2])


@pytest.mark.parametrize("size", [0, -3, 2.0, None])
def test_inner_width_is_checked(size):
    message = "`intermediate_dim` must be a positive integer. Received: intermediate_dim="
    with pytest.raises(ValueError, match=message):
        PositionwiseFFN(size)


def test_golden():
    layer = PositionwiseFFN(2)
    layer.build((None, None, 1))
    # relu([3, -3] + [1, 1]) = [4, 0]; 4 * 2 + 0 * 5 + 7 = 15
    for weight, value in zip(layer.weights, ([[1, -1]], [1, 1], [[2], [5]], [7]), strict=True):
        weight.assign(value)
    np.testing.assert_array_equal(layer(np.array([[[3.0]]])), [[[15]]])


def _built(layer):
    layer.build(INPUTS.shape)
    return layer
