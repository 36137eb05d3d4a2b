"""`attention_scores`: the weights inside a whole model."""

import numpy as np
import pytest
from backend import array
from toy_model import (
    N,
    frozen_toy,
    logits,
    randomise,
    sources,
    targets,
    toy_config,
    toy_transformer,
)

from keras_transformer import LanguageModel, SequenceClassifier, attention_scores

S, T = 7, 5
DEEP = dict(encoder_layers=2, decoder_layers=3)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "changes", [dict(), dict(attention_chunk=2), dict(attention_window=3), dict(residual="pre")],
    ids=str,
)  # fmt: skip
def test_every_block_of_a_transformer(changes):
    model, source_ids, target_ids = frozen_toy(**DEEP, **changes), sources([S, 3]), targets(2, T)
    scores = attention_scores(model, source_ids, target_ids)
    assert [part.shape for part in scores.encoder] == [(2, N, S, S)] * 2
    assert [part.shape for part in scores.decoder] == [(2, N, T, T)] * 3
    assert [part.shape for part in scores.cross] == [(2, N, T, S)] * 3
    window = changes.get("attention_window", 99)
    for weights in (*scores.encoder, *scores.decoder, *scores.cross):
        assert weights.dtype == "float32"
        np.testing.assert_allclose(weights[0].sum(axis=-1), 1, atol=1e-5)
    for weights in (*scores.decoder, *scores.cross):
        np.testing.assert_allclose(weights[1].sum(axis=-1), 1, atol=1e-5)
    for weights in (*scores.encoder, *scores.cross):
        assert np.all(weights[1, :, :, 3:] == 0) and np.all(weights[0].max(axis=-2) > 0)
    for weights in scores.decoder:
        seen = np.tril(np.ones((T, T))) * (np.subtract.outer(np.arange(T), np.arange(T)) < window)
        np.testing.assert_array_equal(weights[0, 0] > 0, seen)


def test_they_are_what_the_model_attends_with():
    """The first encoder block's output, made by hand from its weights."""
    model = toy_transformer(use_feed_forward=False, normalization="none", encoder_layers=1)
    source_ids = sources([S])
    (weights,) = attention_scores(model, source_ids, targets(1, T)).encoder
    block = model.get_layer("encoder_0")
    inputs = model.get_layer("source_positions")(model.get_layer("embedding")(source_ids))
    _, _, values = block.self_attention._project(inputs, np.arange(S))
    context = np.einsum("BNTS,BNSU->BTNU", weights, array(values)).reshape(1, S, -1)
    expected = array(inputs) + array(block.self_attention.output_projection(context))
    np.testing.assert_allclose(array(model.encode(source_ids).states), expected, atol=1e-5)


def test_asking_changes_no_logits():
    model, source_ids, target_ids = frozen_toy(dropout=0.1), sources([S]), targets(1, T)
    before = logits(model, source_ids, target_ids)
    attention_scores(model, source_ids, target_ids)
    np.testing.assert_array_equal(logits(model, source_ids, target_ids), before)


def test_an_empty_source_is_looked_at_by_nobody():
    scores = attention_scores(frozen_toy(), sources([S, 0]), targets(2, T))
    for weights in (*scores.encoder, *scores.cross):
        assert np.all(weights[1] == 0)


def test_models_with_one_side():
    language_model = randomise(LanguageModel(toy_config(**DEEP)))
    scores = attention_scores(language_model, targets(2, T))
    assert (len(scores.encoder), len(scores.decoder), len(scores.cross)) == (0, 3, 0)
    assert np.all(np.triu(scores.decoder[0], 1) == 0)
    classifier = randomise(SequenceClassifier(toy_config(**DEEP), 2))
    scores = attention_scores(classifier, sources([S, 3]))
    assert (len(scores.encoder), len(scores.decoder), len(scores.cross)) == (2, 0, 0)
    assert scores.encoder[0].shape == (2, N, S, S)


def test_low_precision_gives_float32():
    scores = attention_scores(toy_transformer(dtype="mixed_bfloat16"), sources([S]), targets(1, T))
    assert all(weights.dtype == "float32" for weights in scores.cross)


def test_wrong_ids():
    with pytest.raises(ValueError, match="Transformer must be given 2 batches of ids. Received: 1"):
        attention_scores(frozen_toy(), sources([S]))
    with pytest.raises(
        ValueError, match="LanguageModel must be given 1 batches of ids.*Received: 2"
    ):
        attention_scores(LanguageModel(toy_config()), targets(1, T), targets(1, T))
    with pytest.raises(ValueError, match=r"must be \(B, length\) integers. Received: shape=\(3,\)"):
        attention_scores(frozen_toy(), [1, 2, 3], targets(1, T))
    with pytest.raises(ValueError, match=r"must be \(B, length\) integers.*dtype=float64"):
        attention_scores(frozen_toy(), sources([S]), targets(1, T) * 1.0)
