"""`keras.RematScope`, which makes a layer compute again in the backward pass what it has dropped.

On TensorFlow Keras' modes but `"activations"` fail in a graph for every layer that is called with
keywords, Keras' own too, and in eager code they draw dropout again: `attention_chunk`, which
recomputes with the same masks, is the way there.
"""

import keras
import numpy as np
import pytest
from backend import tensorflow_only, value_and_gradients
from toy_model import D, F, H, N

from keras_transformer import layers

pytestmark = tensorflow_only("Keras' modes differ in what works on each backend")
INPUTS = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")


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


def test_a_model_trains_in_its_scope():
    with keras.RematScope(mode="activations"):
        inputs = keras.Input((None, D))
        model = keras.Model(inputs, layers.EncoderBlock(N, H, F, dropout=0.1)(inputs))
    model.compile("sgd", "mse", jit_compile=True)
    before = model.get_weights()
    assert np.isfinite(model.train_on_batch(INPUTS, np.zeros_like(INPUTS)))
    moved = [np.any(w != old) for w, old in zip(model.get_weights(), before, strict=True)]
    assert any(moved)
