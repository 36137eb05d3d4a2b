"""Searches with a model whose decoder has a recurrence: its states follow their beams."""

import functools

import numpy as np
import pytest
from backend import array, compiled, in_graph
from keras import KerasTensor
from toy_model import PAD, sources, talkative_toy, toy_config, toy_transformer

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, decode
from keras_transformer.models import LanguageModel

SOURCES = sources([7, 3, 2, 5, 0, 6, 2, 3])
STRATEGIES = (
    Greedy(extra_length=4, scores=True),
    BeamSearch(beam_size=3, n_best=3, extra_length=4),
    Sampling(n_best=2, extra_length=4, seed=5),
)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)


def model():
    return talkative_toy(83, decoder_recurrence="ssru")


@functools.cache
def found(strategy):
    return fields(decode(model(), SOURCES, strategy))


def fields(result):
    return [array(result.hypotheses.ids), array(result.hypotheses.scores)]


def assert_same(actual, expected):
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_allclose(actual[1], expected[1], atol=1e-4)


@pytest.mark.quick(1)
@every_strategy
@pytest.mark.parametrize("run", [in_graph, compiled])
def test_graphs_that_grow_and_shrink_and_xla_equal_eager(run, strategy):
    def search(ids):
        result = decode(model(), ids, strategy)
        return result.hypotheses.ids, result.hypotheses.scores

    options = {"signature": [KerasTensor((None, None), "int32")]} if run is in_graph else {}
    assert len(np.unique(found(strategy)[0])) > 4  # they could differ
    assert_same([array(each) for each in run(search, **options)(SOURCES)], found(strategy))


@pytest.mark.quick(1)
@every_strategy
def test_batch_mates_and_padding_change_nothing(strategy):
    expected = found(strategy)
    padded = np.pad(SOURCES, ((0, 0), (0, 3)), constant_values=PAD)
    ids, scores = fields(decode(model(), padded, strategy))
    assert_same([ids[..., : expected[0].shape[2]], scores], expected)
    for row in (0, 3, 4):
        ids, scores = fields(decode(model(), SOURCES[[row]], strategy))
        assert_same([ids, scores], [expected[0][[row], :, : ids.shape[2]], expected[1][[row]]])


@pytest.mark.slow
def test_an_ensemble_with_a_model_of_attention():
    """The caches of both, in a graph that drops rows."""
    ensemble = Ensemble([model(), toy_transformer(3, positions="alibi")])

    def search(ids):
        result = decode(ensemble, ids, STRATEGIES[1])
        return result.hypotheses.ids, result.hypotheses.scores

    expected = [array(each) for each in search(SOURCES)]
    run = in_graph(search, signature=[KerasTensor((None, None), "int32")])
    assert_same([array(each) for each in run(SOURCES)], expected)


def test_its_cache_has_neither_slots_nor_ancestors():
    toy = model()
    cache = toy.start(toy.encode(SOURCES), 50, beams=3)
    assert cache.slot_ids == cache.ancestors == ()
    states = [own.values for own, _ in cache.blocks]
    assert {tuple(state.shape) for state in states} == {(len(SOURCES), 3, toy.config.model_dim)}
    assert cache.grown(7) is cache


def test_a_language_model_has_none():
    message = "`decoder_recurrence` is for a Transformer. Received: LanguageModel with decoder_"
    with pytest.raises(ValueError, match=message):
        LanguageModel(toy_config(decoder_recurrence="ssru"))
