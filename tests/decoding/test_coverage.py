"""The coverage penalty: scores by hand, from the full pass and its attention."""

import numpy as np
import pytest
from backend import array, in_graph
from toy_model import BOS, EOS, PAD, logits, sources, talkative_toy, toy_transformer

from keras_transformer.decoding import BeamSearch, Ensemble, decode, generate
from keras_transformer.models import LanguageModel

LENGTHS = [7, 3, 5]
STRATEGY = BeamSearch(beam_size=3, n_best=3, max_length=3, length_penalty=0.8, coverage_penalty=0.5)


def found_by(model, source_ids, strategy=STRATEGY):
    found = in_graph(lambda ids: decode(model, ids, strategy).hypotheses)(source_ids)
    return [
        [
            ([int(token) for token in ids if token != PAD], float(score))
            for ids, score in zip(*row, strict=True)
        ]
        for row in zip(array(found.ids), array(found.scores), strict=True)
    ]


def penalised(model, source_ids, ids):
    """The summed log-probability that the full pass gives, over the length penalty."""
    values = logits(model, source_ids, np.array([[BOS, *ids[:-1]]], "int32"))[0].astype("float64")
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    total = sum(row[token] for row, token in zip(values, ids, strict=True))
    return total / ((5 + len(ids)) / 6) ** 0.8


def coverage(model, source_ids, ids):
    """Sum over the source of log(min(attention, 1))."""
    layer = max(model.config.decoder_layers - 2, 0)
    targets = np.array([[BOS, *ids[:-1]]], "int32")
    weights = array(model.attention_scores(source_ids, targets)[2][layer]).mean(axis=1)[0]
    return np.log(np.clip(weights.sum(axis=0), 1e-6, 1)).sum()


@pytest.mark.quick(1)
@pytest.mark.parametrize("layers", [1, 3])
def test_scores_are_those_of_the_full_pass_and_its_attention(layers):
    model, source_ids = talkative_toy(decoder_layers=layers), sources(LENGTHS)
    losses = set()
    for row, length in enumerate(LENGTHS):
        alone = source_ids[[row], :length]
        for ids, score in found_by(model, source_ids)[row]:  # padded, and with batch mates
            lost = 0.5 * coverage(model, alone, ids)
            np.testing.assert_allclose(score, penalised(model, alone, ids) + lost, atol=1e-4)
            losses.add(round(lost, 3))
    assert len(losses) > 3 and min(losses) < -0.01


def test_it_ranks_hypotheses():
    model, source_ids = talkative_toy(), sources(LENGTHS)
    plain = BeamSearch(beam_size=3, n_best=3, extra_length=4, length_penalty=0.8)
    strong = BeamSearch(
        beam_size=3, n_best=3, extra_length=4, length_penalty=0.8, coverage_penalty=20.0
    )
    rows = [[row[0][0] for row in found_by(model, source_ids, each)] for each in (plain, strong)]
    assert rows[0] != rows[1]


@pytest.mark.parametrize("candidates", ["separate", "joint"])
def test_what_the_limit_cuts_is_best_first(candidates):
    strategy = BeamSearch(
        beam_size=4, n_best=4, max_length=3, coverage_penalty=1.0, candidates=candidates
    )
    cut = 0
    for seed in range(3):
        for row in found_by(peaky_toy(seed), sources([7, 3, 5, 6]), strategy):
            scores = [score for ids, score in row if ids and ids[-1] != EOS]
            assert scores == sorted(scores, reverse=True)
            cut += len(scores) > 1
    assert cut > 6


def test_an_ensemble_of_equals_is_one_model():
    model, source_ids = talkative_toy(), sources(LENGTHS)
    one, two = found_by(model, source_ids), found_by(Ensemble([model, model]), source_ids)
    for first, second in zip(one, two, strict=True):
        assert [ids for ids, _ in first] == [ids for ids, _ in second]
        np.testing.assert_allclose([s for _, s in first], [s for _, s in second], atol=1e-4)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="`coverage_penalty` must be at least 0. Received: cov"):
        BeamSearch(coverage_penalty=-0.1)
    with pytest.raises(ValueError, match="`coverage_penalty`"):
        BeamSearch(coverage_penalty=float("nan"))
    with pytest.raises(ValueError, match="`source_ids` must be given under a coverage penalty"):
        STRATEGY.search(None, (), np.array([3], "int32"), 3, talkative_toy().config)
    model = LanguageModel(talkative_toy().config)
    with pytest.raises(ValueError, match="a prompt has no source that could be covered. Received"):
        generate(model, np.array([[5, 6]], "int32"), STRATEGY)


def peaky_toy(seed):
    """A model that hardly ends a row, and reads few of its source's tokens."""
    model = toy_transformer(seed, decoder_layers=1)
    for weight in model.weights:
        if weight.path.endswith("cross_attention/query/kernel"):
            weight.assign(weight * 40)
        elif weight.path.endswith("embeddings"):
            rows = array(weight).copy()
            rows[EOS] = 0
            weight.assign(rows)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("candidates", ["separate", "joint"])
def test_batch_mates_that_go_on_change_nothing(candidates):
    """A row that has ended waits for its mates, and reads no more of its source."""
    strategy = BeamSearch(
        beam_size=3, n_best=3, extra_length=1, coverage_penalty=2.0, candidates=candidates
    )
    lengths = [3, 9, 8, 0, 9, 5, 9]
    source_ids = sources(lengths)
    for seed in range(2):
        model = peaky_toy(seed)
        together = found_by(model, source_ids, strategy)
        for row, length in enumerate(lengths):
            (alone,) = found_by(model, source_ids[[row], : max(length, 1)], strategy)
            assert [ids for ids, _ in together[row]] == [ids for ids, _ in alone]
            np.testing.assert_allclose(
                [score for _, score in together[row]], [score for _, score in alone], atol=1e-4
            )
        assert together[3][0] == ([], 0.0)  # no source, and nothing of it to cover
