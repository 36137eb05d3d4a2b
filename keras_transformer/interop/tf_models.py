"""Our `Transformer` from a `Seq2SeqTransformer` of tf-models-official: settings and weights.

Nothing here imports tf-models-official: a model of it that is passed in is all there is to read.
"""

import keras
import numpy as np
from keras import ops

from keras_transformer.config import ACTIVATIONS, GATED_ACTIVATIONS, TransformerConfig
from keras_transformer.layers.feed_forward import activation_function
from keras_transformer.models import Transformer

# The final norm of tf-models' decoder has this epsilon whatever `norm_epsilon` says.
_DECODER_NORM_EPSILON = 1e-6
_PAD_ID = 0  # fixed there; the decoder's input starts with it
# Settings that a stack of tf-models has and a `TransformerConfig` has once.
_SHARED_SETTINGS = (
    *("num_attention_heads", "intermediate_size", "use_bias", "norm_first", "norm_epsilon"),
)


def from_tf_models(
    seq2seq: object,
    *,
    unk_id: int = 2,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    intermediate_dropout: float | None = None,
    dtype: str | keras.DTypePolicy | None = None,
) -> Transformer:
    """Builds a `Transformer` with the settings and the weights of a tf-models model.

    Its logits at `target_ids` = [0, *targets[:-1]] are those of `seq2seq` at `targets`. BOS is
    the pad, id 0, as in tf-models. In float32 this is checked here on a few random ids. They
    differ for a source of pads alone, where ours attends to nothing and tf-models to all pads.

    Example:
        >>> from keras_transformer.interop.tf_models import from_tf_models
        >>> model = from_tf_models(seq2seq)  # doctest: +SKIP

    How to search is not part of a model: `beam_size`, `alpha`, `extra_decode_length`,
    `decode_max_length` and `padded_decode` are not taken over. `Greedy` and tf-models differ so:

    - tf-models with `beam_size=1` also keeps what EOS in second place would have ended, and
      answers with that as soon as it is likelier than the likeliest row, or at the limit. So it
      may stop earlier than `Greedy`, which takes the likeliest token at each step and nothing
      else, except id 0: pad and BOS, which training never scores.
    - tf-models lets a row grow to the batch's padded source length plus `extra_decode_length`, or
      to `decode_max_length`. `Greedy(extra_length, max_length)` counts from the row's own tokens.

    Args:
        seq2seq: An `official.nlp.modeling.models.Seq2SeqTransformer` that has been called once,
            so that it has weights.
        unk_id: The tokenizer's id of what it does not know, which tf-models does not keep; 2 in
            a vocabulary of tf-models' own `train_sentencepiece.py`.
        dropout: Rate for sub-layer outputs and embeddings. These three are for further training;
            `None` takes the model's own. tf-models' encoder drops out the output of attention
            at the rate of the attention weights; ours does so at this one.
        attention_dropout: Rate for attention weights.
        intermediate_dropout: Rate inside the feed-forward layer.
        dtype: Keras dtype policy of the result; the global one when `None`.

    Returns:
        A `Transformer`.

    Raises:
        TypeError: if `seq2seq` or one of its layers is of another class than tf-models' own.
        ValueError: if it has no weights yet, or a setting that a `TransformerConfig` cannot hold:
            different settings in encoder and decoder (but for the number of layers), different
            dropout rates with none given here, `norm_epsilon` other than 1e-6, an activation
            without a counterpart, an odd width, another embedding scale or other timescales than
            tf-models' own, several EOS ids; or if the logits differ all the same.
    """
    _check_classes(seq2seq)
    _check_positions_and_scale(seq2seq)
    _check_blocks(seq2seq.encoder_layer, seq2seq.decoder_layer)
    rates = _rates(
        seq2seq,
        dropout=dropout,
        attention_dropout=attention_dropout,
        intermediate_dropout=intermediate_dropout,
    )
    model = Transformer(_config(seq2seq, unk_id, rates), dtype=dtype)
    _copy_weights(seq2seq, model)
    _check_logits(seq2seq, model)
    return model


def _check_classes(seq2seq):
    """Exact classes, since a subclass may compute something else."""
    _check_class("seq2seq", seq2seq, "official", "Seq2SeqTransformer")
    _check_class("embedding_lookup", seq2seq.embedding_lookup, "official", "OnDeviceEmbedding")
    _check_class(
        "position_embedding", seq2seq.position_embedding, "official", "RelativePositionEmbedding"
    )
    _check_class("encoder_layer", seq2seq.encoder_layer, "official", "TransformerEncoder")
    _check_class("decoder_layer", seq2seq.decoder_layer, "official", "TransformerDecoder")


def _check_blocks(encoder, decoder):
    if not (encoder.built and decoder.built):
        raise ValueError(
            "`seq2seq` must have weights: call it once on `inputs` and `targets`. "
            "Received: a model that was never called"
        )
    for block in encoder.encoder_layers:
        _check_class("encoder_layers", block, "official", "TransformerEncoderBlock")
        _check_class("self-attention", block._attention_layer, "tf_keras", "MultiHeadAttention")
        _check_class("norm", block._attention_layer_norm, "tf_keras", "LayerNormalization")
    for block in decoder.decoder_layers:
        _check_class("decoder_layers", block, "official", "TransformerDecoderBlock")
        _check_class("self_attention_cls", block.self_attention, "official", "CachedAttention")
        _check_class(
            "cross_attention_cls", block.encdec_attention, "tf_keras", "MultiHeadAttention"
        )


def _check_class(name, layer, package, expected):
    received = type(layer)
    if (received.__module__.split(".")[0], received.__qualname__) != (package, expected):
        raise TypeError(
            f"`{name}` must be of the class {expected} of {package}, and of no subclass. "
            f"Received: {received.__module__}.{received.__qualname__}"
        )


def _rates(seq2seq, **given):
    encoder, decoder = seq2seq.encoder_layer.get_config(), seq2seq.decoder_layer.get_config()
    found = {
        "dropout": [seq2seq.get_config(), encoder, decoder],
        "attention_dropout": [encoder, decoder],
        "intermediate_dropout": [encoder, decoder],
    }
    rates = {}
    for name, parts in found.items():
        theirs = name if name == "intermediate_dropout" else f"{name}_rate"
        values = [part[theirs] for part in parts]
        if given[name] is None and len(set(values)) > 1:
            raise ValueError(
                f"`{name}` must be given where the parts of a model differ in `{theirs}`. "
                f"Received: {values}"
            )
        rates[name] = values[0] if given[name] is None else given[name]
    return rates


def _config(seq2seq, unk_id, rates):
    encoder, decoder = seq2seq.encoder_layer, seq2seq.decoder_layer
    settings = _shared_settings(encoder.get_config(), decoder.get_config())
    lookup = seq2seq.embedding_lookup
    eos_id = _eos_id(seq2seq)
    if unk_id in (_PAD_ID, eos_id):
        raise ValueError(
            "`unk_id` must be another id than pad and EOS. "
            f"Received: unk_id={unk_id!r}, pad 0, EOS {eos_id}"
        )
    return TransformerConfig(
        vocab_size=int(lookup.vocab_size),  # NumPy's, where it comes from a tokenizer
        model_dim=lookup.embedding_width,
        num_heads=settings["num_attention_heads"],
        encoder_layers=encoder.num_layers,
        decoder_layers=decoder.num_layers,
        intermediate_dim=settings["intermediate_size"],
        activation=_activation(encoder.encoder_layers, decoder.decoder_layers),
        use_bias=settings["use_bias"],
        positions="tensor2tensor",
        residual="pre" if settings["norm_first"] else "post",
        norm_epsilon=settings["norm_epsilon"],
        final_norm=True,
        pad_id=_PAD_ID,
        unk_id=unk_id,
        bos_id=_PAD_ID,
        eos_id=eos_id,
        **rates,
    )


def _shared_settings(encoder, decoder):
    for name in _SHARED_SETTINGS:
        if encoder[name] != decoder[name]:
            raise ValueError(
                f"`{name}` must be the same in encoder and decoder. "
                f"Received: {encoder[name]!r} and {decoder[name]!r}"
            )
    if encoder["norm_epsilon"] != _DECODER_NORM_EPSILON:
        raise ValueError(
            f"`norm_epsilon` must be {_DECODER_NORM_EPSILON}: tf-models' decoder ends with a norm "
            f"that always has this one. Received: {encoder['norm_epsilon']!r}"
        )
    return encoder


def _check_positions_and_scale(seq2seq):
    width = seq2seq.embedding_lookup.embedding_width
    if width % 2 or width < 4:
        raise ValueError(
            "`embedding_width` must be even and at least 4, or tf-models' position signal has "
            f"other columns or none that is finite. Received: {width}"
        )
    positions = seq2seq.position_embedding.get_config()
    received = tuple(positions[name] for name in ("min_timescale", "max_timescale"))
    if received != (1.0, 1.0e4):
        raise ValueError(
            "`position_embedding` must have the timescales 1.0 and 10000.0. "
            f"Received: {received[0]} and {received[1]}"
        )
    scale = seq2seq.embedding_lookup.get_config()["scale_factor"]
    if scale != width**0.5:
        raise ValueError(
            "`embedding_lookup` must have a `scale_factor` of embedding_width**0.5. "
            f"Received: scale_factor={scale}, embedding_width={width}"
        )


def _eos_id(seq2seq):
    eos_id = seq2seq.get_config()["eos_id"]
    ids = list(eos_id) if isinstance(eos_id, (list, tuple)) else [eos_id]
    if len(ids) != 1:
        raise ValueError(f"`eos_id` must be one id. Received: {ids}")
    return int(ids[0])


def _activation(encoder_blocks, decoder_blocks):
    """The name of the activation of all blocks, found by what it computes.

    Names would not do: `hard_sigmoid` differs between Keras 2 and 3, and tf-models' own `gelu`
    is the approximate one.
    """
    import tensorflow as tf

    layers = [block._intermediate_activation_layer for block in encoder_blocks]
    layers += [block.intermediate_activation_layer for block in decoder_blocks]
    inputs = np.linspace(-40, 40, 641, dtype="float32")[np.newaxis]
    outputs = [layer.activation(tf.constant(inputs)).numpy() for layer in layers]
    for name in ACTIVATIONS:
        if name in GATED_ACTIVATIONS:
            continue
        ours = ops.convert_to_numpy(activation_function(name)(ops.convert_to_tensor(inputs)))
        if all(np.allclose(ours, theirs, rtol=1e-5, atol=1e-6) for theirs in outputs):
            return name
    names = dict.fromkeys(getattr(layer.activation, "__name__", "?") for layer in layers)
    raise ValueError(
        "`activation` must compute, in all blocks, what one of Keras' activations does: one of "
        f"{tuple(name for name in ACTIVATIONS if name not in GATED_ACTIVATIONS)}. "
        f"Received: {', '.join(names)}"
    )


def _copy_weights(seq2seq, model):
    encoder, decoder = seq2seq.encoder_layer, seq2seq.decoder_layer
    model.get_layer("embedding").embeddings.assign(_array(seq2seq.embedding_lookup.embeddings))
    for index, theirs in enumerate(encoder.encoder_layers):
        ours = model.get_layer(f"encoder_{index}")
        _copy_self_attention(ours.self_attention, theirs._attention_layer)
        _copy_norm(ours.self_attention_norm, theirs._attention_layer_norm)
        _copy_dense(ours.feed_forward.intermediate, theirs._intermediate_dense)
        _copy_dense(ours.feed_forward.outer, theirs._output_dense)
        _copy_norm(ours.feed_forward_norm, theirs._output_layer_norm)
    _copy_norm(model.get_layer("encoder_norm"), encoder.output_normalization)
    for index, theirs in enumerate(decoder.decoder_layers):
        ours = model.get_layer(f"decoder_{index}")
        _copy_self_attention(ours.self_attention, theirs.self_attention)
        _copy_norm(ours.self_attention_norm, theirs.self_attention_layer_norm)
        _copy_cross_attention(ours.cross_attention, theirs.encdec_attention)
        _copy_norm(ours.cross_attention_norm, theirs.encdec_attention_layer_norm)
        _copy_dense(ours.feed_forward.intermediate, theirs.intermediate_dense)
        _copy_dense(ours.feed_forward.outer, theirs.output_dense)
        _copy_norm(ours.feed_forward_norm, theirs.output_layer_norm)
    _copy_norm(model.get_layer("decoder_norm"), decoder.output_normalization)


def _copy_self_attention(ours, theirs):
    _copy_dense(ours.query_key_value, theirs._query_dense, theirs._key_dense, theirs._value_dense)
    _copy_dense(ours.output_projection, theirs._output_dense, inputs_are_heads=True)


def _copy_cross_attention(ours, theirs):
    _copy_dense(ours.query_projection, theirs._query_dense)
    _copy_dense(ours.key_projection, theirs._key_dense)
    _copy_dense(ours.value_projection, theirs._value_dense)
    _copy_dense(ours.output_projection, theirs._output_dense, inputs_are_heads=True)


def _copy_dense(ours, *theirs, inputs_are_heads=False):
    """Kernels (D, N, H) side by side as one (D, N * H); (N, U, D) as (N * U, D)."""
    kernels = [_array(layer.kernel) for layer in theirs]
    shape = (-1, kernels[0].shape[-1]) if inputs_are_heads else (kernels[0].shape[0], -1)
    ours.kernel.assign(np.concatenate([kernel.reshape(shape) for kernel in kernels], axis=1))
    if ours.use_bias:
        ours.bias.assign(np.concatenate([_array(layer.bias).reshape(-1) for layer in theirs]))


def _copy_norm(ours, theirs):
    ours.gamma.assign(_array(theirs.gamma))
    ours.beta.assign(_array(theirs.beta))


def _array(variable):
    return variable.numpy().astype("float32")


def _check_logits(seq2seq, model, tolerance=1e-3):
    """Compares the two models, in case one of them has a setting that nothing here knows of.

    Raises:
        ValueError: if logits differ by more than `tolerance`, absolutely and as a share of the
            largest; float32 itself is a hundred times finer.
    """
    policies = {seq2seq.compute_dtype, model.get_layer("embedding").compute_dtype}
    if policies != {"float32"}:
        return  # half precision differs by more than this could tell from a fault
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, model.config.vocab_size, (2, 3, 11), dtype="int32")
    source[1, 7:] = _PAD_ID
    theirs = seq2seq({"inputs": source, "targets": target}, training=False).numpy()
    shifted = np.pad(target, [[0, 0], [1, 0]])[:, :-1]
    ours = ops.convert_to_numpy(
        model({"source_ids": source, "target_ids": shifted}, training=False)
    )
    difference, largest = np.abs(ours - theirs).max(), np.abs(theirs).max()
    if not difference <= tolerance * max(1, largest):  # also where it is NaN
        raise ValueError(
            "`seq2seq` must give the logits of tf-models' own code with these settings. Received: "
            f"logits up to {largest:.4g} that differ from the converted model's by {difference:.4g}"
        )
