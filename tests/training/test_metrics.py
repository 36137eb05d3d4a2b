import keras
import numpy as np
import pytest
from backend import compiled, floatx, in_graph

import keras_transformer.training as training
from keras_transformer.training import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
    TokenMeanLoss,
)

RNG = np.random.default_rng(5)
VOCAB = 7


def logits_with_loss(loss):
    """Three logits: the first has the given negative log-likelihood."""
    return [-loss, np.log(1 - np.exp(-loss)), -30.0]


def data(rows=6, length=5):
    inputs = RNG.normal(size=(rows, length, 3)).astype("float32")
    labels = RNG.integers(1, VOCAB, (rows, length)).astype("int32")
    for row in range(rows):
        labels[row, row + 1 :] = 0
    return inputs, labels


def compiled_model():
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(VOCAB)])
    model.compile(
        "sgd", SmoothedCrossEntropy(), metrics=[TokenMeanLoss(), TokenAccuracy(), Perplexity()]
    )
    return model


def test_mean_over_tokens_of_all_batches():
    # 6 tokens with a sum of 10, then 2 with a sum of 8: 18 / 8, and not the mean of batch means.
    metric = TokenMeanLoss(0.0, pad_id=2)
    first = np.array([[1.0] * 4, [3.0, 3.0, 9.0, 9.0]])
    labels = np.where(first == 9.0, 2, 0)
    metric.update_state(labels, np.array([[logits_with_loss(x) for x in row] for row in first]))
    metric.update_state(np.zeros((1, 2)), np.array([[logits_with_loss(4.0)] * 2]))
    np.testing.assert_allclose(float(metric.result()), 2.25, rtol=1e-5)


def test_evaluate_does_not_depend_on_batch_size_or_order():
    model = compiled_model()
    inputs, labels = data()
    expected = model.evaluate(inputs, labels, batch_size=6, verbose=0, return_dict=True)

    for batch_size in (1, 2, 4):
        logs = model.evaluate(inputs, labels, batch_size=batch_size, verbose=0, return_dict=True)
        assert logs == pytest.approx(expected, rel=1e-5)
    logs = model.evaluate(inputs[::-1], labels[::-1], batch_size=4, verbose=0, return_dict=True)
    assert logs == pytest.approx(expected, rel=1e-5)


def test_values_by_numpy():
    model = compiled_model()
    inputs, labels = data()
    logits = model.predict(inputs, verbose=0)
    real = labels != 0
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probabilities, labels[..., None], -1)[..., 0]
    smoothed = -0.9 * chosen - 0.1 * log_probabilities.mean(-1)

    logs = model.evaluate(inputs, labels, batch_size=4, verbose=0, return_dict=True)

    assert logs == pytest.approx(
        {
            "loss": smoothed[real].mean(),
            "token_accuracy": (logits.argmax(-1) == labels)[real].mean(),
            "perplexity": np.exp(-chosen[real].mean()),
        },
        rel=1e-5,
    )


def test_history_has_the_mean_over_tokens():
    model = compiled_model()
    inputs, labels = data()
    model.optimizer.learning_rate = 0.0
    expected = model.evaluate(inputs, labels, batch_size=6, verbose=0, return_dict=True)
    history = model.fit(
        inputs, labels, batch_size=4, verbose=0, validation_data=(inputs, labels)
    ).history
    assert history["loss"] == pytest.approx([expected["loss"]], rel=1e-5)
    assert history["val_loss"] == pytest.approx([expected["loss"]], rel=1e-5)


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity, TokenMeanLoss])
def test_pads_never_count(metric_class):
    labels = np.array([[3, 1, 0, 0]])
    logits = RNG.normal(size=(1, 4, VOCAB)).astype("float32")
    alone, padded = metric_class(), metric_class()
    alone.update_state(labels[:, :2], logits[:, :2])
    logits[:, 2:] = np.nan
    padded.update_state(labels, logits)
    assert float(padded.result()) == float(alone.result())


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity, TokenMeanLoss])
def test_a_pad_id_that_is_no_row_of_the_logits(metric_class):
    labels = np.array([[3, 1, 0, 0]])
    logits = RNG.normal(size=(1, 4, VOCAB)).astype("float32")
    inside, outside = metric_class(pad_id=0), metric_class(pad_id=-100)
    inside.update_state(labels, logits)
    outside.update_state(np.where(labels == 0, -100, labels), logits)
    assert float(outside.result()) == float(inside.result())


@pytest.mark.parametrize(
    ("metric", "expected"), [(TokenAccuracy(), 0.0), (Perplexity(), 1.0), (TokenMeanLoss(), 0.0)]
)
def test_no_token_at_all_is_finite(metric, expected):
    metric.update_state(np.zeros((2, 3)), np.zeros((2, 3, VOCAB)))
    assert float(metric.result()) == expected


@pytest.mark.parametrize("metric_class", [TokenAccuracy, Perplexity, TokenMeanLoss])
def test_floatx_changes_no_result(metric_class):
    labels = np.ones((300, 300), "int32")  # more tokens than float16 has numbers
    logits = np.eye(VOCAB, dtype="float32")[labels - np.arange(300) % 3 // 2]
    results = []
    for name in ("float32", "float64", "float16"):
        with floatx(name):
            metric = metric_class()
            metric.update_state(labels, logits)
            results.append(float(metric.result()))
    assert results == [pytest.approx(results[0])] * 3


def test_sample_weights():
    labels = np.array([[1, 2], [3, 4]])
    logits = np.zeros((2, 2, VOCAB))
    logits[0, 0, 1] = logits[0, 1, 5] = logits[1, 0, 3] = logits[1, 1, 4] = 5.0
    metric = TokenAccuracy()
    metric.update_state(labels, logits, sample_weight=np.array([1.0, 3.0]))
    assert float(metric.result()) == pytest.approx(7 / 8)


def test_a_label_is_right_when_nothing_is_likelier():
    labels = np.array([[1, 2, 3, 4, 6]])
    logits = RNG.normal(size=(1, 5, VOCAB))
    logits[0, 0, 1] = 9.0
    logits[0, 1, 2] = -9.0
    logits[0, 2, 3] = logits[0, 2, 5] = 9.0  # it shares the first place
    logits[0, 3, 4] = np.nan
    logits[0, 4, 6] = 9.0
    logits[0, 4, 0] = np.inf
    metric = TokenAccuracy()
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(2 / 5)


@pytest.mark.parametrize("jit", [False, True])
def test_a_label_outside_the_vocabulary_is_never_right(jit):
    run = compiled if jit else in_graph
    labels = np.array([[VOCAB, -1, 10**6, 2, 0.4]], "float32")
    logits = np.full((1, 5, VOCAB), -3.0, "float32")  # a label that is none has the logit 0
    right, real = run(TokenAccuracy().values)(labels, logits)
    np.testing.assert_array_equal(right, [[0, 0, 0, 1, 0]])
    assert np.all(real)
    metric = Perplexity()
    metric.update_state(labels, logits)
    assert np.isnan(float(metric.result()))


EXPORTED = [
    metric
    for name in training.__all__
    if isinstance(metric := getattr(training, name), type)
    and issubclass(metric, keras.metrics.Metric)
]
CALLBACKS = {
    "EarlyStopping": lambda path, **options: keras.callbacks.EarlyStopping(**options),
    "ModelCheckpoint": lambda path, **options: keras.callbacks.ModelCheckpoint(
        path / "best.weights.h5", save_best_only=True, save_weights_only=True, **options
    ),
    "ReduceLROnPlateau": lambda path, **options: keras.callbacks.ReduceLROnPlateau(**options),
}


@pytest.mark.parametrize("callback", CALLBACKS.values(), ids=CALLBACKS)
@pytest.mark.parametrize("metric", EXPORTED)
@pytest.mark.parametrize("monitor", ["val_mine", "mine"])
def test_callbacks_know_the_direction(metric, callback, monitor, tmp_path):
    assert {TokenAccuracy, Perplexity, TokenMeanLoss} <= set(EXPORTED)
    better = 1 if metric is TokenAccuracy else -1
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(VOCAB)])
    model.compile("sgd", SmoothedCrossEntropy(), metrics=[metric(name="mine")], run_eagerly=True)
    model.test_on_batch(*data(2))  # makes Keras build the metrics
    automatic, told = (
        callback(tmp_path, monitor=monitor, mode=mode)
        for mode in ("auto", {1: "max", -1: "min"}[better])
    )
    for each in (automatic, told):
        each.set_model(model)
        each._set_monitor_op()
        assert each._is_improvement(0.5 + 0.1 * better, 0.5)
        assert not each._is_improvement(0.5 - 0.1 * better, 0.5)


@pytest.mark.parametrize(
    "metric", [TokenAccuracy(3, "a"), Perplexity(3, "p"), TokenMeanLoss(0.2, 3, "l")]
)
def test_config_survives(metric):
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert again.pad_id == 3


def test_smoothing_must_be_a_rate():
    with pytest.raises(ValueError, match=r"`label_smoothing` must be a rate"):
        TokenMeanLoss(-0.1)
