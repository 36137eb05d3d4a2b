"""The model: nothing leaks, padding changes nothing, cached steps equal the full pass."""

import functools

import keras
import numpy as np
import pytest
from backend import array, compiled, dtype_of, gradients, in_graph, tensor, value_and_gradients
from keras import KerasTensor, ops
from toy_model import (
    EOS,
    PAD,
    D,
    H,
    N,
    U,
    V,
    frozen_toy,
    logits,
    sources,
    targets,
    tokens,
    toy_config,
    toy_transformer,
)

from keras_transformer.models import Transformer
from keras_transformer.training import SmoothedCrossEntropy

T, S = 5, 7


@pytest.fixture(scope="module", params=["post", "pre"])
def model(request):
    return frozen_toy(residual=request.param)


def pad(ids, width):
    return np.pad(ids, [(0, 0), (0, width - ids.shape[1])], constant_values=PAD)


def from_embedded(model):
    """The model from its embedded source and target on, to move one slot at a time.

    It takes the ids too, which say what is padding.
    """
    embedded = [model.get_layer(f"{name}_positions").output for name in ("source", "target")]
    return keras.Model([*embedded, *model.inputs], model.output)


# --- What may influence what ---------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize(("length", "width"), [(3, 7), (7, 7), (3, T), (1, 2)])
def test_influence_is_source_padding_times_target_causality(model, length, width):
    """Moves each source slot and each target slot, and looks which logits move."""
    rng, rows = np.random.default_rng(0), 1 + width + T
    source = rng.normal(size=(1, width, D)).repeat(rows, 0).astype("float32")
    target = rng.normal(size=(1, T, D)).repeat(rows, 0).astype("float32")
    for slot in range(width):
        source[1 + slot, slot] += rng.normal(scale=3, size=D)
    for slot in range(T):
        target[1 + width + slot, slot] += rng.normal(scale=3, size=D)
    ids = sources([length], width).repeat(rows, 0)
    outputs = array(from_embedded(model)([source, target, ids, targets(rows, T)]))
    influence = np.abs(outputs[1:] - outputs[0]).max(-1) > 1e-4  # a row of its own rounds again
    valid = np.arange(width) < length
    np.testing.assert_array_equal(influence[:width], np.outer(valid, np.ones(T, bool)))
    np.testing.assert_array_equal(influence[width:], np.triu(np.ones((T, T), bool)))


@pytest.mark.quick(1)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("jit", [False, True])
def test_later_tokens_never_move_earlier_logits(dropout, jit):
    model = frozen_toy(dropout=dropout, attention_dropout=dropout)
    states = [v for v in model.variables if "seed_generator" in v.path]
    assert bool(states) == bool(dropout)
    calls = {training: functools.partial(model, training=training) for training in (False, True)}
    if jit:
        calls = {training: compiled(call, of=model) for training, call in calls.items()}

    def run(target_ids, training):
        for state in states:
            state.assign([3, 5])
        return array(calls[training]({"source_ids": source_ids, "target_ids": target_ids}))

    source_ids = sources([S, 3])
    before = targets(2, T)
    after = before.copy()
    after[:, 3:] = [[EOS, PAD], [9, 10]]
    assert np.all(before[:, 3:] != after[:, 3:])
    for training in (False, True) if dropout else (False,):
        first, second = run(before, training), run(after, training)
        np.testing.assert_array_equal(first[:, :3], second[:, :3])
        assert np.all(np.abs(first - second)[:, 3:].max(-1) > 0.05)


@pytest.mark.parametrize("training", [False, True])
def test_gradient_from_logits_to_later_embeddings_is_exactly_zero(training):
    inner = from_embedded(frozen_toy(dropout=0.1, attention_dropout=0.1))
    target = np.random.default_rng(0).normal(size=(2, T, D)).astype("float32")
    source = tensor(np.random.default_rng(1).normal(size=(2, S, D)), "float32")
    ids = [tensor(sources([S, 3])), tensor(targets(2, T))]

    def early(target):
        return ops.sum(inner([source, target, *ids], training=training)[:, 2] ** 2)

    (gradient,) = gradients(early, target)
    np.testing.assert_array_equal(gradient[:, 3:], np.zeros((2, T - 3, D)))
    assert np.all(np.abs(gradient[:, :3]).max(-1) > 1e-6)


def test_source_padding_and_what_lies_there_change_nothing(model):
    source_ids, target_ids = sources([S, 3, 0]), targets(3, T)
    expected = logits(model, source_ids, target_ids)
    for width in (2 * S, 4 * S):
        actual = logits(model, pad(source_ids, width), target_ids)
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    embeddings = model.get_layer("embedding").embeddings
    saved = embeddings.numpy()
    try:
        embeddings.assign(np.where(np.arange(V)[:, None] == PAD, 1e3, saved))
        actual = logits(model, source_ids, target_ids)
    finally:
        embeddings.assign(saved)
    np.testing.assert_allclose(np.delete(actual, PAD, -1), np.delete(expected, PAD, -1), atol=1e-5)


@pytest.mark.smoke
def test_batch_mates_and_target_padding_change_nothing(model):
    source_ids, target_ids = sources([S, 3, 5]), targets(3, T)
    expected = logits(model, source_ids, target_ids)
    for row in range(3):
        alone = logits(model, source_ids[[row]], target_ids[[row]])
        np.testing.assert_allclose(alone[0], expected[row], atol=1e-5)
    actual = logits(model, source_ids, pad(target_ids, 2 * T))[:, :T]
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_order_of_tokens_matters(model):
    """Without positions, attention would not know it on the source's side."""
    source_ids, target_ids = sources([S]), targets(1, T)
    swapped = source_ids[:, [1, 0, *range(2, S)]]
    change = logits(model, swapped, target_ids) - logits(model, source_ids, target_ids)
    assert np.abs(change).max() > 1e-2


@pytest.mark.parametrize("pad_id", [0, 4, V - 1])
def test_any_id_may_be_the_pad(pad_id):
    """Renaming ids, with the rows of the embedding moved along, renames the logits."""
    model, source_ids, target_ids = frozen_toy(), sources([S, 3]), targets(2, T)
    names = np.arange(V)
    names[[PAD, pad_id]] = names[[pad_id, PAD]]
    renamed = Transformer(toy_config(pad_id=pad_id))
    for weight, value in zip(renamed.trainable_weights, model.trainable_weights, strict=True):
        value = value.numpy()
        weight.assign(value[names] if "embeddings" in weight.path else value)
    actual = logits(renamed, names[source_ids], names[target_ids])
    expected = logits(model, source_ids, target_ids)
    np.testing.assert_allclose(actual[..., names], expected, atol=1e-5)


# --- Empty rows ----------------------------------------------------------------------------


@pytest.mark.quick(1)
def test_an_empty_source_is_finite_and_leaves_its_batch_mate_alone(model):
    source_ids, target_ids = sources([4, 0]), targets(2, T)
    labels = tokens(np.random.default_rng(5), 2, T)
    loss_function = SmoothedCrossEntropy(0.1, pad_id=PAD)

    def loss_and_gradients(rows, labels):
        inputs = {"source_ids": source_ids[rows], "target_ids": target_ids[rows]}
        return value_and_gradients(
            lambda: loss_function(labels[rows], model(inputs)), model.trainable_weights
        )

    outputs = logits(model, source_ids, target_ids)
    alone = logits(model, source_ids[:1], target_ids[:1])
    unlabelled = np.where(np.arange(2)[:, None] == 0, labels, PAD)
    loss, found = loss_and_gradients([0, 1], unlabelled)
    alone_loss, alone_found = loss_and_gradients([0], labels)
    assert np.all(np.isfinite(outputs))
    np.testing.assert_allclose(outputs[0], alone[0], atol=1e-5)
    np.testing.assert_allclose(loss, alone_loss, rtol=1e-5)
    for actual, expected in zip(found, alone_found, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)
    loss, found = loss_and_gradients([0, 1], labels)  # the empty row has labels too
    assert np.isfinite(loss) and all(np.all(np.isfinite(gradient)) for gradient in found)


def test_one_training_step_with_an_empty_source():
    model = toy_transformer(dropout=0.1, encoder_layers=1, decoder_layers=1)
    model.compile("adam", SmoothedCrossEntropy(0.1, pad_id=PAD), run_eagerly=True)
    before = [weight.numpy() for weight in model.trainable_weights]
    inputs = {"source_ids": sources([4, 0]), "target_ids": targets(2, T)}
    loss = model.train_on_batch(inputs, tokens(np.random.default_rng(5), 2, T))
    assert np.isfinite(loss)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.all(np.isfinite(weight)) and np.any(weight.numpy() != old), weight.path


# --- Cached decoding -----------------------------------------------------------------------


def steps(model, source_ids, target_ids, lengths, slots):
    """Logits of `target_ids`, fed to `step` in pieces of `lengths` tokens."""
    cache, position, pieces = model.start(model.encode(source_ids), slots), 0, []
    for length in lengths:
        part = target_ids[:, position : position + length]
        outputs, cache = model.step(part, cache, position)
        pieces.append(array(outputs))
        position += length
    return np.concatenate(pieces, axis=1)


@pytest.mark.quick(4)
@pytest.mark.smoke
@pytest.mark.parametrize("slots", [S, S + 6])
@pytest.mark.parametrize("lengths", [[1] * S, [3] + [1] * (S - 3), [2, 3, 2], [S]])
def test_steps_equal_the_full_pass_at_every_position(model, lengths, slots):
    source_ids, target_ids = sources([T, 3, 0, 2], T + 2), targets(4, S)
    full = logits(model, source_ids, target_ids)
    actual = steps(model, source_ids, target_ids, lengths, slots)
    np.testing.assert_allclose(actual, full, atol=1e-4)


@pytest.mark.parametrize("length", range(1, 5))
def test_the_first_and_the_last_step_of_every_length(length):
    model, source_ids, target_ids = frozen_toy(), sources([3]), targets(1, length)
    actual = steps(model, source_ids, target_ids, [1] * length, length)
    np.testing.assert_allclose(actual, logits(model, source_ids, target_ids), atol=1e-4)


def test_steps_in_a_graph_of_unknown_sizes():
    model, source_ids, target_ids = frozen_toy(residual="pre"), sources([T, 3]), targets(2, S)
    ids, number = KerasTensor((None, None), "int32"), KerasTensor((), "int32")

    def start(source_ids, target_ids):
        return model.start(model.encode(source_ids), ops.shape(target_ids)[1])

    cache = in_graph(start, signature=[ids, ids])(source_ids, target_ids)
    relaxed = keras.tree.map_structure(
        lambda x: KerasTensor([n if n in (N, H, U, 1) else None for n in x.shape], dtype_of(x)),
        cache,
    )
    step = in_graph(model.step, signature=[ids, relaxed, number])
    full = logits(model, source_ids, target_ids)
    for position in range(S):
        outputs, cache = step(target_ids[:, position : position + 1], cache, np.int32(position))
        np.testing.assert_allclose(outputs[:, 0], full[:, position], atol=1e-4)


def test_steps_leave_dropout_out():
    model = frozen_toy(dropout=0.1, attention_dropout=0.1)
    source_ids, target_ids = sources([T]), targets(1, S)
    full = logits(model, source_ids, target_ids, training=False)
    actual = steps(model, source_ids, target_ids, [1] * S, S)
    np.testing.assert_allclose(actual, full, atol=1e-4)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_low_precision_is_close_and_its_steps_equal_its_full_pass(policy):
    exact, low = frozen_toy(), toy_transformer(dtype=policy)
    low.set_weights(exact.get_weights())
    source_ids, target_ids = sources([T, 3, 0]), targets(3, S)
    outputs = low({"source_ids": source_ids, "target_ids": target_ids})
    assert dtype_of(outputs) == "float32" and low.output.dtype == "float32"
    assert all(weight.dtype == "float32" for weight in low.trainable_weights)
    expected = logits(exact, source_ids, target_ids)
    scale, unit = np.abs(expected).max(), 2.0 ** (-8 if "b" in policy else -11)
    assert np.abs(outputs - expected).max() < 20 * unit * scale
    actual = steps(low, source_ids, target_ids, [1] * S, S)
    assert np.abs(actual - outputs).max() < 20 * unit * scale
