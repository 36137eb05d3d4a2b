import keras
import numpy as np
import pytest
from toy_model import BOS, PAD, V, frozen_toy, sources, targets

from keras_transformer.checks import check_causality, check_padding_invariance

S, T = 7, 5


def inputs():
    return sources([S, 3]), targets(2, T)


def test_our_model_passes():
    source_ids, target_ids = inputs()
    causality = check_causality(frozen_toy(), source_ids, target_ids)
    padding = check_padding_invariance(frozen_toy(), source_ids, target_ids, pad_id=PAD)
    assert causality.passed and str(causality) == "causality: passed, 20 comparisons"
    assert padding.passed and str(padding) == "padding invariance: passed, 40 comparisons"


def test_a_leak_to_an_earlier_position_is_found_where_it_is():
    def leaky(source_ids, target_ids):
        logits = np.zeros((*target_ids.shape, V), "float32")
        logits[1, 1, 3] = target_ids[1, 4]  # row 1, position 1 sees position 4
        return logits

    report = check_causality(leaky, *inputs())
    assert [(leak.row, leak.changed, leak.position) for leak in report.leaks] == [(1, 4, 1)]
    assert "row 1: changing 4 moves the logits at position 1 by" in str(report)


def test_a_model_without_a_causal_mask_fails():
    source, target = (keras.Input((None,), dtype="int32", name=f"{n}_ids") for n in
                      ("source", "target"))  # fmt: skip
    states = keras.layers.Embedding(V, 11)(target)
    states = keras.layers.MultiHeadAttention(2, 3)(states, states)
    model = keras.Model({"source_ids": source, "target_ids": target}, keras.layers.Dense(V)(states))
    report = check_causality(model, *inputs())
    assert not report.passed
    assert {leak.changed for leak in report.leaks} == {1, 2, 3, 4}


def test_pads_that_are_seen_are_found_on_their_side():
    def mean_of_source(source_ids, target_ids):
        mean = source_ids.mean(axis=1)[:, None, None] * np.ones((1, target_ids.shape[1], V))
        return mean

    def mean_of_target(source_ids, target_ids):
        return target_ids.mean(axis=1)[:, None, None] * np.ones((1, target_ids.shape[1], V))

    source_ids, target_ids = inputs()
    for model, sign in ((mean_of_source, 1), (mean_of_target, -1)):
        report = check_padding_invariance(model, source_ids, target_ids, pad_id=PAD)
        assert {leak.changed for leak in report.leaks} == {sign, 7 * sign}


def test_nan_is_a_leak():
    def model(source_ids, target_ids):
        fill = np.nan if target_ids[0, 2] != reference[0, 2] else 0.0
        return np.full((*target_ids.shape, V), fill, "float32")

    source_ids, reference = inputs()
    assert {leak.changed for leak in check_causality(model, source_ids, reference).leaks} == {2}


def test_wrong_inputs():
    source_ids, target_ids = inputs()
    with pytest.raises(ValueError, match=r"`source_ids` must be \(B, length\) integers. Received"):
        check_causality(frozen_toy(), [1.5, 2.5], target_ids)
    with pytest.raises(ValueError, match=r"must give logits of shape \(B, T, V\).*Received: "):
        check_causality(lambda source, target: np.zeros((2, 3)), source_ids, target_ids)
    assert target_ids[0, 0] == BOS


def test_the_tolerance_is_relative_to_large_logits():
    def large(source_ids, target_ids):
        noise = 2e-4 * (source_ids.shape[1] % 2)  # float32 noise on logits of about 100
        return np.full((*target_ids.shape, V), 100.0 + noise, "float32")

    assert check_padding_invariance(large, *inputs(), pad_id=PAD).passed
