"""What a run minimises: accumulated batches, averages, decay, R-Drop."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy_model import toy_transformer
from toy_updates import CONFIG, PAD, as_dataset, make_batches, new_model, section

from keras_transformer.experiment.sections import TrainingSection
from keras_transformer.training import (
    AdamW,
    InverseSquareRootSchedule,
    PaperSchedule,
    RDropCrossEntropy,
    SmoothedCrossEntropy,
)
from keras_transformer.training.data import weighted_for_accumulation
from keras_transformer.training.objective import check_accumulation, compile_model
from keras_transformer.training.optimizer import PerUpdate
from keras_transformer.training.state import Progress, load_state, save_state


def joined(batches):
    """Consecutive batches as one."""
    inputs, labels = zip(*batches, strict=True)
    inputs = {name: np.concatenate([x[name] for x in inputs]) for name in inputs[0]}
    return inputs, np.concatenate(labels)


OPTIMIZERS = {
    "sgd": lambda **o: keras.optimizers.SGD(0.3, **o),
    "sgd with momentum, decay and clipping": lambda **o: keras.optimizers.SGD(
        0.3, momentum=0.5, weight_decay=0.1, global_clipnorm=0.5, **o
    ),
    "adamw": lambda **o: keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-3, **o),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("adamw", (9, 2, 1, 3, 10, 1)),
        pytest.param("sgd", (4, 4, 4, 4, 4, 4), marks=pytest.mark.slow),
        *(
            pytest.param(name, (9, 2, 1, 3, 10, 1), marks=pytest.mark.slow)
            for name in OPTIMIZERS
            if name != "adamw"
        ),
    ],
)
def test_accumulated_batches_equal_the_large_batch(name, tokens):
    batches = list(make_batches(tokens))
    large, small = new_model(), new_model()
    large.compile(OPTIMIZERS[name](), SmoothedCrossEntropy(0.1, PAD), jit_compile=False)
    total = 0.0
    for start in (0, 3):
        mean = float(large.train_on_batch(*joined(batches[start : start + 3])))
        total += mean * sum(tokens[start : start + 3])
    small.compile(
        OPTIMIZERS[name](gradient_accumulation_steps=3),
        SmoothedCrossEntropy(0.1, PAD, reduction="sum"),
        jit_compile=False,
    )
    history = small.fit(
        weighted_for_accumulation(as_dataset(batches), 3, PAD),
        steps_per_epoch=6,
        shuffle=False,
        verbose=0,
    )
    assert history.history["loss"] == [pytest.approx(total / sum(tokens), rel=1e-5)]
    for ours, expected in zip(small.get_weights(), large.get_weights(), strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-6)


def test_weights_of_a_group_divide_by_its_tokens():
    batches = weighted_for_accumulation(as_dataset(make_batches((6, 2, 3))), 2, PAD)
    weights = [weight.numpy().tolist() for _, _, weight in batches]
    assert weights == [[0.25, 0.25], [0.25, 0.25], [pytest.approx(2 / 3)] * 2]
    with pytest.raises(ValueError, match="`count` must be"):
        weighted_for_accumulation(as_dataset([]), 0, PAD)


def test_a_group_of_pads_has_finite_weights():
    ((_, _, weights),) = weighted_for_accumulation(as_dataset(make_batches((0,))), 1, PAD)
    assert weights.numpy().tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_the_schedule_counts_updates_not_batches():
    model = new_model()
    compile_model(model, section(accumulate_batches=2))
    plain = PaperSchedule(CONFIG.model_dim, 3)
    rates = []
    for batch in weighted_for_accumulation(as_dataset(make_batches([5] * 6)), 2, PAD):
        rates.append(float(model.optimizer.learning_rate))
        model.train_on_batch(*batch)
    expected = [float(plain(update)) for update in (0, 0, 1, 1, 2, 2)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert int(model.optimizer.iterations) == 3
    again = PerUpdate.from_config(PerUpdate(plain, 2).get_config())
    assert float(again(5)) == float(plain(2))


def decayed(model):
    """Paths of the weights that a step without a gradient makes smaller."""
    variables = model.trainable_variables
    before = [variable.numpy() for variable in variables]
    model.optimizer.iterations.assign(3)  # past step 0, whose rate is 0
    model.optimizer.apply([tf.zeros(variable.shape) for variable in variables], variables)
    moved = [not np.array_equal(v.numpy(), old) for v, old in zip(variables, before, strict=True)]
    return {v.path for v, was_moved in zip(variables, moved, strict=True) if was_moved}


@pytest.mark.quick(1)
@pytest.mark.parametrize("again", ["new", "file", "config", "state"])
def test_decay_is_for_kernels_and_embeddings(again, tmp_path):
    def new():
        # A value in each weight, since zeros cannot get smaller.
        options = dict(attention_score="additive", positions="learned", max_positions=7)
        model = toy_transformer(**options)
        compile_model(model, section(optimizer="adamw", weight_decay=0.5))
        return model

    model = new()
    if again == "file":
        model.optimizer.build(model.trainable_variables)
        model.save(tmp_path / "model.keras")
        model = keras.models.load_model(tmp_path / "model.keras")
    elif again == "config":
        optimizer = keras.optimizers.deserialize(keras.optimizers.serialize(model.optimizer))
        model.compile(optimizer, SmoothedCrossEntropy(0.1, PAD))
    elif again == "state":
        model.optimizer.build(model.trainable_variables)
        save_state(model, tmp_path / "state.npz", Progress())
        model = new()
        load_state(model, tmp_path / "state.npz")
    expected = {
        variable.path
        for variable in model.trainable_variables
        if variable.path.split("/")[-1] in ("kernel", "embeddings")
    }
    names = {variable.name for variable in model.trainable_variables}
    assert names == {"kernel", "embeddings", "bias", "gamma", "beta", "score_vector"}
    assert decayed(model) == expected


def test_more_may_be_spared_from_decay():
    model = toy_transformer()
    optimizer = AdamW(0.1, weight_decay=0.5)
    (embeddings,) = (v for v in model.trainable_variables if v.name == "embeddings")
    optimizer.exclude_from_weight_decay(var_list=[embeddings])
    model.compile(optimizer)
    paths = decayed(model)
    assert paths and embeddings.path not in paths
    assert not any(variable is embeddings for variable in optimizer.variables)
    with pytest.raises(ValueError, match=r"called before .* is built. Received: .*\['kernel'\]"):
        optimizer.exclude_from_weight_decay(var_names=["kernel"])


def test_options_choose_schedule_and_loss():
    model = new_model()
    compile_model(
        model, section(schedule="inverse_sqrt", learning_rate=0.2, r_drop=3.0, clipnorm=0.7)
    )
    schedule = model.optimizer._learning_rate
    assert isinstance(schedule, InverseSquareRootSchedule) and schedule.peak == 0.2
    assert isinstance(model.loss, RDropCrossEntropy) and model.loss.alpha == 3.0
    assert model.optimizer.global_clipnorm == 0.7


def test_batches_are_not_accumulated_where_the_loss_is_scaled(monkeypatch):
    monkeypatch.setattr(keras.config, "dtype_policy", lambda: keras.DTypePolicy("mixed_float16"))
    check_accumulation(section())
    message = "does not go with mixed_float16.* Received: accumulate_batches=2"
    with pytest.raises(ValueError, match=message):
        check_accumulation(section(accumulate_batches=2))


def r_drop_by_hand(labels, logits, alpha, smoothing):
    """Equation 4 of the paper over two, in NumPy."""

    def log_softmax(x):
        x = x.astype("float64")
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    half = len(labels) // 2
    one, two = log_softmax(logits[:half]), log_softmax(logits[half:])
    real = labels[:half] != PAD
    total = 0.0
    for row, column in zip(*np.nonzero(real), strict=True):
        p, q = one[row, column], two[row, column]
        target = np.full(len(p), smoothing / len(p))
        target[labels[row, column]] += 1 - smoothing
        divergence = (np.exp(p) * (p - q)).sum() + (np.exp(q) * (q - p)).sum()
        total += -(target @ p + target @ q) + alpha / 2 * divergence
    return total / 2 / real.sum()


@pytest.mark.parametrize("jit", [False, True])
def test_r_drop_is_the_papers_over_two(jit):
    rng = np.random.default_rng(2)
    (_, labels), *_ = make_batches((7,))
    labels = np.concatenate([labels, labels])
    logits = rng.normal(size=(4, 5, CONFIG.vocab_size)).astype("float32") * 2
    logits[labels == PAD] = 1e20
    loss = tf.function(RDropCrossEntropy(3.0, 0.1, PAD), jit_compile=jit)
    value = float(loss(tf.constant(labels), tf.constant(logits)))
    np.testing.assert_allclose(value, r_drop_by_hand(labels, logits, 3.0, 0.1), rtol=1e-5)


def test_r_drop_of_equal_passes_is_the_plain_loss():
    rng = np.random.default_rng(3)
    (_, labels), *_ = make_batches((7,))
    logits = rng.normal(size=(2, 5, CONFIG.vocab_size)).astype("float32")
    plain = float(SmoothedCrossEntropy(0.1, PAD)(labels, logits))
    twice = RDropCrossEntropy(5.0, 0.1, PAD)(np.tile(labels, (2, 1)), np.tile(logits, (2, 1, 1)))
    np.testing.assert_allclose(float(twice), plain, rtol=1e-6)


@pytest.mark.parametrize("rows", [4, 5])
def test_r_drop_of_a_batch_that_is_given_once_is_the_plain_loss(rows):
    """As `evaluate` gives it: rows of different sentences have no divergence."""
    rng = np.random.default_rng(4)
    labels = rng.integers(5, CONFIG.vocab_size, (rows, 3))
    logits = rng.normal(size=(rows, 3, CONFIG.vocab_size)).astype("float32")
    plain = float(SmoothedCrossEntropy(0.1, PAD)(labels, logits))
    loss = RDropCrossEntropy(5.0, 0.1, PAD)
    shapes = [tf.TensorSpec((None, 3), tf.int64), tf.TensorSpec((None, 3, CONFIG.vocab_size))]
    for way in (loss, tf.function(loss), tf.function(loss, shapes)):
        np.testing.assert_allclose(float(way(labels, logits)), plain, rtol=1e-6)


def test_losses_survive_their_config():
    for loss in (
        RDropCrossEntropy(2.0, 0.2, 3, "sum"),
        SmoothedCrossEntropy(0.2, 3, "sum"),
    ):
        again = keras.losses.deserialize(keras.losses.serialize(loss))
        assert type(again) is type(loss)
        assert again.get_config() == loss.get_config()
        assert again.reduction == "sum"
    with pytest.raises(ValueError, match="`alpha` must not be negative. Received: alpha=-1"):
        RDropCrossEntropy(-1)
    with pytest.raises(ValueError, match="`reduction` must be one of .*'none'"):
        SmoothedCrossEntropy(reduction="none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "cosine"}, "`training.schedule` must be one of .*'cosine'"),
        ({"schedule": "inverse_sqrt"}, "`training.learning_rate` is the peak of the schedule"),
        ({"learning_rate": 1.0}, "`training.learning_rate` is the peak of .*'paper'"),
        (
            {"schedule": "inverse_sqrt", "learning_rate": 1.0, "learning_rate_scale": 2.0},
            "`training.learning_rate_scale` goes with the schedule 'paper'",
        ),
        ({"optimizer": "sgd"}, "`training.optimizer` must be one of .*'sgd'"),
        ({"weight_decay": 0.1}, "`training.weight_decay` goes with the optimizer 'adamw'"),
        ({"ema": 1.0}, r"`training.ema` must be a rate in \[0, 1\)"),
        ({"r_drop": -0.1}, "`r_drop` must be at least 0"),
        ({"accumulate_batches": 0}, "`accumulate_batches` must be at least 1"),
        ({"best_by": "bleu"}, "`training.best_by` needs `score_every_epochs`"),
        ({"best_by": "ter"}, "`training.best_by` must be one of .*'ter'"),
        ({"strategy": "horovod"}, "`training.strategy` must be one of .*'horovod'"),
        (
            {"strategy": "multi_worker", "max_minutes": 1.0},
            "`training.max_minutes` does not go with the strategy 'multi_worker'",
        ),
        ({"patience": 0}, "`patience` must be at least 1"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        section(**options)


def test_every_option_of_the_section_has_a_line_of_help():
    for field in dataclasses.fields(TrainingSection):
        assert field.name in TrainingSection.__doc__
