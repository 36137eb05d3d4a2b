"""Rounded weights: on the quantizer's grid, and nearer in what they compute than plain rounding."""

import numpy as np
import pytest

from keras_transformer.export.litert.gptq import rounded

BITS, GREATEST = 4, 7


@pytest.fixture(scope="module")
def case():
    """Weights (17, 23) with outliers, and the gram matrix of inputs that go together."""
    rng = np.random.default_rng(3)
    weight = rng.standard_t(3, (17, 23)).astype("float32")
    inputs = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 23)) + 0.3 * rng.normal(size=(400, 23))
    return weight, inputs, inputs.T @ inputs


def min_max(weight):
    """What the quantizer makes of weights: symmetric, a scale a row."""
    scale = np.abs(weight).max(axis=1, keepdims=True) / GREATEST
    return np.clip(np.round(weight / scale), -GREATEST, GREATEST) * scale


def loss(weight, near, inputs):
    return np.square(inputs @ (near - weight).T).mean()


def test_the_quantizer_loses_nothing_more(case):
    weight, _, gram = case
    near = rounded(weight, gram, BITS)
    np.testing.assert_allclose(min_max(near), near, rtol=1e-5, atol=1e-7)
    assert near.dtype == np.float32 and near.shape == weight.shape
    assert all(len(np.unique(np.abs(row).round(6))) <= GREATEST + 1 for row in near)


def test_products_change_less_than_by_plain_rounding(case):
    weight, inputs, gram = case
    plain = loss(weight, min_max(weight), inputs)
    blind = loss(weight, rounded(weight, None, BITS), inputs)
    seeing = loss(weight, rounded(weight, gram, BITS), inputs)
    assert blind < 0.93 * plain and seeing < 0.3 * blind


def test_no_other_scale_would_do_better(case):
    """The squared error of a row is least where its derivative by the scale is 0."""
    weight, _, gram = case
    near = rounded(weight, gram, BITS).astype("float64")
    gram = gram / np.trace(gram) * len(gram) + 0.01 * np.eye(len(gram))
    slope = ((near @ gram) * (weight - near)).sum(axis=1)
    assert np.abs(slope / ((near @ gram) * near).sum(axis=1)).max() < 1e-6


def test_rows_that_are_looked_up_stay_nearer_to_themselves(case):
    weight, _, gram = case
    errors = [
        np.square(rounded(weight, gram, BITS, is_looked_up=is_looked_up) - weight).sum()
        for is_looked_up in (False, True)
    ]
    assert errors[1] < 0.8 * errors[0]


def test_rows_are_independent(case):
    weight, _, gram = case
    many = np.tile(weight, (40, 1))  # more than are rounded at a time
    near = rounded(weight, gram, BITS)
    np.testing.assert_allclose(rounded(many, gram, BITS), np.tile(near, (40, 1)), rtol=1e-5)


def test_weights_on_the_grid_stay():
    weight = np.array([[7, -3, 0, 1], [-7, 7, 2, 5]], "float32") * [[0.5], [0.01]]
    np.testing.assert_allclose(rounded(weight, None, BITS), weight, rtol=1e-6)


def test_rows_of_zeros_and_inputs_that_never_came(case):
    weight, _, gram = case
    weight, gram = weight.copy(), gram.copy()
    weight[2] = 0
    gram[5], gram[:, 5] = 0, 0
    near = rounded(weight, gram, BITS)
    assert np.isfinite(near).all() and np.abs(near[2]).max() < 1e-30
    assert np.isfinite(rounded(weight, np.zeros_like(gram), BITS)).all()
