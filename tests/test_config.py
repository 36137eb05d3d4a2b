"""`TransformerConfig`: each rule with its message, presets, and the way through JSON."""

import dataclasses
import json
import math

import pytest
from toy_model import toy_config

from keras_transformer.config import PRESETS, TransformerConfig

CONFIGS = [
    TransformerConfig(vocab_size=97),
    toy_config(activation="gelu", residual="pre", attention_dropout=0.2, pad_id=22),
    toy_config(encoder_layers=3, encoder_tied_layers=[0, 1, 0]),
    *(TransformerConfig.preset(name, vocab_size=97) for name in PRESETS),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_survives_json_and_dict(config):
    assert TransformerConfig.from_json(config.to_json()) == config
    assert TransformerConfig.from_dict(config.to_dict()) == config
    assert TransformerConfig(**json.loads(json.dumps(config.to_dict()))) == config
    assert set(config.to_dict()) == {field.name for field in dataclasses.fields(config)}


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIGS[0].model_dim = 3


# Table 3 of the paper: N, d_model, d_ff, h, d_k, d_v, P_drop.
@pytest.mark.parametrize(
    ("name", "row"),
    [("base", (6, 512, 2048, 8, 64, 64, 0.1)), ("big", (6, 1024, 4096, 16, 64, 64, 0.3))],
)
def test_presets_are_the_papers(name, row):
    c = TransformerConfig.preset(name, vocab_size=37000)
    assert c.encoder_layers == c.decoder_layers == row[0]
    assert (c.model_dim, c.intermediate_dim, c.num_heads) == row[1:4]
    assert (c.head_key_dim, c.head_value_dim, c.dropout) == row[4:]
    assert (c.activation, c.residual) == ("relu", "post")


def test_defaults_are_the_base_model():
    assert TransformerConfig(vocab_size=97) == TransformerConfig.preset("base", vocab_size=97)


def test_preset_with_overrides():
    config = TransformerConfig.preset("tiny", vocab_size=97, num_heads=2, dropout=0.3)
    assert (config.model_dim, config.num_heads, config.dropout) == (128, 2, 0.3)
    assert config.head_key_dim == 64


def test_head_widths():
    assert toy_config(value_dim=None).head_value_dim == toy_config().key_dim
    config = TransformerConfig(vocab_size=97, model_dim=15, num_heads=3)
    assert (config.head_key_dim, config.head_value_dim) == (5, 5)
    assert (config.key_dim, config.value_dim) == (None, None)


SIZES = [
    *("vocab_size", "model_dim", "num_heads", "intermediate_dim", "encoder_layers"),
    *("decoder_layers", "key_dim", "value_dim"),
]


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True])
def test_sizes_are_checked(name, value):
    message = f"`{name}` must be a positive integer. Received: {name}={value!r}"
    with pytest.raises(ValueError, match=message):
        toy_config(**{name: value})


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1, 1.0, float("nan"), "0.1", None])
def test_rates_are_checked(name, value):
    with pytest.raises(ValueError, match=rf"`{name}` must be a rate in \[0, 1\)\. Received: "):
        toy_config(**{name: value})


@pytest.mark.parametrize("name", ["pad_id", "unk_id", "bos_id", "eos_id"])
@pytest.mark.parametrize("value", [-1, 23, 1.0, None])
def test_special_ids_are_checked(name, value):
    message = rf"`{name}` must be an id in \[0, vocab_size\)\. Received: {name}={value}, vocab_size"
    with pytest.raises(ValueError, match=message):
        toy_config(**{name: value})


def test_eos_is_no_pad():
    with pytest.raises(ValueError, match="another id than `pad_id`. Received: pad_id=9, eos_id=9"):
        toy_config(pad_id=9, eos_id=9)


@pytest.mark.parametrize("other", ["pad_id", "eos_id"])
def test_bos_may_be_the_pad_or_eos(other):
    assert toy_config(**{other: 9, "bos_id": 9}).bos_id == 9
    with pytest.raises(ValueError, match="`packed` needs a `bos_id` of its own.*bos_id=9"):
        toy_config(**{other: 9, "bos_id": 9}, packed=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(norm_epsilon=10**400), "`norm_epsilon` must be a finite .*Received: .{20,60}$"),
        (dict(norm_epsilon=math.inf), "`norm_epsilon` must be a finite number above 0"),
        (dict(embedding_scale=0), "`embedding_scale` must be .* above 0. Received: .*=0"),
        (dict(embedding_norm=1), "`embedding_norm` must be True or False. Received: .*=1"),
        (
            dict(embedding_norm=True, normalization="none"),
            "`embedding_norm` needs a normalization. Received: .*normalization='none'",
        ),
        (dict(output_bias="no"), "`output_bias` must be True or False. Received: .*='no'"),
        (dict(feed_forward_bias=None), "`feed_forward_bias` must be True or False."),
        (dict(first_position=-1), "`first_position` must be an integer of at least 0."),
        (
            dict(first_position=2, positions="rotary", key_dim=2),
            "`first_position` is for sinusoidal and tensor2tensor positions. Received: .*'rotary'",
        ),
        (dict(alignment_layer=2), r"`alignment_layer` must be an integer in \[0, 2\). Received: 2"),
        (dict(alignment_head=-1), r"`alignment_head` must be an integer in \[0, 3\). Received: -1"),
        (
            dict(embedding_sharing="source_target", target_vocab_size=29),
            "must be 'target_output' or 'none' where.*embedding_sharing='source_target', vocab",
        ),
    ],
    ids=str,
)
def test_options_of_pretrained_models_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        toy_config(**fields)


def test_heads_must_divide_the_width_unless_their_width_is_given():
    message = "`model_dim` must be divisible by `num_heads`.*Received: model_dim=10, num_heads=4"
    with pytest.raises(ValueError, match=message):
        TransformerConfig(vocab_size=97, model_dim=10, num_heads=4)
    TransformerConfig(vocab_size=97, model_dim=10, num_heads=4, key_dim=3)


def test_residual_is_checked():
    message = r"`residual` must be one of \('post', 'pre', 'b2t'\)\. Received: 'both'"
    with pytest.raises(ValueError, match=message):
        toy_config(residual="both")


def test_decoder_recurrence_is_checked():
    message = r"`decoder_recurrence` must be one of \(None, 'ssru'\)\. Received: 'lstm'"
    with pytest.raises(ValueError, match=message):
        TransformerConfig(vocab_size=11, decoder_recurrence="lstm")


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (0, "a list of integers, one for each of 2 blocks. Received: 0"),
        ((0, 0, 0), "one for each of 2 blocks. Received: .0, 0, 0"),
        ((0, True), "a list of integers"),
        ((1, 1), "an earlier one which has its own. Received: 1 at place 0 of .1, 1"),
        ((0, -1), "Received: -1 at place 1"),
    ],
)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_tied_layers_are_checked(side, layers, message):
    name = f"{side}_tied_layers"
    with pytest.raises(ValueError, match=f"`{name}` must.*{message}"):
        toy_config(**{f"{side}_layers": 2, name: layers})


def test_a_tied_layer_is_that_of_a_block_with_weights_of_its_own():
    with pytest.raises(ValueError, match="which has its own. Received: 1 at place 2"):
        toy_config(encoder_layers=3, encoder_tied_layers=(0, 0, 1))
    config = toy_config(encoder_layers=3, encoder_tied_layers=(0, 1, 0), decoder_layers=2)
    assert (config.encoder_blocks, config.decoder_blocks) == ((0, 1, 0), (0, 1))


def test_preset_is_checked():
    message = r"`preset` must be one of \('tiny', 'base', 'big'\)\. Received: 'huge'"
    with pytest.raises(ValueError, match=message):
        TransformerConfig.preset("huge", vocab_size=97)


@pytest.mark.parametrize(
    ("name", "hint"), [("num_head", r" Did you mean 'num_heads'\?"), ("xyz", "")]
)
def test_unknown_fields_are_named_with_the_nearest(name, hint):
    message = rf"a model field must be one of \['vocab_size', .* Received: '{name}'\.{hint}$"
    with pytest.raises(ValueError, match=message):
        TransformerConfig.from_dict({"vocab_size": 97, name: 3})


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 100_000])
def test_a_config_that_is_no_json(text):
    with pytest.raises(ValueError, match="a config must be a JSON object. Received: '"):
        TransformerConfig.from_json(text)
