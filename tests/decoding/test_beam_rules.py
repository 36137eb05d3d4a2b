"""What divides a score, when a row ends, who competes, and what the limit does."""

import math

import numpy as np
import pytest
from toy_beams import IDS, V, after, log_probs_of, search, table_of
from toy_tables import IDS as OTHER_IDS
from toy_tables import search as search_table
from toy_tables import table_of as other_table
from toy_tables import tokens

from keras_transformer.decoding import BeamSearch, Greedy, Sampling

STOPPING = {False: "current_length", "never": "exact", True: "first_finished"}


def penalty(search, length):
    base = length if search.length_normalization == "power" else (5 + length) / 6
    return base**search.length_penalty


def plain_beam(table, search, limit):
    """The search as its docstring tells it, one hypothesis at a time."""
    size, is_joint = search.beam_size, search.candidates == "joint"
    alive, finished, settled = [([], 0.0)], [], False
    for position in range(limit):
        grown, at_limit = [], position + 1 == limit
        for ids, total in alive:
            state = after(0, IDS.bos_id)
            for token in ids:
                state = after(state, token)
            costs = {token: table[state, token] for token in (0, 1, 3, IDS.eos_id)}
            if search.forced_eos and at_limit:
                costs = {IDS.eos_id: 0.0}
            grown += [([*ids, token], total + cost) for token, cost in costs.items()]
        grown.sort(key=lambda pair: -pair[1])
        alive = [pair for pair in grown if pair[0][-1] != IDS.eos_id][:size]
        if is_joint:
            ended = [pair for pair in grown[:size] if pair[0][-1] == IDS.eos_id]
        else:
            ended = [pair for pair in grown if pair[0][-1] == IDS.eos_id]
            ended = [pair for pair in ended if len(alive) < size or pair[1] >= alive[-1][1]]
        finished += [(ids, total / penalty(search, len(ids))) for ids, total in ended]
        finished = sorted(finished, key=lambda pair: -pair[1])[:size]
        if alive and len(finished) == size and not at_limit:
            length = {"exact": limit, "current_length": position + 1}.get(search.stopping)
            if length is None or finished[-1][1] >= alive[0][1] / penalty(search, length):
                settled = True
                break
    cut = [] if settled else [(ids, total / penalty(search, limit)) for ids, total in alive]
    found = sorted(finished + cut, key=lambda pair: -pair[1]) if is_joint else finished + cut
    return found[: search.n_best]


def hugging_face_beam(table, size, alpha, early_stopping, limit, forced_eos=False):
    """Hugging Face's `_beam_search` (transformers 5.24) of one row, step by step as written."""
    running = [([], 0.0)] + [([], -1e9)] * (size - 1)
    done = [([], -1e9, False)] * size  # ids, score, is finished
    unsatisfied = True
    for length in range(1, limit + 1):
        candidates = []
        for ids, total in running:
            state = after(0, IDS.bos_id)
            for token in ids:
                state = after(state, token)
            for token in range(V):
                cost = float(table[state, token])
                if token in (IDS.pad_id, IDS.bos_id):
                    cost = -math.inf
                if forced_eos and length == limit:
                    cost = 0.0 if token == IDS.eos_id else -math.inf
                candidates.append(([*ids, token], total + cost))
        candidates = sorted(candidates, key=lambda pair: -pair[1])[: 2 * size]
        hits = [ids[-1] == IDS.eos_id or length == limit for ids, _ in candidates]
        running = [
            (ids, total - 1e9 * hit) for (ids, total), hit in zip(candidates, hits, strict=True)
        ]
        running = sorted(running, key=lambda pair: -pair[1])[:size]
        full = all(is_finished for *_, is_finished in done) and early_stopping is True
        new = []
        for place, ((ids, total), hit) in enumerate(zip(candidates, hits, strict=True)):
            just = hit and place < size
            score = total / length**alpha - 1e9 * full - 1e9 * (not unsatisfied) - 1e9 * (not just)
            new.append((ids, score, just))
        done = sorted([*done, *new], key=lambda entry: -entry[1])[:size]
        if early_stopping == "never" and alpha > 0:
            best = running[0][1] / limit**alpha
        else:
            best = running[0][1] / length**alpha
        worst = min(score for _, score, _ in done)
        finished = [is_finished for *_, is_finished in done]
        unsatisfied = unsatisfied and any(best > (worst if each else -1e9) for each in finished)
        if not unsatisfied or (all(finished) and early_stopping is True) or all(hits):
            break
    return [(ids, score) for ids, score, is_finished in done if score > -1e8]


def as_hugging_face(size, alpha, early_stopping, **options):
    return BeamSearch(
        **dict(beam_size=size, n_best=size, length_penalty=alpha, candidates="joint"),
        **dict(length_normalization="power", stopping=STOPPING[early_stopping]),
        **options,
    )


def same(found, expected, note):
    assert [ids for ids, *_ in found] == [ids for ids, *_ in expected], note
    scores = [[each[1] for each in side] for side in (found, expected)]
    np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.quick(3)
@pytest.mark.parametrize("candidates", ["separate", "joint"])
@pytest.mark.parametrize("stopping", ["exact", "current_length", "first_finished"])
@pytest.mark.parametrize("normalization", ["gnmt", "power"])
def test_narrow_beams_equal_a_plain_beam_search(normalization, stopping, candidates):
    for alpha, forced in ((0.6, False), (2.0, True)):
        size = 3
        options = dict(length_normalization=normalization, stopping=stopping, candidates=candidates)
        options |= dict(beam_size=size, n_best=size, length_penalty=alpha, forced_eos=forced)
        strategy = BeamSearch(**options)
        for seed in range(2):
            (found,) = search(table_of(seed), strategy, [6])
            same(found, plain_beam(table_of(seed), strategy, 6), (options, seed))


@pytest.mark.quick(1)
@pytest.mark.parametrize("early_stopping", STOPPING)
def test_the_options_that_are_said_to_be_hugging_faces_are(early_stopping):
    """Other hypotheses than the product's own rules find, in some of these tables."""
    others = 0
    for size, alpha, forced in ((2, 1.0, False), (4, 1.0, True), (4, 2.0, False)):
        strategy = as_hugging_face(size, alpha, early_stopping, forced_eos=forced)
        for seed in range(5):
            table = table_of(seed)
            (found,) = search(table, strategy, [5])
            expected = hugging_face_beam(table, size, alpha, early_stopping, 5, forced)
            same(found, expected, (size, alpha, forced, seed))
            plain = BeamSearch(beam_size=size, n_best=size, length_penalty=alpha)
            others += [ids for ids, _ in plain_beam(table, plain, 5)] != [x for x, _ in expected]
    assert others > 3


def test_a_score_is_divided_by_a_power_of_the_length():
    strategy = BeamSearch(beam_size=3, n_best=3, length_penalty=1.5, length_normalization="power")
    (found,) = search(table_of(3), strategy, [9])
    for ids, score, log_probs in found:
        total = sum(log_probs_of(table_of(3), ids))
        np.testing.assert_allclose([score, sum(log_probs)], [total / len(ids) ** 1.5, total], 1e-5)
        assert float(strategy.score_of(total, len(ids))) == pytest.approx(score, abs=1e-5)
    assert float(strategy.score_of(0.0, 0)) == 0.0


@pytest.mark.parametrize("forced", [False, True])
def test_a_batch_changes_nothing_with_joint_candidates(forced):
    strategy, limits = as_hugging_face(3, 1.0, False, forced_eos=forced), [1, 7, 0, 3, 7, 2]
    for seed in range(4):
        table = table_of(seed)
        together = search(table, strategy, limits)
        for limit, found in zip(limits, together, strict=True):
            expected = hugging_face_beam(table, 3, 1.0, False, limit, forced)
            same(found, expected if limit else [([], 0.0)], (seed, limit))


def test_a_batch_changes_nothing_where_eos_is_forced():
    options = dict(beam_size=2, n_best=2, forced_eos=True, stopping="first_finished")
    strategy, limits = BeamSearch(**options), [2, 9, 0, 5]
    for seed in range(6):
        together = search(table_of(seed), strategy, limits)
        for limit, found in zip(limits, together, strict=True):
            expected = plain_beam(table_of(seed), strategy, limit) if limit else [([], 0.0)]
            same(found, expected, (seed, limit))


@pytest.mark.parametrize("search_class", [Greedy, BeamSearch, Sampling])
def test_eos_is_forced_at_the_limit_and_costs_nothing(search_class):
    table, limits = other_table(2), [1, 4, 9]
    table[:, OTHER_IDS.eos_id] -= 9  # hardly ever by itself
    scores = {"scores": True} if search_class is Greedy else {}
    free, forced = (search_class(forced_eos=each, **scores) for each in (False, True))
    ids, totals, log_probs = search_table(forced, table, limits)
    others, _, other_log_probs = search_table(free, table, limits)
    for row, limit in enumerate(limits):
        found = tokens(ids[row, 0])
        assert len(found) == limit and found[-1] == OTHER_IDS.eos_id
        assert log_probs[row, 0, limit - 1] == 0
        np.testing.assert_allclose(
            totals[row, 0], forced.score_of(log_probs[row, 0].sum(), limit), atol=1e-5
        )
        if search_class is not BeamSearch:  # the tokens before are those of a free search
            assert found[:-1] == tokens(others[row, 0])[:-1]
            np.testing.assert_allclose(
                log_probs[row, 0, : limit - 1], other_log_probs[row, 0, : limit - 1], atol=1e-6
            )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(length_normalization="length"),
            r"`length_normalization` must be one of .*'gnmt', 'power'.* Received: .*'length'",
        ),
        (dict(candidates="all"), r"`candidates` must be one of .*'joint'.* Received: .*'all'"),
        (dict(stopping="never"), r"`stopping` must be one of .*current_length.* Received: .*never"),
        (dict(forced_eos=1), "`forced_eos` must be True or False. Received: forced_eos=1"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**arguments)
