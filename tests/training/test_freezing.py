"""Parts of a model that training is to leave alone."""

import pytest

from keras_transformer.config import TransformerConfig
from keras_transformer.experiment import Experiment
from keras_transformer.models import Transformer
from keras_transformer.training.freezing import freeze

SIZES = dict(vocab_size=11, model_dim=6, num_heads=2, encoder_layers=2, decoder_layers=2)


def frozen(*parts, **fields):
    """Paths of the weights that are frozen, and of those that are not."""
    model = Transformer(TransformerConfig(**SIZES, intermediate_dim=7, **fields))
    freeze(model, parts)
    found = {weight.path for weight in model.non_trainable_weights}
    return found, {weight.path for weight in model.trainable_weights}


@pytest.mark.parametrize(
    ("part", "starts", "fields"),
    [
        ("encoder", ("encoder_0/", "encoder_1/", "encoder_norm/"), {"residual": "pre"}),
        (
            "decoder",
            ("decoder_0/", "decoder_1/", "target_position_bias/"),
            {"positions": "relative"},
        ),
        ("embeddings", ("embedding/", "source_positions/", "target_positions/"), "learned"),
        (
            "embeddings",
            ("source_embedding/", "target_embedding/", "output_embedding/"),
            {"embedding_sharing": "none"},
        ),
        ("encoder_1", ("encoder_1/",), {}),
    ],
)
def test_parts_are_whole_layers(part, starts, fields):
    if fields == "learned":
        fields = {"positions": "learned", "max_positions": 5}
    found, left = frozen(part, **fields)
    assert found and all(path.startswith(starts) for path in found)
    assert left and not any(path.startswith(starts) for path in left)
    assert {start for start in starts for path in found if path.startswith(start)} == set(starts)


@pytest.mark.parametrize("part", ["self_attention", "cross_attention", "feed_forward"])
def test_parts_inside_blocks(part):
    found, left = frozen(part)
    blocks = {path.split("/")[0] for path in found}
    sides = ("decoder",) if part == "cross_attention" else ("encoder", "decoder")
    assert blocks == {f"{side}_{number}" for side in sides for number in (0, 1)}
    assert all(path.split("/")[1] == part for path in found)
    assert not any(f"/{part}/" in path for path in left)


def test_norms_and_several_parts():
    found, left = frozen("normalization", "encoder", residual="pre")
    assert "decoder_norm/gamma" in found and "encoder_0/feed_forward/output/kernel" in found
    assert "decoder_1/cross_attention_norm/beta" in found
    assert not any("norm" in path or path.startswith("encoder") for path in left)


def test_what_cannot_be_frozen():
    with pytest.raises(ValueError, match="parts that the model has. Received: 'encoder_2', for en"):
        frozen("encoder_2")
    message = r"must leave something to train. Received: freeze=\['encoder', 'decoder', 'embedd"
    with pytest.raises(ValueError, match=message):
        frozen("encoder", "decoder", "embeddings")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["encodr"], "a part of `training.freeze` must be one of .*Did you mean 'encoder'"),
        (["encoder_01"], "a part of `training.freeze` must be one of"),
        ("encoder", "`training.freeze` must be a list of strings. Received: 'encoder'"),
        ([1], "`training.freeze` must be a list of strings"),
    ],
)
def test_names_of_parts(value, message):
    values = {"data": {"tsv": "x"}, "training": {"max_epochs": 1, "freeze": value}}
    with pytest.raises(ValueError, match=message):
        Experiment.from_dict(values)
