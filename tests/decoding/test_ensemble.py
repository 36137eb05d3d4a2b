"""Several models as one: the mean of their probabilities, in every search."""

import numpy as np
import pytest
from backend import array, compiled, in_graph
from toy_model import BOS, PAD, V, logits, sources, talkative_toy, toy_config

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, decode, score
from keras_transformer.models import LanguageModel

LENGTHS = [5, 3, 0, 7]
STRATEGIES = [
    Greedy(extra_length=4, scores=True),
    BeamSearch(beam_size=3, n_best=2, extra_length=4),
    Sampling(n_best=2, extra_length=4, seed=5),
]


def members():
    return [talkative_toy(), talkative_toy(36, positions="rotary", key_dim=14, decoder_layers=1)]


def found(model, strategy, run=lambda function: function):
    hypotheses = run(lambda ids: decode(model, ids, strategy).hypotheses)(sources(LENGTHS))
    return [array(field) for field in hypotheses]


@pytest.mark.quick(1)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_one_member_is_that_member(strategy):
    model = talkative_toy()
    for actual, expected in zip(
        found(Ensemble([model]), strategy), found(model, strategy), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_the_order_of_members_graphs_and_xla_change_nothing(strategy):
    ensemble, turned = Ensemble(members()), Ensemble(members()[::-1])
    expected = found(ensemble, strategy, in_graph)
    for other in (found(turned, strategy, in_graph), found(ensemble, strategy, compiled)):
        np.testing.assert_array_equal(other[0], expected[0])
        np.testing.assert_allclose(other[1], expected[1], atol=1e-5)
    single = [found(model, strategy, in_graph)[0] for model in members()]
    assert all(np.any(ids != expected[0]) for ids in single)


def test_scores_are_the_log_of_the_mean_probability():
    source_ids, models = sources(LENGTHS), members()
    ensemble = Ensemble(models)
    ids = found(ensemble, STRATEGIES[0])[0][:, 0]
    inputs = np.concatenate([np.full((4, 1), BOS, "int32"), ids[:, :-1]], axis=1)
    values = [logits(model, source_ids, inputs).astype("float64") for model in models]
    values = [np.exp(value) / np.exp(value).sum(-1, keepdims=True) for value in values]
    expected = np.log(np.take_along_axis((values[0] + values[1]) / 2, ids[..., None], -1))[..., 0]
    expected = np.where(ids == PAD, 0, expected)
    np.testing.assert_allclose(found(ensemble, STRATEGIES[0])[2][:, 0], expected, atol=1e-4)
    np.testing.assert_allclose(
        array(score(ensemble, source_ids, ids).log_probs), expected, atol=1e-4
    )


def test_the_config_is_what_the_members_share():
    models = [talkative_toy(), talkative_toy(3, positions="learned", max_positions=17)]
    config = Ensemble(models).config
    assert (config.vocab_size, config.target_size, config.max_positions) == (V, V, 17)
    assert Ensemble(models[:1]).config.max_positions is None
    assert len(Ensemble([*models, models[0]]).weights) == sum(len(m.weights) for m in models)


def test_members_that_do_not_go_together_are_an_error():
    other = talkative_toy(vocab_size=V + 2)
    with pytest.raises(ValueError, match=r"the same `vocab_size`. Received: \[23, 25\]"):
        Ensemble([talkative_toy(), other])
    with pytest.raises(ValueError, match=r"the same `unk_id`. Received: \[1, 3\]"):
        Ensemble([talkative_toy(), talkative_toy(unk_id=3)])
    with pytest.raises(ValueError, match="`models` must hold a model. Received: 0 models"):
        Ensemble([])
    with pytest.raises(TypeError, match="must be `Transformer`s.*Received: LanguageModel"):
        Ensemble([LanguageModel(toy_config())])
