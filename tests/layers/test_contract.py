"""Every public layer keeps the contract of `layer_contract`."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest
from backend import array
from layer_contract import check_layer
from toy_model import D, F, H, N, U, V

from keras_transformer import layers
from keras_transformer.config import TransformerConfig

B, T, S, E = 2, 5, 7, 29

ATTENTION = dict(num_heads=N, key_dim=H, value_dim=U, dropout=0.1)
BLOCK = dict(num_heads=N, key_dim=H, intermediate_dim=F, value_dim=U, dropout=0.1)
SOURCE_MASK = np.arange(S) < np.array([[[S]], [[3]]])  # (B, 1, S)


def states(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


TARGET, SOURCE = states(B, T, D), states(B, S, E)
IDS = np.random.default_rng(2).integers(0, V, (B, T)).astype("int32")

BIAS = {"output_dtype": "float32", "open_width": True}  # of each head, by distance

# Name -> class, constructor arguments, inputs, and what else `check_layer` is to know.
CASES = {
    "self-attention": (
        layers.MultiHeadSelfAttention,
        {**ATTENTION, "output_dim": F},
        {"inputs": TARGET, "attention_mask": np.tri(T, dtype=bool)[None]},
        {},
    ),
    "self-attention, causal, no bias": (
        layers.MultiHeadSelfAttention,
        dict(num_heads=N, key_dim=H, use_bias=False, kernel_initializer="he_normal"),
        {"inputs": TARGET},
        {"use_causal_mask": True},
    ),
    "self-attention, rotary, in chunks": (
        layers.MultiHeadSelfAttention,
        dict(num_heads=N, key_dim=H + 1, rotary=True, attention_chunk=2),
        {"inputs": TARGET, "attention_mask": np.tri(T, dtype=bool)[None]},
        {},
    ),
    "self-attention, windowed": (
        layers.MultiHeadSelfAttention,
        {**ATTENTION, "attention_score": "dot_product", "attention_window": 2},
        {"inputs": TARGET},
        {"use_causal_mask": True},
    ),
    "self-attention, additive": (
        layers.MultiHeadSelfAttention,
        {**ATTENTION, "attention_score": "additive"},
        {"inputs": TARGET},
        {},
    ),
    "cross-attention, additive": (
        layers.CrossAttention,
        {**ATTENTION, "attention_score": "additive"},
        {"query": TARGET, "value": SOURCE, "attention_mask": SOURCE_MASK},
        {},
    ),
    "cross-attention": (
        layers.CrossAttention,
        {**ATTENTION, "output_dim": F},
        {"query": TARGET, "value": SOURCE, "attention_mask": SOURCE_MASK},
        {},
    ),
    "cross-attention with a key": (
        layers.CrossAttention,
        {**ATTENTION, "bias_initializer": "ones"},
        {"query": TARGET, "value": SOURCE, "key": states(B, S, 31)},
        {},
    ),
    "feed-forward": (
        layers.PositionwiseFFN,
        dict(intermediate_dim=F, output_dim=U, dropout=0.1),
        {"inputs": TARGET},
        {},
    ),
    "feed-forward, gated": (
        layers.PositionwiseFFN,
        dict(intermediate_dim=F, activation="swiglu"),
        {"inputs": TARGET},
        {},
    ),
    "feed-forward, gelu, no bias": (
        layers.PositionwiseFFN,
        dict(intermediate_dim=F, activation="gelu", use_bias=False),
        {"inputs": TARGET},
        {},
    ),
    "embedding": (
        layers.TokenEmbedding,
        dict(vocab_size=V, dim=D),
        {"inputs": IDS},
        {},
    ),
    "embedding, reversed": (
        layers.TokenEmbedding,
        dict(vocab_size=V, dim=D, embeddings_initializer="glorot_uniform"),
        {"inputs": TARGET},
        {"reverse": True, "output_dtype": "float32"},
    ),
    "positions": (layers.SinusoidalPositions, {}, {"inputs": TARGET}, {}),
    "positions, split": (layers.SinusoidalPositions, dict(layout="split"), {"inputs": TARGET}, {}),
    "learned positions": (
        layers.LearnedPositions,
        dict(max_positions=T + 2),
        {"inputs": TARGET},
        {},
    ),
    "relative bias": (
        layers.RelativePositionBias,
        dict(num_heads=N, num_buckets=6, max_distance=7),
        {"inputs": TARGET},
        BIAS,
    ),
    "relative bias, one direction": (
        layers.RelativePositionBias,
        dict(num_heads=N, num_buckets=5, max_distance=7, bidirectional=False),
        {"inputs": TARGET},
        BIAS,
    ),
    "ALiBi": (layers.AlibiBias, dict(num_heads=N), {"inputs": TARGET}, BIAS),
    "batch normalization": (
        layers.BatchNormalization,
        {},
        {"inputs": SOURCE, "padding_mask": SOURCE_MASK[:, 0]},
        {},
    ),
    "recurrence": (layers.SSRU, {}, {"inputs": TARGET}, {}),
    "recurrence, no bias, several segments": (
        layers.SSRU,
        dict(use_bias=False, kernel_initializer="he_normal"),
        {"inputs": TARGET, "segment_starts": np.arange(T) == np.array([[3], [0]])},
        {},
    ),
    "dropout": (layers.Dropout, dict(rate=0.3, seed=5), {"inputs": TARGET}, {}),
    "projection": (layers.Projection, dict(units=F), {"inputs": TARGET}, {}),
    "encoder block": (
        layers.EncoderBlock,
        {**BLOCK, "attention_dropout": 0.1},
        {"inputs": SOURCE, "attention_mask": SOURCE_MASK},
        {},
    ),
    "encoder block, pre-norm": (
        layers.EncoderBlock,
        dict(num_heads=N, key_dim=H, intermediate_dim=F, activation="gelu", residual="pre"),
        {"inputs": SOURCE},
        {},
    ),
    "encoder block, bottom to top": (
        layers.EncoderBlock,
        {**BLOCK, "residual": "b2t", "normalization": "rms", "activation": "geglu"},
        {"inputs": SOURCE, "attention_mask": SOURCE_MASK},
        {},
    ),
    "encoder block, batch normalization": (
        layers.EncoderBlock,
        {**BLOCK, "normalization": "batch"},
        {"inputs": SOURCE, "attention_mask": SOURCE_MASK, "padding_mask": SOURCE_MASK[:, 0]},
        {},
    ),
    "encoder block, attention alone": (
        layers.EncoderBlock,
        {**BLOCK, "use_residual": False, "use_feed_forward": False, "normalization": "none"},
        {"inputs": SOURCE},
        {},
    ),
    "decoder block, bottom to top": (
        layers.DecoderBlock,
        {**BLOCK, "residual": "b2t"},
        {"inputs": TARGET, "memory": SOURCE, "memory_mask": SOURCE_MASK},
        {},
    ),
    "decoder block": (
        layers.DecoderBlock,
        {**BLOCK, "attention_dropout": 0.1},
        {"inputs": TARGET, "memory": SOURCE, "memory_mask": SOURCE_MASK},
        {},
    ),
    "decoder block, recurrence": (
        layers.DecoderBlock,
        {**BLOCK, "recurrence": "ssru"},
        {"inputs": TARGET, "memory": SOURCE, "memory_mask": SOURCE_MASK},
        {},
    ),
    "decoder block, pre-norm": (
        layers.DecoderBlock,
        {**BLOCK, "residual": "pre"},
        {"inputs": TARGET, "memory": SOURCE},
        {},
    ),
}


# The first case of each layer; the others are slow.
QUICK = {layer_class: name for name, (layer_class, *_) in reversed(CASES.items())}.values()


@pytest.mark.smoke
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_contract(name, tmp_path):
    layer_class, arguments, inputs, others = CASES[name]
    check_layer(layer_class, arguments, inputs, tmp_path=tmp_path, **others)


BY_DISTANCE = ["relative bias", "ALiBi"]
WITH_PLACES = sorted({*QUICK, "embedding, reversed"} - {"embedding", *BY_DISTANCE})


@pytest.mark.parametrize("name", WITH_PLACES)
def test_a_mask_is_passed_on(name):
    """A layer behind sees which of the outputs are padding."""
    layer_class, arguments, inputs, others = CASES[name]
    given = dict(inputs)
    states = given.pop(next(iter(given))).copy()
    states[1, 3:] = 0
    real = states.any(-1)
    given.update({key: value for key, value in others.items() if key == "reverse"})
    outputs = layer_class(**arguments)(keras.layers.Masking()(states), **given)
    pooled = keras.layers.GlobalAveragePooling1D()(outputs)
    outputs = array(outputs)
    for row in range(B):
        np.testing.assert_allclose(pooled[row], outputs[row][real[row]].mean(0), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        *("self-attention", "cross-attention", "recurrence", "encoder block", "decoder block"),
        *("positions", "learned positions"),
    ],
)
def test_states_of_another_rank_are_refused(name):
    layer_class, arguments, inputs, _ = CASES[name]
    _, *others = inputs
    for shape in ((B, D), (B, 3, T, D)):
        for given in (states(*shape), keras.Input(shape[1:])):
            with pytest.raises(ValueError, match=f"expected ndim=3, found ndim={len(shape)}"):
                layer_class(**arguments)(given, **{other: inputs[other] for other in others})


@pytest.mark.parametrize(
    "layer_class, argument",
    [
        (layers.CrossAttention, "value"),
        (layers.CrossAttention, "key"),
        (layers.DecoderBlock, "memory"),
    ],
)
def test_a_source_of_another_rank_is_refused(layer_class, argument):
    layer = layer_class(**(ATTENTION if layer_class is layers.CrossAttention else BLOCK))
    source = {"value": SOURCE} if layer_class is layers.CrossAttention else {}
    for shape in ((B, E), (B, 3, S, E)):
        for given in (states(*shape), keras.Input(shape[1:])):
            message = rf"`{argument}` must have shape \(B, T, D\)\. Received: shape="
            with pytest.raises(ValueError, match=message):
                layer(TARGET, **{**source, argument: given})


@pytest.mark.parametrize("name", BY_DISTANCE)
def test_a_bias_by_distance_needs_a_length_and_no_mask(name):
    layer_class, arguments, *_ = CASES[name]
    layer_class(**arguments)(keras.layers.Masking()(TARGET))  # with no word of a mask that is lost
    with pytest.raises(ValueError, match="expected min_ndim=2, found ndim=1"):
        layer_class(**arguments)(states(B))


def test_options_are_those_of_the_constructor_and_named_as_in_the_config():
    """So an option that is added to a constructor is saved, and comes from the config."""
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    attentions = layers.MultiHeadSelfAttention, layers.CrossAttention
    blocks = layers.EncoderBlock, layers.DecoderBlock
    for layer in (*attentions, *blocks):  # `recurrence` is the config's `decoder_recurrence`
        given = set(inspect.signature(layer).parameters) - {"kwargs"}
        assert given - set(layer.OPTIONS) <= {"kernel_initializer", "bias_initializer"}
        assert set(layer.OPTIONS) - fields <= {"rotary", "output_dim", "recurrence"}
    assert set(attentions[0].OPTIONS) - set(blocks[0].OPTIONS) == {"output_dim"}


def test_every_public_layer_has_a_case():
    assert {case[0].__name__ for case in CASES.values()} == set(layers.__all__)
