"""Toy models of tf-models-official, with other values than the initial ones in every weight.

Importing this skips the module that does so where tf-models-official is not installed: it pins
TensorFlow, and has no release for the newest.
"""

import numpy as np
import pytest

MISSING = "needs tf-models-official, which pins TensorFlow 2.20 (`pip install -e '.[tf-models]'`)"
pytest.importorskip("official", reason=MISSING)

import tf_keras  # noqa: E402, F401
from official.nlp.modeling import models  # noqa: E402

V, D, N, F = 23, 10, 2, 13
PAD, EOS, UNK = 0, 1, 2

STACK = dict(num_attention_heads=N, intermediate_size=F)


def toy_seq2seq(seed=0, *, encoder=(), decoder=(), vocab_size=V, width=D, built=True, **stacks):
    """A `Seq2SeqTransformer` of two encoder blocks and three decoder blocks.

    Args:
        seed: Of the weights.
        encoder: Settings of the encoder alone.
        decoder: Settings of the decoder alone.
        vocab_size: V.
        width: D.
        built: Whether it is called once and has weights.
        **stacks: Settings of both.
    """
    common = {**STACK, **stacks}
    seq2seq = models.Seq2SeqTransformer(
        vocab_size=vocab_size,
        embedding_width=width,
        encoder_layer=models.TransformerEncoder(**{"num_layers": 2, **common, **dict(encoder)}),
        decoder_layer=models.TransformerDecoder(**{"num_layers": 3, **common, **dict(decoder)}),
        dropout_rate=stacks.get("dropout_rate", 0.0),
        beam_size=1,
        alpha=0.0,
    )
    if built:
        ids = np.ones((1, 2), "int32")
        seq2seq({"inputs": ids, "targets": ids})
        randomise(seq2seq, seed)
    return seq2seq


def randomise(seq2seq, seed=0):
    """Draws every weight again, biases and norms too, about as large as initializers make them."""
    rng = np.random.default_rng(seed)
    for weight in seq2seq.weights:
        name = weight.name.split("/")[-1].split(":")[0]
        value = 0.1 * rng.normal(size=weight.shape)
        if name == "gamma":
            value += 1
        elif name == "embeddings":
            value *= 10 * weight.shape[1] ** -0.5
        elif name == "kernel":
            value *= 10 * weight.shape[0] ** -0.5
        weight.assign(value)


def rows(lengths, width=None, vocab_size=V, seed=0):
    """(B, S) int32: rows of random pieces and EOS, `lengths` tokens each, then pads."""
    rng = np.random.default_rng(seed)
    ids = np.full((len(lengths), width or max(lengths)), PAD, "int32")
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = rng.integers(UNK + 1, vocab_size, length)
        row[length - 1] = EOS
    return ids


def shifted(target_ids):
    """What the decoder reads when it is to give `target_ids`: pad in front, the last one off."""
    return np.pad(target_ids, [[0, 0], [1, 0]])[:, :-1]


def logits_of(seq2seq, source_ids, target_ids):
    """tf-models' logits of `target_ids`, as an array."""
    return seq2seq({"inputs": source_ids, "targets": target_ids}, training=False).numpy()
