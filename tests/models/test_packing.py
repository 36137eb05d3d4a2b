"""Several pairs in one row: each gets what it would get alone, in logits, loss and gradients."""

import numpy as np
import pytest
from backend import array, in_graph
from toy_model import BOS, EOS, PAD, UNK, V, randomise, toy_config

from keras_transformer import SmoothedCrossEntropy
from keras_transformer.models import LanguageModel, Transformer, packed_sequences

SOURCES = [[5, 7], [9], [8, 3, 10]]
TARGETS = [[11], [12, 13, 5], [7, 8]]


def filled(row, length):
    return np.array([row + [PAD] * (length - len(row))], "int32")


def one_row(sources, targets, length):
    """Inputs and labels of a row that holds all pairs."""
    source = [token for ids in sources for token in (*ids, EOS)]
    inputs = [token for ids in targets for token in (BOS, *ids)]
    labels = [token for ids in targets for token in (*ids, EOS)]
    rows = {"source_ids": filled(source, length), "target_ids": filled(inputs, length)}
    return rows, filled(labels, length)


@pytest.fixture(
    scope="module",
    params=[
        "sinusoidal",
        "tensor2tensor",
        "learned",
        "rotary",
        "relative",
        "alibi",
        "none",
        "ssru",
    ],
)
def model(request):
    options = dict(positions=request.param, encoder_layers=1, decoder_layers=2)
    if request.param == "ssru":
        options.update(positions="none", decoder_recurrence="ssru")
    if request.param == "learned":
        options["max_positions"] = 13
    if request.param == "rotary":
        options["key_dim"] = 14
    return randomise(Transformer(toy_config(packed=True, **options)))


@pytest.mark.quick(2)
def test_each_pair_has_the_logits_it_has_alone(model):
    run = in_graph(lambda inputs: model(inputs, training=False), of=model)
    inputs, _ = one_row(SOURCES, TARGETS, 12)
    together = array(run(inputs))[0]
    start = 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        alone, _ = one_row([source], [target], 5)
        expected = array(run(alone))[0][: len(target) + 1]
        np.testing.assert_allclose(together[start : start + len(target) + 1], expected, atol=2e-5)
        start += len(target) + 1


@pytest.mark.quick(2)
def test_a_pair_moves_no_other_one(model):
    run = in_graph(lambda inputs: model(inputs, training=False), of=model)
    inputs, _ = one_row(SOURCES, TARGETS, 12)
    before = array(run(inputs))[0]
    inputs["source_ids"][0, 3] = 10  # the second pair's source and target
    inputs["target_ids"][0, 4] = 3
    after = array(run(inputs))[0]
    moved = np.abs(after - before).max(axis=-1) > 1e-6
    assert moved[2:6].any()
    assert not moved[:2].any() and not moved[6:9].any()


def test_a_row_of_one_pair_is_the_same_without_packing():
    config = toy_config(packed=True)
    model = randomise(Transformer(config))
    plain = Transformer(toy_config())
    plain.set_weights(model.get_weights())
    inputs, _ = one_row(SOURCES[2:], TARGETS[2:], 9)
    np.testing.assert_allclose(array(model(inputs)), array(plain(inputs)), atol=1e-6)


def test_the_loss_of_a_row_is_that_of_its_pairs():
    model = randomise(Transformer(toy_config(packed=True)))
    loss = SmoothedCrossEntropy(0.1, PAD)
    inputs, labels = one_row(SOURCES, TARGETS, 12)
    rows = [one_row([s], [t], 6) for s, t in zip(SOURCES, TARGETS, strict=True)]
    apart = {name: np.concatenate([row[name] for row, _ in rows]) for name in inputs}
    expected = loss(np.concatenate([label for _, label in rows]), model(apart))
    np.testing.assert_allclose(array(loss(labels, model(inputs))), array(expected), rtol=1e-5)


def test_segments_and_positions_by_hand():
    source = np.array([[5, EOS, 9, 7, EOS, PAD]])
    target = np.array([[BOS, 5, BOS, 9, UNK, PAD]])
    segments = packed_sequences.segments_ending_with(source, EOS, PAD)
    assert array(segments).tolist() == [[0, 0, 1, 1, 1, 1]]
    assert array(packed_sequences.positions_within(segments)).tolist() == [[0, 1, 0, 1, 2, 3]]
    segments = packed_sequences.segments_starting_with(target, BOS)
    assert array(segments).tolist() == [[0, 0, 1, 1, 1, 1]]
    assert array(packed_sequences.positions_within(segments)).tolist() == [[0, 1, 0, 1, 2, 3]]


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="`packed` does not go with `attention_chunk`"):
        toy_config(packed=True, attention_chunk=3)
    with pytest.raises(ValueError, match="`packed` needs a `bos_id` of its own"):
        toy_config(packed=True, bos_id=PAD)
    with pytest.raises(ValueError, match="`packed` is for a Transformer. Received: LanguageModel"):
        LanguageModel(toy_config(packed=True))
    assert max(max(ids) for ids in SOURCES + TARGETS) < V
