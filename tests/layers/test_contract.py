"""Every public layer keeps the contract of `layer_contract`."""

import numpy as np
import pytest
from layer_contract import check_layer
from toy_model import D, F, H, N, U, V

from keras_transformer import layers

B, T, S, E = 2, 5, 7, 29

ATTENTION = dict(num_heads=N, key_dim=H, value_dim=U, dropout=0.1)
BLOCK = dict(num_heads=N, key_dim=H, intermediate_dim=F, value_dim=U, dropout=0.1)
SOURCE_MASK = np.arange(S) < np.array([[[S]], [[3]]])  # (B, 1, S)


def states(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


TARGET, SOURCE = states(B, T, D), states(B, S, E)
IDS = np.random.default_rng(2).integers(0, V, (B, T)).astype("int32")

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
    "decoder block": (
        layers.DecoderBlock,
        {**BLOCK, "attention_dropout": 0.1},
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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_contract(case, tmp_path):
    layer_class, arguments, inputs, others = case
    check_layer(layer_class, arguments, inputs, tmp_path=tmp_path, **others)


def test_every_public_layer_has_a_case():
    assert {case[0].__name__ for case in CASES.values()} == set(layers.__all__)
