"""Masks and biases that do not fit are refused, with rule and value, on every path alike."""

import keras
import numpy as np
import pytest
from backend import array, compiled, in_graph, tensorflow_only
from toy_model import D, F, H, N, V

from keras_transformer import layers

B, T, S = 2, 5, 7
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(B, T, D)).astype("float32")
SOURCE = rng.normal(size=(B, S, D)).astype("float32")
MASK = rng.random((B, T, T)) < 0.7
PADDING = np.arange(T) < np.array([[[T]], [[3]]])  # (B, 1, T)
PATHS = {"plain": {}, "chunked": dict(attention_chunk=2), "windowed": dict(attention_window=2)}
every_path = pytest.mark.parametrize("options", PATHS.values(), ids=PATHS)
RUNS = {"eager": lambda run, of: run, "graph": in_graph, "XLA": compiled}


def attention(**options):
    layer = layers.MultiHeadSelfAttention(N, H, **options)
    layer.build(INPUTS.shape)
    return layer


def expected(name, sizes, shape):
    text = rf"`{name}` must have shape.*here {sizes}.*Received: shape={shape}"
    return text.replace("(", r"\(").replace(")", r"\)")


WRONG = [
    *[(B, rows, T) for rows in (2, 4, 6, 7, 9)],
    *[(B, T, 4), (B, 1, 6), (3, T, T), (B, 1, 4, T), (B, 2, T, T), (1, 1, 2, T), (T, T), (T,)],
]


@every_path
@pytest.mark.parametrize("name", ["attention_mask", "attention_bias"])
def test_sizes_that_do_not_fit(name, options):
    layer = attention(**options)
    for shape in WRONG:
        values = np.ones(shape, "bool" if name == "attention_mask" else "float32")
        message = expected(name, (B, T, T), shape)
        for run in RUNS.values():
            call = run(lambda x, values: layer(x, **{name: values}), of=layer)
            with pytest.raises(ValueError, match=message):
                call(INPUTS, values)
        symbolic = keras.KerasTensor((None, *shape[1:]), values.dtype.name)
        if shape[0] == B or len(shape) < 3:  # a symbolic batch has no size yet
            with pytest.raises(ValueError, match=expected(name, (None, T, T), symbolic.shape)):
                layer(keras.Input((T, D)), **{name: symbolic})


@tensorflow_only("JAX always knows all sizes")
@every_path
def test_rows_that_only_a_run_knows(options):
    import tensorflow as tf

    layer = attention(**options)
    sizes = [keras.KerasTensor((None, None, D)), keras.KerasTensor((None, None, None), "bool")]
    call = in_graph(lambda x, mask: layer(x, attention_mask=mask), signature=sizes)
    for mask in (MASK, PADDING):
        actual = array(call(INPUTS, mask))
        np.testing.assert_allclose(actual, array(layer(INPUTS, attention_mask=mask)), atol=1e-5)
    for rows in (2, 4, 6, 9):
        with pytest.raises(tf.errors.InvalidArgumentError, match="(Incompatible|broadcastable)"):
            call(INPUTS, np.ones((B, rows, T), bool))


@every_path
def test_a_bias_by_distance_of_another_length(options):
    layer = attention(**options)
    for shape in ((N, 2 * T), (N, 2 * T + 1), (N, T), (2, 2 * T - 1), (1, N, 2 * T - 1)):
        with pytest.raises(ValueError, match=expected("position_bias", (N, 9), shape)):
            layer(INPUTS, position_bias=np.ones(shape, "float32"))


def test_in_windows_each_head_has_its_own_padding():
    mask = rng.random((B, N, 1, T)) < 0.6
    band = np.abs(np.arange(T)[:, None] - np.arange(T)) < 2
    window, plain = attention(attention_window=2), attention()
    plain.set_weights(window.get_weights())
    actual = array(window(INPUTS, attention_mask=mask))
    np.testing.assert_allclose(actual, array(plain(INPUTS, attention_mask=mask & band)), atol=1e-5)


def test_cross_attention_and_its_steps():
    layer = layers.CrossAttention(N, H)
    layer.build(INPUTS.shape, SOURCE.shape)
    for shape in ((B, T, T), (B, 1, T), (B, S), (3, 1, S)):
        mask = np.ones(shape, bool)
        with pytest.raises(ValueError, match=expected("attention_mask", (B, T, S), shape)):
            layer(INPUTS, SOURCE, attention_mask=mask)
        with pytest.raises(ValueError, match=expected("attention_mask", (B, 1, S), shape)):
            layer.start(SOURCE, attention_mask=mask)
    with pytest.raises(ValueError, match=expected("attention_mask", (B, 1, S), (B, T, S))):
        layer.start(SOURCE, attention_mask=np.ones((B, T, S), bool))
    cache = layer.start(SOURCE)
    with pytest.raises(ValueError, match=expected("bias", (B, T, S), (B, 1, 1, T))):
        layer.step(INPUTS, cache, np.zeros((B, 1, 1, T), "float32"))
    one, other = (layer.start(SOURCE, attention_mask=mask) for mask in
                  (np.ones((B, 1, S), bool), np.ones((B, 1, 1, S)).tolist()))  # fmt: skip
    np.testing.assert_array_equal(one[1], other[1])


def test_blocks_and_norms():
    encoder, decoder = layers.EncoderBlock(N, H, F), layers.DecoderBlock(N, H, F)
    norm = layers.BatchNormalization()
    wrong, states = np.ones((B, 4), bool), keras.KerasTensor((B, T, D))
    padding = expected("padding_mask", (B, T), (B, 4))
    for inputs in (INPUTS, states):
        with pytest.raises(ValueError, match=padding):
            encoder(inputs, padding_mask=wrong)
        with pytest.raises(ValueError, match=padding):
            decoder(inputs, SOURCE, padding_mask=wrong)
        with pytest.raises(ValueError, match=expected("attention_mask", (B, T, T), (B, 1, 4))):
            encoder(inputs, attention_mask=wrong[:, None])
        with pytest.raises(ValueError, match=expected("attention_mask", (B, T, S), (B, 1, 4))):
            decoder(inputs, SOURCE, memory_mask=wrong[:, None])
    with pytest.raises(ValueError, match=padding):
        norm(INPUTS, padding_mask=wrong, training=True)
    with pytest.raises(ValueError, match=expected("attention_mask", (B, 1, S), (B, 1, 4))):
        decoder.start(SOURCE, 3, memory_mask=wrong[:, None])


# --- What masks hold -------------------------------------------------------------------------


def test_lists_are_masks_and_biases_too():
    layer = layers.EncoderBlock(N, H, F, normalization="batch")
    bias = np.where(MASK, 0.0, -1.0).astype("float32")
    arrays = dict(attention_mask=MASK, attention_bias=bias, padding_mask=PADDING[:, 0])
    lists = {name: values.tolist() for name, values in arrays.items()}
    outputs = array(layer(INPUTS, **arrays, training=True))
    np.testing.assert_array_equal(layer(INPUTS, **lists, training=True), outputs)
    for numbers in (MASK.astype(int), MASK.astype("float32"), MASK.astype(int).tolist()):
        actual = layer(INPUTS, **{**arrays, "attention_mask": numbers}, training=True)
        np.testing.assert_array_equal(actual, outputs)
    with pytest.raises(ValueError, match="`attention_mask` must be a tensor, or lists .*Received"):
        layer(INPUTS, attention_mask=[[[True] * T, [True] * 4]])


RULE = "`{}` must be boolean, or 0 and 1.*is given as `attention_bias`.*Received: dtype={}"


@every_path
def test_numbers_that_are_no_mask(options):
    layer = attention(**options)
    for values in (
        np.where(MASK, 0, -1e9).astype("float32"),
        np.where(MASK, 0.0, -np.inf).astype("float32"),
        np.where(MASK, 0, -(10**9)).astype("int32"),
        np.where(MASK, 1, 0.5).astype("float32"),
        np.where(MASK, 1, np.nan).astype("float32"),
        np.where(MASK, 1, 2).astype("int32"),
    ):
        message = RULE.format("attention_mask", values.dtype.name)
        with pytest.raises(ValueError, match=f"{message}, with .* among its values"):
            layer(INPUTS, attention_mask=values)
    for run in (in_graph, compiled):  # where no value is known
        call = run(lambda x, mask: layer(x, attention_mask=mask), of=layer)
        whole = array(call(INPUTS, MASK.astype("int32")))
        np.testing.assert_allclose(whole, array(layer(INPUTS, attention_mask=MASK)), atol=1e-5)
        with pytest.raises(ValueError, match="In a graph.*must not be floating.*dtype=float32"):
            call(INPUTS, MASK.astype("float32"))
    with pytest.raises(ValueError, match="In a graph.*must not be floating.*dtype=float32"):
        layer(keras.Input((T, D)), attention_mask=keras.Input((T, T)))


def test_paddings_are_held_to_the_same_rule():
    wrong = np.where(PADDING[:, 0], 0.0, -1e9).astype("float32")
    with pytest.raises(ValueError, match=RULE.format("padding_mask", "float32")):
        layers.EncoderBlock(N, H, F)(INPUTS, padding_mask=wrong)
    with pytest.raises(ValueError, match=RULE.format("attention_mask", "float32")):
        layers.DecoderBlock(N, H, F)(INPUTS, INPUTS, memory_mask=wrong[:, None])


@every_path
def test_a_boolean_mask_is_no_bias(options):
    with pytest.raises(ValueError, match="`attention_bias` must hold numbers.*`attention_mask`"):
        attention(**options)(INPUTS, attention_bias=MASK)


@tensorflow_only("ragged tensors")
def test_ragged_tensors_are_refused():
    import tensorflow as tf

    states = tf.RaggedTensor.from_row_splits(INPUTS.reshape(-1, D), [0, 4, 10])
    ids = tf.ragged.constant([[3, 4], [5]])
    for layer in (
        layers.MultiHeadSelfAttention(N, H),
        layers.PositionwiseFFN(F),
        layers.SinusoidalPositions(),
        layers.LearnedPositions(9),
        layers.EncoderBlock(N, H, F),
    ):
        with pytest.raises(ValueError, match=r"must be dense.*Received: a ragged .*\(2, None, 11"):
            layer(states)
    with pytest.raises(ValueError, match=r"inputs of TokenEmbedding must be dense"):
        layers.TokenEmbedding(V, D)(ids)
    with pytest.raises(ValueError, match=r"inputs of EncoderBlock must be dense"):
        ragged = tf.ragged.constant([[[True] * T], [[True] * 4]])
        layers.EncoderBlock(N, H, F)(INPUTS, attention_mask=ragged)
