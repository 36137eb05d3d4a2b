"""Ids that no search has chosen: errors where their values are known, NaN in a graph."""

import keras
import numpy as np
import pytest
from backend import array, in_graph, tensorflow_only
from toy_model import BOS, EOS, PAD, V, frozen_toy, sources, targets, toy_config, toy_transformer

from keras_transformer.decoding import BeamSearch, Greedy, align, decode, generate, score
from keras_transformer.models import LanguageModel
from keras_transformer.translation import Translator

SOURCES = sources([3, 2])
SEARCHES = [Greedy(extra_length=2), BeamSearch(beam_size=2, extra_length=2)]
OUTSIDE = r"must hold ids in \[0, 23\). Received: id {}, at index \({}, {}\)"
ODD = {
    "too large": (np.array([[5, V], [5, 7]]), OUTSIDE.format(V, 0, 1)),
    "negative": (np.array([[5, 7], [-1, 7]]), OUTSIDE.format(-1, 1, 0)),
    "64 bits": (np.array([[5, 7], [5, 2**32 + 5]]), OUTSIDE.format(2**32 + 5, 1, 1)),
    "floating": (np.array([[5.0, 7.0], [5.0, 7.0]]), "must hold integers. Received: dtype=float64"),
    "one row": (np.array([5, 7]), r"must have shape \(B, T\). Received: shape=\(2,\)"),
    "lists": ([[5, 7], [5]], "must have rows of one length: fill them with pads"),
    "pads before": (np.array([[5, 7], [PAD, 7]]), "must have pads only behind the ids of a row"),
    "pads between": (
        np.array([[5, PAD, 7]] * 2),
        r"must have pads only behind .* row 0, \[5, 4, 7\]",
    ),
}


@pytest.fixture(scope="module")
def language_model():
    return LanguageModel(toy_config())


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_ids_are_named(language_model, odd, search):
    ids, message = ODD[odd]
    model = frozen_toy()
    calls = {
        "source_ids": lambda: decode(model, ids, search),
        "prefix_ids": lambda: decode(model, SOURCES, search, prefix_ids=ids),
        "prompt_ids": lambda: generate(language_model, ids, search),
        "target_ids": lambda: score(model, SOURCES, ids),
    }
    if "pads" not in odd:  # which mean nothing there
        calls["allowed_ids"] = lambda: decode(model, SOURCES, search, allowed_ids=ids)
        calls["candidate_ids"] = lambda: decode(model, SOURCES, search, candidate_ids=ids)
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"`{name}` {message}"):
            call()
    with pytest.raises(ValueError, match=f"`target_ids` {message}"):
        align(model, SOURCES, ids)


def test_rows_are_as_many_as_sources():
    rule = "must have a row for each of the 2 sources. Received: 1 rows"
    for name in ("prefix_ids", "allowed_ids", "candidate_ids"):
        with pytest.raises(ValueError, match=f"`{name}` {rule}"):
            decode(frozen_toy(), SOURCES, Greedy(), **{name: [[5]]})
    with pytest.raises(ValueError, match=f"`target_ids` {rule}"):
        score(frozen_toy(), SOURCES, [[5, 7]])


def test_a_prompt_has_no_bos(language_model):
    with pytest.raises(ValueError, match="`prompt_ids` must begin without BOS, which is added"):
        generate(language_model, np.array([[5, 7], [BOS, 5]]), Greedy())


def test_lists_are_rows_too():
    found = decode(frozen_toy(), SOURCES.tolist(), SEARCHES[0])
    np.testing.assert_array_equal(
        array(found.ids), array(decode(frozen_toy(), SOURCES, SEARCHES[0]).ids)
    )


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam"])
def test_no_rows_are_no_answers(language_model, search):
    assert array(decode(frozen_toy(), SOURCES[:0], search).ids).shape == (0, 5)
    assert array(generate(language_model, SOURCES[:0], search).ids).shape == (0, 5)


@pytest.mark.parametrize("odd", [-1, V, V + 5])
def test_a_target_that_a_graph_cannot_refuse_is_nan(odd):
    model, target_ids = frozen_toy(), targets(2, 3)
    expected = array(score(model, SOURCES, target_ids).log_probs)
    target_ids[0, 2] = odd
    signature = [keras.KerasTensor((None, None), "int32")] * 2
    run = in_graph(lambda *ids: score(model, *ids), model, signature)
    found = run(SOURCES, target_ids)
    assert np.isnan(array(found.log_probs)[0, 2]) and np.isnan(array(found.totals)[0])
    np.testing.assert_allclose(array(found.log_probs)[1], expected[1], atol=1e-5)


@tensorflow_only("ragged tensors")
def test_ragged_ids_are_refused():
    """TensorFlow would fill them with 0, which is a token here."""
    import tensorflow as tf

    ragged = tf.ragged.constant([[5, 7], [5]], dtype="int32")
    for name, call in (
        ("source_ids", lambda: decode(frozen_toy(), ragged, Greedy())),
        ("target_ids", lambda: score(frozen_toy(), SOURCES, ragged)),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be dense"):
            call()


def test_prompts_of_nothing_start_from_nothing(language_model):
    found = generate(language_model, [[], []], Greedy(extra_length=2))
    assert array(found.ids).shape == (2, 2)


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam"])
def test_nothing_that_is_told_stands_behind_eos(language_model, search):
    """It would be dropped."""
    behind, last = np.array([[5, 7, 8], [5, EOS, 7]]), np.array([[5, 7, 8], [5, EOS, PAD]])
    model, rule = frozen_toy(), "must have EOS only as the last id of a row. Received: row 1, "
    with pytest.raises(ValueError, match=f"`prompt_ids` {rule}"):
        generate(language_model, behind, search)
    with pytest.raises(ValueError, match=f"`prefix_ids` {rule}"):
        decode(model, SOURCES, search, prefix_ids=behind)
    found = array(generate(language_model, last, search).ids)
    np.testing.assert_array_equal(found[1], [5, EOS, *[PAD] * (found.shape[1] - 2)])
    config = toy_config(bos_id=EOS)  # GPT-2's way: a BOS before a prompt is an EOS
    for alone in ([[EOS]], [[EOS, PAD]]):
        assert array(generate(LanguageModel(config), np.array(alone), search).ids)[0, 0] == EOS
    with pytest.raises(ValueError, match="begin without BOS, which is added. Received: row 0, "):
        generate(LanguageModel(config), np.array([[EOS, 7]]), search)


def test_a_packed_model_searches_one_source_a_row():
    model = toy_transformer(packed=True)
    both = np.array([[5, 6, EOS, 7, 8, EOS]])
    for call in (
        lambda: decode(model, both, Greedy(extra_length=2)),
        lambda: score(model, both, [[5, EOS]]),
        lambda: align(model, both, [[5, EOS]]),
        lambda: Translator(model, model.config).translate_ids(both),
    ):
        with pytest.raises(ValueError, match="`source_ids` must have EOS only as the last id"):
            call()
    one = both[:, 3:]
    found = decode(model, one, Greedy(extra_length=2, scores=True))
    np.testing.assert_allclose(
        array(score(model, one, found.ids).totals), array(found.hypotheses.scores)[:, 0], atol=1e-5
    )
