"""A table of probabilities in a model's place, and the rules of a search in plain Python."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from backend import array, in_graph, tensor
from keras import ops

from keras_transformer.decoding import BeamSearch
from keras_transformer.decoding.constraints import IMPOSSIBLE

V, KEYS = 11, 13
IDS = SimpleNamespace(pad_id=4, bos_id=2, eos_id=5)
SOURCES = np.array([[7, 8, 5, 4], [8, 7, 5, 4], [1, 0, 3, 5], [5, 4, 4, 4]], "int32")


class States(NamedTuple):
    """The cache of a step over a table."""

    states: object  # (R,) int32

    def reordered(self, rows):
        return States(ops.take(self.states, rows, axis=0))


def table_of(seed, scale=1.5):
    """(KEYS, V) logits, one row for each state that a history can lead to."""
    return (scale * np.random.default_rng(seed).normal(size=(KEYS, V))).astype("float32")


def after(state, token):
    return (3 * state + token + 1) % KEYS


def search(strategy, table, limits, run=in_graph, source_ids=None, **inputs):
    """`strategy.search` over a table: ids (B, N, T), scores and log-probabilities as arrays.

    `inputs` are `prefix_ids` and `allowed_ids`; `source_ids` are rows of `SOURCES` by default.
    """
    source_ids = SOURCES[: len(limits)] if source_ids is None else source_ids
    if isinstance(strategy, BeamSearch):
        strategy = dataclasses.replace(strategy, token_log_probs=True)
    names = tuple(inputs)
    run = searcher(strategy, int(max(limits)), names, run)
    arrays = [tensor(np.array(inputs[name], "int32")) for name in names]
    found = run(
        tensor(table, "float32"), tensor(np.array(limits, "int32")), tensor(source_ids), *arrays
    )
    return [array(field) for field in found if field is not None]


@functools.cache
def searcher(strategy, slots, names, run):
    """One graph for all tables."""

    def decode(table, limits, source_ids, *arrays):
        def step(token_ids, cache, position):
            states = after(cache.states, token_ids[:, 0])
            return ops.expand_dims(ops.take(table, states, axis=0), 1), States(states)

        start = States(ops.zeros(ops.shape(limits)[0] * strategy.beams, "int32"))
        return strategy.search(
            step,
            start,
            limits,
            slots,
            IDS,
            source_ids=source_ids,
            **dict(zip(names, arrays, strict=True)),
        )

    return run(decode)


def tokens(row):
    """A row up to its first pad."""
    kept = [int(token) for token in row if token != IDS.pad_id]
    assert list(row[: len(kept)]) == kept
    return kept


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def own_log_probs(table, ids):
    """The table's own log-probability of each token."""
    state, values = after(0, IDS.bos_id), []
    for token in ids:
        values.append(log_softmax(table[state])[token])
        state = after(state, token)
    return values


def guide(table, strategy, ids, prefix=(), allowed=None):
    """Guiding log-probabilities of every token after `ids`; IMPOSSIBLE where it may not come."""
    state = after(0, IDS.bos_id)
    for token in ids:
        state = after(state, token)
    logits = np.array(table[state], "float64")
    for token in set(ids):
        factor = strategy.repetition_penalty
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    log_probs = log_softmax(logits)
    if len(ids) < len(prefix):
        choice = {prefix[len(ids)]}
    else:
        choice = {token for token in range(V) if may_come(strategy, ids, token, allowed)}
        choice = choice or {IDS.eos_id}
    return np.array([log_probs[t] if t in choice else IMPOSSIBLE for t in range(V)])


def may_come(strategy, ids, token, allowed):
    if token == IDS.eos_id:
        return len(ids) + 1 >= strategy.min_length
    if token in (IDS.pad_id, IDS.bos_id, *strategy.forbidden_ids):
        return False
    if allowed is not None and token not in allowed:
        return False
    size = strategy.no_repeat_ngram
    grown = [*ids, token]
    grams = [tuple(grown[i : i + size]) for i in range(len(grown) - size + 1)] if size else []
    return not (grams and grams[-1] in grams[:-1])
