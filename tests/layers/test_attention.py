"""Attention: the same numbers as Keras' layer, and no look at what is hidden."""

import math

import keras
import numpy as np
import pytest
from backend import array, compiled, gradients, value_and_gradients
from keras import ops
from toy_model import D, F, H, N, U, randomise

from keras_transformer.layers import CrossAttention, MultiHeadSelfAttention, masks
from keras_transformer.layers.lowering.cache_slots import next_slots

B, T, S, E, G = 2, 5, 7, 29, 31
WIDTHS = dict(num_heads=N, key_dim=H, value_dim=U)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


TARGET, SOURCE, KEYS = normal(B, T, D), normal(B, S, E, seed=1), normal(B, S, G, seed=2)
PADDING = np.arange(T) < np.array([[[T]], [[3]]])  # (B, 1, T)
SOURCE_PADDING = np.arange(S) < np.array([[[4]], [[S]]])  # (B, 1, S)


def self_attention(**arguments):
    layer = MultiHeadSelfAttention(**{**WIDTHS, **arguments})
    layer.build(TARGET.shape)
    return randomise(layer)


def cross_attention(**arguments):
    layer = CrossAttention(**{**WIDTHS, **arguments})
    layer.build(TARGET.shape, SOURCE.shape)
    return randomise(layer)


def keras_attention(layer, query_shape, value_shape, key_shape=None):
    """`keras.layers.MultiHeadAttention` with the weights of `layer`."""
    peer = keras.layers.MultiHeadAttention(
        layer.num_heads, layer.key_dim, layer.value_dim, output_shape=layer.output_dim
    )
    peer.build(query_shape, value_shape, key_shape)
    values = {weight.path.split("/", 1)[1]: weight.numpy() for weight in layer.weights}
    for part in ("kernel", "bias"):
        if f"query_key_value/{part}" in values:
            edges = np.cumsum([layer.num_heads * layer.key_dim] * 2)
            thirds = np.split(values.pop(f"query_key_value/{part}"), edges, axis=-1)
            for name, third in zip(("query", "key", "value"), thirds, strict=True):
                values[f"{name}/{part}"] = third
    for weight in peer.weights:
        name = weight.path.split("/", 1)[1].replace("attention_output", "output")
        weight.assign(values.pop(name).reshape(weight.shape))
    assert not values
    return peer


@pytest.mark.parametrize("output_dim", [None, F])
@pytest.mark.parametrize("use_causal_mask", [False, True])
@pytest.mark.parametrize(
    "mask", [None, PADDING, np.tri(T, k=1, dtype=bool)[None], PADDING & np.eye(T, dtype=bool)]
)
def test_self_attention_equals_keras(output_dim, use_causal_mask, mask):
    if mask is not None:
        mask = mask | np.eye(T, dtype=bool)  # no empty rows: there Keras gives the mean instead
    layer = self_attention(output_dim=output_dim)
    peer = keras_attention(layer, TARGET.shape, TARGET.shape)
    arguments = dict(
        attention_mask=mask, use_causal_mask=use_causal_mask, return_attention_scores=True
    )
    outputs, scores = layer(TARGET, **arguments)
    expected, expected_scores = peer(TARGET, TARGET, **arguments)
    assert scores.shape == (B, N, T, T)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    arguments["return_attention_scores"] = False
    np.testing.assert_allclose(layer(TARGET, **arguments), expected, atol=1e-5)


@pytest.mark.parametrize("output_dim", [None, F])
@pytest.mark.parametrize("key", [None, KEYS])
@pytest.mark.parametrize(
    "mask", [None, SOURCE_PADDING, SOURCE_PADDING & (np.arange(T)[:, None] >= np.arange(S))]
)
def test_cross_attention_equals_keras(output_dim, key, mask):
    layer = CrossAttention(**WIDTHS, output_dim=output_dim)
    key_shape = None if key is None else key.shape
    layer.build(TARGET.shape, SOURCE.shape, key_shape)
    peer = keras_attention(randomise(layer), TARGET.shape, SOURCE.shape, key_shape)
    arguments = dict(attention_mask=mask, return_attention_scores=True)
    outputs, scores = layer(TARGET, SOURCE, key, **arguments)
    expected, expected_scores = peer(TARGET, SOURCE, key, **arguments)
    assert scores.shape == (B, N, T, S)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    arguments["return_attention_scores"] = False
    np.testing.assert_allclose(layer(TARGET, SOURCE, key, **arguments), expected, atol=1e-5)


@pytest.mark.quick(8)
@pytest.mark.smoke
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING])
@pytest.mark.parametrize("dropout", [0, 0.1])
@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_later_tokens_never_move_earlier_outputs(dropout, scores, padding, jit, training):
    layer = self_attention(dropout=dropout)

    def call(inputs):
        return layer(
            inputs,
            attention_mask=padding,
            use_causal_mask=True,
            return_attention_scores=scores,
            training=training,
        )

    call = compiled(call, of=layer) if jit else call

    def run(inputs):
        if dropout:
            layer.dropout_layer.seed_generator.state.assign([3, 5])
        outputs = call(inputs)
        return array(outputs[0] if scores else outputs)

    before = run(TARGET)
    for position in range(1, T):
        changed = TARGET.copy()
        changed[:, position:] += normal(B, T - position, D, seed=9)
        after = run(changed)
        np.testing.assert_array_equal(after[:, :position], before[:, :position])
        assert np.all(np.abs(after[0] - before[0]).max(-1)[position:] > 1e-3)


@pytest.mark.parametrize("dropout", [0, 0.1])
def test_gradient_to_later_tokens_is_exactly_zero(dropout):
    layer = self_attention(dropout=dropout)

    def early(inputs):
        return ops.sum(layer(inputs, use_causal_mask=True, training=True)[:, :3] ** 2)

    (gradient,) = gradients(early, TARGET)
    np.testing.assert_array_equal(gradient[:, 3:], np.zeros((B, T - 3, D)))
    assert np.all(np.abs(gradient[:, :3]).max(-1) > 0)


def test_hidden_keys_may_hold_anything():
    layer, cross = self_attention(), cross_attention()
    target, source = TARGET.copy(), SOURCE.copy()
    target[1, 3:], source[0, 4:] = 1e3, -1e3
    np.testing.assert_array_equal(
        layer(target, attention_mask=PADDING)[1, :3], layer(TARGET, attention_mask=PADDING)[1, :3]
    )
    np.testing.assert_array_equal(
        cross(TARGET, source, attention_mask=SOURCE_PADDING),
        cross(TARGET, SOURCE, attention_mask=SOURCE_PADDING),
    )


def test_a_query_without_keys_gets_the_output_of_a_zero_context():
    layer, mask = cross_attention(), SOURCE_PADDING.copy()
    mask[1] = False

    def loss(source):
        return ops.sum(layer(TARGET, source, attention_mask=mask) ** 2)

    outputs, scores = layer(TARGET, SOURCE, attention_mask=mask, return_attention_scores=True)
    bias = layer.output_projection.bias.numpy()
    np.testing.assert_array_equal(outputs[1], np.broadcast_to(bias, (T, D)))
    np.testing.assert_array_equal(scores[1], np.zeros((N, T, S)))
    alone = layer(TARGET[:1], SOURCE[:1], attention_mask=mask[:1])
    np.testing.assert_allclose(outputs[:1], alone, atol=1e-6)
    (gradient,) = gradients(loss, SOURCE)
    np.testing.assert_array_equal(gradient[1], np.zeros((S, E)))
    assert np.any(gradient[0])
    for weight_gradient in value_and_gradients(lambda: loss(SOURCE), layer.trainable_weights)[1]:
        assert np.all(np.isfinite(weight_gradient))


@pytest.mark.parametrize(("policy", "share"), [("mixed_float16", 0.02), ("mixed_bfloat16", 0.1)])
def test_low_precision_with_padding_and_scores_near_minus_20(policy, share):
    def make(dtype):
        layer = self_attention(dtype=dtype)
        bias = layer.query_key_value.bias.numpy()
        level = math.sqrt(20 / math.sqrt(H))
        bias[: N * H], bias[N * H : 2 * N * H] = level, -level
        layer.query_key_value.bias.assign(bias)
        kernel = layer.query_key_value.kernel
        kernel.assign(kernel * 0.1)
        return layer

    def run(layer):
        def outputs(inputs):
            return ops.cast(layer(inputs, attention_mask=PADDING), "float32")

        factors = normal(B, T, D, seed=7)
        (gradient,) = gradients(lambda inputs: ops.sum(outputs(inputs) * factors), TARGET)
        return array(outputs(TARGET)), gradient

    exact, low = make("float32"), make(policy)
    low.set_weights(exact.get_weights())
    query_key = array(exact.query_key_value(TARGET))[..., : 2 * N * H].reshape(B, T, 2, N, H)
    query, key = query_key[:, :, 0], query_key[:, :, 1]
    scores = np.einsum("BTNH,BSNH->BNTS", query, key) / math.sqrt(H)
    assert scores.min() > -30 and scores.max() < -10
    for actual, expected in zip(run(low), run(exact), strict=True):
        assert np.all(np.isfinite(actual))
        assert np.abs(actual - expected).max() < share * np.abs(expected).max()


@pytest.mark.parametrize("shape", [(B, T, T), (B, N, T, T), (1, T, T)])
def test_attention_bias_is_added_to_the_scores(shape):
    layer, bias = self_attention(), normal(*shape, seed=3)
    _, plain = layer(TARGET, return_attention_scores=True)
    outputs, scores = layer(TARGET, attention_bias=bias, return_attention_scores=True)
    tilted = array(plain) * np.exp(bias if bias.ndim == 4 else bias[:, None])
    tilted /= tilted.sum(-1, keepdims=True)
    np.testing.assert_allclose(scores, tilted, atol=1e-5)
    np.testing.assert_allclose(layer(TARGET, attention_bias=bias), outputs, atol=1e-6)
    cross_bias = normal(B, T, S, seed=4)
    cross = cross_attention()
    difference = cross(TARGET, SOURCE, attention_bias=cross_bias) - cross(TARGET, SOURCE)
    assert np.abs(difference).max() > 1e-2


def test_an_additive_causal_mask_equals_the_flag():
    layer = self_attention()
    bias = np.where(np.tri(T, dtype=bool), 0, -1e9).astype("float32")[None]
    np.testing.assert_allclose(
        layer(TARGET, attention_bias=bias), layer(TARGET, use_causal_mask=True), atol=1e-6
    )


def test_scores_are_returned_before_dropout():
    layer = self_attention(dropout=0.5)
    outputs, scores = layer(TARGET, return_attention_scores=True, training=True)
    exact, exact_scores = layer(TARGET, return_attention_scores=True)
    np.testing.assert_array_equal(scores, exact_scores)
    assert np.abs(outputs - exact).max() > 1e-2


@pytest.mark.parametrize("cross", [False, True])
def test_scores_in_a_functional_model(cross):
    arguments = dict(return_attention_scores=True)
    if cross:
        layer, arrays = cross_attention(), [TARGET, SOURCE]
    else:
        layer, arrays = self_attention(), [TARGET]
    inputs = [keras.Input((None, array.shape[-1])) for array in arrays]
    outputs, scores = layer(*inputs, **arguments)
    assert outputs.shape[-1] == D and scores.shape[1] == N
    model = keras.Model(inputs, [outputs, scores])
    expected = layer(*arrays, **arguments)
    for actual, real in zip(model(arrays), expected, strict=True):
        np.testing.assert_array_equal(actual, real)


@pytest.mark.smoke
def test_steps_equal_the_full_pass():
    layer = self_attention()
    full = array(layer(TARGET, use_causal_mask=True))
    slots = T + 2
    cache = np.zeros((B, N, slots, H), "float32"), np.zeros((B, N, slots, U), "float32")
    for first, length in [(0, 2), (2, 1), (3, 2)]:
        part = TARGET[:, first : first + length]
        outputs, cache = layer.step(part, cache, next_slots(length, ops.arange(slots), first))
        np.testing.assert_allclose(outputs, full[:, first : first + length], atol=1e-5)
        assert [states.shape for states in cache] == [(B, N, slots, H), (B, N, slots, U)]


@pytest.mark.parametrize("key", [None, KEYS])
def test_cross_steps_equal_the_call(key):
    layer = CrossAttention(**WIDTHS)
    layer.build(TARGET.shape, SOURCE.shape, None if key is None else key.shape)
    full = array(randomise(layer)(TARGET, SOURCE, key, attention_mask=SOURCE_PADDING))
    memory = layer.start(SOURCE, key, attention_mask=SOURCE_PADDING)
    bias = ops.expand_dims(masks.additive(SOURCE_PADDING), 1)
    assert [states.shape for states in memory] == [(B, N, S, H), (B, N, S, U)]
    for position in range(T):
        step = layer.step(TARGET[:, position : position + 1], memory, bias)
        np.testing.assert_allclose(step[:, 0], full[:, position], atol=1e-5)


def test_a_step_without_a_source_gives_what_the_call_gives():
    layer = CrossAttention(**WIDTHS)
    layer.build(TARGET.shape, SOURCE.shape)
    mask = array(SOURCE_PADDING).copy()
    mask[0] = False
    full = array(randomise(layer)(TARGET, SOURCE, attention_mask=mask))
    cache = layer.start(SOURCE, attention_mask=mask)
    step = layer.step(TARGET, cache, ops.expand_dims(masks.additive(mask), 1))
    np.testing.assert_allclose(step, full, atol=1e-5)


@pytest.mark.parametrize("layer_class", [MultiHeadSelfAttention, CrossAttention])
@pytest.mark.parametrize("name", ["num_heads", "key_dim"])
@pytest.mark.parametrize("value", [0, -2, 1.5, None])
def test_sizes_are_checked(layer_class, name, value):
    message = f"`{name}` must be a positive integer. Received: {name}={value}"
    with pytest.raises(ValueError, match=message):
        layer_class(**{**WIDTHS, name: value})


@pytest.mark.parametrize("layer_class", [MultiHeadSelfAttention, CrossAttention])
@pytest.mark.parametrize(("name", "value"), [("value_dim", 0), ("output_dim", -1)])
def test_optional_sizes_are_checked(layer_class, name, value):
    message = f"`{name}` must be a positive integer. Received: {name}={value}"
    with pytest.raises(ValueError, match=message):
        layer_class(**{**WIDTHS, name: value})
    with pytest.raises(ValueError, match="`dropout` must be a rate"):
        layer_class(**{**WIDTHS, "dropout": 1.5})


@pytest.mark.smoke
def test_golden():
    # One head of width 1: Q = K = V = x = (0, ln 2). Scores x_t x_s; softmax of (0, 0) is even,
    # that of (0, ln2 ln2 = 0.480453) is (0.382145, 0.617855), times values (0, 0.693147).
    layer = MultiHeadSelfAttention(1, 1)
    layer.build((None, None, 1))
    for weight, value in zip(layer.weights, ([[1, 1, 1]], [0, 0, 0], [[1]], [0]), strict=True):
        weight.assign(value)
    outputs = layer(np.log([[[1.0], [2.0]]]).astype("float32"))
    np.testing.assert_allclose(outputs, [[[0.346574], [0.428264]]], atol=1e-6)
