"""The exponential moving average of the weights, which is what is validated and kept."""

import keras
import numpy as np
import pytest
from toy_updates import PAD, as_dataset, make_batches, new_model, section

from keras_transformer.training.callbacks import SwapAverages
from keras_transformer.training.data import weighted_for_accumulation
from keras_transformer.training.objective import compile_model
from keras_transformer.training.state import current_weights


def test_the_average_of_the_weights_where_the_loss_is_scaled():
    model = new_model(dtype="mixed_float16")
    compile_model(model, section(ema=0.5))
    (batch,) = make_batches([5])
    for _ in range(3):
        model.train_on_batch(*batch)
    assert type(model.optimizer) is keras.optimizers.LossScaleOptimizer
    averages = model.optimizer.inner_optimizer._model_variables_moving_average
    for ours, average in zip(current_weights(model), averages, strict=True):
        np.testing.assert_array_equal(ours, average)
    assert not np.array_equal(current_weights(model)[0], model.get_weights()[0])


def test_averages_and_weights_change_places_to_the_last_bit():
    model = new_model()
    compile_model(model, section(ema=0.5))
    model.optimizer.build(model.trainable_variables)
    averages = model.optimizer._model_variables_moving_average
    for average in averages:
        average.assign(np.random.default_rng(1).normal(scale=1e-6, size=average.shape))
    before = model.get_weights(), [np.array(average) for average in averages]
    swap = SwapAverages()
    swap.set_model(model)
    for begins, expected in ((True, before[::-1]), (False, before)):
        (swap.on_test_begin if begins else swap.on_test_end)()
        found = model.get_weights(), [np.array(average) for average in averages]
        for one, other in zip(found, expected, strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 2])
def test_the_average_of_the_weights_goes_by_updates(batches):
    model = new_model()
    compile_model(model, section(ema=0.64, accumulate_batches=batches))
    momentum = {1: 0.64, 2: 0.8}[batches]  # two steps of 0.8 are one of 0.64
    data = list(make_batches([5] * 6))
    if batches > 1:
        data = weighted_for_accumulation(as_dataset(data), batches, PAD)
    for number, batch in enumerate(data):
        model.train_on_batch(*batch)
        weights = model.get_weights()
        if number < batches:  # up to the first update the average is the weights themselves
            expected = weights
        else:
            pairs = zip(expected, weights, strict=True)
            expected = [momentum * mean + (1 - momentum) * weight for mean, weight in pairs]
    for ours, mean, weight in zip(
        current_weights(model), expected, model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(ours, mean, atol=1e-6)
        assert not np.array_equal(ours, weight)


def test_without_an_average_the_weights_are_what_is_kept():
    model = new_model()
    compile_model(model, section())
    for ours, weight in zip(current_weights(model), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, weight)
