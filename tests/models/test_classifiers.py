"""The encoder alone: pads count for nothing, and a class for each row or each token."""

import keras
import numpy as np
import pytest
from backend import array
from toy_model import PAD, D, frozen_toy, randomise, sources, toy_config

from keras_transformer import SequenceClassifier, TokenClassifier

C, S = 5, 7
BOTH = [SequenceClassifier, TokenClassifier]
OPTIONS = [dict(), dict(positions="rotary", key_dim=14), dict(positions="relative"),
           dict(attention_window=3), dict(attention_chunk=2), dict(residual="pre")]  # fmt: skip


def classifier(kind, **changes):
    return randomise(kind(toy_config(**changes), C))


@pytest.mark.quick(4)
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", BOTH)
def test_pads_and_batch_mates_change_nothing(kind, changes):
    model, ids = classifier(kind, **changes), sources([S, 3, 5])
    logits = array(model(ids))
    assert logits.shape == ((3, C) if kind is SequenceClassifier else (3, S, C))
    assert logits.dtype == "float32" and model.output.dtype == "float32"
    padded = array(model(np.pad(ids, ((0, 0), (0, 4)), constant_values=PAD)))
    for row, length in enumerate((S, 3, 5)):
        alone = array(model(ids[[row], :length]))[0]
        for other in (logits[row], padded[row]):
            other = other if kind is SequenceClassifier else other[:length]
            np.testing.assert_allclose(other, alone, atol=1e-5)
    assert np.abs(logits[0] - logits[1]).max() > 1e-2


def test_a_row_of_pads_has_the_logits_of_a_zero_mean():
    model = classifier(SequenceClassifier)
    logits = array(model(sources([4, 0])))
    np.testing.assert_allclose(logits[1], array(model.get_layer("classes").bias), atol=1e-6)


def test_the_sequence_is_the_mean_of_its_tokens():
    """Projection and mean are linear, so they may change places."""
    by_token, by_sequence = classifier(TokenClassifier), classifier(SequenceClassifier)
    by_sequence.set_weights(by_token.get_weights())
    ids = sources([S])
    mean = array(by_token(ids)).mean(axis=1)
    np.testing.assert_allclose(array(by_sequence(ids)), mean, atol=1e-5)


def test_the_encoder_is_that_of_a_transformer():
    """Weights of the same names: what one has learnt, the other can go on with."""
    transformer, model = frozen_toy(), classifier(TokenClassifier)
    for layer in model.layers:
        if layer.weights and layer.name != "classes":
            layer.set_weights(transformer.get_layer(layer.name).get_weights())
    model.get_layer("classes").set_weights([np.eye(D, C), np.zeros(C)])
    ids = sources([S])
    expected = array(transformer.encode(ids).states)[..., :C]
    np.testing.assert_allclose(array(model(ids)), expected, atol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", BOTH)
def test_trains_and_is_saved(kind, tmp_path):
    """Whether a row has an odd id somewhere, or which token it is."""
    keras.utils.set_random_seed(3)
    model = kind(toy_config(encoder_layers=1, model_dim=12, num_heads=2, key_dim=6), C)
    ids = sources([S] * 40)
    labels = ids % C if kind is TokenClassifier else ids[:, 0] % C
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(ids, labels, epochs=60, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(loaded(ids)), array(model(ids)))
    assert loaded.get_config() == model.get_config() and loaded.num_classes == C


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("value", [0, -1, 2.5, None])
def test_classes_are_checked(kind, value):
    with pytest.raises(ValueError, match="`num_classes` must be a positive integer. Received"):
        kind(toy_config(), value)
