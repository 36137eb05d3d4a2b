import re

import keras
import numpy as np
import pytest
from backend import compiled, gradients, in_graph, tensorflow_only

from keras_transformer.training import (
    PaperSchedule,
    Perplexity,
    RDropCrossEntropy,
    SmoothedCrossEntropy,
    TokenAccuracy,
    TokenMeanLoss,
)
from keras_transformer.training.loss import token_log_likelihood

RNG = np.random.default_rng(3)
LOGITS = np.array([[[2, 1, 0, -1, -2]]], "float32")


def batch(rows=3, length=5, vocab=7, pad_id=0):
    labels = RNG.integers(1, vocab, (rows, length)).astype("int32")
    labels[0, 2:] = labels[2, 4:] = pad_id
    return labels, RNG.normal(size=(rows, length, vocab)).astype("float32") * 2


def loss_and_gradient(loss, labels, logits, jit=False):
    run = compiled if jit else in_graph
    value = run(lambda labels, logits: loss(labels, logits))(labels, logits)
    (gradient,) = gradients(lambda logits: loss(labels, logits), logits, wrap=run)
    return float(value), gradient


@pytest.mark.parametrize(("smoothing", "expected"), [(0.0, 0.451914), (0.1, 0.651914)])
def test_formula_of_keras_and_pytorch(smoothing, expected):
    loss = SmoothedCrossEntropy(smoothing, pad_id=4)
    np.testing.assert_allclose(float(loss(np.array([[0]]), LOGITS)), expected, atol=1e-6)


def test_equals_the_dense_loss_of_keras():
    labels, logits = batch()
    labels[labels == 0] = 3  # no pads
    dense = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    ours = SmoothedCrossEntropy(0.1)(labels, logits)

    np.testing.assert_allclose(float(ours), float(dense(np.eye(7)[labels], logits)), rtol=1e-5)


def test_divides_by_real_tokens():
    # Losses [[1, 1, pad, pad], [2, 2, 2, 2]]: the mean is 10 / 6, not 10 / 8 and not 1.5.
    def logits_for(loss):
        return [np.log(np.exp(-loss)), np.log(1 - np.exp(-loss)), -np.inf]

    logits = np.array([[logits_for(1.0)] * 4, [logits_for(2.0)] * 4], "float32")
    labels = np.array([[0, 0, 2, 2], [0, 0, 0, 0]])

    value = SmoothedCrossEntropy(0.0, pad_id=2)(labels, logits)

    np.testing.assert_allclose(float(value), 10 / 6, rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_pad_columns_change_neither_loss_nor_gradient(jit):
    labels, logits = batch()
    loss = SmoothedCrossEntropy(0.1)
    value, gradient = loss_and_gradient(loss, labels, logits, jit)

    wide_labels = np.pad(labels, ((0, 1), (0, 3)))
    wide_logits = np.pad(logits, ((0, 1), (0, 3), (0, 0)), constant_values=5.0)
    wide_value, wide_gradient = loss_and_gradient(loss, wide_labels, wide_logits, jit)

    np.testing.assert_allclose(wide_value, value, rtol=1e-6)
    np.testing.assert_allclose(wide_gradient[:-1, :-3], gradient, atol=1e-7)
    assert not wide_gradient[-1].any() and not wide_gradient[:, -3:].any()


@pytest.mark.quick(2)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("rubbish", [1e20, -1e20, np.inf, np.nan])
def test_what_stands_at_pads_does_not_matter(rubbish, jit):
    labels, logits = batch()
    loss = SmoothedCrossEntropy(0.1)
    value, gradient = loss_and_gradient(loss, labels, logits, jit)

    poisoned = np.where((labels == 0)[..., None], np.float32(rubbish), logits)
    poisoned_value, poisoned_gradient = loss_and_gradient(loss, labels, poisoned, jit)

    assert poisoned_value == value
    np.testing.assert_array_equal(poisoned_gradient, gradient)


@pytest.mark.parametrize("jit", [False, True])
def test_a_batch_of_pads_gives_zero_and_moves_nothing(jit):
    model = keras.Sequential([keras.Input((4, 3)), keras.layers.Dense(7)])
    model.compile(
        keras.optimizers.Adam(PaperSchedule(5)), SmoothedCrossEntropy(0.1), jit_compile=jit
    )
    before = model.get_weights()

    value = model.train_on_batch(np.full((2, 4, 3), 1e20), np.zeros((2, 4), "int32"))

    assert float(value) == 0.0
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_half_precision_logits_are_computed_in_float32():
    labels = np.array([[1, 2]])
    logits = RNG.normal(size=(1, 2, 32000)).astype("float16")
    logits[0, 0, 5] = 60000
    loss = SmoothedCrossEntropy(0.1)

    value, gradient = loss_and_gradient(loss, labels, logits)

    np.testing.assert_allclose(value, float(loss(labels, logits.astype("float32"))), rtol=1e-6)
    assert keras.backend.standardize_dtype(loss(labels, logits).dtype) == "float32"
    assert np.isfinite(gradient).all()


def test_any_pad_id():
    labels, logits = batch()
    value = SmoothedCrossEntropy(0.1)(labels, logits)
    moved = np.where(labels == 0, 6, np.where(labels == 6, 0, labels))
    swapped = logits[..., [6, 1, 2, 3, 4, 5, 0]]
    np.testing.assert_allclose(
        float(SmoothedCrossEntropy(0.1, pad_id=6)(moved, swapped)), float(value), rtol=1e-6
    )


def test_sample_weights_weigh_tokens():
    labels, logits = batch()
    loss = SmoothedCrossEntropy(0.1)

    only_second = loss(labels, logits, sample_weight=np.array([0.0, 2.0, 0.0]))
    per_token = loss(labels, logits, sample_weight=np.repeat([[0.0], [1.0], [0.0]], 5, axis=1))

    expected = float(loss(labels[1:2], logits[1:2]))
    np.testing.assert_allclose([float(only_second), float(per_token)], expected, rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "label",
    [
        *(-1, 7, 1.6, 0.4),
        pytest.param(2**32 + 3, marks=tensorflow_only("JAX has no integers of 64 bits")),
    ],
)
def test_a_label_outside_the_vocabulary_never_counts_as_another_one(label, jit):
    labels, logits = batch()
    labels = labels.astype("float32" if isinstance(label, float) else "int64")
    labels[1, 1] = label
    assert np.isnan(loss_and_gradient(SmoothedCrossEntropy(0.1), labels, logits, jit)[0])


def test_log_likelihood_is_shared():
    labels, logits = batch()
    chosen, mean = token_log_likelihood(labels, logits)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean, log_probabilities.mean(-1), rtol=1e-5, atol=1e-6)


def test_call_gives_the_loss_of_each_slot():
    labels, logits = batch()
    losses = SmoothedCrossEntropy(0.1).call(labels, logits)
    assert losses.shape == labels.shape
    assert not np.asarray(losses)[labels == 0].any()


@pytest.mark.parametrize("labels", [[["a", "b"]], np.array([["a", "b"]])])
def test_text_labels_get_advice(labels):
    with pytest.raises(ValueError, match="tokenize in tf.data"):
        SmoothedCrossEntropy()(labels, np.zeros((1, 2, 7), "float32"))


def test_smoothing_must_be_a_rate():
    with pytest.raises(ValueError, match=r"must be a rate in \[0, 1\). Received: .*=1.0"):
        SmoothedCrossEntropy(1.0)


def test_config_survives():
    loss = SmoothedCrossEntropy(0.2, pad_id=3, name="mine")
    config = keras.losses.serialize(loss)
    again = keras.losses.deserialize(config)
    assert again.get_config() == loss.get_config()


WRONG_LABELS = {
    "(B, T, 1)": lambda labels: labels[..., None],
    "one-hot": lambda labels: np.eye(7, dtype="int32")[labels],
    "(B,)": lambda labels: labels[:, 0],
    "(B, T + 1)": lambda labels: np.pad(labels, ((0, 0), (0, 1))),
    "(1, T)": lambda labels: labels[:1],
}


@pytest.mark.parametrize("metric", [None, TokenAccuracy, Perplexity, TokenMeanLoss])
@pytest.mark.parametrize("wrong", WRONG_LABELS.values(), ids=WRONG_LABELS)
def test_labels_of_another_shape_are_named(wrong, metric):
    labels, logits = batch()
    wrong = wrong(labels)
    message = (
        r"labels must be token ids of shape \(B, T\) for logits \(B, T, V\).*"
        f"Received: the shape {re.escape(str(wrong.shape))} for logits of shape .3, 5, 7."
    )
    call = metric().update_state if metric else SmoothedCrossEntropy()
    with pytest.raises(ValueError, match=message):
        call(wrong, logits)


@pytest.mark.parametrize("shape", [(3, 5, 1), (5,), (3, 2), (3, 5, 7), (5, 3)])
def test_weights_of_another_shape_are_named(shape):
    labels, logits = batch()
    message = (
        r"`sample_weight` must have the shape \(B,\).* or \(B, T\).*Received: the shape "
        f"{re.escape(str(shape))} for labels of shape .3, 5."
    )
    for call in (SmoothedCrossEntropy(), TokenAccuracy().update_state):
        with pytest.raises(ValueError, match=message):
            call(labels, logits, sample_weight=np.ones(shape))


def test_weights_that_broadcast():
    labels, logits = batch()
    loss, rows = SmoothedCrossEntropy(), np.array([0.5, 2.0, 3.0])
    expected = float(loss(labels, logits, rows))
    assert float(loss(labels, logits, rows[:, None])) == pytest.approx(expected, rel=1e-6)
    assert float(loss(labels, logits, 0.5)) == pytest.approx(float(loss(labels, logits)), rel=1e-6)


def test_ragged_labels_and_weights_are_refused():
    tf = pytest.importorskip("tensorflow")
    labels, logits = batch()
    ragged = tf.ragged.constant([[1, 2], [3], [4]])
    with pytest.raises(ValueError, match=r"labels must be .*Received: a ragged .*`to_tensor`"):
        SmoothedCrossEntropy()(ragged, logits)
    with pytest.raises(ValueError, match=r"`sample_weight` must .*Received: a ragged tensor"):
        SmoothedCrossEntropy()(labels, logits, sample_weight=ragged)


@tensorflow_only("a graph for arrays of any rank")
def test_weights_of_rows_and_of_tokens_on_one_compiled_model():
    model = keras.Sequential([keras.Input((5, 3)), keras.layers.Dense(7)])
    model.compile("sgd", SmoothedCrossEntropy(), weighted_metrics=[TokenAccuracy()])
    inputs, (labels, _) = RNG.normal(size=(3, 5, 3)).astype("float32"), batch()
    loss = SmoothedCrossEntropy()
    for weights in (np.ones(3), np.ones((3, 5)), RNG.random(3), RNG.random((3, 5))):
        expected = float(loss(labels, model(inputs), weights))
        value, _ = model.train_on_batch(inputs, labels, sample_weight=weights.astype("float32"))
        assert float(value) == pytest.approx(expected, rel=1e-5)
    model.train_on_batch(inputs, labels)
    with pytest.raises(ValueError, match="Received: the shape of unknown rank for logits"):
        model.train_on_batch(inputs, labels[..., None])


def test_a_class_a_row_is_no_token():
    """Class 0 would count as a pad, and be left out without a word."""
    labels, logits = np.array([0, 1, 2]), np.zeros((3, 3), "float32")
    for loss in (SmoothedCrossEntropy(0.0), RDropCrossEntropy(1.0), TokenAccuracy()):
        with pytest.raises(
            ValueError, match=r"must be \(B, T, V\), of tokens; for one class a row"
        ):
            loss(labels, logits)
