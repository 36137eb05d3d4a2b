"""Rank collapse as numbers: the residual of the paper, over real tokens, at every depth."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer.diagnostics import rank_residual, rank_residuals

IDS = np.array([[5, 7, 11, 0, 0], [0, 0, 0, 0, 0], [8, 9, 10, 6, 5]], "int32")  # 0 is the pad


def states(*shape):
    return np.random.default_rng(0).normal(size=shape)


def config(**options):
    sizes = dict(model_dim=6, num_heads=2, encoder_layers=3, decoder_layers=2, intermediate_dim=7)
    return kt.TransformerConfig(vocab_size=13, **sizes, **options)


def block(**options):
    return kt.EncoderBlock(2, 3, 7, **options)


def norm(matrix):
    return np.sqrt(np.linalg.norm(matrix, 1) * np.linalg.norm(matrix, np.inf))


def test_a_residual_by_hand():
    # Mean (2, 4), residual [[-1, -2], [1, 2]]: norms 4 and 3; of the states 8 and 9.
    residual = rank_residual([[[1, 2], [3, 6]]])
    np.testing.assert_allclose(residual, [np.sqrt(4 * 3 / (8 * 9))])
    assert residual.dtype == "float64"


def test_a_residual_of_every_sentence():
    many = states(3, 5, 7)
    expected = [norm(each - each.mean(axis=0)) / norm(each) for each in many]
    np.testing.assert_allclose(rank_residual(many), expected)
    np.testing.assert_allclose(rank_residual(1e-200 * many), expected)  # of any scale


def test_equal_tokens_have_none():
    assert rank_residual(np.tile(states(1, 1, 7), (1, 5, 1)))[0] < 1e-15
    assert rank_residual(states(1, 1, 7)) == 0


def test_no_other_vector_has_less_than_half_of_it():
    (tokens,) = states(1, 5, 3)
    at_mean = rank_residual(tokens[None])[0] * norm(tokens)
    others = tokens.mean(axis=0) + np.random.default_rng(1).normal(size=(10_000, 3))
    assert at_mean / 2 <= min(norm(tokens - other) for other in others) < at_mean


def test_only_real_tokens_count():
    many, mask = states(2, 5, 7), np.arange(5) < [[3], [5]]
    padded = np.where(mask[:, :, None], many, np.nan)
    expected = [rank_residual(many[:1, :3])[0], rank_residual(many[1:])[0]]
    np.testing.assert_allclose(rank_residual(padded, mask), expected)
    np.testing.assert_allclose(rank_residual(padded, ops.convert_to_tensor(mask)), expected)


def test_sentences_of_pads_or_of_zeros():
    mask = np.array([[False, False], [True, True]])
    np.testing.assert_array_equal(rank_residual(np.zeros((2, 2, 3)), mask), [np.nan, 0.0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_states_of_any_precision_are_measured_in_float64(dtype):
    rounded = ops.cast(states(2, 31, 37), dtype)
    residual = rank_residual(rounded)
    assert residual.dtype == "float64"
    expected = rank_residual(ops.convert_to_numpy(rounded).astype("float64"))
    np.testing.assert_allclose(residual, expected, rtol=1e-14)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"`states` must be \(B, S, D\). Received: shape \(3, 5\)"):
        rank_residual(states(3, 5))
    for mask in (np.ones((2, 3)), np.ones((2, 4), bool)):
        with pytest.raises(ValueError, match=r"`mask` must be boolean and \(B, S\). Received"):
            rank_residual(states(2, 3, 5), mask)


def test_a_stack_before_the_first_block_and_after_each():
    blocks, inputs = [block(), block()], states(3, 5, 6).astype("float32")
    first = blocks[0](inputs)
    expected = [rank_residual(each).mean() for each in (inputs, first, blocks[1](first))]
    residuals = rank_residuals(blocks, inputs)
    assert residuals.shape == (3,) and residuals.dtype == "float64"
    np.testing.assert_allclose(residuals, expected, rtol=1e-6)


def test_padding_changes_nothing():
    blocks = [block(normalization="batch"), block()]
    inputs, mask = states(3, 5, 6).astype("float32"), np.arange(5) < [[3], [5], [0]]
    alone = [rank_residuals(blocks, inputs[:1, :3]), rank_residuals(blocks, inputs[1:2])]
    expected = np.mean(alone, axis=0)  # the third sentence has no token
    np.testing.assert_allclose(rank_residuals(blocks, inputs, mask), expected, rtol=1e-5)
    huge = np.where(mask[:, :, None], inputs, 1e3)
    np.testing.assert_allclose(rank_residuals(blocks, huge, mask), expected, rtol=1e-5)


def test_a_model_finds_its_encoder_and_its_padding():
    model = kt.Transformer(config())
    blocks = [model.get_layer(f"encoder_{index}") for index in range(3)]
    first = model.get_layer("source_positions")(model.get_layer("embedding")(IDS))
    expected = rank_residuals(blocks, first, IDS != 0)
    assert expected.shape == (4,) and expected.min() > 0
    np.testing.assert_allclose(rank_residuals(model, IDS), expected, rtol=1e-5)
    both = {"source_ids": IDS, "target_ids": IDS[:, :2]}
    np.testing.assert_allclose(rank_residuals(model, both), expected, rtol=1e-5)


@pytest.mark.quick(2)
@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize(
    "make, depth",
    [
        (kt.LanguageModel, 2),
        (lambda config: kt.TokenClassifier(config, 3), 3),
        (lambda config: kt.SequenceClassifier(config, 3), 3),
    ],
)
def test_other_models_of_this_package(make, depth, residual):
    model = make(config(residual=residual, dropout=0.5))
    residuals = rank_residuals(model, IDS)
    assert residuals.shape == (depth + 1,) and np.all(residuals > 0)
    np.testing.assert_array_equal(residuals, rank_residuals(model, IDS))  # without dropout
    np.testing.assert_allclose(residuals, rank_residuals(model, IDS[[0, 2]]), rtol=1e-5)
    other_pads = np.pad(IDS, ((0, 0), (0, 3)))
    np.testing.assert_allclose(residuals, rank_residuals(model, other_pads), rtol=1e-5)


def test_a_functional_model_of_ones_own():
    inputs = keras.Input((None, 4))
    blocks = [block(), block()]
    hidden = keras.layers.Dense(6)(inputs)
    for each in blocks:
        hidden = each(hidden)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    rows = states(3, 5, 4).astype("float32")
    expected = rank_residuals(blocks, model.layers[1](rows))
    np.testing.assert_allclose(rank_residuals(model, rows), expected, rtol=1e-5)


def test_there_must_be_blocks_and_tokens():
    plain = keras.Sequential([keras.Input((5, 6)), keras.layers.Dense(6)])
    for nothing in ([], plain):
        with pytest.raises(ValueError, match="`model` must hold at least one `EncoderBlock`"):
            rank_residuals(nothing, states(3, 5, 6))
    with pytest.raises(ValueError, match="`mask` must have a real token"):
        rank_residuals([block()], states(3, 5, 6), np.zeros((3, 5), bool))
    with pytest.raises(ValueError, match="`mask` must have a real token"):
        rank_residuals(kt.LanguageModel(config()), np.zeros((2, 3), "int32"))
