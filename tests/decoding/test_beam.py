"""Beam search over tables of probabilities: exhaustive search, and a plain Python beam search."""

import itertools
import math

import numpy as np
import pytest
from backend import array, compiled, in_graph, tensor
from keras import ops
from toy_beams import IDS, KEYS, WORDS, V, after, eager, log_probs_of, search, table_of
from toy_tables import States

from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.constraints import IMPOSSIBLE

LIMIT = 4
EVERY_PREFIX = len(WORDS) ** LIMIT


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def exhaustive(table, alpha, limit, min_length=0):
    """Every finished hypothesis with its score, best first."""
    found = []
    for length in range(limit):
        for words in itertools.product(WORDS, repeat=length):
            ids = [*words, IDS.eos_id]
            if len(ids) >= min_length:
                total = sum(log_probs_of(table, ids))
                found.append((ids, total / penalty(len(ids), alpha)))
    return sorted(found, key=lambda pair: -pair[1])


def plain_beam(table, strategy, limit):
    """The search as its docstring tells it, one hypothesis at a time, in float32."""
    size, alpha = strategy.beam_size, strategy.length_penalty
    alive, finished = [([], np.float32(0))], []
    for position in range(limit):
        grown = []
        for ids, total in alive:
            state = after(0, IDS.bos_id)
            for token in ids:
                state = after(state, token)
            for token in range(V):
                if token in (IDS.pad_id, IDS.bos_id):
                    continue
                if token == IDS.eos_id and position + 1 < strategy.min_length:
                    continue
                grown.append(([*ids, token], np.float32(total + np.float32(table[state, token]))))
        grown.sort(key=lambda pair: -pair[1])  # stable: of equals the lower beam, the lower id
        alive = [pair for pair in grown if pair[0][-1] != IDS.eos_id][:size]
        for ids, total in grown:
            may_end = len(alive) < size or total >= alive[-1][1]
            if ids[-1] == IDS.eos_id and may_end:
                finished.append((ids, np.float32(total / np.float32(penalty(len(ids), alpha)))))
        finished = sorted(finished, key=lambda pair: -pair[1])[:size]
        if not alive:
            break
        if len(finished) == size:
            best = alive[0][1] / penalty(limit if alpha > 0 else position + 1, alpha)
            if strategy.stopping == "first_finished" or finished[-1][1] >= best:
                break
    cut = [(ids, total / penalty(limit, alpha)) for ids, total in alive]
    return (finished + cut)[: strategy.n_best]


@pytest.mark.quick(30)
@pytest.mark.parametrize("seed", range(200))
def test_a_beam_for_every_prefix_equals_exhaustive_search(seed):
    table, alpha = table_of(seed), [0, 0.6, 1, 2, 5, -1][seed % 6]
    strategy = BeamSearch(beam_size=EVERY_PREFIX, length_penalty=alpha, n_best=7)
    (found,) = search(table, strategy, [LIMIT])
    for (ids, score, log_probs), (expected, value) in zip(
        found, exhaustive(table, alpha, LIMIT)[:7], strict=True
    ):
        assert ids == expected
        np.testing.assert_allclose(score, value, atol=1e-4)
        np.testing.assert_allclose(log_probs, log_probs_of(table, ids), atol=1e-5)


@pytest.mark.quick(8)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("stopping", ["exact", "first_finished"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0, -1.0])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_narrow_beams_equal_a_plain_beam_search(size, alpha, stopping, ties):
    strategy = BeamSearch(
        beam_size=size, length_penalty=alpha, n_best=size, stopping=stopping, min_length=size % 3
    )
    for seed in range(6):
        table = table_of(seed, ties)
        (found,) = search(table, strategy, [7])
        expected = plain_beam(table, strategy, 7)
        assert [ids for ids, _, _ in found] == [ids for ids, _ in expected], seed
        np.testing.assert_allclose([s for _, s, _ in found], [s for _, s in expected], atol=1e-4)


@pytest.mark.parametrize(
    ("alpha", "size", "seed"), [(1.0, 2, 95), (2.0, 1, 0), (4.0, 2, 2), (-1.0, 3, 2), (-2.0, 2, 3)]
)
def test_a_row_goes_on_while_a_longer_hypothesis_can_still_win(alpha, size, seed):
    """Tables on which a bound of the wrong length, this step's or the limit's, stops too early."""
    strategy = BeamSearch(beam_size=size, length_penalty=alpha, n_best=size)
    (found,) = search(table_of(seed), strategy, [12])
    expected = plain_beam(table_of(seed), strategy, 12)
    assert [ids for ids, _, _ in found] == [ids for ids, _ in expected]


@pytest.mark.quick(1)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_hypotheses_end_once_are_distinct_and_sorted(alpha):
    strategy = BeamSearch(beam_size=5, length_penalty=alpha, n_best=5)
    for seed in range(20):
        (found,) = search(table_of(seed), strategy, [30])  # all can finish
        assert len({tuple(ids) for ids, _, _ in found}) == 5
        scores = [score for _, score, _ in found]
        assert scores == sorted(scores, reverse=True)
        for ids, score, log_probs in found:
            assert IDS.eos_id not in ids[:-1]
            np.testing.assert_allclose(sum(log_probs) / penalty(len(ids), alpha), score, atol=1e-5)


def test_the_table_of_the_field_case():
    """The table LM of OpenNMT-tf#456: the penalty counts a hypothesis' own length."""
    a, b = 0, 1
    rows = {None: {5: 0.1, a: 0.6, b: 0.3}, a: {5: 0.4, a: 0.35, b: 0.25},
            b: {5: 0.95, a: 0.03, b: 0.02}}  # fmt: skip
    table = np.full((4, V), IMPOSSIBLE, "float32")
    for state, (_, row) in enumerate(rows.items()):
        for token, probability in row.items():
            table[state, token] = math.log(probability)
    table = tensor(table)

    def step(token_ids, cache, position):
        last = token_ids[:, 0]
        state = ops.where(last == a, 1, ops.where(last == b, 2, 0))
        return ops.expand_dims(ops.take(table, state, axis=0), 1), cache

    for alpha, text, score in ((0, [b, 5], -1.2553), (2, [b, 5], None), (5, [a, a, b, 5], -0.3948)):
        for size in (2, 3, 5, 6, 10, 26):
            strategy = BeamSearch(beam_size=size, length_penalty=alpha)
            start = States(ops.zeros(size, "int32"))
            found = strategy.search(step, start, tensor(np.array([4], "int32")), 4, IDS)
            assert [t for t in array(found.ids)[0, 0] if t != IDS.pad_id] == text, (alpha, size)
            if score is not None:
                np.testing.assert_allclose(array(found.scores)[0, 0], score, atol=1e-4)


@pytest.mark.parametrize("run", [in_graph, compiled])
def test_graph_and_xla_agree_with_eager_ties_included(run):
    strategy = BeamSearch(beam_size=3, n_best=3)
    for seed in range(3):
        table = table_of(seed, ties=True)
        pair = (search(table, strategy, [7, 2], mode) for mode in (eager, run))
        for expected, actual in zip(*pair, strict=True):
            assert [h[0] for h in expected] == [h[0] for h in actual]
            np.testing.assert_allclose([h[1] for h in expected], [h[1] for h in actual], atol=1e-5)


@pytest.mark.parametrize("run", [eager, in_graph, compiled])
def test_equal_numbers_are_ordered_by_beam_and_id_in_every_mode(run):
    """Two ids of each state share its whole probability: exp(0) + exp(0) is 2 everywhere."""
    table = np.full((KEYS, V), -1e4)
    rng, ordinary = np.random.default_rng(0), np.setdiff1d(np.arange(V), list(vars(IDS).values()))
    for row in table:
        row[rng.choice(ordinary, 2, replace=False)] = 0.0
    table[:, IDS.eos_id] = -1e5  # never as likely as the last of three
    strategy = BeamSearch(beam_size=3, n_best=3)
    hypotheses = search(table, strategy, [4], run)[0]
    assert [h[0] for h in hypotheses] == by_the_rule(table, 3, 4)


def by_the_rule(table, size, limit):
    """The texts of a beam search where every hypothesis has two next tokens, equally likely."""
    alive = [([], after(0, IDS.bos_id))]
    for _ in range(limit):
        alive = [
            ([*ids, int(token)], after(state, int(token)))
            for ids, state in alive
            for token in np.flatnonzero(table[state] == 0)
        ][:size]
    return [ids for ids, _ in alive]


def test_a_row_depends_on_no_batch_mate():
    strategy, table = BeamSearch(beam_size=3, n_best=3), table_of(5)
    limits = [1, 7, 0, 3, 7, 2]
    together = search(table, strategy, limits)
    for limit, found in zip(limits, together, strict=True):
        (alone,) = search(table, strategy, [limit]) if limit else ([([], 0.0, [])],)
        assert [h[0] for h in found] == [h[0] for h in alone]


def test_what_never_ends_is_cut_at_the_limit():
    table = table_of(1)
    table[:, IDS.eos_id] = IMPOSSIBLE
    (found,) = search(table, BeamSearch(beam_size=2, n_best=2), [5])
    assert [len(ids) for ids, _, _ in found] == [5, 5]


def test_finished_ones_come_before_those_that_are_cut():
    table = table_of(2)
    table[:, IDS.eos_id] -= 9  # hardly ever
    strategy = BeamSearch(beam_size=4, n_best=4)
    (found,) = search(table, strategy, [3])
    ends = [ids[-1] == IDS.eos_id for ids, _, _ in found]
    assert ends == sorted(ends, reverse=True)


def test_greedy_is_a_beam_of_one_without_penalty():
    strategy = BeamSearch(beam_size=1, length_penalty=0.0, stopping="first_finished")
    for seed in range(10):
        table = table_of(seed)
        (((ids, _, _),),) = search(table, strategy, [7])
        state, expected = after(0, IDS.bos_id), []
        while len(expected) < 7 and IDS.eos_id not in expected:
            allowed = [token for token in range(V) if token not in (IDS.pad_id, IDS.bos_id)]
            expected.append(max(allowed, key=lambda token: table[state, token]))
            state = after(state, expected[-1])
        # A beam of one sees two continuations, so EOS in second place ends it as well.
        assert ids == expected or ids[:-1] == expected[: len(ids) - 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(beam_size=0), "`beam_size` must be a positive integer. Received: beam_size=0"),
        (dict(n_best=5), "`n_best` must be at most `beam_size`. Received: n_best=5, beam_size=4"),
        (dict(stopping="never"), r"`stopping` must be one of .*Received: 'never'"),
        (dict(length_penalty=math.nan), "`length_penalty` must be a finite number. Received"),
        (
            dict(length_penalty=-1000),
            "`length_penalty` must be from -5 to 5: powers beyond leave",
        ),
        (dict(min_length=-1), "`min_length` must be an integer of at least 0. Received"),
        (dict(max_length=0), "`max_length` must be a positive integer. Received: max_length=0"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**arguments)


def test_a_row_at_its_limit_stays_as_it_is_while_others_go_on():
    """Nothing ends, so all that is returned was alive when its row was cut."""
    strategy = BeamSearch(beam_size=3, n_best=3)
    for seed in range(5):
        table = table_of(seed)
        table[:, IDS.eos_id] = IMPOSSIBLE
        together = search(table, strategy, [2, 7, 4])
        for row, limit in zip(together, [2, 7, 4], strict=True):
            (alone,) = search(table, strategy, [limit])
            assert [ids for ids, _, _ in row] == [ids for ids, _, _ in alone]
            assert {len(ids) for ids, _, _ in row} == {limit}
