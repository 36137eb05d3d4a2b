"""`keras.config.set_floatx` changes nothing of a model that has a dtype of its own."""

import keras
import numpy as np
import pytest
from backend import array, floatx
from toy_model import BOS, PAD, randomise, sources, tokens, toy_config, toy_transformer

from keras_transformer.decoding import BeamSearch, Ensemble, Greedy, Sampling, decode, generate
from keras_transformer.models import LanguageModel
from keras_transformer.training import SmoothedCrossEntropy, TokenAccuracy

SOURCES = sources([5, 3, 2])
PROMPTS = tokens(np.random.default_rng(1), 3, 4)
SAMPLES = Sampling(extra_length=3, n_best=2, top_k=5, top_p=0.9, min_p=0.01)
RULES = {
    **dict(repetition_penalty=1.5, no_repeat_ngram=2, min_length=2, forbidden_ids=(9,)),
    **dict(forced_eos=True, extra_length=3),
}
SEARCHES = {
    "greedy": Greedy(extra_length=3, scores=True),
    "greedy, rules": Greedy(scores=True, **RULES),
    "beam": BeamSearch(beam_size=2, extra_length=3),
    "beam, rules": BeamSearch(
        **dict(beam_size=2, n_best=2, candidates="joint", token_log_probs=True),
        **dict(coverage_penalty=0.2, **RULES),
    ),
    "sampling": SAMPLES,
}


def toy(seed=0, **options):
    return toy_transformer(seed, "float32", decoder_layers=1, **options)


def assert_same(run):
    """`run()` gives the same ids and the same float32 scores, whatever `floatx` is."""
    expected = run()
    for name in ("float64", "float16"):
        with floatx(name):
            found = run()
        np.testing.assert_array_equal(array(found.ids), array(expected.ids), name)
        scores, given = array(found.hypotheses.scores), array(expected.hypotheses.scores)
        assert scores.dtype == given.dtype == "float32"
        np.testing.assert_allclose(scores, given, rtol=1e-6, err_msg=name)


@pytest.mark.smoke
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_searches(search):
    assert_same(lambda: decode(toy(), SOURCES, search))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "options",
    [
        dict(positions="relative", attention_window=2),
        dict(positions="alibi", attention_chunk=2),
        dict(positions="learned", max_positions=17),
        dict(decoder_recurrence="ssru"),
    ],
    ids=str,
)
def test_models(options):
    assert_same(lambda: decode(toy(**options), SOURCES, SEARCHES["beam"]))


def test_ensemble_and_candidates():
    candidates = tokens(np.random.default_rng(2), 3, 6)
    assert_same(
        lambda: decode(
            Ensemble([toy(), toy(1)]), SOURCES, SEARCHES["greedy"], candidate_ids=candidates
        )
    )


def test_generate():
    def run():
        model = randomise(LanguageModel(toy_config(decoder_layers=1), dtype="float32"))
        return generate(model, PROMPTS, SAMPLES)

    assert_same(run)


def test_fit():
    labels = tokens(np.random.default_rng(3), 3, 4)
    labels[1:, 2:] = PAD
    weights = np.full(labels.shape, 3e4, "float32")  # their sum is no float16
    inputs = {"source_ids": SOURCES, "target_ids": np.insert(labels[:, :-1], 0, BOS, axis=1)}

    def run():
        model = toy()
        loss = SmoothedCrossEntropy(0.1, PAD)
        model.compile(keras.optimizers.SGD(0.125), loss, metrics=[TokenAccuracy(PAD)])
        history = model.fit(inputs, labels, sample_weight=weights, verbose=0).history
        return history, array(model.get_layer("embedding").embeddings)

    history, expected = run()
    with floatx("float16"):
        found_history, found = run()
    assert found_history == {key: pytest.approx(each) for key, each in history.items()}
    np.testing.assert_allclose(found, expected, atol=1e-6)
