"""The rules that all searches share, against the same rules in plain Python."""

import dataclasses
import math

import numpy as np
import pytest
from backend import compiled
from toy_tables import (
    IDS,
    V,
    guide,
    may_come,
    own_log_probs,
    search,
    table_of,
    tokens,
)

from keras_transformer.decoding import BeamSearch, Greedy, Sampling
from keras_transformer.decoding.constraints import IMPOSSIBLE

RULES = {
    "none": {},
    "min_length": dict(min_length=4),
    "forbidden": dict(forbidden_ids=(0, 7, 9)),
    "unigrams": dict(no_repeat_ngram=1),
    "bigrams": dict(no_repeat_ngram=2),
    "trigrams": dict(no_repeat_ngram=3),
    "penalty": dict(repetition_penalty=1.7),
    "reward": dict(repetition_penalty=0.6),
    "all": dict(min_length=3, forbidden_ids=(1,), no_repeat_ngram=2, repetition_penalty=1.3),
}
LIMITS = [9, 3, 9]
ALLOWED = [[0, 1, 3, 4, 4], [4, 4, 4, 4, 4], [8, 5, 6, 10, 2]]
PREFIXES = [[8, 8, 8, 4], [1, 4, 4, 4], [4, 4, 4, 4]]


def inputs_of(case):
    inputs = {"prefix_ids": PREFIXES} if "prefix" in case else {}
    return {**inputs, "allowed_ids": ALLOWED} if "list" in case else inputs


def of_row(inputs, row):
    prefix = [token for token in inputs.get("prefix_ids", [[]] * 3)[row] if token != IDS.pad_id]
    allowed = inputs["allowed_ids"][row] if "allowed_ids" in inputs else None
    return dict(prefix=prefix, allowed=allowed)


def greedy_by_hand(table, strategy, limit, **inputs):
    ids = []
    while len(ids) < limit and IDS.eos_id not in ids:
        ids.append(int(np.argmax(guide(table, strategy, ids, **inputs))))
    return ids


@pytest.mark.quick(12)
@pytest.mark.parametrize("case", ["", "list", "prefix", "list and prefix"])
@pytest.mark.parametrize("rule", RULES)
def test_greedy_search_keeps_every_rule(rule, case):
    strategy, inputs = Greedy(scores=True, **RULES[rule]), inputs_of(case)
    for seed in range(7):
        table = table_of(seed)
        ids, scores, log_probs = search(strategy, table, LIMITS, **inputs)
        for row, limit in enumerate(LIMITS):
            found = tokens(ids[row, 0])
            assert found == greedy_by_hand(table, strategy, limit, **of_row(inputs, row))
            own = own_log_probs(table, found)
            np.testing.assert_allclose(log_probs[row, 0, : len(found)], own, atol=1e-5)
            assert np.all(log_probs[row, 0, len(found) :] == 0)
            np.testing.assert_allclose(scores[row, 0], sum(own), atol=1e-4)


def exhaustive(table, strategy, limit, ids=(), total=0.0, **inputs):
    """Every finished hypothesis with its score."""
    found = []
    for token, value in enumerate(guide(table, strategy, ids, **inputs)):
        if value == IMPOSSIBLE:
            continue
        grown = [*ids, token]
        if token == IDS.eos_id:
            penalty = ((5 + len(grown)) / 6) ** strategy.length_penalty
            found.append((grown, (total + value) / penalty))
        elif len(grown) < limit:
            found += exhaustive(table, strategy, limit, grown, total + value, **inputs)
    return found


@pytest.mark.quick(4)
@pytest.mark.parametrize("case", ["", "list and prefix"])
@pytest.mark.parametrize("rule", RULES)
def test_a_wide_beam_equals_exhaustive_search_under_every_rule(rule, case):
    options, inputs = RULES[rule], inputs_of(case)
    strategy = BeamSearch(beam_size=V**2 if case else 600, n_best=5, length_penalty=0.8, **options)
    for seed in range(12):
        table = table_of(seed)
        ids, scores, log_probs = search(strategy, table, [3, 3, 3], **inputs)
        for row in range(3):
            expected = exhaustive(table, strategy, 3, **of_row(inputs, row))
            expected = sorted(expected, key=lambda pair: -pair[1])[:5]
            finished = [n for n in range(5) if IDS.eos_id in ids[row, n]]
            assert [tokens(ids[row, n]) for n in finished] == [found for found, _ in expected]
            for n, (found, score) in zip(finished, expected, strict=True):
                np.testing.assert_allclose(scores[row, n], score, atol=1e-4)
                own = own_log_probs(table, found)  # the model's, whatever has guided the search
                np.testing.assert_allclose(log_probs[row, n, : len(found)], own, atol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_samples_keep_every_rule(rule):
    strategy = Sampling(n_best=7, temperature=2.0, **RULES[rule])
    inputs, count = inputs_of("list and prefix"), 0
    for seed in range(3):
        ids = search(strategy, table_of(seed), LIMITS, **inputs)[0]
        for row, limit in enumerate(LIMITS):
            given = of_row(inputs, row)
            for sample in ids[row]:
                found = tokens(sample)
                assert len(found) <= limit and IDS.eos_id not in found[:-1]
                assert found[: len(given["prefix"])] == given["prefix"][:limit]
                for place in range(len(given["prefix"]), len(found)):
                    ids_so_far, token = found[:place], found[place]
                    choice = [
                        other
                        for other in range(V)
                        if may_come(strategy, ids_so_far, other, given["allowed"])
                    ]
                    assert token in (choice or [IDS.eos_id])
                    count += 1
    assert count > 60


@pytest.mark.parametrize("search_class", [Greedy, BeamSearch, Sampling])
def test_what_leaves_nothing_to_choose_ends_the_row(search_class):
    everything = tuple(token for token in range(V) if token != IDS.eos_id)
    strategy = search_class(forbidden_ids=everything, min_length=7)
    ids = search(strategy, table_of(0), LIMITS)[0]
    assert [tokens(row) for row in ids[:, 0]] == [[IDS.eos_id]] * 3
    once = search_class(no_repeat_ngram=1, min_length=9, forbidden_ids=(0, 1, 3))
    table = table_of(0)
    ids = search(once, table, [9])[0]
    found = tokens(ids[0, 0])
    assert sorted(found[:-1]) == [6, 7, 8, 9, 10] and found[-1] == IDS.eos_id
    empty = search(search_class(min_length=5), table, [9], allowed_ids=[[IDS.pad_id]])[0]
    assert tokens(empty[0, 0]) == [IDS.eos_id]


@pytest.mark.quick(2)
@pytest.mark.parametrize("rule", ["all", "trigrams", "penalty"])
@pytest.mark.parametrize("search_class", [Greedy, BeamSearch, Sampling])
def test_xla_changes_nothing(search_class, rule):
    strategy, inputs = search_class(**RULES[rule]), inputs_of("list and prefix")
    table = table_of(3)
    expected = search(strategy, table, LIMITS, **inputs)
    np.testing.assert_array_equal(
        search(strategy, table, LIMITS, compiled, **inputs)[0], expected[0]
    )


@pytest.mark.parametrize("search_class", [Greedy, BeamSearch, Sampling])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(min_length=-1), "`min_length` must be an integer of at least 0. Received"),
        (dict(no_repeat_ngram=1.0), "`no_repeat_ngram` must be an integer of at least 0. Received"),
        (dict(repetition_penalty=0), "`repetition_penalty` must be .* above 0. Received: .*=0"),
        (
            dict(repetition_penalty=math.inf),
            "`repetition_penalty` must be a finite .*Received: .*=inf",
        ),
        (dict(forbidden_ids=[3]), r"`forbidden_ids` must be a tuple of integers .*\[3\]"),
        (dict(forbidden_ids=(-1,)), r"`forbidden_ids` must be a tuple of integers .*\(-1,\)"),
        (dict(forbidden_ids=(True,)), "`forbidden_ids` must be a tuple of integers"),
    ],
)
def test_arguments_are_checked(search_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        search_class(**arguments)


def test_eos_and_ids_outside_the_vocabulary_cannot_be_forbidden():
    with pytest.raises(ValueError, match=r"`forbidden_ids` must not hold EOS.*\(3, 5\), eos_id=5"):
        search(Greedy(forbidden_ids=(3, IDS.eos_id)), table_of(0), [3])
    message = r"`forbidden_ids` must lie in \[0, 11\). Received: \(3, 11\)"
    with pytest.raises(ValueError, match=message):
        Greedy(forbidden_ids=(3, V)).check_ids(IDS, V)
    Greedy(forbidden_ids=(3, V - 1)).check_ids(IDS, V)


@pytest.mark.parametrize("search_class", [BeamSearch, Sampling])
def test_options_have_names(search_class):
    with pytest.raises(TypeError, match="positional"):
        search_class(4)
    assert dataclasses.replace(search_class(), extra_length=3).extra_length == 3
