"""The presets against table 3 of Vaswani et al. 2017 (arXiv 1706.03762): its rows by config alone.

The table rounds to millions. Its base and rows A to E fit a vocabulary of 41,000, its big model
one of 36,000, so differences between rows are tested, and both vocabularies.
"""

import functools
import gc

import keras
import pytest

from keras_transformer import Transformer, TransformerConfig

# Row -> changes of the base config, and the table's "params x 10^6".
ROWS = {
    "base": (dict(), 65),
    "A, 1 head": (dict(num_heads=1, key_dim=512, value_dim=512), 65),
    "A, 4 heads": (dict(num_heads=4, key_dim=128, value_dim=128), 65),
    "A, 16 heads": (dict(num_heads=16, key_dim=32, value_dim=32), 65),
    "A, 32 heads": (dict(num_heads=32, key_dim=16, value_dim=16), 65),
    "B, d_k 16": (dict(key_dim=16, value_dim=64), 58),
    "B, d_k 32": (dict(key_dim=32, value_dim=64), 60),
    "C, 2 layers": (dict(encoder_layers=2, decoder_layers=2), 36),
    "C, 4 layers": (dict(encoder_layers=4, decoder_layers=4), 50),
    "C, 8 layers": (dict(encoder_layers=8, decoder_layers=8), 80),
    "C, d_model 256": (dict(model_dim=256, key_dim=32, value_dim=32), 28),
    "C, d_model 1024": (dict(model_dim=1024, key_dim=128, value_dim=128), 168),
    "C, d_ff 1024": (dict(intermediate_dim=1024), 53),
    "C, d_ff 4096": (dict(intermediate_dim=4096), 90),
    "D, no dropout": (dict(dropout=0.0), 65),
    "D, dropout 0.2": (dict(dropout=0.2), 65),
    "E, learned positions": (dict(positions="learned", max_positions=512), 65),
}


STAND_IN = 5  # rows of the embedding that is made


def count(preset, vocab_size, **changes):
    """Weights of a model, those of its embedding counted and not made."""
    width = TransformerConfig.preset(preset, vocab_size=STAND_IN, **changes).model_dim
    return made(preset, **changes) + (vocab_size - STAND_IN) * width


@functools.cache
def made(preset, **changes):
    with pytest.MonkeyPatch.context() as patch:  # drawing 65 million numbers takes seconds
        for name in ("GlorotUniform", "RandomNormal"):
            kind = getattr(keras.initializers, name)
            patch.setattr(kind, "__call__", lambda _, shape, dtype=None: keras.ops.zeros(shape))
        config = TransformerConfig.preset(preset, vocab_size=STAND_IN, **changes)
        weights = Transformer(config).count_params()
    keras.backend.clear_session(free_memory=True)
    gc.collect()
    return weights


def millions(weights):
    return weights / 1e6


@pytest.mark.quick(2)
@pytest.mark.parametrize(("changes", "published"), ROWS.values(), ids=ROWS)
def test_rows_of_the_table(changes, published):
    assert abs(millions(count("base", 41_000, **changes)) - published) <= 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "published"),
    [row for row in ROWS.values() if "model_dim" not in row[0]],
    ids=[name for name, row in ROWS.items() if "model_dim" not in row[0]],
)
def test_differences_that_no_vocabulary_moves(changes, published):
    difference = count("base", 7, **changes) - count("base", 7)
    assert abs(millions(difference) - (published - 65)) <= 1.0  # two roundings


def test_heads_dropout_and_sinusoids_cost_nothing():
    base = count("base", 7)
    for name, (changes, _) in ROWS.items():
        if name.startswith(("A", "D")):
            assert count("base", 7, **changes) == base, name
    assert count("base", 7, positions="none") == base


@pytest.mark.slow
def test_big():
    assert abs(millions(count("big", 36_000)) - 213) <= 0.5
    config = TransformerConfig.preset("big", vocab_size=7)
    assert (config.model_dim, config.intermediate_dim, config.num_heads) == (1024, 4096, 16)
    assert config.dropout == 0.3
