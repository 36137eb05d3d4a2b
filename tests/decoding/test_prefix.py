"""Tokens that are told and not predicted: a search that starts behind them, at no cost."""

import dataclasses
import functools

import numpy as np
import pytest
from backend import array, in_graph, tensor
from keras import ops
from toy_tables import IDS, SOURCES, States, after, log_softmax, table_of, tokens

from keras_transformer.decoding import BeamSearch, Greedy, Sampling

PREFIX = (8, 1)
LIMITS = [9, 4, 7, 0]
SEARCHES = {
    "greedy": Greedy(scores=True),
    "greedy with rules": Greedy(scores=True, forbidden_ids=(7,)),
    "beam": BeamSearch(beam_size=3, n_best=3, length_penalty=0.8, token_log_probs=True),
    "beam with rules": BeamSearch(
        beam_size=3, n_best=3, length_penalty=0.8, token_log_probs=True, forbidden_ids=(7,)
    ),
    "sampling": Sampling(n_best=2, temperature=1.5),
}


@functools.cache
def searcher(search, prefix, unscored):
    """One graph for all tables."""

    def run(table, limits, source_ids, state):
        def step(token_ids, cache, position):
            states = ops.where(position > 0, after(cache.states, token_ids[:, 0]), state)
            return ops.expand_dims(ops.take(table, states, axis=0), 1), States(states)

        start = States(ops.zeros(ops.shape(limits)[0] * search.beams, "int32"))
        inputs = dict(source_ids=source_ids)
        if prefix:
            rows = np.array([prefix] * len(LIMITS), "int32")
            inputs |= dict(prefix_ids=tensor(rows), unscored_prefix=unscored)
        return search.search(step, start, limits, int(max(LIMITS)), IDS, **inputs)

    return in_graph(run)


def found_by(search, table, limits, *, prefix=(), state=0, unscored=0):
    """Ids, scores and log-probabilities of a search over a table that starts in a state."""
    limits, state = (tensor(np.array(value, "int32")) for value in (limits, state))
    run = searcher(search, prefix, unscored)
    found = run(tensor(table, "float32"), limits, tensor(SOURCES[: len(LIMITS)]), state)
    return [array(field) for field in found]


def behind(prefix, state):
    """The state after the first token's and those of a prefix."""
    for token in prefix:
        state = after(state, token)
    return state


@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "sampling"])
def test_told_tokens_are_as_if_the_search_began_behind_them(name):
    search, start, count = SEARCHES[name], after(0, IDS.bos_id), len(PREFIX)
    free = search
    if isinstance(search, BeamSearch):  # which counts the prefix's tokens: see the next test
        search = free = dataclasses.replace(search, length_penalty=0.0)
    for seed in range(6):
        table = table_of(seed)
        ids, scores, log_probs = found_by(
            search, table, LIMITS, prefix=PREFIX, state=start, unscored=count
        )
        fewer = [max(0, limit - count) for limit in LIMITS]
        expected = found_by(free, table, fewer, state=behind(PREFIX, start))
        for row, limit in enumerate(LIMITS):
            for n in range(ids.shape[1]):
                if not limit or expected[1][row, n] < -1e29:
                    continue
                told = [*PREFIX, *tokens(expected[0][row, n])]
                assert tokens(ids[row, n]) == told
                np.testing.assert_allclose(scores[row, n], expected[1][row, n], atol=1e-5)
                values = [*[0.0] * count, *expected[2][row, n, : len(told) - count]]
                np.testing.assert_allclose(log_probs[row, n, : len(told)], values, atol=1e-5)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("unscored", [0, 2])
def test_scores_are_those_of_the_tokens_that_are_not_told(name, unscored):
    search, start = SEARCHES[name], after(0, IDS.bos_id)
    for seed in range(4):
        table = table_of(seed)
        ids, scores, log_probs = found_by(
            search, table, LIMITS, prefix=PREFIX, state=start, unscored=unscored
        )
        for row in range(3):
            for n in range(ids.shape[1]):
                if scores[row, n] < -1e29:
                    continue
                row_ids, state, own = tokens(ids[row, n]), start, []
                assert tuple(row_ids[: len(PREFIX)]) == PREFIX
                for place, token in enumerate(row_ids):
                    own.append(0.0 if place < unscored else log_softmax(table[state])[token])
                    state = after(state, token)
                np.testing.assert_allclose(log_probs[row, n, : len(own)], own, atol=1e-4)
                ended = IDS.eos_id in row_ids
                length = len(own) if ended else LIMITS[row]
                np.testing.assert_allclose(
                    scores[row, n], search.score_of(sum(own), length), atol=1e-4
                )


def test_a_prefix_may_end_a_row():
    for search in (SEARCHES["beam"], SEARCHES["beam with rules"]):
        ids, scores, _ = found_by(search, table_of(1), LIMITS, prefix=(8, IDS.eos_id))
        assert [tokens(row) for row in ids[:3, 0]] == [[8, IDS.eos_id]] * 3
        assert np.all(scores[:3, 1:] < -1e29) and not tokens(ids[3, 0])


@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_a_row_is_scored_behind_its_own_prefix(name):
    """Of two rows with prefixes of other lengths, also where the guided way is taken."""
    rows = np.array([[8, 1], [8, IDS.pad_id]])  # int64, as NumPy makes them
    table, limits = tensor(table_of(3), "float32"), tensor(np.array([6, 6], "int32"))
    found = []
    for penalty in (1.0, 1.0 + 1e-6):
        search = dataclasses.replace(SEARCHES[name], repetition_penalty=penalty)

        def step(token_ids, cache, position):
            states = ops.where(position > 0, after(cache.states, token_ids[:, 0]), 1)
            return ops.expand_dims(ops.take(table, states, axis=0), 1), States(states)

        start = States(ops.zeros(2 * search.beams, "int32"))
        inputs = dict(source_ids=tensor(SOURCES[:2]), prefix_ids=tensor(rows), unscored_prefix=2)
        found.append(search.search(step, start, limits, 6, IDS, **inputs))
    one, other = found
    np.testing.assert_array_equal(array(one.ids), array(other.ids))
    np.testing.assert_allclose(array(one.scores), array(other.scores), atol=1e-4)
    assert np.all(array(one.log_probs)[1, 0, 1:3] < -1e-3)  # its own tokens are not free
    assert np.all(array(one.log_probs)[0, 0, :2] == 0)
