"""Beam search with a model: its scores are the model's own, and nothing else moves a row."""

import numpy as np
import pytest
from backend import array, compiled, in_graph
from toy_model import BOS, EOS, PAD, logits, sources, talkative_toy

from keras_transformer.decoding import BeamSearch, decode, generate
from keras_transformer.models import LanguageModel

LENGTHS = [7, 3, 2, 5, 0]
STRATEGY = BeamSearch(beam_size=3, n_best=3, extra_length=4)
OPTIONS = [
    dict(),
    dict(residual="pre"),
    dict(positions="rotary", key_dim=14),
    dict(positions="relative"),
    dict(positions="alibi", attention_window=3),
    dict(attention_score="additive"),
    dict(decoder_recurrence="ssru"),
]


def hypotheses(model, source_ids, strategy=STRATEGY, run=lambda function: function):
    found = run(lambda ids: decode(model, ids, strategy).hypotheses)(source_ids)
    return [
        [
            ([int(token) for token in ids if token != PAD], score)
            for ids, score in zip(row_ids, row_scores, strict=True)
        ]
        for row_ids, row_scores in zip(array(found.ids), array(found.scores), strict=True)
    ]


def assert_equal(actual, expected):
    assert [ids for ids, _ in actual] == [ids for ids, _ in expected]
    np.testing.assert_allclose([s for _, s in actual], [s for _, s in expected], atol=1e-4)


def rescored(model, source_ids, ids, alpha):
    """The summed log-probability that the full pass gives, penalised."""
    values = logits(model, source_ids, np.array([[BOS, *ids[:-1]]], "int32"))[0].astype("float64")
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    total = sum(row[token] for row, token in zip(values, ids, strict=True))
    return total / ((5 + len(ids)) / 6) ** alpha


CASES = [(options, 1.0) for options in OPTIONS] + [(OPTIONS[0], 0.0)]
CASES += [pytest.param(options, 0.0, marks=pytest.mark.release) for options in OPTIONS[1:]]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("changes", "alpha"), CASES, ids=str)
def test_every_score_is_that_of_the_text(changes, alpha):
    """Rescored with the full pass: nothing is lost when beams change places."""
    model, source_ids = talkative_toy(**changes), sources(LENGTHS[:4])
    strategy = BeamSearch(beam_size=3, n_best=3, extra_length=4, length_penalty=alpha)
    texts = set()
    for row, found in enumerate(hypotheses(model, source_ids, strategy)):
        assert len({tuple(ids) for ids, _ in found}) == 3
        for ids, score in found:
            assert EOS not in ids[:-1] and PAD not in ids and BOS not in ids
            expected = rescored(model, source_ids[[row]], ids, alpha)
            np.testing.assert_allclose(score, expected, atol=1e-4)
            texts.add(tuple(ids))
    assert len(texts) >= 4


@pytest.mark.smoke
def test_batches_order_and_padding_change_nothing():
    model, source_ids = talkative_toy(), sources(LENGTHS)
    expected = hypotheses(model, source_ids)
    order = [3, 0, 4, 2, 1]
    for actual, row in zip(hypotheses(model, source_ids[order]), order, strict=True):
        assert_equal(actual, expected[row])
    padded = np.pad(source_ids, ((0, 0), (0, 6)), constant_values=PAD)
    for actual, wanted in zip(hypotheses(model, padded), expected, strict=True):
        assert_equal(actual, wanted)
    for row in range(len(LENGTHS)):
        (alone,) = hypotheses(model, source_ids[[row]])
        assert_equal(alone, expected[row])


@pytest.mark.quick(1)
@pytest.mark.parametrize("run", [in_graph, compiled])
def test_graph_and_xla_equal_eager(run):
    model, source_ids = talkative_toy(), sources(LENGTHS)
    expected = hypotheses(model, source_ids)
    for actual, wanted in zip(hypotheses(model, source_ids, run=run), expected, strict=True):
        assert_equal(actual, wanted)


def test_an_empty_source_has_one_empty_hypothesis():
    found = hypotheses(talkative_toy(), sources([3, 0]))[1]
    assert found[0] == ([], 0.0)
    assert all(ids == [] for ids, _ in found)


def test_the_best_hypothesis_is_the_result():
    result = decode(talkative_toy(), sources(LENGTHS), STRATEGY)
    np.testing.assert_array_equal(array(result.ids), array(result.hypotheses.ids)[:, 0])


def test_a_wide_beam_is_never_worse():
    model, source_ids = talkative_toy(), sources(LENGTHS[:4])
    scores = [
        [
            found[0][1]
            for found in hypotheses(
                model,
                source_ids,
                BeamSearch(beam_size=size, extra_length=2, length_penalty=0.0, max_length=5),
            )
        ]
        for size in (1, 64)
    ]
    assert np.all(np.array(scores[1]) >= np.array(scores[0]) - 1e-5)


def test_a_language_model_continues_prompts_with_beams():
    from toy_model import randomise, toy_config

    model = randomise(LanguageModel(toy_config()))
    prompts = np.array([[7, 8], [9, PAD]], "int32")
    found = generate(model, prompts, STRATEGY).hypotheses
    for row, prompt in enumerate([[7, 8], [9]]):
        for ids, score in zip(array(found.ids)[row], array(found.scores)[row], strict=True):
            ids = [int(token) for token in ids if token != PAD]
            assert ids[: len(prompt)] == prompt
            values = array(model(np.array([[BOS, *ids[:-1]]], "int32")))[0].astype("float64")
            values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
            total = sum(value[token] for value, token in zip(values, ids, strict=True))
            np.testing.assert_allclose(score, total / ((5 + len(ids)) / 6) ** 0.6, atol=1e-4)
