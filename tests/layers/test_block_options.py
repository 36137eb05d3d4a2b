"""Every option of attention, feed-forward and blocks, held against the NumPy reference."""

import functools

import keras
import numpy as np
import numpy_reference as reference
import pytest
from backend import array, in_graph
from toy_model import D, F, H, N, U
from toy_options import assert_near, randomise_all

from keras_transformer.layers import (
    BatchNormalization,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    MultiHeadSelfAttention,
    PositionwiseFFN,
)

B, T, S, E, G = 2, 5, 7, 29, 31
HEADS = dict(num_heads=N, key_dim=H, value_dim=U)
SIZES = dict(**HEADS, intermediate_dim=F)
NORMS = ("layer", "rms", "batch", "none")
GATED = ("glu", "reglu", "geglu", "swiglu")
SCORES = ("scaled_dot_product", "dot_product", "additive")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


INPUTS, MEMORY, KEYS = normal(B, T, D), normal(B, S, E, seed=1), normal(B, S, G, seed=2)
REAL = np.arange(T) < np.array([[T], [3]])  # (B, T)
PADDING = REAL[:, None]
EMPTY_QUERY = PADDING & (np.arange(T)[:, None] != np.array([[[1]], [[2]]]))  # one sees nothing
BY_HEAD = np.random.default_rng(3).random((B, N, T, T)) < 0.6
SOURCE_PADDING = np.arange(S) < np.array([[[4]], [[S]]])  # (B, 1, S)
EMPTY_SOURCE = np.arange(S) < np.array([[[4]], [[0]]])
BIAS = normal(B, N, T, T, seed=4)
MASKS = {"no mask": None, "padding": PADDING, "empty query": EMPTY_QUERY, "by head": BY_HEAD}


def make(layer_class, *shapes, **arguments):
    layer = layer_class(**arguments)
    layer.build(*shapes)
    return randomise_all(layer)


def encoder(**options):
    return make(EncoderBlock, INPUTS.shape, **SIZES, **options)


def decoder(**options):
    return make(DecoderBlock, INPUTS.shape, MEMORY.shape, **SIZES, **options)


def assert_all_near(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_near(one, other)


def check_encoder(mask=None, bias=None, causal=False, **options):
    block = encoder(**options)
    actual = block(
        INPUTS,
        attention_mask=mask,
        attention_bias=bias,
        use_causal_mask=causal,
        return_attention_scores=True,
    )
    expected, kept = reference.encoder_block(
        block, {**SIZES, **options}, INPUTS.astype("float64"), mask, bias, causal
    )
    assert_all_near(actual, [expected, *kept])
    alone = block(INPUTS, attention_mask=mask, attention_bias=bias, use_causal_mask=causal)
    assert_near(alone, expected)


def check_decoder(mask=None, memory_mask=None, bias=None, **options):
    block = decoder(**options)
    masks = dict(attention_mask=mask, memory_mask=memory_mask, attention_bias=bias)
    actual = block(INPUTS, MEMORY, **masks, return_attention_scores=True)
    expected, kept = reference.decoder_block(
        block, {**SIZES, **options}, INPUTS.astype("float64"), MEMORY, mask, memory_mask, bias
    )
    assert_all_near(actual, [expected, *kept])
    assert_near(block(INPUTS, MEMORY, **masks), expected)


# --- The reference itself ------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_the_reference_equals_keras_attention(causal):
    layer = make(MultiHeadSelfAttention, INPUTS.shape, **HEADS)
    peer = keras.layers.MultiHeadAttention(N, H, U)
    peer.build(INPUTS.shape, INPUTS.shape)
    kernels, biases = (
        np.split(reference.array(weight), [N * H, 2 * N * H], axis=-1)
        for weight in layer.query_key_value.weights
    )
    values = [part for pair in zip(kernels, biases, strict=True) for part in pair]
    values += layer.output_projection.get_weights()
    peer.set_weights([v.reshape(w.shape) for v, w in zip(values, peer.weights, strict=True)])
    mask = np.broadcast_to(PADDING, (B, T, T))
    expected = reference.self_attention(layer, HEADS, INPUTS, mask, None, causal)
    arguments = dict(attention_mask=mask, use_causal_mask=causal, return_attention_scores=True)
    assert_all_near(peer(INPUTS, INPUTS, **arguments), expected)


@pytest.mark.parametrize(
    ("kind", "layer_class"),
    [
        ("layer", keras.layers.LayerNormalization),
        ("rms", keras.layers.RMSNormalization),
        ("batch", keras.layers.BatchNormalization),
    ],
)
def test_the_reference_equals_keras_norms(kind, layer_class):
    layer = make(layer_class, INPUTS.shape, epsilon=1e-3)
    expected = reference.normalize(layer, dict(normalization=kind, norm_epsilon=1e-3), INPUTS)
    assert_near(layer(INPUTS), expected)


# --- Blocks --------------------------------------------------------------------------------


@pytest.mark.quick(16)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("normalization", NORMS)
@pytest.mark.parametrize("residual", ["post", "pre", "b2t"])
def test_encoder_block(residual, normalization, mask):
    check_encoder(MASKS[mask], residual=residual, normalization=normalization)


@pytest.mark.quick(12)
@pytest.mark.parametrize(
    ("mask", "memory_mask"),
    [("no mask", None), ("padding", SOURCE_PADDING), ("empty query", EMPTY_SOURCE)],
)
@pytest.mark.parametrize("normalization", NORMS)
@pytest.mark.parametrize("residual", ["post", "pre", "b2t"])
def test_decoder_block(residual, normalization, mask, memory_mask):
    check_decoder(MASKS[mask], memory_mask, residual=residual, normalization=normalization)


@pytest.mark.parametrize("use_feed_forward", [False, True])
@pytest.mark.parametrize("use_residual", [False, True])
@pytest.mark.parametrize("residual", ["post", "pre"])
def test_switches(residual, use_residual, use_feed_forward):
    options = dict(use_residual=use_residual, use_feed_forward=use_feed_forward, residual=residual)
    check_encoder(PADDING, **options)
    check_decoder(None, SOURCE_PADDING, **options)
    paths = [weight.path for weight in decoder(**options).weights]
    assert any("feed_forward" in path for path in paths) == use_feed_forward


@pytest.mark.parametrize("block_class", [EncoderBlock, DecoderBlock])
@pytest.mark.parametrize("switch", ["use_residual", "use_feed_forward"])
def test_b2t_needs_what_it_connects(block_class, switch):
    with pytest.raises(ValueError, match=f"b2t.*Received: .*{switch}=False"):
        block_class(**SIZES, residual="b2t", **{switch: False})


def test_b2t_by_hand():
    """arXiv 2206.00330, written out: the block's input skips all norms but the last."""
    block = decoder(residual="b2t")
    options = {**reference.DEFAULTS, **SIZES}
    x = INPUTS.astype("float64")

    def norm(name, states):
        return reference.normalize(getattr(block, f"{name}_norm"), options, states)

    attended, _ = reference.self_attention(block.self_attention, options, x, causal=True)
    a = norm("self_attention", x + attended)
    crossed, _ = reference.cross_attention(block.cross_attention, options, a, MEMORY)
    c = norm("cross_attention", a + crossed)
    fed = reference.feed_forward(block.feed_forward, "relu", c)
    assert_near(block(INPUTS, MEMORY), norm("feed_forward", x + c + fed))


@pytest.mark.parametrize(
    "name", ["self_attention_norm", "cross_attention_norm", "feed_forward_norm"]
)
@pytest.mark.parametrize("normalization", NORMS)
def test_norms_are_attributes(normalization, name):
    norm = getattr(decoder(normalization=normalization), name)
    assert (norm is None) == (normalization == "none")


@pytest.mark.parametrize("normalization", NORMS[:3])
def test_norm_epsilon(normalization):
    check_encoder(norm_epsilon=0.3, normalization=normalization)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_an_encoder_block_may_be_causal(mask, causal):
    check_encoder(MASKS[mask], BIAS, causal)


EXTRAS = {
    "no biases": dict(use_bias=False),
    "rotary": dict(rotary=True, key_dim=14),
    "window": dict(attention_window=3),
    "dot product": dict(attention_score="dot_product"),
    "additive": dict(attention_score="additive"),
    "additive, rotary, window, pre, rms": {
        **dict(attention_score="additive", rotary=True, key_dim=2, attention_window=2),
        **dict(residual="pre", normalization="rms", activation="swiglu", use_bias=False),
    },
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("mask", MASKS)
def test_options_of_attention_in_blocks(monkeypatch, extra, mask):
    """In a decoder block, rotary and window are for self-attention only."""
    extra = dict(EXTRAS[extra])
    monkeypatch.setitem(SIZES, "key_dim", extra.pop("key_dim", H))
    check_encoder(MASKS[mask], BIAS, causal=False, **extra)
    check_encoder(MASKS[mask], None, causal=True, **extra)
    check_decoder(MASKS[mask], SOURCE_PADDING, BIAS, **extra)


# --- Feed-forward --------------------------------------------------------------------------


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("output_dim", [None, G])
@pytest.mark.parametrize("activation", [*GATED, "relu", "gelu", "silu", "tanh"])
def test_feed_forward(activation, output_dim, use_bias):
    layer = make(
        PositionwiseFFN,
        INPUTS.shape,
        intermediate_dim=F,
        activation=activation,
        output_dim=output_dim,
        use_bias=use_bias,
    )
    matrices = 3 if activation in GATED else 2
    assert len(layer.weights) == matrices * (1 + use_bias)
    assert_near(layer(INPUTS), reference.feed_forward(layer, activation, INPUTS))


@pytest.mark.parametrize("activation", [*GATED, "gelu"])
def test_activations_in_blocks(activation):
    check_encoder(activation=activation)
    check_decoder(activation=activation)


# --- Attention -----------------------------------------------------------------------------

SELF_OPTIONS = {
    "plain": {},
    "rotary": dict(rotary=True, key_dim=14),
    "narrow window": dict(attention_window=1),
    "window": dict(attention_window=3),
    "window of all": dict(attention_window=T + 3),
    "chunks": dict(attention_chunk=2),
    "one chunk": dict(attention_chunk=T + 1),
    "chunks, rotary": dict(attention_chunk=3, rotary=True, key_dim=14),
    "window, rotary": dict(attention_window=2, rotary=True, key_dim=14),
    "output": dict(output_dim=G, value_dim=2),
}


@pytest.mark.quick(12)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("option", SELF_OPTIONS)
def test_self_attention(option, score, causal):
    options = {**HEADS, **SELF_OPTIONS[option], "attention_score": score}
    layer = make(MultiHeadSelfAttention, INPUTS.shape, **options)
    if score == "additive":
        assert tuple(layer.score_vector.shape) == (N, options["key_dim"])
    for mask in MASKS.values():
        for bias in (None, BIAS, BIAS[:, 0]):
            call = dict(attention_mask=mask, attention_bias=bias, use_causal_mask=causal)
            expected = reference.self_attention(layer, options, INPUTS, mask, bias, causal)
            assert_near(layer(INPUTS, **call), expected[0])
            assert_all_near(layer(INPUTS, **call, return_attention_scores=True), expected)


@pytest.mark.quick(4)
@pytest.mark.parametrize("attention_chunk", [None, 2, 11])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("keys", [None, KEYS])
def test_cross_attention(keys, score, attention_chunk):
    options = {**HEADS, "attention_score": score, "attention_chunk": attention_chunk}
    shape = None if keys is None else keys.shape
    layer = make(CrossAttention, INPUTS.shape, MEMORY.shape, shape, **options)
    bias = normal(B, N, T, S, seed=6)
    for mask in (None, SOURCE_PADDING, EMPTY_SOURCE, bias > 0):
        for one_bias in (None, bias, bias[:, 0]):
            call = dict(key=keys, attention_mask=mask, attention_bias=one_bias)
            expected = reference.cross_attention(
                layer, options, INPUTS, MEMORY, keys, mask, one_bias
            )
            assert_near(layer(INPUTS, MEMORY, **call), expected[0])
            assert_all_near(layer(INPUTS, MEMORY, **call, return_attention_scores=True), expected)


@pytest.mark.parametrize("score", SCORES)
def test_a_query_that_sees_nothing_gives_the_output_of_a_zero_context(score):
    layer = make(CrossAttention, INPUTS.shape, MEMORY.shape, **HEADS, attention_score=score)
    outputs, weights = layer(
        INPUTS, MEMORY, attention_mask=EMPTY_SOURCE, return_attention_scores=True
    )
    bias = keras.ops.convert_to_numpy(layer.output_projection.bias)
    np.testing.assert_array_equal(outputs[1], np.broadcast_to(bias, (T, D)))
    np.testing.assert_array_equal(weights[1], np.zeros((N, T, S)))


def test_golden_scores():
    # One head of width 4, the query (1, 0, 0, 0), keys of 0 and 2 times that, v = (3, 0, 0, 0):
    # products 0 and 2, scaled by 1/2: 0 and 1; additive: 3 tanh 1 and 3 tanh 3.
    vector = np.array([[3.0, 0, 0, 0]])
    query = np.array([1.0, 0, 0, 0])
    keys = np.stack([0 * query, 2 * query])[None, None]
    for kind, wanted in zip(SCORES, ([0, 1], [0, 2], [2.284782, 2.985164]), strict=True):
        actual = reference.scores(query[None, None, None], keys, kind, vector)
        np.testing.assert_allclose(actual, [[[wanted]]], atol=1e-6)


# --- Batch normalization in training -------------------------------------------------------


def test_batch_norm_counts_real_positions_only():
    """Statistics over the (B, S) positions of the padding mask; what pads hold moves nothing."""
    block = encoder(normalization="batch", residual="post")
    saved = block.get_weights()
    options = {**reference.DEFAULTS, **SIZES}
    attended, _ = reference.self_attention(block.self_attention, options, INPUTS, PADDING)
    summed = (INPUTS + attended)[REAL]
    norm = block.self_attention_norm
    old = [reference.array(x) for x in (norm.moving_mean, norm.moving_variance)]

    def train(inputs):
        block.set_weights(saved)
        outputs = block(inputs, attention_mask=PADDING, padding_mask=REAL, training=True)
        return keras.ops.convert_to_numpy(outputs), block.get_weights()

    poisoned = np.where(REAL[..., None], INPUTS, 50.0).astype("float32")
    outputs, weights = train(INPUTS)
    share = 1 - norm.momentum
    for moving, before, now in zip(
        (norm.moving_mean, norm.moving_variance), old, (summed.mean(0), summed.var(0)), strict=True
    ):
        assert_near(moving, before + share * (now - before))
    other_outputs, other_weights = train(poisoned)
    np.testing.assert_allclose(outputs[REAL], other_outputs[REAL], atol=1e-5)
    for one, other in zip(weights, other_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert any(np.any(one != before) for one, before in zip(weights, saved, strict=True))


@pytest.mark.parametrize("graph", [False, True])
def test_a_batch_of_pads_alone_leaves_the_running_statistics(graph):
    norm = BatchNormalization(momentum=0.5)
    norm.build((None, None, 3))
    norm.moving_mean.assign([1.0, 2.0, 3.0])
    states, padding = np.full((2, 4, 3), 5.0, "float32"), np.zeros((2, 4), bool)
    run = functools.partial(norm, training=True)
    run = in_graph(run, norm) if graph else run
    run(states, padding)
    np.testing.assert_array_equal(array(norm.moving_mean), [1, 2, 3])
    np.testing.assert_array_equal(array(norm.moving_variance), [1, 1, 1])
    padding[0, 0] = True
    run(states, padding)
    np.testing.assert_allclose(array(norm.moving_mean), [3, 3.5, 4])


def test_a_block_that_is_not_built_tells_its_output():
    states, memory = keras.KerasTensor((None, T, D)), keras.KerasTensor((B, S, E))
    spec = EncoderBlock(**SIZES).compute_output_spec(states, return_attention_scores=True)
    assert [each.shape for each in spec] == [(None, T, D), (None, N, T, T)]
    spec = DecoderBlock(**SIZES).compute_output_spec(states, memory)
    assert spec.shape == (None, T, D)
    with pytest.raises(ValueError, match="`attention_mask` must have shape"):
        EncoderBlock(**SIZES).compute_output_spec(states, np.ones((B, T), bool))
    with pytest.raises(ValueError, match="`attention_mask` must have shape"):
        DecoderBlock(**SIZES).compute_output_spec(states, memory, memory_mask=PADDING)
