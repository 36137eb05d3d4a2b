"""Greedy search over tables of logits, against a plain Python loop."""

from types import SimpleNamespace

import numpy as np
import pytest
from backend import array, compiled, in_graph, record, records, tensor
from keras import KerasTensor, ops

from keras_transformer.decoding import Greedy
from keras_transformer.decoding.token_search import TokenState

V, KEYS = 7, 11  # tokens, and what the cache of the table below can hold
IDS = SimpleNamespace(pad_id=4, bos_id=2, eos_id=5)


def table_of(rows, slots, seed):
    """(rows, slots, KEYS, V) logits, whole numbers, so that there are many ties."""
    return np.random.default_rng(seed).integers(0, 4, (rows, slots, KEYS, V)).astype("float32")


def step_over(table):
    """A step function: the logits depend on the row, the position and all tokens so far."""
    table = tensor(table)

    def step(token_ids, cache, position):
        history = (3 * cache + token_ids[:, 0] + 1) % KEYS
        at_position = ops.take(table, position, axis=1)
        logits = ops.take_along_axis(at_position, history[:, None, None], axis=1)
        return logits, history

    return step


def by_hand(table, limits, slots):
    """What greedy search is, row by row and token by token."""
    outputs = []
    for row, limit in zip(table, limits, strict=True):
        tokens, last, history = [], IDS.bos_id, 0
        while len(tokens) < limit and last != IDS.eos_id:
            history = (3 * history + last + 1) % KEYS
            logits = list(row[len(tokens), history])
            logits[IDS.pad_id] = logits[IDS.bos_id] = -1.0
            last = logits.index(max(logits))
            tokens.append(last)
        outputs.append(tokens + [IDS.pad_id] * (slots - len(tokens)))
    return outputs


def search(table, limits, slots, special_ids=IDS):
    limits = tensor(limits, "int32")
    start = ops.zeros_like(limits)
    return array(Greedy().search(step_over(table), start, limits, slots, special_ids).ids[:, 0])


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("limits", [[9, 9, 9], [1, 0, 4, 9, 2], [3]])
def test_equals_a_plain_loop(limits, seed):
    table = table_of(len(limits), 9, seed)
    np.testing.assert_array_equal(search(table, limits, 9), by_hand(table, limits, 9))


@pytest.mark.parametrize("jit", [False, True])
def test_equals_a_plain_loop_in_a_graph(jit):
    def run(table, limits):
        slots = ops.shape(table)[1]  # on TensorFlow unknown in a graph for all sizes
        return (
            Greedy().search(step_over(table), ops.zeros_like(limits), limits, slots, IDS).ids[:, 0]
        )

    limits, table = np.array([9, 0, 5, 9], "int32"), table_of(4, 9, 3)
    sizes = [KerasTensor((None, None, KEYS, V)), KerasTensor((None,), "int32")]
    call = compiled(run) if jit else in_graph(run, signature=sizes)
    np.testing.assert_array_equal(call(table, limits), by_hand(table, limits, 9))


def test_of_equals_the_lowest_id_wins():
    table = np.zeros((1, 3, KEYS, V), "float32")
    table[..., [1, 3, 6]] = 2.5
    np.testing.assert_array_equal(search(table, [3], 3), [[1, 1, 1]])
    np.testing.assert_array_equal(search(np.zeros_like(table), [3], 3), [[0, 0, 0]])


def test_pad_and_bos_are_never_chosen():
    table = np.zeros((1, 3, KEYS, V), "float32")
    table[..., [IDS.pad_id, IDS.bos_id]] = 9
    table[..., 3] = 1
    np.testing.assert_array_equal(search(table, [3], 3), [[3, 3, 3]])


def test_one_eos_last_then_pads():
    table = table_of(53, 9, 1)
    ids = search(table, [9] * 53, 9)
    ends = 0
    for row, expected in zip(ids.tolist(), by_hand(table, [9] * 53, 9), strict=True):
        if IDS.eos_id in row:
            end = row.index(IDS.eos_id)
            ends += 1
            assert row[end + 1 :] == [IDS.pad_id] * (8 - end)
            assert row == expected
    assert 10 < ends < 53


def test_limits_cut_each_row_by_itself():
    table = table_of(1, 9, 2)
    table[..., IDS.eos_id] = -1
    free = search(table, [9], 9)[0]
    limits = [0, 1, 5, 9, 12]
    ids = search(table.repeat(5, 0), limits[:4] + [9], 9)
    for row, limit in zip(ids, limits, strict=True):
        expected = [*free[:limit], *[IDS.pad_id] * (9 - limit)]
        np.testing.assert_array_equal(row, expected)


def test_rows_do_not_depend_on_their_batch_mates():
    table, limits = table_of(13, 9, 4), np.random.default_rng(0).integers(0, 10, 13)
    together = search(table, limits, 9)
    for row in range(13):
        np.testing.assert_array_equal(search(table[[row]], limits[[row]], 9)[0], together[row])
    order = np.random.default_rng(1).permutation(13)
    np.testing.assert_array_equal(search(table[order], limits[order], 9), together[order])


def test_more_slots_are_pads():
    table, limits = table_of(3, 17, 5), [4, 9, 2]
    short, long = search(table, limits, 9), search(table, limits, 17)
    np.testing.assert_array_equal(long[:, :9], short)
    assert np.all(long[:, 9:] == IDS.pad_id)


def test_stops_when_the_last_row_has_ended():
    calls = []

    def step(token_ids, cache, position):
        record(calls, token_ids[:, 0], position)
        return ops.take(table, position, axis=0)[:, None], cache

    table = np.zeros((9, 2, V), "float32")  # position, row, token
    table[:, 0, 3] = table[:, 1, 6] = 1
    table[1, 0, IDS.eos_id] = table[2, 1, IDS.eos_id] = 2
    ids = Greedy().search(step, ops.zeros(()), tensor([9, 9], "int32"), 9, IDS).ids[:, 0]
    assert array(ids)[:, :4].tolist() == [[3, 5, 4, 4], [6, 6, 5, 4]]
    # BOS first, then each row's own last token; pads for the row that has ended.
    assert records(calls) == [([2, 2], 0), ([3, 6], 1), ([5, 6], 2)]
    Greedy().search(step, ops.zeros(()), tensor([0, 0], "int32"), 9, IDS)
    assert records(calls) == []


@pytest.mark.parametrize("shift", [1, 2])
def test_special_ids_are_the_callers(shift):
    names = (np.arange(V) + shift) % V
    special_ids = SimpleNamespace(**{k: int(names[v]) for k, v in vars(IDS).items()})
    logits = np.random.default_rng(6).normal(size=(5, 9, V))

    def table_step(renamed):
        table = tensor(np.take(logits, np.argsort(names), -1) if renamed else logits)
        return lambda tokens, cache, position: (table[:, position][:, None], cache)

    def found(renamed, special_ids):
        limits = tensor([9] * 5, "int32")
        return array(
            Greedy().search(table_step(renamed), ops.zeros(()), limits, 9, special_ids).ids[:, 0]
        )

    plain, renamed = found(False, IDS), found(True, special_ids)
    np.testing.assert_array_equal(renamed, names[plain])
    assert np.any(plain == IDS.eos_id)


@pytest.mark.parametrize("value", [-1, 1.5, None, "3", True])
def test_extra_length_is_checked(value):
    message = f"`extra_length` must be an integer of at least 0. Received: extra_length={value!r}"
    with pytest.raises(ValueError, match=message):
        Greedy(extra_length=value)


@pytest.mark.parametrize("value", [0, -1, 1.5, "3"])
def test_max_length_is_checked(value):
    message = f"`max_length` must be a positive integer. Received: max_length={value!r}"
    with pytest.raises(ValueError, match=message):
        Greedy(max_length=value)


def test_is_frozen_and_compares_by_value():
    assert Greedy(7, 9) == Greedy(extra_length=7, max_length=9) != Greedy()
    with pytest.raises(AttributeError):
        Greedy().extra_length = 3


def test_state_names_what_the_loop_carries():
    fields = ("position", "token_ids", "output_ids", "log_probs", "finished", "cache")
    assert TokenState._fields == fields
