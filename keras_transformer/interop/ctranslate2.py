"""Our weights in the format of CTranslate2, for its runtime and to compare with it."""

import os

import numpy as np
from keras import ops

from keras_transformer.arguments import check_choice
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.positions import sinusoidal_encoding
from keras_transformer.models import Transformer
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
_MODEL = "model.bin"
_FILES = (_MODEL, "config.json", "*_vocabulary.json", "*_vocabulary.txt")


def save_ctranslate2(
    model: Transformer,
    tokenizer: SentencePieceTokenizer,
    folder: os.PathLike | str,
    *,
    max_length: int = 512,
    quantization: str | None = None,
    overwrite: bool = False,
):
    """Writes a model for `ctranslate2.Translator`.

    Its tokens are SentencePiece's pieces, as `tokenizer` makes them; EOS is added to the source
    and BOS to the target by the model's own configuration.

    Example:
        >>> from keras_transformer.interop.ctranslate2 import save_ctranslate2
        >>> run = kt.load_run("runs/de-en")  # doctest: +SKIP
        >>> save_ctranslate2(run.model, run.tokenizer, "ctranslate2")  # doctest: +SKIP

    Args:
        model: A `Transformer`.
        tokenizer: Its `SentencePieceTokenizer`.
        folder: The folder to make.
        max_length: Positions to write; CTranslate2 looks them up in a table.
        quantization: What CTranslate2 stores weights as, such as `"int8"` or `"float16"`; float32
            when `None`. It quantizes when it loads, too (`compute_type="int8"`), from a larger
            file and with more memory.
        overwrite: Whether an earlier model of CTranslate2 is replaced; nothing else ever is.

    Raises:
        FileExistsError: if `folder` is not empty, and `overwrite` is false or it holds other files.
        TargetInUseError: if another process is writing it.
        ValueError: if the model has an option that is not written for CTranslate2; the error
            names it and what is. Or if there is no such quantization.
    """
    from ctranslate2 import specs

    config = model.config
    _check_options(config)
    check_choice((None, *_QUANTIZATIONS), quantization=quantization)
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.has_final_norm,
        activation=specs.Activation[_ACTIVATIONS[config.activation]],
        layernorm_embedding=config.embedding_norm,
    )
    _set_weights(spec, model, max_length)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        tokenizer.pieces[token] for token in (config.unk_id, config.bos_id, config.eos_id)
    )
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.register_source_vocabulary(tokenizer.pieces)
    spec.register_target_vocabulary(tokenizer.pieces)
    spec.validate()
    spec.optimize(quantization=quantization)
    replaces = _FILES if overwrite else None
    with new_folder(folder, replaces=replaces, mark=_MODEL, what="an export") as made:
        spec.save(str(made))


_QUANTIZATIONS = (
    "float16",
    "bfloat16",
    "int16",
    "int8",
    "int8_float16",
    "int8_bfloat16",
)

# What is written; of positions, the table.
_OPTIONS = {
    "activation": tuple(_ACTIVATIONS),
    "use_bias": (True,),
    "feed_forward_bias": (True,),
    "positions": ("sinusoidal", "tensor2tensor"),
    "residual": ("post", "pre"),
    "use_residual": (True,),
    "use_feed_forward": (True,),
    "normalization": ("layer",),
    "attention_score": ("scaled_dot_product",),
    "attention_window": (None,),
    "embedding_sharing": ("all", "source_target"),
    "decoder_recurrence": (None,),
}


def _check_options(config):
    for name, choices in _OPTIONS.items():
        value = getattr(config, name)
        if value not in choices:
            raise ValueError(
                f"`{name}` must be one of {choices} for CTranslate2. Received: {value!r}"
            )
    if config.has_final_norm != (config.residual == "pre"):
        raise ValueError(
            "`final_norm` must go with `residual='pre'` for CTranslate2. Received: "
            f"final_norm={config.final_norm}, residual={config.residual!r}"
        )
    width = config.num_heads * config.head_key_dim
    if not width == config.num_heads * config.head_value_dim == config.model_dim:
        raise ValueError(
            "for CTranslate2, `key_dim` and `value_dim` must be model_dim / num_heads. Received: "
            f"key_dim={config.head_key_dim}, value_dim={config.head_value_dim}, "
            f"model_dim={config.model_dim}, num_heads={config.num_heads}"
        )


def _set_weights(spec, model, max_length):
    config = model.config
    embeddings = _array(model.get_layer("embedding").embeddings)
    output = model.get_layer(
        "embedding" if config.embedding_sharing == "all" else "output_embedding"
    )
    layout = "split" if config.positions == "tensor2tensor" else "interleaved"
    numbers = config.first_position + arange(max_length)
    positions = _array(sinusoidal_encoding(numbers, config.model_dim, layout))
    spec.decoder.projection.weight = _array(output.embeddings)
    if config.output_bias:
        spec.decoder.projection.bias = _array(output.output_bias)
    if config.embedding_scale is not None:  # it knows sqrt(D) and none
        scale = config.embedding_scale
        spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = False
        embeddings = embeddings * np.float32(scale)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = embeddings
    for name, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        side.position_encodings.encodings = positions
        if config.embedding_norm:
            layer = {"encoder": "source", "decoder": "target"}[name] + "_embedding_norm"
            _set_norm(side.layernorm_embedding, model.get_layer(layer))
        if config.residual == "pre":
            _set_norm(side.layer_norm, model.get_layer(f"{name}_norm"))
        # It ties no layers: what comes several times is written as often.
        for number, layer in zip(getattr(config, f"{name}_blocks"), side.layer, strict=True):
            block = model.get_layer(f"{name}_{number}")
            _set_self_attention(layer.self_attention, block)
            if name == "decoder":
                _set_cross_attention(layer.attention, block)
            _set_norm(layer.ffn.layer_norm, block.feed_forward_norm)
            _set_linear(layer.ffn.linear_0, block.feed_forward.intermediate)
            _set_linear(layer.ffn.linear_1, block.feed_forward.outer)


def _set_self_attention(spec, block):
    _set_norm(spec.layer_norm, block.self_attention_norm)
    _set_linear(spec.linear[0], block.self_attention.query_key_value)
    _set_linear(spec.linear[1], block.self_attention.output_projection)


def _set_cross_attention(spec, block):
    attention = block.cross_attention
    _set_norm(spec.layer_norm, block.cross_attention_norm)
    _set_linear(spec.linear[0], attention.query_projection)
    _set_linear(spec.linear[1], attention.key_projection, attention.value_projection)
    _set_linear(spec.linear[2], attention.output_projection)


def _set_norm(spec, norm):
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _set_linear(spec, *projections):
    """(D, E) kernels, side by side, as one (E, D) weight."""
    spec.weight = np.concatenate([_array(p.kernel) for p in projections], axis=1).T.copy()
    spec.bias = np.concatenate([_array(p.bias) for p in projections])


def _array(variable):
    return ops.convert_to_numpy(variable).astype("float32")
