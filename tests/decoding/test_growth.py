"""A cache that grows gives what a cache of full size gives."""

import numpy as np
import pytest
from backend import array, compiled, in_graph, tensorflow_only
from keras import KerasTensor
from toy_model import sources, talkative_toy

from keras_transformer.decoding import BeamSearch, Greedy, Sampling, decode, generate, result
from keras_transformer.decoding.growth import Stages
from keras_transformer.models import LanguageModel

SOURCES = sources([7, 3, 0, 5])
# Longer than two blocks of any search.
LENGTHS = dict(min_length=70, extra_length=70)
STRATEGIES = [
    Greedy(**LENGTHS, scores=True),
    BeamSearch(beam_size=3, n_best=2, **LENGTHS),
    Sampling(n_best=2, seed=5, **LENGTHS),
]


def arrays(found):
    fields = [found.ids, found.truncated, found.hypotheses.ids, found.hypotheses.scores]
    return [array(field) for field in fields]


def assert_equal(actual, expected):
    for one, other in zip(actual[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(actual[3], expected[3], rtol=1e-5)


@tensorflow_only("a cache that grows")
@pytest.mark.parametrize("options", [{}, {"positions": "alibi", "attention_window": 5}], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_blocks_and_stages_change_nothing(monkeypatch, strategy, options):
    model = talkative_toy(decoder_layers=1, **options)

    def run(ids):
        return decode(model, ids, strategy)

    ids = KerasTensor((None, None), "int32")
    in_blocks = arrays(in_graph(run, signature=[ids])(SOURCES))
    in_stages = arrays(compiled(run)(SOURCES))
    monkeypatch.setattr(result, "_growth", lambda model, slots, *others: (slots, None))
    at_once = arrays(in_graph(run, signature=[ids])(SOURCES))
    assert at_once[0].shape[1] > 70 and len(np.unique(at_once[0])) >= 3
    assert_equal(in_blocks, at_once)
    assert_equal(in_stages, at_once)


@tensorflow_only("a cache that grows")
def test_prompts_grow_too(monkeypatch):
    model = LanguageModel(talkative_toy().config)
    prompts = np.where(SOURCES == 3, 0, SOURCES)

    def run(ids):
        return generate(model, ids, BeamSearch(beam_size=2, **LENGTHS))

    graph = in_graph(run, signature=[KerasTensor((None, None), "int32")])
    in_blocks = arrays(graph(prompts))
    monkeypatch.setattr(result, "_growth", lambda model, slots, *others: (slots, None))
    assert_equal(in_blocks, arrays(in_graph(run)(prompts)))


def test_stages_hold_what_is_likely_and_then_all():
    assert Stages(None, 9, 30).counts_and_ends == ((9, 9), (21, 30))
    assert Stages(None, 30, 30).counts_and_ends == ((30, 30),)
    assert Stages(None, 40, 30).counts_and_ends == ((30, 30),)
