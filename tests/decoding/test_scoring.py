"""`score`: the same numbers as the search, and as the logits by hand."""

import numpy as np
import pytest
from backend import array, compiled
from toy_model import BOS, PAD, frozen_toy, logits, sources, talkative_toy, tokens

from keras_transformer.decoding import BeamSearch, decode, score

T = 6


def targets(lengths):
    ids = np.full((len(lengths), max(lengths)), PAD, "int32")
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = tokens(np.random.default_rng(length), 1, length)[0]
    return ids


def test_equals_the_logits_by_hand():
    model, source_ids, target_ids = frozen_toy(), sources([7, 3]), targets([T, 2])
    found = score(model, source_ids, target_ids)
    inputs = np.concatenate([np.full((2, 1), BOS, "int32"), target_ids[:, :-1]], axis=1)
    values = logits(model, source_ids, inputs).astype("float64")
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    for row, length in enumerate((T, 2)):
        expected = [values[row, t, target_ids[row, t]] for t in range(length)]
        np.testing.assert_allclose(array(found.log_probs)[row, :length], expected, atol=1e-5)
        assert np.all(array(found.log_probs)[row, length:] == 0)
        np.testing.assert_allclose(array(found.totals)[row], sum(expected), atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_equals_what_a_beam_search_reports(alpha):
    model, source_ids = talkative_toy(), sources([7, 3, 2, 5])
    strategy = BeamSearch(
        beam_size=3, n_best=3, extra_length=4, length_penalty=alpha, token_log_probs=True
    )
    found = decode(model, source_ids, strategy).hypotheses
    for n in range(3):
        ids = array(found.ids)[:, n]
        again = score(model, source_ids, ids)
        np.testing.assert_allclose(array(again.log_probs), array(found.log_probs)[:, n], atol=1e-4)
        lengths = (ids != PAD).sum(axis=1)
        penalised = array(again.totals) / ((5 + lengths) / 6) ** alpha
        np.testing.assert_allclose(penalised, array(found.scores)[:, n], atol=1e-4)


def test_pads_and_batch_mates_change_nothing():
    model, source_ids, target_ids = frozen_toy(), sources([7, 3]), targets([T, 2])
    together = array(score(model, source_ids, target_ids).totals)
    padded = score(model, *(np.pad(ids, ((0, 0), (0, 4)), constant_values=PAD)
                            for ids in (source_ids, target_ids)))  # fmt: skip
    np.testing.assert_allclose(array(padded.totals), together, atol=1e-5)
    alone = score(model, source_ids[1:, :3], target_ids[1:, :2])
    np.testing.assert_allclose(array(alone.totals), together[1:], atol=1e-5)


def test_xla_agrees():
    model, source_ids, target_ids = frozen_toy(), sources([7, 3]), targets([T, 2])
    run = compiled(lambda source, target: score(model, source, target).totals)
    expected = array(score(model, source_ids, target_ids).totals)
    np.testing.assert_allclose(array(run(source_ids, target_ids)), expected, atol=1e-5)
