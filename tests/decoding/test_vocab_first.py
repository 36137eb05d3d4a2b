"""Logits (V, R), which greedy search takes where XLA compiles it: the same tokens and numbers."""

import keras
import numpy as np
import pytest
from backend import NAME, array, compiled, in_graph, jax_only, tensor, tensorflow_only
from keras import KerasTensor
from toy_model import sources, talkative_toy, toy_config

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, decode, plan
from keras_transformer.decoding.selection import argmax_vocab_first
from keras_transformer.models import LanguageModel, Transformer

UNEVEN = [5, 3, 0, 7, 1, 4, 2, 6]


@pytest.mark.quick(4)
@pytest.mark.parametrize("vocab_size", [3, 512, 513, 1536, 9973])
@pytest.mark.parametrize("ties", [False, True])
def test_the_first_highest_that_is_not_banned(vocab_size, ties):
    rng = np.random.default_rng(vocab_size)
    bans = [(), (0,), (0, vocab_size - 1), (1, 2), (vocab_size // 2, vocab_size - 2)]
    for banned in bans if vocab_size > 3 else bans[:2]:
        run = compiled(lambda scores, banned=banned: argmax_vocab_first(scores, banned))
        for _ in range(3):
            scores = (
                rng.integers(0, 3, (vocab_size, 7)) if ties else rng.normal(size=(vocab_size, 7))
            )
            scores = scores.astype("float32")
            scores[list(banned), 2:] = 9
            scores[-1, 0] = scores[0, 1] = scores[vocab_size // 2, 2] = scores[-2, 3] = 8
            allowed = scores.copy()
            allowed[list(banned)] = -np.inf
            np.testing.assert_array_equal(array(run(scores)), allowed.argmax(axis=0))


def test_numbers_that_are_none_give_an_id():
    for vocab_size in (5, 700):
        ids = array(argmax_vocab_first(tensor(np.full((vocab_size, 2), np.nan, "float32")), (1,)))
        assert np.all((ids >= 0) & (ids < vocab_size))


def models_with_a_cache(beams):
    """Models, and for each a cache of 4 rows."""
    ids = tensor(sources([5, 3, 4, 7][::beams]))
    for model in (
        talkative_toy(),
        Transformer(toy_config(embedding_sharing="none", target_vocab_size=31)),
        Transformer(toy_config(), dtype="mixed_bfloat16"),
        Ensemble([talkative_toy(), talkative_toy(36, decoder_layers=1)]),
    ):
        yield model, model.start(model.encode(ids), 3, beams)
    model = LanguageModel(toy_config())
    yield model, model.start(4 // beams, 3, beams)


@pytest.mark.parametrize("beams", [1, 2])
def test_a_step_gives_the_same_logits_turned_round(beams):
    ids = tensor([[3], [5], [4], [5]], "int32")
    for model, cache in models_with_a_cache(beams):
        rows, after = model.step(ids, cache, 0, beams)
        columns, after_columns = model.step(ids, cache, 0, beams, vocab_first=True)
        assert keras.backend.standardize_dtype(columns.dtype) == "float32"
        np.testing.assert_allclose(array(columns).T[:, None], array(rows), rtol=1e-5, atol=1e-5)
        keras.tree.map_structure(
            lambda a, b: np.testing.assert_array_equal(array(a), array(b)), after, after_columns
        )


class Watched:
    """A model that notes how its step is called."""

    def __init__(self, model):
        self.model, self.asked = model, set()

    def __getattr__(self, name):
        return getattr(self.model, name)

    def step(self, *arguments, vocab_first=False, **options):
        self.asked.add(vocab_first)
        return self.model.step(*arguments, vocab_first=vocab_first, **options)


def run_of(strategy, compiles, has_lists=False):
    """What a search of uneven rows finds, and which layouts its steps were asked for."""
    model = Watched(talkative_toy(decoder_layers=1))
    on_tensorflow = NAME == "tensorflow"

    def run(ids, prefixes):
        options = {"allowed_ids": ids} if has_lists else {"prefix_ids": prefixes}
        how = dict(jit_compile=compiles) if on_tensorflow else {}
        return decode(model, ids, strategy, **options, **how)

    signature = [KerasTensor((None, None), "int32")] * 2 if on_tensorflow else None
    ids = sources(UNEVEN)
    prefixes = np.zeros((len(UNEVEN), 2), "int32") + model.config.pad_id
    prefixes[1::3] = ids[1::3, :2]
    found = in_graph(run, signature=signature)(ids, prefixes)
    return [array(field) for field in keras.tree.flatten(found) if field is not None], model.asked


PLAIN = [Greedy(extra_length=4), Greedy(extra_length=4, scores=True), Greedy(3, 5)]
OTHERS = [
    Greedy(extra_length=4, min_length=3),
    Greedy(extra_length=4, forbidden_ids=(7, 8)),
    Greedy(extra_length=4, no_repeat_ngram=2),
    Greedy(extra_length=4, repetition_penalty=1.3),
    Sampling(extra_length=4, seed=3),
    Sampling(extra_length=4, temperature=0.0),
    BeamSearch(beam_size=2, extra_length=4),
]


@pytest.mark.slow
@tensorflow_only("JAX always compiles")
@pytest.mark.parametrize(
    "strategy",
    [*PLAIN, OTHERS[1], OTHERS[-1]]
    + [pytest.param(each, marks=pytest.mark.release) for each in (OTHERS[0], *OTHERS[2:-1])],
)
def test_xla_finds_the_same_and_asks_for_it_without_rules(monkeypatch, strategy):
    monkeypatch.setattr(plan, "_LEAST_ROWS", 2)  # so that the batch shrinks
    fast, asked = run_of(strategy, True)
    plain, without_xla = run_of(strategy, False)
    assert asked == {strategy in PLAIN} and without_xla == {False}
    for one, two in zip(fast, plain, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("strategy", PLAIN)
def test_a_shortlist_is_a_rule(strategy):
    assert run_of(strategy, True, has_lists=True)[1] == {False}


@jax_only("it always compiles")
@pytest.mark.parametrize("strategy", PLAIN + OTHERS)
def test_jax_asks_for_it_without_rules(monkeypatch, strategy):
    found, asked = run_of(strategy, True)
    assert asked == {strategy in PLAIN}
    monkeypatch.setattr(Greedy, "takes_vocab_first", False)
    plain, asked = run_of(strategy, True)
    assert asked == {False}
    for one, two in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_search_without_it_says_so():
    with pytest.raises(NotImplementedError, match="Sampling takes logits"):
        Sampling().vocab_first_chooser(None)
