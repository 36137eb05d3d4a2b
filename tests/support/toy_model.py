"""Toy Transformers for tests: widths are distinct small primes, special ids are not 0 to 3."""

import functools

import numpy as np
from backend import array

from keras_transformer.config import TransformerConfig
from keras_transformer.models import Transformer

V, D, N, H, U, F = 23, 11, 3, 13, 17, 19
PAD, UNK, BOS, EOS = 4, 1, 2, 6


def toy_config(**overrides):
    """A `TransformerConfig` of an encoder block and two decoder blocks."""
    return TransformerConfig(
        **{
            **dict(vocab_size=V, model_dim=D, num_heads=N, key_dim=H, value_dim=U),
            **dict(intermediate_dim=F, encoder_layers=1, decoder_layers=2, dropout=0.0),
            **dict(pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS),
            **overrides,
        }
    )


def randomise(layer, seed=0):
    """Draws every weight again, biases and norms too, and returns `layer`.

    About as large as initializers make them: with larger ones the outputs of a stack hardly
    depend on its inputs any more, and a test would not see a wrong one.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_weights:
        value = 0.1 * rng.normal(size=weight.shape)
        if weight.path.endswith("gamma"):
            value += 1
        elif weight.path.endswith("embeddings"):
            value *= 10 * weight.shape[1] ** -0.5
        elif weight.path.endswith("kernel"):
            value *= 10 * (2 / sum(weight.shape)) ** 0.5
        weight.assign(value)
    return layer


def toy_transformer(seed=0, dtype=None, **overrides):
    """A `Transformer` with random values in every weight, the same for the same seed."""
    kwargs = {} if dtype is None else {"dtype": dtype}
    return randomise(Transformer(toy_config(**overrides), **kwargs), seed)


@functools.cache
def frozen_toy(seed=0, **overrides):
    """`toy_transformer`, made once per process; a test that changes weights makes its own."""
    return toy_transformer(seed, **overrides)


def tokens(rng, rows, length):
    """(rows, length) int32 ids, none of them special."""
    ordinary = np.setdiff1d(np.arange(V), [PAD, UNK, BOS, EOS])
    return rng.choice(ordinary, (rows, length)).astype("int32")


def sources(lengths, width=None, seed=0):
    """Rows of random pieces and EOS, `lengths` tokens each, then pads; 0 for an empty row."""
    ids = np.full((len(lengths), width or max(lengths)), PAD, "int32")
    pieces = tokens(np.random.default_rng(seed), len(lengths), max(lengths))
    for row, row_pieces, length in zip(ids, pieces, lengths, strict=True):
        row[:length] = row_pieces[:length]
        if length:
            row[length - 1] = EOS
    return ids


def targets(rows, length, seed=1):
    """Rows of BOS and random pieces."""
    ids = tokens(np.random.default_rng(seed), rows, length)
    ids[:, 0] = BOS
    return ids


def logits(model, source_ids, target_ids, **kwargs):
    """The model's logits as an array."""
    return array(model({"source_ids": source_ids, "target_ids": target_ids}, **kwargs))


@functools.cache
def talkative_toy(seed=125, **overrides):
    """A model whose greedy outputs are long and short, and of many tokens; never pads or BOS."""
    model = toy_transformer(seed, **{"encoder_layers": 1, "decoder_layers": 2, **overrides})
    embeddings = model.get_layer("embedding").embeddings
    rows = embeddings.numpy() * 0.2  # so that a token does not just repeat itself
    rows[[model.config.pad_id, model.config.bos_id]] = 0
    embeddings.assign(rows)
    return model
