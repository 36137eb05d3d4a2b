"""Beam searches over small tables of log-probabilities, as lists of hypotheses."""

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
from backend import NAME, array, in_graph, tensor
from keras import ops
from toy_tables import States

from keras_transformer.decoding.constraints import IMPOSSIBLE

V, KEYS = 6, 13
IDS = SimpleNamespace(pad_id=4, bos_id=2, eos_id=5)
WORDS = [0, 1, 3]  # what is neither pad, BOS nor EOS


def table_of(seed, ties=False):
    """(KEYS, V) log-probabilities, one row for each state that a history can lead to."""
    rng = np.random.default_rng(seed)
    logits = rng.integers(0, 3, (KEYS, V)) if ties else 1.5 * rng.normal(size=(KEYS, V))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def after(state, token):
    return (3 * state + token + 1) % KEYS


def eager(function):
    return function


# Eager code is the quicker way to run many small searches on TensorFlow, and the slower on JAX.
QUICKEST = in_graph if NAME == "jax" else eager


@functools.cache
def searcher(strategy, slots, run):
    """The search over a table that is an argument: one graph for all tables."""

    def decode(table, limits):
        def step(token_ids, cache, position):
            states = after(cache.states, token_ids[:, 0])
            return ops.expand_dims(ops.take(table, states, axis=0), 1), States(states)

        start = States(ops.zeros(ops.shape(limits)[0] * strategy.beam_size, "int32"))
        return strategy.search(
            step,
            start,
            limits,
            slots,
            IDS,
        )

    return run(decode)


def search(table, strategy, limits, run=QUICKEST):
    """Hypotheses of each row as lists of (ids, score, log-probabilities)."""
    strategy = dataclasses.replace(strategy, token_log_probs=True)
    found = searcher(strategy, max(limits), run)(
        tensor(table, "float32"), tensor(np.array(limits, "int32"))
    )
    ids, scores, log_probs = (array(field) for field in found)
    rows = []
    for row in range(len(limits)):
        hypotheses = []
        for n in range(strategy.n_best):
            if scores[row, n] > IMPOSSIBLE / 2:
                kept = [int(token) for token in ids[row, n] if token != IDS.pad_id]
                assert list(ids[row, n, : len(kept)]) == kept  # pads behind
                assert np.all(log_probs[row, n, len(kept) :] == 0)
                hypotheses.append((kept, scores[row, n], log_probs[row, n, : len(kept)]))
        rows.append(hypotheses)
    return rows


def log_probs_of(table, ids):
    state, values = after(0, IDS.bos_id), []
    for token in ids:
        values.append(float(table[state, token]))
        state = after(state, token)
    return values
