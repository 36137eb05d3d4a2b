"""Blocks: the paper's wiring, causality, masks, and steps that equal the full pass."""

import keras
import numpy as np
import pytest
from backend import array, dtype_of, gradients
from keras import ops
from toy_model import D, F, H, N, U, V, randomise

from keras_transformer.layers import (
    SSRU,
    BatchNormalization,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    MultiHeadSelfAttention,
    masks,
)
from keras_transformer.layers.blocks import TransformerBlock
from keras_transformer.layers.lowering.cache_slots import next_slots

B, T, S, E = 2, 5, 7, 29
SIZES = dict(num_heads=N, key_dim=H, intermediate_dim=F, value_dim=U)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


INPUTS, MEMORY = normal(B, T, D), normal(B, S, E, seed=1)
MEMORY_MASK = np.arange(S) < np.array([[[4]], [[S]]])  # (B, 1, S)
PADDING = np.arange(T) < np.array([[[T]], [[3]]])  # (B, 1, T)


def encoder(**arguments):
    block = EncoderBlock(**{**SIZES, **arguments})
    block.build(INPUTS.shape)
    return randomise(block)


def decoder(**arguments):
    block = DecoderBlock(**{**SIZES, **arguments})
    block.build(INPUTS.shape, MEMORY.shape)
    return randomise(block)


def wire(block, name, states, sublayer):
    """Section 3.1 for one sub-layer: residual sum and norm, in either order."""
    norm = getattr(block, f"{name}_norm")
    if block.residual == "post":
        return norm(states + sublayer(states))
    return states + sublayer(norm(states))


@pytest.mark.smoke
@pytest.mark.parametrize("residual", ["post", "pre"])
def test_encoder_wiring(residual):
    block = encoder(residual=residual)
    states = wire(
        block, "self_attention", INPUTS, lambda x: block.self_attention(x, attention_mask=PADDING)
    )
    states = wire(block, "feed_forward", states, block.feed_forward)
    np.testing.assert_allclose(block(INPUTS, attention_mask=PADDING), states, atol=1e-4)


@pytest.mark.smoke
@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("mask", [None, PADDING])
def test_decoder_wiring(residual, mask):
    block = decoder(residual=residual)
    states = wire(
        block,
        "self_attention",
        INPUTS,
        lambda x: block.self_attention(x, attention_mask=mask, use_causal_mask=True),
    )
    states = wire(
        block,
        "cross_attention",
        states,
        lambda x: block.cross_attention(x, MEMORY, attention_mask=MEMORY_MASK),
    )
    states = wire(block, "feed_forward", states, block.feed_forward)
    outputs = block(INPUTS, MEMORY, attention_mask=mask, memory_mask=MEMORY_MASK)
    np.testing.assert_allclose(outputs, states, atol=1e-4)


def test_post_norm_outputs_are_normalised():
    block = EncoderBlock(**SIZES)
    outputs = array(block(INPUTS * 100))
    np.testing.assert_allclose(outputs.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(outputs.std(-1), 1, atol=1e-3)


def test_encoder_sees_all_but_the_hidden():
    block, changed = encoder(), INPUTS.copy()
    changed[1, 3:] = 1e3
    before = array(block(INPUTS, attention_mask=PADDING))
    after = array(block(changed, attention_mask=PADDING))
    np.testing.assert_array_equal(after[1, :3], before[1, :3])
    changed = INPUTS.copy()
    changed[:, 2] += 1
    moved = np.abs(block(changed, attention_mask=PADDING) - before).max(-1)
    assert np.all(moved > 1e-4)


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_dropout_is_on_each_sublayer_and_in_training_only(residual):
    block = decoder(residual=residual, dropout=0.3)
    exact = array(block(INPUTS, MEMORY))
    np.testing.assert_array_equal(block(INPUTS, MEMORY, training=False), exact)
    layers = [getattr(block, f"{name}_dropout") for name in ("self_attention", "cross_attention")]
    for layer in [*layers, block.feed_forward_dropout]:
        others = {*layers, block.feed_forward_dropout} - {layer}
        for other in others:
            other.rate = 0
        assert np.abs(block(INPUTS, MEMORY, training=True) - exact).max() > 1e-2
        for other in others:
            other.rate = 0.3
    block = decoder(attention_dropout=0.3)
    exact = array(block(INPUTS, MEMORY))
    for attention in (block.self_attention, block.cross_attention):
        attention.dropout_layer.rate = 0
        assert np.abs(block(INPUTS, MEMORY, training=True) - exact).max() > 1e-2
        attention.dropout_layer.rate = 0.3


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("residual", ["post", "pre"])
def test_later_tokens_get_no_gradient_from_earlier_outputs(residual, training):
    block = decoder(residual=residual, dropout=0.1, attention_dropout=0.1)
    weights = normal(B, 3, D, seed=5)

    def early(inputs):
        outputs = block(inputs, MEMORY, memory_mask=MEMORY_MASK, training=training)
        return ops.sum(outputs[:, :3] * weights)

    (gradient,) = gradients(early, INPUTS)
    np.testing.assert_array_equal(gradient[:, 3:], np.zeros((B, T - 3, D)))
    assert np.all(np.abs(gradient[:, :3]).max(-1) > 0)


def test_memory_behind_the_mask_gets_no_gradient():
    block, weights = decoder(), normal(B, T, D, seed=5)

    def loss(memory):
        return ops.sum(block(INPUTS, memory, memory_mask=MEMORY_MASK) * weights)

    reached = np.any(gradients(loss, MEMORY)[0] != 0, axis=-1)
    np.testing.assert_array_equal(reached, MEMORY_MASK[:, 0])


@pytest.mark.parametrize("slots", [T, T + 4])
@pytest.mark.parametrize("residual", ["post", "pre"])
def test_steps_equal_the_full_pass(residual, slots):
    block = decoder(residual=residual, dropout=0.1, attention_dropout=0.1)
    full = array(block(INPUTS, MEMORY, memory_mask=MEMORY_MASK))
    cache = block.start(MEMORY, slots, memory_mask=MEMORY_MASK)
    bias = ops.expand_dims(masks.additive(MEMORY_MASK), 1)
    shapes = [tuple(states.shape) for pair in cache for states in pair]
    assert shapes == [(B, N, slots, H), (B, N, slots, U), (B, N, S, H), (B, N, S, U)]
    for first, length in [(0, 3), (3, 1), (4, 1)]:
        part = INPUTS[:, first : first + length]
        states, cache = block.step(part, cache, next_slots(length, ops.arange(slots), first), bias)
        np.testing.assert_allclose(states, full[:, first : first + length], atol=1e-5)
    assert [tuple(states.shape) for pair in cache for states in pair] == shapes


def test_cache_is_in_the_compute_dtype():
    block = decoder(dtype="mixed_bfloat16")
    memory = ops.cast(MEMORY, "bfloat16")
    cache = block.start(memory, T, memory_mask=MEMORY_MASK)
    bias = ops.expand_dims(masks.additive(MEMORY_MASK), 1)
    states, cache = block.step(
        ops.cast(INPUTS[:, :1], "bfloat16"), cache, next_slots(1, ops.arange(T), 0), bias
    )
    assert {dtype_of(states) for pair in cache for states in pair} == {"bfloat16"}
    assert dtype_of(states) == "bfloat16"


@pytest.mark.parametrize("block_class", [EncoderBlock, DecoderBlock])
def test_residual_is_checked(block_class):
    message = r"`residual` must be one of \('post', 'pre', 'b2t'\)\. Received: 'sandwich'"
    with pytest.raises(ValueError, match=message):
        block_class(**SIZES, residual="sandwich")


# A layer that reads the implicit mask of its inputs, and what else it is called with.
CAUSAL = np.tri(T, dtype=bool)[None]
IMPLICIT = {
    "self-attention": (MultiHeadSelfAttention, {}, {}),
    "self-attention, another mask": (MultiHeadSelfAttention, {}, {"attention_mask": CAUSAL}),
    "self-attention, windowed": (MultiHeadSelfAttention, {"attention_window": 2}, {}),
    "encoder block": (EncoderBlock, {}, {}),
    "encoder block, a bias": (EncoderBlock, {}, {"position_bias": normal(N, 2 * T - 1)}),
    "encoder block, pre, batch": (EncoderBlock, dict(residual="pre", normalization="batch"), {}),
    "decoder block": (DecoderBlock, {}, {"memory": MEMORY}),
    "decoder block, another mask": (DecoderBlock, {}, dict(memory=MEMORY, attention_mask=CAUSAL)),
    "decoder block, recurrence": (DecoderBlock, {"recurrence": "ssru"}, {"memory": MEMORY}),
    "recurrence": (SSRU, {}, {}),
}


@pytest.mark.parametrize("name", IMPLICIT)
def test_an_implicit_mask_of_the_inputs_is_read(name):
    """What pads hold changes nothing, be they in front or behind; eager, and in a model."""
    layer_class, arguments, others = IMPLICIT[name]
    sizes = {MultiHeadSelfAttention: (N, H), SSRU: ()}.get(layer_class, (N, H, F))
    layer, embedding = (
        layer_class(*sizes, **arguments),
        keras.layers.Embedding(V, D, mask_zero=True),
    )
    ids = np.array([[0, 0, 1, 2, 3], [4, 5, 0, 0, 0]])
    source = keras.Input((T,), dtype="int32")
    model = keras.Model(source, layer(embedding(source), **others))
    is_block = isinstance(layer, TransformerBlock)

    def outputs(pad):
        table = array(embedding.embeddings).copy()
        table[0] = pad
        embedding.embeddings.assign(table)
        yield layer(embedding(ids), **others)
        yield model(ids)
        if is_block:  # whose inside sees other tensors
            layer.rematerialize = True
            training = layer.normalization != "batch"
            yield layer(embedding(ids), **others, training=training)
            layer.rematerialize = False

    expected, *same = [array(each)[ids != 0] for pad in (0.0, 100.0) for each in outputs(pad)]
    for actual in same:
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_an_implicit_mask_is_the_explicit_one():
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 0]])
    states = keras.layers.Embedding(V, D, mask_zero=True)(ids)
    block, plain, real = EncoderBlock(N, H, F, normalization="batch"), array(states), ids != 0
    for training in (False, True):
        explicit = dict(attention_mask=real[:, None], padding_mask=real)
        expected = array(block(plain, **explicit, training=training))
        for inputs, given in ((states, {}), (states, {"attention_mask": real[:, None]})):
            actual = array(block(inputs, **given, training=training))
            np.testing.assert_allclose(actual, expected, atol=1e-5)
        for mask in ("mask", "inputs_mask"):
            actual = array(block(plain, training=training, **{mask: real}))
            np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_batch_normalization_counts_what_all_masks_call_real():
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 0]])
    states = keras.layers.Embedding(V, D, mask_zero=True)(ids)
    for given, real in (({}, ids != 0), ({"padding_mask": ids != 2}, (ids != 0) & (ids != 2))):
        norm = BatchNormalization(momentum=0.0)
        norm(states, **given, training=True)
        np.testing.assert_allclose(norm.moving_mean, array(states)[real].mean(0), atol=1e-5)


def test_an_implicit_mask_of_the_source_is_read():
    """As by `keras.layers.MultiHeadAttention`; eager, and in a functional model."""
    ids = np.array([[1, 2, 0, 0, 0]])
    embedding = keras.layers.Embedding(V, D, mask_zero=True)
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None, D))
    for layer in (CrossAttention(N, H), DecoderBlock(N, H, F)):
        model = keras.Model([target, source], layer(target, embedding(source)))
        expected = array(layer(INPUTS[:1], embedding(ids[:, :2])))
        for actual in (layer(INPUTS[:1], embedding(ids)), model([INPUTS[:1], ids])):
            np.testing.assert_allclose(array(actual), expected, atol=1e-6)
    attention, states = CrossAttention(N, H), embedding(ids)
    expected = array(attention(INPUTS[:1], states, key=array(states)))
    for value, key in ((states[:, :2], states[:, :2]), (array(states), states)):
        actual = array(attention(INPUTS[:1], value, key=key))
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_padding_of_the_memory_needs_no_axis_of_queries():
    block, memory = DecoderBlock(N, H, F), INPUTS
    padding = np.arange(T) < np.array([[T]] * (len(INPUTS) - 1) + [[2]])
    expected = array(block(INPUTS, memory, memory_mask=padding[:, None, :]))
    np.testing.assert_allclose(array(block(INPUTS, memory, memory_mask=padding)), expected)
    attention = CrossAttention(N, H)
    expected = array(attention(INPUTS, memory, attention_mask=padding[:, None, :]))
    for name in ("value_mask", "key_mask"):
        actual = array(attention(INPUTS, memory, **{name: padding}))
        np.testing.assert_allclose(actual, expected)
        for seen in (np.tri(T, dtype=bool)[None], np.tri(T, dtype=bool)[None, None]):
            both = array(attention(INPUTS, memory, attention_mask=seen & padding_of(seen, padding)))
            actual = array(attention(INPUTS, memory, attention_mask=seen, **{name: padding}))
            np.testing.assert_allclose(actual, both)
            assert np.abs(both - expected).max() > 0.01
    for lists in (padding.tolist(), padding[:, None, :].tolist()):
        actual = array(block(INPUTS, memory, memory_mask=lists))
        np.testing.assert_allclose(actual, array(block(INPUTS, memory, memory_mask=padding)))
    with pytest.raises(ValueError, match=r"`memory_mask` must have shape \(B, T\), here"):
        block(INPUTS, memory, memory_mask=padding[:, 1:])


def padding_of(seen, padding):
    """(B, S) padding with the axes of a mask (B, T, S) or (B, N, T, S)."""
    return padding[(slice(None), *[None] * (seen.ndim - 2))]
