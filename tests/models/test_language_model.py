"""`LanguageModel`: causal, the same with a cache, and what it generates."""

import keras
import numpy as np
import pytest
from backend import array
from toy_model import BOS, EOS, PAD, D, V, randomise, tokens, toy_config

from keras_transformer import Greedy, LanguageModel, check_causality
from keras_transformer.decoding import generate

T = 9
OPTIONS = [
    dict(),
    dict(residual="pre"),
    dict(positions="rotary", key_dim=14),
    dict(positions="relative"),
    dict(positions="alibi", attention_window=4),
    dict(positions="learned", max_positions=T),
    dict(attention_chunk=4),
    dict(embedding_sharing="none"),
    dict(target_vocab_size=29, embedding_sharing="target_output"),
]


def language_model(**changes):
    """A random model whose tokens do not just repeat themselves."""
    model = randomise(LanguageModel(toy_config(**changes)))
    embeddings = model.get_layer("embedding").embeddings
    embeddings.assign(0.3 * embeddings)
    return model


def rows(count, length=T):
    ids = tokens(np.random.default_rng(3), count, length)
    ids[:, 0] = BOS
    return ids


@pytest.mark.quick(5)
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
@pytest.mark.parametrize("lengths", [[1] * T, [3, 1, 4, 1], [T]], ids=str)
def test_steps_equal_the_full_pass(changes, lengths):
    model, ids = language_model(**changes), rows(2)
    cache, position, pieces = model.start(2, T), 0, []
    for length in lengths:
        logits, cache = model.step(ids[:, position : position + length], cache, position)
        pieces.append(array(logits))
        position += length
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), array(model(ids)), atol=1e-5)


@pytest.mark.quick(2)
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_is_causal(changes):
    model = language_model(**changes)
    report = check_causality(lambda source, target: model(target), rows(2), rows(2))
    assert report.passed, report


def test_pads_behind_change_nothing():
    model, ids = language_model(), rows(2)
    padded = np.pad(ids, ((0, 0), (0, 5)), constant_values=PAD)
    np.testing.assert_allclose(array(model(padded))[:, :T], array(model(ids)), atol=1e-5)


def continued(model, prompt, length):
    """Greedy by the full pass, one token at a time, as a list without BOS."""
    ids = [BOS, *prompt]
    while len(ids) - 1 < length and EOS not in ids[1 + len(prompt) :]:
        logits = array(model(np.array([ids], "int32")))[0, -1]
        logits[[PAD, BOS]] = -np.inf
        ids.append(int(logits.argmax()))
    return ids[1:]


@pytest.mark.quick(2)
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_generation_equals_a_loop_over_the_full_pass(changes):
    model = language_model(**changes)
    prompts = [[7, 9, 11], [8], [], [12, 13]]
    padded = np.full((4, 3), PAD, "int32")
    for row, prompt in zip(padded, prompts, strict=True):
        row[: len(prompt)] = prompt
    result = generate(model, padded, Greedy(extra_length=5))
    ids, truncated = array(result.ids), array(result.truncated)
    for row, prompt in enumerate(prompts):
        expected = continued(model, prompt, len(prompt) + 5)
        assert [token for token in ids[row] if token != PAD] == expected
        assert truncated[row] == (EOS not in expected)
    assert len({tuple(row) for row in ids.tolist()}) > 2


def test_learned_positions_end_a_generation():
    model = language_model(positions="learned", max_positions=6)
    result = generate(model, np.array([[7, 8]], "int32"), Greedy(extra_length=50))
    assert result.ids.shape == (1, 6)
    assert np.all(np.isfinite(array(model(np.array([[BOS, *array(result.ids)[0, :-1]]], "int32")))))


def test_has_no_weights_of_an_encoder():
    with_encoder, without = (
        LanguageModel(toy_config(encoder_layers=layers)).count_params() for layers in (1, 9)
    )
    assert with_encoder == without
    tied, untied = (
        LanguageModel(toy_config(embedding_sharing=sharing)).count_params()
        for sharing in ("all", "none")
    )
    assert untied - tied == V * D


@pytest.mark.slow
def test_learns_and_is_saved(tmp_path):
    """Counting up: after training the continuation is right, and the file gives the same."""
    keras.utils.set_random_seed(1)
    model = LanguageModel(
        toy_config(
            decoder_layers=1, vocab_size=17, model_dim=16, num_heads=2, key_dim=8, value_dim=8
        )  # fmt: skip
    )
    counts = [[(start + step) % 8 + 8 for step in range(6)] for start in range(8)]
    inputs = np.array([[BOS, *count[:-1]] for count in counts], "int32")
    model.compile(
        keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(inputs, np.array(counts, "int32"), epochs=60, verbose=0)
    prompts = np.array([[count[0]] for count in counts], "int32")
    ids = array(generate(model, prompts, Greedy(extra_length=4)).ids)
    np.testing.assert_array_equal(ids, [count[:5] for count in counts])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(loaded(inputs)), array(model(inputs)))
    assert loaded.get_config() == model.get_config()
