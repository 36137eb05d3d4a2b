"""One change of the config at a time, over every field, and several: a toy model for each.

`test_model_options.py` holds that the table is complete.
"""

import functools
import json

import keras
import numpy as np
import pytest
from toy_model import EOS, PAD, V, randomise, sources, targets, toy_config

from keras_transformer.models import Transformer

T, S = 5, 7
SMALL = dict(encoder_layers=1, decoder_layers=1)
POSITIONS = dict(positions="learned", max_positions=17)
OPTIONS = {
    "the paper's": {},
    # Sizes and ids.
    "vocab_size": dict(vocab_size=31),
    "target_vocab_size": dict(target_vocab_size=29, embedding_sharing="target_output"),
    "model_dim": dict(model_dim=7),
    "num_heads": dict(num_heads=2),
    "encoder_layers": dict(encoder_layers=2),
    "decoder_layers": dict(decoder_layers=2),
    "encoder_tied_layers": dict(encoder_layers=3, encoder_tied_layers=(0, 1, 1)),
    "decoder_tied_layers": dict(decoder_layers=3, decoder_tied_layers=(0, 0, 2)),
    "intermediate_dim": dict(intermediate_dim=5),
    "key_dim": dict(model_dim=12, key_dim=None),
    "value_dim": dict(value_dim=None),
    "pad_id": dict(pad_id=V - 1),
    "unk_id": dict(unk_id=0),
    "bos_id": dict(bos_id=PAD),  # as in tf-models
    "bos is eos": dict(bos_id=EOS),  # as in M2M-100
    "eos_id": dict(eos_id=3),
    # Embeddings and positions.
    "shared by target and output": dict(embedding_sharing="target_output"),
    "shared by source and target": dict(embedding_sharing="source_target"),
    "nothing shared": dict(embedding_sharing="none"),
    "embedding_scale": dict(embedding_scale=1.0),
    "embedding_norm": dict(embedding_norm=True),
    "output_bias": dict(output_bias=True),
    "first_position": dict(positions="tensor2tensor", first_position=2),
    "tensor2tensor": dict(positions="tensor2tensor"),
    "learned": POSITIONS,
    "rotary": dict(positions="rotary", key_dim=14),
    "relative": dict(positions="relative"),
    "relative_buckets": dict(positions="relative", relative_buckets=8),
    "relative_max_distance": {
        **dict(positions="relative", relative_buckets=8, relative_max_distance=5),
    },
    "alibi": dict(positions="alibi"),
    "no positions": dict(positions="none"),
    "packed": dict(packed=True),
    "packed, relative": dict(packed=True, positions="relative"),
    # Arrangement.
    "pre": dict(residual="pre"),
    "b2t": dict(residual="b2t"),
    "use_residual": dict(use_residual=False),
    "use_feed_forward": dict(use_feed_forward=False),
    "rms": dict(normalization="rms"),
    "batch": dict(normalization="batch"),
    "no norm": dict(normalization="none"),
    "norm_epsilon": dict(norm_epsilon=0.1),
    "final_norm": dict(final_norm=True),
    "no final_norm": dict(residual="pre", final_norm=False),
    # Attention and feed-forward.
    "dot_product": dict(attention_score="dot_product"),
    "additive": dict(attention_score="additive"),
    "attention_chunk": dict(attention_chunk=2),
    "attention_window": dict(attention_window=2),
    "use_bias": dict(use_bias=False),
    "ssru": dict(decoder_recurrence="ssru"),
    "ssru, packed": dict(decoder_recurrence="ssru", packed=True),
    "feed_forward_bias": dict(feed_forward_bias=False),
    "alignment_layer": dict(decoder_layers=2, alignment_layer=1),
    "alignment_head": dict(alignment_head=1),
    "gelu_tanh": dict(activation="gelu_tanh"),
    "geglu_tanh": dict(activation="geglu_tanh"),
    "gelu": dict(activation="gelu"),
    "glu": dict(activation="glu"),
    "reglu": dict(activation="reglu"),
    "geglu": dict(activation="geglu"),
    "swiglu": dict(activation="swiglu"),
    "dropout": dict(dropout=0.1),
    "attention_dropout": dict(attention_dropout=0.1),
    "intermediate_dropout": dict(intermediate_dropout=0.1),
    # Several at once.
    "like Llama": {
        **dict(positions="rotary", key_dim=14, residual="pre", normalization="rms"),
        **dict(activation="swiglu", use_bias=False, decoder_layers=2),
    },
    "like T5": {
        **dict(positions="relative", residual="pre", normalization="rms", activation="geglu"),
        **dict(attention_score="dot_product", use_bias=False, decoder_layers=2),
    },
    "rotary, window, b2t": {
        **dict(positions="rotary", key_dim=14, attention_window=3, residual="b2t"),
        **dict(decoder_layers=2, decoder_tied_layers=(0, 0)),
    },
    "alibi, chunk, additive": {
        **dict(positions="alibi", attention_chunk=4, attention_score="additive"),
    },
    "relative, window, pre, batch": {
        **dict(positions="relative", attention_window=3, residual="pre", normalization="batch"),
    },
    "learned, nothing shared, gelu": {
        **POSITIONS,
        **dict(embedding_sharing="none", residual="pre", activation="gelu"),
    },
    "ssru, tensor2tensor": {
        **dict(decoder_recurrence="ssru", positions="tensor2tensor", decoder_layers=2),
        **dict(decoder_tied_layers=(0, 0), encoder_layers=2, encoder_tied_layers=(0, 0)),
    },
    "ssru, relative, window, pre, no bias": {
        **dict(decoder_recurrence="ssru", positions="relative", attention_window=2),
        **dict(residual="pre", use_bias=False, decoder_layers=2),
    },
    "like Marian": {
        **dict(output_bias=True, activation="silu", positions="tensor2tensor"),
        **dict(alignment_layer=0, alignment_head=1),
    },
    "like Flan-T5": {
        **dict(positions="relative", residual="pre", normalization="rms", use_bias=False),
        **dict(attention_score="dot_product", activation="geglu_tanh", feed_forward_bias=False),
        **dict(embedding_sharing="source_target", embedding_scale=1.0),
    },
    "like M2M-100 and mBART": {
        **dict(positions="tensor2tensor", first_position=2, residual="pre"),
        **dict(embedding_norm=True, activation="gelu_tanh", decoder_layers=2),
    },
    "no norm, no feed-forward": dict(normalization="none", use_feed_forward=False),
    "no positions, no residual": dict(positions="none", use_residual=False),
    "other sizes, ids and rates": {
        **dict(vocab_size=31, target_vocab_size=29, embedding_sharing="target_output"),
        **dict(model_dim=12, num_heads=2, key_dim=None, value_dim=None, intermediate_dim=5),
        **dict(encoder_layers=3, encoder_tied_layers=(0, 1, 1)),
        **dict(decoder_layers=3, decoder_tied_layers=(0, 0, 2), alignment_layer=1),
        **dict(pad_id=V - 1, unk_id=0, eos_id=3, activation="glu", norm_epsilon=0.1),
        **dict(dropout=0.1, attention_dropout=0.1, intermediate_dropout=0.1, final_norm=True),
    },
    "other buckets, no final norm, reglu": {
        **dict(positions="relative", relative_buckets=8, relative_max_distance=5),
        **dict(residual="pre", final_norm=False, activation="reglu"),
    },
}
# Few that together hold every operation, for what is slow to make: XLA's programs, exports.
EXPORTED = (
    *("the paper's", "tensor2tensor", "like Llama", "like T5", "rotary, window, b2t"),
    *("alibi, chunk, additive", "relative, window, pre, batch", "learned, nothing shared, gelu"),
    *("no norm, no feed-forward", "no positions, no residual"),
    *("like Marian", "like Flan-T5", "like M2M-100 and mBART", "ssru, tensor2tensor"),
)
COMBINED = (*EXPORTED, "packed", "packed, relative", "ssru, packed")
# Every field, several at once; one at a time, before a release, tells which it was.
TOGETHER = (
    *COMBINED,
    *("ssru, relative, window, pre, no bias", "bos_id", "bos is eos"),
    *("other sizes, ids and rates", "other buckets, no final norm, reglu"),
)
every_option = pytest.mark.parametrize("name", OPTIONS)
options_together = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in TOGETHER else pytest.mark.release) for name in OPTIONS],
)


def randomise_all(layer, seed=7):
    """`randomise`, and the weights that must be positive or are not trained; returns `layer`."""
    rng = np.random.default_rng(seed)
    randomise(layer)
    for weight in layer.weights:
        if weight.path.endswith(("scale", "moving_variance")):
            weight.assign(0.5 + rng.random(weight.shape))
        elif weight.path.endswith(("moving_mean", "score_vector")):
            weight.assign(rng.normal(size=weight.shape))
    return layer


@functools.cache
def toy(name):
    """The model of an option, a random value in every weight; for tests that leave it alone."""
    return randomise_all(Transformer(toy_config(**{**SMALL, **OPTIONS[name]})))


@functools.cache
def _rebuilt(name):
    return Transformer.from_config(json.loads(json.dumps(toy(name).get_config())))


def rebuilt(name):
    """The same model, made again from its config as JSON; a test may train it."""
    model = _rebuilt(name)
    model.set_weights(toy(name).get_weights())
    return model


def batch(name, lengths=(S, 3, 0), length=T):
    """Source and target ids of a row for each source length, in the special ids of the option."""
    config, source_ids = toy(name).config, sources(lengths, S)
    source_ids = np.where(source_ids == EOS, config.eos_id, source_ids)
    source_ids = np.where(source_ids == PAD, config.pad_id, source_ids)
    target_ids = targets(len(lengths), length)
    target_ids[:, 0] = config.bos_id
    return source_ids, target_ids


def logits(model, source_ids, target_ids):
    """(B, T, V) array; a call, and so eager."""
    outputs = model({"source_ids": source_ids, "target_ids": target_ids}, training=False)
    return keras.ops.convert_to_numpy(outputs)


@functools.cache
def toy_logits(name):
    """Those of the option's `batch`."""
    return logits(toy(name), *batch(name))


def assert_near(actual, expected, share=1e-5):
    """Equal but for float32's rounding, which grows with the largest value."""
    actual = keras.ops.convert_to_numpy(actual)
    assert actual.shape == expected.shape and np.all(np.isfinite(actual))
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=share * scale)
