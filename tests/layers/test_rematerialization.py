"""Layers that compute again in the backward pass what they have dropped, with equal results.

Our own way is `training.rematerialize`. Of Keras' `keras.RematScope`, on TensorFlow, the modes but
`"activations"` fail in a graph for every layer that is called with keywords, Keras' own too, and in
eager code they draw dropout again.
"""

import keras
import numpy as np
import pytest
from backend import tensorflow_only, value_and_gradients
from toy_model import D, F, H, N, sources, targets, toy_transformer

from keras_transformer import layers
from keras_transformer.training import SmoothedCrossEntropy, rematerialize

SMALL = dict(encoder_layers=1, decoder_layers=1)
DROPOUT = dict(dropout=0.3, attention_dropout=0.3, intermediate_dropout=0.3)
CASES = {
    "relative": dict(positions="relative"),
    "packed, ssru, pre": dict(packed=True, decoder_recurrence="ssru", residual="pre"),
    "chunk, alibi": dict(attention_chunk=2, positions="alibi"),
}
INPUTS = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")


@pytest.mark.quick(1)
@tensorflow_only("on JAX, where dropout's seeds are state, `fit` is compared")
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_blocks_that_recompute_give_the_same_loss_and_gradients(options):
    """With dropout: the masks of the second time are those of the first, and so are the next."""
    inputs = {"source_ids": sources([5, 3]), "target_ids": targets(2, 5)}
    loss = SmoothedCrossEntropy(0.1, pad_id=0)

    def two_steps(recompute):
        keras.utils.set_random_seed(1)
        model = toy_transformer(**SMALL, **DROPOUT, **options)
        if recompute:
            rematerialize(model)

        def step():
            return loss(inputs["target_ids"], model(inputs, training=True))

        return [value_and_gradients(step, model.trainable_variables) for _ in range(2)]

    for (value, plain), (again, found) in zip(two_steps(False), two_steps(True), strict=True):
        assert again == pytest.approx(value, rel=1e-6)
        for actual, expected in zip(found, plain, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.release
def test_fit_is_the_same_under_xla():
    inputs = {"source_ids": sources([5, 3]), "target_ids": targets(2, 5)}

    def trained(recompute):
        keras.utils.set_random_seed(1)
        model = toy_transformer(**SMALL, **DROPOUT)
        if recompute:
            rematerialize(model)
        model.compile("sgd", SmoothedCrossEntropy(0.1, pad_id=0), jit_compile=True)
        history = model.fit(inputs, inputs["target_ids"], epochs=3, verbose=0)
        return history.history["loss"], model.get_weights()

    (losses, weights), (again, found) = trained(False), trained(True)
    assert losses == pytest.approx(again, rel=1e-6)
    for actual, expected in zip(found, weights, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_what_cannot_recompute_says_so():
    with pytest.raises(ValueError, match="does not go with batch normalization.*in encoder_0"):
        rematerialize(toy_transformer(normalization="batch"))
    with pytest.raises(ValueError, match="is for a model with blocks. Received: plain, which"):
        rematerialize(keras.Sequential([keras.layers.Dense(1)], name="plain"))


@tensorflow_only("Keras' modes differ in what works on each backend")
@pytest.mark.parametrize(
    "options", [{}, dict(attention_chunk=2), dict(normalization="batch")], ids=str
)
def test_gradients_are_the_same(options):
    """With dropout: the masks of the second time are those of the first."""

    def gradients(scope):
        keras.utils.set_random_seed(1)
        with keras.RematScope(mode="activations") if scope else keras.name_scope("plain"):
            layer = layers.EncoderBlock(N, H, F, dropout=0.3, attention_dropout=0.3, **options)
            layer.build(INPUTS.shape)
        return value_and_gradients(
            lambda: keras.ops.sum(layer(INPUTS, training=True) ** 2), layer.trainable_weights
        )

    (loss, plain), (again, found) = gradients(False), gradients(True)
    assert loss == pytest.approx(again, rel=1e-5)
    for actual, expected in zip(found, plain, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-4)


@tensorflow_only("Keras' modes differ in what works on each backend")
def test_a_model_trains_in_its_scope():
    with keras.RematScope(mode="activations"):
        inputs = keras.Input((None, D))
        model = keras.Model(inputs, layers.EncoderBlock(N, H, F, dropout=0.1)(inputs))
    model.compile("sgd", "mse", jit_compile=True)
    before = model.get_weights()
    assert np.isfinite(model.train_on_batch(INPUTS, np.zeros_like(INPUTS)))
    moved = [np.any(w != old) for w, old in zip(model.get_weights(), before, strict=True)]
    assert any(moved)
