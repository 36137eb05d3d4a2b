"""Rotary, relative, ALiBi, learned and Tensor2Tensor positions, held against the reference."""

import keras
import numpy as np
import numpy_reference as reference
import pytest
from backend import compiled, in_graph, tensorflow_only
from keras import ops
from toy_model import D, H, N, U, randomise

from keras_transformer.layers import (
    AlibiBias,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    LearnedPositions,
    MultiHeadSelfAttention,
    RelativePositionBias,
    SinusoidalPositions,
    masks,
)
from keras_transformer.layers.lowering.cache_slots import next_slots
from keras_transformer.layers.positions import rotate

B, T = 2, 7
HEADS = dict(num_heads=N, key_dim=14, value_dim=U)
LOW = {"mixed_bfloat16": ("bfloat16", 8, (256, 510)), "mixed_float16": ("float16", 11, (2048,))}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


INPUTS = normal(B, T, D)
PADDING = np.arange(T) < np.array([[[T]], [[3]]])  # (B, 1, T)


def numpy(array):
    """Any backend's array of any float dtype, as float32."""
    return ops.convert_to_numpy(ops.cast(array, "float32"))


def attention(**options):
    layer = MultiHeadSelfAttention(**{**HEADS, **options})
    layer.build(INPUTS.shape)
    return randomise(layer)


def relative(**options):
    layer = RelativePositionBias(**{"num_heads": N, **options})
    layer.build(INPUTS.shape)
    layer.weights[0].assign(normal(*layer.weights[0].shape, seed=3))
    return layer


# --- Rotary --------------------------------------------------------------------------------


@pytest.mark.parametrize("key_dim", [2, 6, 14])
@pytest.mark.parametrize("first", [0, 1, 31, 4099])
def test_rotate(key_dim, first):
    states, positions = normal(B, N, T, key_dim), np.arange(first, first + T)
    for given in (positions, ops.convert_to_tensor(positions, "int32")):
        actual = rotate(states, given)
        assert ops.convert_to_numpy(actual).dtype == np.float32
        # An angle of 4099 radians is known to 2e-4 in float32.
        np.testing.assert_allclose(
            actual, reference.rotate(states, positions), atol=1e-5 + 5e-7 * first
        )


def test_rotary_golden():
    # Width 4: rates 1 and 1/100; (1, 2 | 3, 4) at position 1: pairs (1, 3) and (2, 4).
    actual = numpy(rotate(np.array([[[[1.0, 2, 3, 4]]]], "float32"), np.array([1])))
    wanted = [-1.984111, 1.959901, 2.462378, 4.019800]
    np.testing.assert_allclose(actual[0, 0, 0], wanted, atol=1e-6)


@pytest.mark.parametrize("shift", [1, 5, 100])
def test_rotary_products_depend_on_the_distance_only(shift):
    query, key = normal(B, N, T, 14), normal(B, N, T, 14, seed=1)
    positions = np.arange(T)

    def products(first):
        turned = (numpy(rotate(x, positions + first)) for x in (query, key))
        return np.einsum("BNTH,BNSH->BNTS", *turned)

    np.testing.assert_allclose(products(shift), products(0), atol=1e-4)
    turned = numpy(rotate(query, positions))
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=-1), np.linalg.norm(query, axis=-1), rtol=1e-5
    )
    assert np.abs(products(0) - np.einsum("BNTH,BNSH->BNTS", query, key)).max() > 0.1


@pytest.mark.parametrize("first", [0, 1, 12])
def test_rotary_steps_may_begin_anywhere(first):
    """Distances alone count: a sequence further back in the cache gives the same outputs."""
    layer, slots = attention(rotary=True), first + T + 1
    full = numpy(layer(INPUTS, use_causal_mask=True))
    cache = np.zeros((B, N, slots, 14), "float32"), np.zeros((B, N, slots, U), "float32")
    for start, length in [(0, 3), (3, 1), (4, 3)]:
        where = next_slots(length, ops.arange(slots), first + start)
        bias = where.bias + masks.additive(np.arange(slots) >= first)
        part = INPUTS[:, start : start + length]
        outputs, cache = layer.step(part, cache, where._replace(bias=bias))
        np.testing.assert_allclose(outputs, full[:, start : start + length], atol=1e-5)


@pytest.mark.parametrize("policy", LOW)
def test_rotary_in_low_precision_is_rounded_once(policy):
    dtype, bits, pairs = LOW[policy]
    states = np.ones((1, 1, 2, 14), "float32")
    for first in pairs:
        positions = np.array([first, first + 1])
        actual = rotate(ops.cast(states, dtype), positions)
        assert keras.backend.standardize_dtype(actual.dtype) == dtype
        exact = reference.rotate(states, positions)
        assert np.abs(numpy(actual) - exact).max() <= 2.0**-bits * np.abs(exact).max() + 1e-3
        assert np.any(numpy(actual)[0, 0, 0] != numpy(actual)[0, 0, 1])


def test_rotary_needs_pairs():
    with pytest.raises(ValueError, match=f"`key_dim` must be even.*Received: key_dim={H}"):
        MultiHeadSelfAttention(**{**HEADS, "key_dim": H}, rotary=True)


# --- Relative bias and ALiBi ---------------------------------------------------------------

LONG = 301
BUCKETS = [(32, 128), (32, 40), (8, 128), (12, 17), (64, 4096)]


def assert_bias(layer, expected):
    """`expected(query_positions, key_positions)` -> (N, T, S): `call` and `between` give it."""
    for length in (1, 2, T, LONG):
        actual = numpy(layer(np.zeros((B, length, D), "float32")))
        assert actual.shape == (layer.num_heads, 2 * length - 1)
        bias_NTT = expected(np.arange(length), np.arange(length))
        for offset in (1 - length, -1, 0, 1, length - 1):
            if abs(offset) < length:
                t = max(0, -offset)
                np.testing.assert_allclose(
                    actual[:, length - 1 + offset], bias_NTT[:, t, t + offset], rtol=1e-6
                )
        expanded = np.stack([actual[:, length - 1 - t :][:, :length] for t in range(length)], 1)
        np.testing.assert_allclose(expanded, bias_NTT, rtol=1e-6)
        positions = ops.arange(length)
        np.testing.assert_array_equal(layer.between(positions, positions)[0], expanded)
    queries, keys = np.array([200, 3]), np.array([0, 1, 5, 199, 200, 201, 333])
    between = numpy(layer.between(ops.convert_to_tensor(queries), ops.convert_to_tensor(keys)))
    assert between.shape == (1, layer.num_heads, 2, 7)
    np.testing.assert_allclose(between[0], expected(queries, keys), rtol=1e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), BUCKETS)
def test_relative_bias(num_buckets, max_distance, bidirectional):
    arguments = dict(max_distance=max_distance, bidirectional=bidirectional)
    layer = relative(num_buckets=num_buckets, **arguments)
    assert tuple(layer.weights[0].shape) == (num_buckets, N)
    table = reference.array(layer.weights[0])
    assert_bias(layer, lambda t, s: reference.relative_bias(table, t, s, **arguments))


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 7, 8, 12, 16])
def test_alibi_bias(heads):
    assert_bias(AlibiBias(heads), lambda t, s: reference.alibi_bias(heads, t, s))


def test_golden_buckets_and_slopes():
    """T5's buckets for 32 and 128, and the slopes that the ALiBi paper names for 8 heads."""
    firsts = [*range(9), 12, 16, 23, 32, 46, 64, 91]  # the first distance of each bucket
    for bucket, distance in enumerate(firsts[1:], start=1):
        assert reference.relative_bucket(-distance) == bucket
        assert reference.relative_bucket(1 - distance) == bucket - 1
        assert reference.relative_bucket(distance) == 16 + bucket
    assert reference.relative_bucket(-(10**6)) == 15
    causal = {5: 0, 0: 0, -15: 15, -16: 16, -18: 16, -19: 17, -112: 30, -113: 31, -(10**6): 31}
    for offset, bucket in causal.items():
        assert reference.relative_bucket(offset, bidirectional=False) == bucket
    np.testing.assert_allclose(reference.alibi_slopes(8), 0.5 ** np.arange(1, 9))
    np.testing.assert_allclose(reference.alibi_slopes(3), [2**-4, 2**-8, 2**-2])


@pytest.mark.parametrize("policy", LOW)
@pytest.mark.parametrize("layer_class", [AlibiBias, RelativePositionBias])
def test_a_bias_is_float32_under_any_policy(layer_class, policy):
    layer, exact = layer_class(N, dtype=policy), layer_class(N)
    inputs = np.zeros((1, 2101, D), "float32")
    actual, expected = layer(inputs), exact(inputs)
    assert keras.backend.standardize_dtype(actual.dtype) == "float32"
    if layer_class is AlibiBias:
        np.testing.assert_array_equal(actual, expected)
        assert len(np.unique(actual[0])) == 2101


@pytest.mark.quick(4)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, dict(attention_chunk=3), dict(attention_window=2), dict(attention_score="additive")],
    ids=str,
)
@pytest.mark.parametrize("name", ["relative", "alibi"])
def test_position_bias_is_added_to_the_scores(name, options, causal):
    bias = relative() if name == "relative" else AlibiBias(N)
    layer = attention(**options)
    expanded = numpy(bias.between(ops.arange(T), ops.arange(T)))
    for mask in (None, PADDING):
        for other in (None, normal(B, T, T, seed=6)):
            total = expanded if other is None else expanded + other[:, None]
            arguments = dict(attention_mask=mask, use_causal_mask=causal)
            expected, weights = reference.self_attention(
                layer, {**HEADS, **options}, INPUTS, mask, total, causal
            )
            arguments.update(position_bias=bias(INPUTS), attention_bias=other)
            np.testing.assert_allclose(layer(INPUTS, **arguments), expected, atol=1e-5)
            outputs = layer(INPUTS, **arguments, return_attention_scores=True)
            np.testing.assert_allclose(outputs[0], expected, atol=1e-5)
            np.testing.assert_allclose(outputs[1], weights, atol=1e-5)
    unbiased = layer(INPUTS, use_causal_mask=causal)
    assert np.abs(numpy(unbiased) - numpy(layer(INPUTS, **arguments))).max() > 1e-3


@pytest.mark.parametrize("name", ["relative", "alibi"])
def test_biased_steps_equal_the_full_pass(name):
    bias = relative(bidirectional=False) if name == "relative" else AlibiBias(N)
    layer, slots = attention(), T + 2
    full = numpy(layer(INPUTS, position_bias=bias(INPUTS), use_causal_mask=True))
    cache = np.zeros((B, N, slots, 14), "float32"), np.zeros((B, N, slots, U), "float32")
    for first, length in [(0, 2), (2, 1), (3, 4)]:
        where = next_slots(length, ops.arange(slots), first, position_bias=bias.between)
        part = INPUTS[:, first : first + length]
        outputs, cache = layer.step(part, cache, where)
        np.testing.assert_allclose(outputs, full[:, first : first + length], atol=1e-5)


# --- Learned -------------------------------------------------------------------------------

ROWS = 11


def learned(**options):
    layer = LearnedPositions(ROWS, **options)
    layer.build((None, None, D))
    layer.weights[0].assign(normal(ROWS, D, seed=3))
    return layer


@pytest.mark.parametrize("first", [0, 1, ROWS - T])
def test_learned_rows(first):
    layer, table = learned(), normal(ROWS, D, seed=3)
    for position in (first, ops.convert_to_tensor(first, "int32")):
        actual = layer(INPUTS, first_position=position)
        np.testing.assert_allclose(actual, INPUTS + table[first : first + T], atol=1e-6)


def test_a_known_length_beyond_the_table_is_an_error():
    layer, long = learned(), normal(B, ROWS + 1, D)
    assert np.all(np.isfinite(layer(long[:, :ROWS])))
    message = f"`max_positions`.*Received: .*{ROWS + 1}.*max_positions={ROWS}"
    with pytest.raises(ValueError, match=message):
        layer(long)
    with pytest.raises(ValueError, match=message):
        layer(INPUTS, first_position=ROWS + 1 - T)
    with pytest.raises(ValueError, match=message):
        layer(keras.Input((ROWS + 1, D)))
    with pytest.raises(ValueError, match=message):
        compiled(layer)(long)


@tensorflow_only("JAX knows every length while it traces")
def test_an_unknown_length_beyond_the_table_gives_nan_and_never_a_wrong_row():
    layer, long, table = learned(), normal(B, ROWS + 3, D), normal(ROWS, D, seed=3)
    call = in_graph(layer, signature=[keras.KerasTensor((None, None, D))])
    outputs = numpy(call(long))
    np.testing.assert_allclose(outputs[:, :ROWS], long[:, :ROWS] + table, atol=1e-6)
    assert np.all(np.isnan(outputs[:, ROWS:]))


@pytest.mark.parametrize("run", [lambda run: run, in_graph, compiled])
def test_an_unknown_position_beyond_the_table_gives_nan(run):
    layer, table = learned(), normal(ROWS, D, seed=3)
    call = run(lambda inputs, position: layer(inputs, first_position=position))
    outputs = numpy(call(INPUTS, ops.convert_to_tensor(ROWS - 2, "int32")))
    np.testing.assert_allclose(outputs[:, :2], INPUTS[:, :2] + table[ROWS - 2 :], atol=1e-6)
    assert np.all(np.isnan(outputs[:, 2:]))


@pytest.mark.parametrize("policy", LOW)
def test_learned_in_low_precision(policy):
    dtype, bits, _ = LOW[policy]
    layer, table = learned(dtype=policy), normal(ROWS, D, seed=3)
    outputs = layer(ops.cast(INPUTS, dtype))
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    assert np.abs(numpy(outputs) - INPUTS - table[:T]).max() <= 4 * 2.0**-bits * 5


# --- Sinusoidal in Tensor2Tensor's order ---------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3, 4, 8, 11])
def test_split_layout(dim):
    layer = SinusoidalPositions(layout="split")
    actual = numpy(layer(np.zeros((1, 53, dim), "float32")))[0]
    np.testing.assert_allclose(actual, reference.tensor2tensor(53, dim), atol=1e-5)
    part = layer(np.zeros((1, 5, dim), "float32"), first_position=31)
    np.testing.assert_allclose(part[0], reference.tensor2tensor(53, dim)[31:36], atol=1e-5)


@pytest.mark.parametrize("layout", ["interleaved", "split"])
@pytest.mark.parametrize("policy", LOW)
def test_sinusoidal_neighbours_are_distinct_in_low_precision(policy, layout):
    dtype, bits, pairs = LOW[policy]
    length = pairs[-1] + 2
    layer = SinusoidalPositions(layout=layout, dtype=policy)
    outputs = layer(ops.zeros((1, length, D), dtype))
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    table = reference.sinusoidal if layout == "interleaved" else reference.tensor2tensor
    exact = table(length, D)
    np.testing.assert_allclose(numpy(outputs)[0], exact, atol=2.0**-bits + 3e-4)
    assert len(np.unique(numpy(outputs)[0], axis=0)) == length


def test_layout_is_checked():
    message = r"`layout` must be one of \('interleaved', 'split'\)\. Received: .*'columns'"
    with pytest.raises(ValueError, match=message):
        SinusoidalPositions(layout="columns")


@pytest.mark.parametrize("policy", LOW)
@pytest.mark.parametrize("layer", ["attention", "encoder", "decoder", "cross"])
def test_biases_are_added_in_float32(layer, policy):
    """Keras would cast them to the compute dtype, in which neighbours far from 0 are one number."""
    length, steps = 16, -3000 - np.arange(31, dtype="float32") / 16
    states, scores = np.zeros((1, length, D), "float32"), dict(return_attention_scores=True)
    by_distance = np.tile(steps, (N, 1))  # (N, 2T - 1)
    bias = np.tile(steps[:length], (1, length, 1))  # (1, T, T)

    def weights(dtype):
        options = dict(HEADS, dtype=dtype)
        if layer == "cross":
            attend = CrossAttention(**options)
            return numpy(attend(states, states, attention_bias=bias, **scores)[1])
        if layer == "attention":
            attend = MultiHeadSelfAttention(**options)
            return numpy(attend(states, position_bias=by_distance, **scores)[1])
        options["intermediate_dim"] = 4
        if layer == "encoder":
            return numpy(EncoderBlock(**options)(states, attention_bias=bias, **scores)[1])
        block = DecoderBlock(**options)
        return numpy(block(states, states, position_bias=by_distance, **scores)[1])

    np.testing.assert_allclose(weights(policy), weights("float32"), rtol=0.01)


@pytest.mark.parametrize("policy", LOW)
def test_a_relative_bias_is_the_table_s_own_number(policy):
    layer = RelativePositionBias(N, dtype=policy)
    layer.build((None, None, D))
    layer.embeddings.assign(normal(32, N) + 1000)
    expected = np.unique(ops.convert_to_numpy(layer.embeddings.value))
    found = layer(np.zeros((1, 200, D), "float32"))
    assert set(np.unique(ops.convert_to_numpy(found))) <= set(expected)


def test_positions_that_nobody_has_are_nan_and_other_shapes_are_named():
    learned, states = LearnedPositions(10), np.zeros((2, 4, D), "float32")
    assert np.isnan(numpy(learned(states, first_position=-2))[:, :2]).all()
    found = numpy(learned(states, positions=np.array([-1, 0, 9, 10])))
    assert np.isnan(found).all(axis=(0, 2)).tolist() == [True, False, False, True]
    for layer in (learned, SinusoidalPositions()):
        np.testing.assert_array_equal(
            numpy(layer(states, positions=[0, 1, 2, 3])), numpy(layer(states))
        )
        for odd in (np.zeros((4, 2), int), np.zeros((1, 4), int), np.zeros(1, int), np.zeros(())):
            with pytest.raises(ValueError, match=r"`positions` must have shape \(T,\) or \(B, T\)"):
                layer(states, positions=odd)
