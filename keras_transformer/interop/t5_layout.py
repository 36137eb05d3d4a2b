"""T5 v1.0 and v1.1, Flan-T5, mT5 and ByT5, as Hugging Face's library lays them out.

Encoder-decoders with RMS norms before each sub-layer, positions by distance and no biases. The
input is not scaled. The output of v1.0 is, by D^-0.5, and shares the input's table; later models
have a table of their own for it.
"""

from typing import Any

import numpy as np

from keras_transformer.interop.arrays import Arrays
from keras_transformer.interop.bart_layout import ACTIVATIONS
from keras_transformer.interop.settings import Settings
from keras_transformer.interop.torch_layers import TorchLayers

# What the first word of a gated `feed_forward_proj` stands for, and which gate ours is.
_GATED = {"gelu": "geglu_tanh", "gelu_new": "geglu_tanh", "silu": "swiglu", "relu": "reglu"}
_UNKNOWN_ID = 2
_OWN_OUTPUT, _SHARED = "lm_head.weight", "shared.weight"
# A table that the first T5 files hold and that no version of the model has read.
_NEVER_READ = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def config_fields(settings: Settings, arrays: Arrays) -> dict[str, Any]:
    """The fields of a `TransformerConfig` that a `config.json` of these models says.

    Args:
        settings: Its `Settings`.
        arrays: The checkpoint's `Arrays`. Whether the output has a table of its own is seen in
            them: `tie_word_embeddings` says different things in different versions of the library.

    Raises:
        ValueError: if a setting is missing or has a value that ours cannot have.

    Example:
        >>> from keras_transformer.interop import t5_layout
        >>> from keras_transformer.interop.settings import Settings
        >>> t5_layout.config_fields(Settings({"model_type": "t5"}, "config.json"), {})
        Traceback (most recent call last):
        ValueError: config.json: must have `num_layers`. Received: none
    """
    layers = settings.take("num_layers")
    rate = settings.take("dropout_rate", 0.0, float)
    settings.take("bos_token_id", None)  # which no text begins with
    has_own = _has_own_output(arrays)
    is_scaled = _is_output_scaled(settings)
    if has_own and is_scaled:
        raise ValueError(
            f"{settings.origin}: `tie_word_embeddings`, and with it `scale_decoder_outputs`, must "
            f"be false where {_OWN_OUTPUT} differs from {_SHARED}. Received: true"
        )
    return {
        "vocab_size": settings.take("vocab_size"),
        "embedding_sharing": "source_target" if has_own else "all",
        # W = E / sqrt(D) with the paper's scale is E at the input, and E / sqrt(D) at the output.
        "embedding_scale": None if is_scaled else 1.0,
        "model_dim": settings.take("d_model"),
        "num_heads": settings.take("num_heads"),
        "key_dim": settings.take("d_kv"),
        "encoder_layers": layers,
        "decoder_layers": settings.take("num_decoder_layers", layers),
        "intermediate_dim": settings.take("d_ff"),
        "activation": _activation(settings),
        "use_bias": False,
        "feed_forward_bias": False,
        "positions": "relative",
        "relative_buckets": settings.take("relative_attention_num_buckets", 32),
        "relative_max_distance": settings.take("relative_attention_max_distance", 128),
        "residual": "pre",
        "normalization": "rms",
        "norm_epsilon": settings.take("layer_norm_epsilon", 1e-6, float),
        "attention_score": "dot_product",
        "dropout": rate,
        "attention_dropout": rate,
        "intermediate_dropout": rate,
        "pad_id": settings.take("pad_token_id", 0),
        "bos_id": settings.take("decoder_start_token_id", settings.take("pad_token_id", 0)),
        "eos_id": settings.take("eos_token_id", 1),
        "unk_id": _UNKNOWN_ID,
    }


def _activation(settings):
    """The activation of `feed_forward_proj`, which newer files also tell in two other settings."""
    name = settings.take("feed_forward_proj", "relu", str)
    gate, _, plain = name.rpartition("-")
    known = _GATED if gate else ACTIVATIONS
    if gate not in ("", "gated") or plain not in known:
        raise ValueError(
            f"{settings.origin}: `feed_forward_proj` must be one of {tuple(ACTIVATIONS)}, or "
            f"'gated-' with one of {tuple(_GATED)}. Received: {name!r}"
        )
    function = "gelu_new" if name == "gated-gelu" else plain
    settings.must_be(is_gated_act=bool(gate), dense_act_fn=function)
    return known[plain]


def _is_output_scaled(settings):
    """Whether the last states are multiplied by D^-0.5, which mT5 never does."""
    is_tied = settings.take("tie_word_embeddings", True, bool)
    is_scaled = settings.take("scale_decoder_outputs", is_tied, bool)
    return is_scaled and settings.values["model_type"] == "t5"


def _has_own_output(arrays):
    if _OWN_OUTPUT not in arrays or _SHARED not in arrays:
        return False
    return not np.array_equal(arrays[_OWN_OUTPUT], arrays[_SHARED])


def fill(model, arrays: Arrays) -> None:
    """Puts the tensors of a checkpoint into a model that its `config_fields` have made.

    Args:
        model: A `Transformer`.
        arrays: The checkpoint's `Arrays`.

    Raises:
        ValueError: if a tensor is missing, has another shape, or is not what it is a copy of.

    Example:
        >>> from keras_transformer.interop import t5_layout
        >>> t5_layout.fill(model, arrays)  # doctest: +SKIP
    """
    config, layers = model.config, TorchLayers(arrays)
    factor = 1.0 if config.embedding_scale else config.model_dim**-0.5
    copies = [f"{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    if config.embedding_sharing == "source_target":
        layers.table(model.get_layer("output_embedding").embeddings, [_OWN_OUTPUT])
    else:
        copies.append(_OWN_OUTPUT)
    layers.table(model.get_layer("embedding").embeddings, [_SHARED, *copies], factor=factor)
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        layers.table(model.get_layer(f"{ours}_position_bias").embeddings, [table])
        for index in range(getattr(config, f"{side}_layers")):
            _fill_block(model.get_layer(f"{side}_{index}"), layers, f"{side}.block.{index}.layer")
        layers.norm(model.get_layer(f"{side}_norm"), f"{side}.final_layer_norm")
    for name in _NEVER_READ:
        if name in arrays:
            arrays.take(name)


def _fill_block(ours, layers, name):
    attention = f"{name}.0.SelfAttention"
    layers.linear(ours.self_attention.query_key_value, *(f"{attention}.{part}" for part in "qkv"))
    layers.linear(ours.self_attention.output_projection, f"{attention}.o")
    layers.norm(ours.self_attention_norm, f"{name}.0.layer_norm")
    last = 1
    if hasattr(ours, "cross_attention"):
        attention, cross, last = f"{name}.1.EncDecAttention", ours.cross_attention, 2
        layers.linear(cross.query_projection, f"{attention}.q")
        layers.linear(cross.key_projection, f"{attention}.k")
        layers.linear(cross.value_projection, f"{attention}.v")
        layers.linear(cross.output_projection, f"{attention}.o")
        layers.norm(ours.cross_attention_norm, f"{name}.1.layer_norm")
    dense, feed_forward = f"{name}.{last}.DenseReluDense", ours.feed_forward
    if feed_forward.is_gated:
        layers.linear(feed_forward.gate, f"{dense}.wi_0")
        layers.linear(feed_forward.intermediate, f"{dense}.wi_1")
    else:
        layers.linear(feed_forward.intermediate, f"{dense}.wi")
    layers.linear(feed_forward.outer, f"{dense}.wo")
    layers.norm(ours.feed_forward_norm, f"{name}.{last}.layer_norm")
