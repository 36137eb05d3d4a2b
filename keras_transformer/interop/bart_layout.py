"""Marian, M2M-100 with NLLB-200, and mBART: models laid out like BART in Hugging Face's library.

All are encoder-decoders with layer norms, biases and an input scaled by sqrt(D). They differ in
where the norms stand, in their positions, and in whether a norm follows the embeddings.
"""

from typing import Any

import numpy as np

from keras_transformer.interop.arrays import Arrays
from keras_transformer.interop.settings import Settings
from keras_transformer.interop.torch_layers import TorchLayers

# Hugging Face's names of activations, and ours. Its "gelu" is the exact one, as ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
_NORM_EPSILON = 1e-5  # torch's own, which no setting changes
_SKIPPED_POSITIONS = 2  # rows of a learned table before that of the first token
_PER_KIND = {
    "marian": dict(residual="post", positions="sinusoidal"),
    "m2m_100": dict(residual="pre", positions="tensor2tensor"),
    "mbart": dict(residual="pre", positions="learned", embedding_norm=True),
}
_OUTPUT_BIAS = "final_logits_bias"  # of Marian and mBART
# What fairseq's checkpoints hold beside weights.
_VERSIONS = ("model.encoder.version", "model.decoder.version")
_UNKNOWN_ID = {"marian": 1, "m2m_100": 3, "mbart": 3}


def config_fields(settings: Settings, arrays: Arrays) -> dict[str, Any]:
    """The fields of a `TransformerConfig` that a `config.json` of these models says.

    Args:
        settings: Its `Settings`.
        arrays: The checkpoint's `Arrays`.

    Raises:
        ValueError: if a setting is missing or has a value that ours cannot have.

    Example:
        >>> from keras_transformer.interop import bart_layout
        >>> from keras_transformer.interop.settings import Settings
        >>> bart_layout.config_fields(Settings({"model_type": "marian"}, "config.json"), {})
        Traceback (most recent call last):
        ValueError: config.json: must have `encoder_attention_heads`. Received: none
    """
    kind = settings.values["model_type"]
    fields = {
        "num_heads": _same(settings, "attention_heads"),
        "intermediate_dim": _same(settings, "ffn_dim"),
        "model_dim": settings.take("d_model"),
        "encoder_layers": settings.take("encoder_layers"),
        "decoder_layers": settings.take("decoder_layers"),
        "activation": _activation(settings),
        "norm_epsilon": _NORM_EPSILON,
        "dropout": settings.take("dropout", 0.0, float),
        "attention_dropout": settings.take("attention_dropout", 0.0, float),
        "intermediate_dropout": settings.take("activation_dropout", 0.0, float),
        "pad_id": settings.take("pad_token_id"),
        "eos_id": settings.take("eos_token_id"),
        "bos_id": settings.take("decoder_start_token_id"),
        "unk_id": _UNKNOWN_ID[kind],
        "output_bias": kind != "m2m_100" and _OUTPUT_BIAS in arrays,
        **_PER_KIND[kind],
        **_embeddings(settings, kind),
        **_positions(settings, kind),
    }
    settings.take("bos_token_id", None)  # which no text begins with
    is_pre, has_norm = fields["residual"] == "pre", fields.get("embedding_norm", False)
    settings.must_be(
        normalize_before=is_pre,
        add_final_layer_norm=is_pre,
        normalize_embedding=has_norm,
        static_position_embeddings=fields["positions"] != "learned",
    )
    return fields


def _same(settings, name):
    """A setting that both sides have and that ours has once."""
    sides = [settings.take(f"{side}_{name}") for side in ("encoder", "decoder")]
    if sides[0] != sides[1]:
        raise ValueError(
            f"{settings.origin}: `encoder_{name}` and `decoder_{name}` must be the same. "
            f"Received: {sides[0]} and {sides[1]}"
        )
    return sides[0]


def _activation(settings):
    name = settings.take("activation_function", kind=str)
    if name not in ACTIVATIONS:
        raise ValueError(
            f"{settings.origin}: `activation_function` must be one of {tuple(ACTIVATIONS)}. "
            f"Received: {name!r}"
        )
    return ACTIVATIONS[name]


def _embeddings(settings, kind):
    """Sizes, sharing and scale of the tables."""
    sizes = {"vocab_size": settings.take("vocab_size")}
    target_size = settings.take("decoder_vocab_size", sizes["vocab_size"])
    shares_sides = settings.take("share_encoder_decoder_embeddings", True, bool)
    is_tied = settings.take("tie_word_embeddings", True, bool)
    # Also where one table serves both: each side has a tokenizer of its own.
    sizes["target_vocab_size"] = target_size
    if shares_sides and target_size != sizes["vocab_size"]:
        raise ValueError(
            f"{settings.origin}: `decoder_vocab_size` must be `vocab_size` where one table serves "
            f"both. Received: {target_size} and {sizes['vocab_size']}"
        )
    if kind != "marian" and not shares_sides:
        raise ValueError(
            f"{settings.origin}: `share_encoder_decoder_embeddings` must be true for {kind!r}. "
            "Received: false"
        )
    sharing = {
        (True, True): "all",
        (False, True): "target_output",
        (True, False): "source_target",
        (False, False): "none",
    }[shares_sides, is_tied]
    is_scaled = settings.take("scale_embedding", kind=bool)
    scale = None if is_scaled else 1.0
    return {**sizes, "embedding_sharing": sharing, "embedding_scale": scale}


def _positions(settings, kind):
    longest = settings.take("max_position_embeddings")
    if kind == "mbart":
        return {"max_positions": longest}
    if kind == "m2m_100":  # fairseq counts from the id after the pad's
        return {"first_position": settings.take("pad_token_id") + 1}
    return {}


def fill(model, arrays: Arrays, kind: str) -> None:
    """Puts the tensors of a checkpoint into a model that its `config_fields` have made.

    Args:
        model: A `Transformer`.
        arrays: The checkpoint's `Arrays`.
        kind: The `model_type`.

    Raises:
        ValueError: if a tensor is missing, has another shape, or is not what it is a copy of.

    Example:
        >>> from keras_transformer.interop import bart_layout
        >>> bart_layout.fill(model, arrays, "marian")  # doctest: +SKIP
    """
    config = model.config
    order = _interleaved(config.model_dim) if kind == "marian" else None
    layers = TorchLayers(arrays, order)
    _fill_embeddings(model, layers, config.embedding_sharing)
    for side in ("encoder", "decoder"):
        for index in range(getattr(config, f"{side}_layers")):
            _fill_block(model.get_layer(f"{side}_{index}"), layers, f"model.{side}.layers.{index}")
        if config.has_final_norm:
            layers.norm(model.get_layer(f"{side}_norm"), f"model.{side}.layer_norm")
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        if config.embedding_norm:
            name = f"model.{side}.layernorm_embedding"
            layers.norm(model.get_layer(f"{ours}_embedding_norm"), name)
        table = f"model.{side}.embed_positions.weight"
        if config.positions == "learned":
            variable = model.get_layer(f"{ours}_positions").embeddings
            layers.table(variable, [table], skip=_SKIPPED_POSITIONS)
        else:
            for name in (table, f"{table}s"):
                _check_sinusoids(arrays, name, config, kind)
    for name in _VERSIONS:
        if name in arrays:
            arrays.take(name)


def _interleaved(dim):
    """Where our channels lie: the halves of sines and cosines there, pair by pair here."""
    return np.arange(dim).reshape(2, -1).T.reshape(-1)


def _fill_embeddings(model, layers, sharing):
    shared = "model.shared.weight"
    encoder, decoder = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    tables = {
        "all": {"embedding": [shared, "lm_head.weight", encoder, decoder]},
        "target_output": {
            "source_embedding": [encoder],
            "target_embedding": [decoder, "lm_head.weight"],
        },
        "source_target": {
            "embedding": [shared, encoder, decoder],
            "output_embedding": ["lm_head.weight"],
        },
        "none": {
            "source_embedding": [encoder],
            "target_embedding": [decoder],
            "output_embedding": ["lm_head.weight"],
        },
    }[sharing]
    for name, theirs in tables.items():
        layers.table(model.get_layer(name).embeddings, theirs)
    if _OUTPUT_BIAS in layers.arrays:  # in the layer that gives the logits, the last of these
        layers.vector(model.get_layer([*tables][-1]).output_bias, _OUTPUT_BIAS)


def _fill_block(ours, layers, name):
    attention = f"{name}.self_attn"
    parts = (f"{attention}.{part}_proj" for part in "qkv")
    layers.linear(ours.self_attention.query_key_value, *parts, enters=True)
    layers.linear(ours.self_attention.output_projection, f"{attention}.out_proj", leaves=True)
    layers.norm(ours.self_attention_norm, f"{attention}_layer_norm")
    if hasattr(ours, "cross_attention"):
        attention, cross = f"{name}.encoder_attn", ours.cross_attention
        layers.linear(cross.query_projection, f"{attention}.q_proj", enters=True)
        layers.linear(cross.key_projection, f"{attention}.k_proj", enters=True)
        layers.linear(cross.value_projection, f"{attention}.v_proj", enters=True)
        layers.linear(cross.output_projection, f"{attention}.out_proj", leaves=True)
        layers.norm(ours.cross_attention_norm, f"{attention}_layer_norm")
    layers.linear(ours.feed_forward.intermediate, f"{name}.fc1", enters=True)
    layers.linear(ours.feed_forward.outer, f"{name}.fc2", leaves=True)
    layers.norm(ours.feed_forward_norm, f"{name}.final_layer_norm")


def _check_sinusoids(arrays, name, config, kind):
    """Compares the table of positions that some files hold with what we compute.

    Raises:
        ValueError: if they differ by more than half precision.
    """
    if name not in arrays:
        return
    from keras_transformer.layers.positions import sinusoidal_encoding  # which loads Keras

    table = arrays.take(name).astype("float32")
    dim, first = config.model_dim, config.first_position
    if kind == "m2m_100":  # whose table begins at 0, with zeros at the pad's row
        ours = sinusoidal_encoding(np.arange(first, len(table)), dim, "split")
        table = table[first:]
    else:
        ours = sinusoidal_encoding(np.arange(len(table)), dim, "interleaved")
        table = table[:, _interleaved(dim)]
    if np.abs(np.asarray(ours) - table).max(initial=0) > 2e-3:
        raise ValueError(
            f"{name!r} must hold sinusoidal positions, as its `model_type` has. Received: others"
        )
