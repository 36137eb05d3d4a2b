"""A cache that grows, and a batch that shrinks, give what full sizes give."""

import functools

import numpy as np
import pytest
from backend import array, in_graph, tensorflow_only
from keras import KerasTensor
from toy_model import sources, talkative_toy, toy_config

from keras_transformer.decoding import (
    BeamSearch,
    Ensemble,
    Greedy,
    Sampling,
    decode,
    generate,
    generation,
    plan,
    sizing,
)
from keras_transformer.layers.lowering.tracing import ANYTHING
from keras_transformer.models import LanguageModel, Transformer

SOURCES = sources([7, 3, 0, 5])
# Longer than two blocks of any search.
LENGTHS = dict(min_length=70, extra_length=70)
STRATEGIES = [
    Greedy(**LENGTHS, scores=True),
    BeamSearch(beam_size=3, n_best=2, **LENGTHS),
    Sampling(n_best=2, seed=5, **LENGTHS),
]
# Rows that end one after the other, not in their order, some of them when few others are left.
MANY = sources([9, 2, 14, 1, 5, 0, 12, 3, 8, 6, 2, 11, 4, 13, 7, 10])
PREFIXES = np.where(np.arange(3) < np.arange(16)[:, None] % 4, MANY[:, :1] * 0 + 9, 4)
UNEVEN = [
    Greedy(extra_length=3, scores=True),
    Greedy(extra_length=3, repetition_penalty=1.3, no_repeat_ngram=2),
    BeamSearch(beam_size=3, n_best=2, extra_length=3, token_log_probs=True),
    BeamSearch(beam_size=2, n_best=2, extra_length=3, coverage_penalty=0.3, length_penalty=1.0),
    Sampling(n_best=2, seed=5, extra_length=3),
]


def arrays(found):
    fields = [found.ids, found.truncated, *found.hypotheses]
    return [array(field) for field in fields if field is not None]


def assert_equal(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)


def at_once(monkeypatch, run, signature, *inputs):
    """What `run` gives with all slots from the start, and all rows to the end."""

    def fixed_sizes(search, slots, *others, **options):
        return plan.Plan(ANYTHING, False, None, slots, False, False)

    monkeypatch.setattr(generation, "plan_of", fixed_sizes)
    return arrays(in_graph(run, signature=signature)(*inputs))


@pytest.mark.quick(1)
@tensorflow_only("a cache that grows")
@pytest.mark.parametrize("options", [{}, {"positions": "alibi", "attention_window": 5}], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_blocks_change_nothing(monkeypatch, strategy, options):
    model = talkative_toy(decoder_layers=1, **options)

    def run(ids):
        return decode(model, ids, strategy)

    signature = [KerasTensor((None, None), "int32")]
    one_row = [KerasTensor((1, None), "int32")]
    in_blocks = arrays(in_graph(run, signature=signature)(SOURCES))
    alone = arrays(in_graph(run, signature=one_row)(SOURCES[:1]))
    expected = at_once(monkeypatch, run, signature, SOURCES)
    assert expected[0].shape[1] > 70 and len(np.unique(expected[0])) >= 3
    assert_equal(in_blocks, expected)
    assert_equal(alone, [field[:1] for field in expected])


STAGED = {
    "plain": {},
    "by distance": {"positions": "alibi", "attention_window": 5},
    "a recurrence": {"decoder_recurrence": "ssru"},
}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        *((STRATEGIES[0], options) for options in STAGED.values()),
        *((strategy, STAGED["by distance"]) for strategy in STRATEGIES[1:]),
        *(
            pytest.param(strategy, STAGED[name], marks=pytest.mark.release)
            for strategy in STRATEGIES[1:]
            for name in ("plain", "a recurrence")
        ),
    ],
    ids=str,
)
def test_stages_change_nothing(monkeypatch, strategy, options):
    """Where all sizes are known, as on a device: 15 slots, and then 77."""
    model = talkative_toy(decoder_layers=1, **options)
    expected = arrays(decode(model, SOURCES, strategy))
    grown, ends = type(model.start(model.encode(SOURCES), 1)).grown, []
    monkeypatch.setattr(plan, "is_of_fixed_length", lambda: True)
    monkeypatch.setattr(
        type(model.start(model.encode(SOURCES), 1)),
        "grown",
        lambda self, count: ends.append(count) or grown(self, count),
    )
    found = arrays(decode(model, SOURCES, strategy))
    assert expected[0].shape[1] == 77 and len(np.unique(expected[0])) >= 3
    assert ends == ([1] if "decoder_recurrence" in options else [1, 77 - 15])
    assert_equal(found, expected)


def test_a_stage_that_saves_little_is_none(monkeypatch):
    monkeypatch.setattr(plan, "is_of_fixed_length", lambda: True)
    assert plan.plan_of(Greedy(), 57, (1, 7)).sizing == sizing.Stages((15, 57))
    few = plan.plan_of(Greedy(), 18, (1, 7))
    assert few.sizing is None and few.first_slots == 18


@pytest.mark.quick(1)
@tensorflow_only("a batch that shrinks")
@pytest.mark.parametrize("strategy", UNEVEN, ids=lambda strategy: type(strategy).__name__)
def test_rows_that_leave_change_nothing(monkeypatch, strategy):
    assert_shrinking_changes_nothing(monkeypatch, strategy)


@pytest.mark.slow
@tensorflow_only("a batch that shrinks")
@pytest.mark.parametrize("strategy", UNEVEN[::2], ids=lambda strategy: type(strategy).__name__)
def test_under_xla_too_where_rows_stay_a_power_of_two(monkeypatch, strategy):
    assert set(assert_shrinking_changes_nothing(monkeypatch, strategy, True)) <= {2, 4, 8, 16}


def assert_shrinking_changes_nothing(monkeypatch, strategy, jit_compile=False):
    """The widths of the batch as rows leave it."""
    tf = pytest.importorskip("tensorflow")
    widths = []
    kept_rows = sizing.Sizing.kept_rows

    def watched(self, done):
        rows = kept_rows(self, done)
        tf.py_function(lambda kept: widths.append(len(kept)), [rows], [])
        return rows

    monkeypatch.setattr(sizing.Sizing, "kept_rows", watched)
    monkeypatch.setattr(plan, "_LEAST_ROWS", 2)
    model = talkative_toy(decoder_layers=1)

    def run(ids, prefixes, **how):
        return decode(model, ids, strategy, prefix_ids=prefixes, allowed_ids=ids, **how)

    signature = [KerasTensor((None, None), "int32")] * 2
    inputs = MANY, PREFIXES.astype("int32")
    shrinking = functools.partial(run, jit_compile=jit_compile)
    found = arrays(in_graph(shrinking, signature=signature)(*inputs))
    assert len(set(widths)) >= 2 and widths == sorted(widths, reverse=True)
    assert_equal(found, at_once(monkeypatch, run, signature, *inputs))
    return widths


@pytest.mark.slow
@tensorflow_only("a batch that shrinks")
def test_rows_leave_every_member_of_an_ensemble(monkeypatch):
    models = [talkative_toy(decoder_layers=1), Transformer(toy_config(positions="alibi"))]

    def run(ids):
        return decode(Ensemble(models), ids, UNEVEN[2])

    signature = [KerasTensor((None, None), "int32")]
    found = arrays(in_graph(run, signature=signature)(MANY))
    assert_equal(found, at_once(monkeypatch, run, signature, MANY))


@pytest.mark.quick(1)
@tensorflow_only("a cache that grows")
@pytest.mark.parametrize("prompts", [SOURCES, MANY], ids=["growing", "shrinking"])
def test_prompts_too(monkeypatch, prompts):
    model = LanguageModel(talkative_toy().config)
    strategy = BeamSearch(beam_size=2, **(LENGTHS if prompts is SOURCES else {"extra_length": 2}))

    def run(ids):
        return generate(model, ids, strategy)

    signature = [KerasTensor((None, None), "int32")]
    found = arrays(in_graph(run, signature=signature)(prompts))
    assert_equal(found, at_once(monkeypatch, run, signature, prompts))


@tensorflow_only("sizes that are known only later")
def test_kept_rows_stay_in_their_order_and_fill_up_to_a_power_of_two():
    done = np.array([1, 0, 1, 1, 0, 1, 0, 1], bool)
    exact = sizing.Sizing(0, 0)
    assert array(exact.kept_rows(done)).tolist() == [1, 4, 6]
    filled = sizing.Sizing(0, 0, least=2)
    assert array(filled.kept_rows(done)).tolist() == [0, 1, 4, 6]
    assert array(filled.kept_rows(~done)).tolist() == list(range(8))
    assert array(filled.kept_rows(done | True)).tolist() == [0, 1]
    assert array(exact.kept_rows(done | True)).tolist() == []


@tensorflow_only("sizes that are known only later")
def test_a_batch_shrinks_when_half_of_it_is_done():
    rule = sizing.Sizing(0, 0, least=2)
    assert [int(array(rule.few_rows(rows))) for rows in (1, 2, 3, 4, 9)] == [0, 0, 1, 2, 4]
