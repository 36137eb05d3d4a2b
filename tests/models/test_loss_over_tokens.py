"""`loss` in logs: the mean over real tokens, whatever batches they fall into."""

import keras
import numpy as np
import pytest
from backend import NAME
from toy_model import BOS, PAD, V, sources, tokens, toy_config, toy_transformer

from keras_transformer.models import LanguageModel, TokenClassifier
from keras_transformer.training import RDropCrossEntropy, SmoothedCrossEntropy, TokenMeanLoss

ROWS, LENGTH = 6, 7


def data(seed=0):
    """Rows of 7 or of 2 real tokens, so that batches of 3 rows have unequal counts."""
    labels = tokens(np.random.default_rng(seed), ROWS, LENGTH)
    labels[::2, 2:] = PAD
    target_ids = np.insert(labels[:, :-1], 0, BOS, axis=1)
    return {"source_ids": sources([5] * ROWS), "target_ids": target_ids}, labels


def compiled(loss, model=None, rate=0.0, **options):
    model = model or toy_transformer(decoder_layers=1)
    model.compile(keras.optimizers.SGD(rate), loss, **options)
    return model


WEIGHTS = {
    "none": None,
    "rows": np.linspace(0.1, 2.0, ROWS, dtype="float32"),
    "tokens": np.linspace(0.1, 2.0, ROWS * LENGTH, dtype="float32").reshape(ROWS, LENGTH),
}
MODES = {
    "graph": (dict(jit_compile=False), WEIGHTS.values()),
    "xla": (dict(jit_compile=True), [WEIGHTS["tokens"]]),
    "eager": (dict(run_eagerly=True), [None]),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_fit_and_evaluate_give_the_mean_over_tokens(mode):
    (options, all_weights), (inputs, labels) = mode, data()
    loss = SmoothedCrossEntropy(0.1, PAD)
    model = compiled(loss, **options)
    logits = model.predict(inputs, verbose=0)
    for weights in all_weights:
        expected = pytest.approx(float(loss(labels, logits, weights)), rel=1e-5)
        given = dict(sample_weight=weights, batch_size=3, verbose=0)
        history = model.fit(inputs, labels, **given, validation_data=(inputs, labels, weights))
        assert history.history == {"loss": [expected], "val_loss": [expected]}
        assert model.evaluate(inputs, labels, **given) == expected


def test_what_is_added_to_the_loss_and_its_weight_are_in_the_figure():
    inputs, labels = data()
    loss = SmoothedCrossEntropy(0.1, PAD)
    model = toy_transformer(decoder_layers=1)
    model.get_layer("embedding").embeddings.regularizer = keras.regularizers.L2(0.1)
    compiled(loss, model, loss_weights=3.0)
    added = 0.1 * np.sum(model.get_layer("embedding").get_weights()[0] ** 2)
    mean = float(loss(labels, model.predict(inputs, verbose=0)))
    value = model.evaluate(inputs, labels, batch_size=3, verbose=0)
    assert value == pytest.approx(3 * mean + added, rel=1e-5)
    compiled(loss, model, loss_weights=0.0)
    value = model.evaluate(inputs, labels, batch_size=3, verbose=0)
    assert value == pytest.approx(added, rel=1e-5)


def test_r_drop_and_sums():
    inputs, labels = data()
    twice = {name: np.concatenate([ids, ids]) for name, ids in inputs.items()}
    labels = np.concatenate([labels, labels])
    plain, model = SmoothedCrossEntropy(0.1, PAD), toy_transformer(decoder_layers=1)
    logits = model.predict(twice, verbose=0)
    expected = pytest.approx(float(plain(labels, logits)), rel=1e-5)
    # Of equal passes the divergence is 0; of a sum the weights are a divisor.
    assert (
        compiled(RDropCrossEntropy(5.0, 0.1, PAD), model).test_on_batch(twice, labels) == expected
    )
    summed = compiled(SmoothedCrossEntropy(0.1, PAD, reduction="sum"), model)
    weights = np.repeat(np.float32([0.2, 0.5]), ROWS)
    value = summed.evaluate(twice, labels, sample_weight=weights, batch_size=5, verbose=0)
    assert value == expected
    # And of unequal ones it counts.
    logits[:ROWS] += np.linspace(0, 1, V)
    values, counts = RDropCrossEntropy(5.0, 0.1, PAD).values_and_weights(labels, logits)
    whole = float(RDropCrossEntropy(5.0, 0.1, PAD)(labels, logits))
    assert whole > float(plain(labels, logits)) + 0.05
    assert np.sum(np.asarray(values) * np.asarray(counts)) / np.sum(counts) == pytest.approx(whole)


def test_training_stays_what_it_was():
    inputs, labels = data()
    loss = SmoothedCrossEntropy(0.1, PAD)
    ours, theirs = (toy_transformer(decoder_layers=1) for _ in range(2))
    compiled(loss, ours, 0.3, jit_compile=False)
    plain = compiled(loss, keras.Model(theirs.inputs, theirs.outputs[0]), 0.3, jit_compile=False)
    for model in (ours, plain):
        model.fit(inputs, labels, batch_size=3, shuffle=False, verbose=0)
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_other_losses_are_keras_own():
    inputs, labels = data()
    model = compiled(SmoothedCrossEntropy(0.1, PAD))
    assert model.counted_loss is model.loss
    compiled("sparse_categorical_crossentropy", model)
    expected = float(
        keras.losses.SparseCategoricalCrossentropy()(labels, model.predict(inputs, verbose=0))
    )
    assert model.evaluate(inputs, labels, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_any_other_model_has_a_metric_for_it():
    inputs, labels = data()
    loss, ours = SmoothedCrossEntropy(0.1, PAD), toy_transformer(decoder_layers=1)
    plain = keras.Model(ours.inputs, ours.outputs[0])
    compiled(loss, plain, metrics=[TokenMeanLoss(0.1, PAD)])
    logs = plain.evaluate(inputs, labels, batch_size=3, verbose=0, return_dict=True)
    expected = float(loss(labels, ours.predict(inputs, verbose=0)))
    assert logs == {"loss": pytest.approx(expected, rel=1e-5)}


@pytest.mark.parametrize("kind", [LanguageModel, TokenClassifier])
def test_other_models_of_ids_and_after_loading(kind, tmp_path):
    inputs, labels = data()
    classes = () if kind is LanguageModel else (V,)
    model = kind(toy_config(decoder_layers=1), *classes)
    loss = SmoothedCrossEntropy(0.1, PAD)
    compiled(loss, model).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    logits = model.predict(inputs["target_ids"], verbose=0)
    value = loaded.evaluate(inputs["target_ids"], labels, batch_size=3, verbose=0)
    assert value == pytest.approx(float(loss(labels, logits)), rel=1e-5)
    assert NAME != "tensorflow" or len(loaded.variables) == len(model.variables)
