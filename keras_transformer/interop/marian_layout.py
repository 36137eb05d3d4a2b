"""Marian's own models: what its settings mean, and where its tensors go.

Written after `src/models/transformer.h` and `src/rnn/cells.h` of marian-dev.
"""

from typing import Any

import numpy as np

from keras_transformer.interop.arrays import Arrays
from keras_transformer.interop.settings import Settings

# Marian's `gelu` is x * sigmoid(1.702 x), which Keras has not.
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}
_NORM_EPSILON = 1e-6
# What is done before and after a sub-layer: d drops, a adds the input, n norms.
_RESIDUALS = {("", "dan"): "post", ("", "an"): "post", ("n", "da"): "pre", ("n", "a"): "pre"}
_IMPOSSIBLE = -1e3  # a logit whose exponential is 0 beside any other
_IMPLIED = {
    "type": "transformer",
    "transformer-no-projection": False,
    "transformer-rnn-projection": False,
    "transformer-ffn-depth": 2,
    "transformer-tied-layers": [],
    "transformer-pool": False,
    "layer-normalization": False,
    "right-left": False,
    "ulr": False,
    "lemma-dim-emb": 0,
    "factors-dim-emb": 0,
    "special-vocab": [],
}
# Of other kinds of models, of training, or of what the settings above have switched off.
MEANINGLESS = frozenset(
    (
        *("version", "skip", "dim-rnn", "enc-type", "enc-cell", "enc-cell-depth", "best-deep"),
        *("dec-cell", "dec-cell-base-depth", "dec-cell-high-depth", "dim-vocabs"),
        *("transformer-dim-aan", "transformer-aan-depth", "transformer-aan-activation"),
        *("transformer-aan-nogate", "transformer-depth-scaling", "bert-train-type-embeddings"),
        *("bert-type-vocab-size", "ulr-dim-emb", "ulr-trainable-transformation"),
        *("lemma-dependency", "factors-combine", "char-stride", "char-highway", "char-convs"),
        *("output-omit-bias", "transformer-train-position-embeddings"),
    )
)


def config_fields(settings: Settings, arrays: Arrays) -> dict[str, Any]:
    """The fields of a `TransformerConfig` that the settings of a model say, but for eos and unk.

    The decoder starts from an embedding of zeros. So one id more than Marian has, the last, is both
    pad and BOS, and its row is 0. Its logit is so low that it has no probability, as in Marian,
    where it is none.

    Args:
        settings: The `Settings` of `special:model.yml`.
        arrays: The model's `Arrays`.

    Raises:
        ValueError: if a setting is missing, or has a value that ours cannot have.

    Example:
        >>> from keras_transformer.interop import marian_layout
        >>> from keras_transformer.interop.settings import Settings
        >>> marian_layout.config_fields(Settings({"type": "s2s"}, "special:model.yml"), {})
        Traceback (most recent call last):
        ValueError: special:model.yml: `type` must be 'transformer': the model computes something \
else otherwise. Received: 's2s'
    """
    settings.must_be(**_IMPLIED)
    sharing = _sharing(settings)
    rows = max(_rows(arrays, name) for name in table_names(sharing, arrays).values())
    width = settings.take("transformer-dim-ffn")
    if settings.take("transformer-decoder-ffn-depth", 0):
        settings.must_be(**{"transformer-decoder-ffn-depth": 2})
    if settings.take("transformer-decoder-dim-ffn", 0):
        settings.must_be(**{"transformer-decoder-dim-ffn": width})
    if settings.take("input-types", [], list):
        settings.must_be(**{"input-types": ["sequence", "sequence"]})
    return {
        "vocab_size": rows + 1,
        "target_vocab_size": rows + 1,  # of a tokenizer of its own
        "pad_id": rows,
        "bos_id": rows,
        "embedding_sharing": sharing,
        "output_bias": True,
        "model_dim": settings.take("dim-emb"),
        "num_heads": settings.take("transformer-heads"),
        "encoder_layers": settings.take("enc-depth"),
        "decoder_layers": settings.take("dec-depth"),
        "intermediate_dim": width,
        "activation": _activation(settings),
        "norm_epsilon": _NORM_EPSILON,
        **_norms(settings),
        **_decoder(settings),
        **_positions(arrays),
    }


def _chosen(settings, name, choices, default=None):
    """What a word stands for."""
    value = settings.take(name, default, None)
    if value not in [*choices]:  # which takes what cannot be a key, such as a list
        raise ValueError(
            f"{settings.origin}: `{name}` must be one of {tuple(choices)}. Received: {value!r}"
        )
    return choices[value]


def _activation(settings):
    name = "transformer-ffn-activation"
    if settings.take(name, kind=str) == "gelu":
        raise ValueError(
            f"{settings.origin}: `{name}` must be one of {tuple(_ACTIVATIONS)}: Marian's gelu is "
            "x * sigmoid(1.702 x), which is another than ours. Received: 'gelu'"
        )
    return _chosen(settings, name, _ACTIVATIONS)


def _norms(settings):
    before = settings.take("transformer-preprocess", "", str)
    after = settings.take("transformer-postprocess", "", str)
    if (before, after) not in _RESIDUALS:
        raise ValueError(
            f"{settings.origin}: `transformer-preprocess` and `transformer-postprocess` must be "
            f"one of {tuple(_RESIDUALS)}. Received: {before!r} and {after!r}"
        )
    return {
        "residual": _RESIDUALS[before, after],
        "final_norm": _chosen(settings, "transformer-postprocess-top", {"": False, "n": True}, ""),
        "embedding_norm": _chosen(
            settings,
            "transformer-postprocess-emb",
            {"": False, "d": False, "n": True, "nd": True},
            "",
        ),
    }


def _decoder(settings):
    """What the decoder has in the place of self-attention, and where alignments are read."""
    choices = {"self-attention": None, "rnn": "ssru"}
    recurrence = _chosen(settings, "transformer-decoder-autoreg", choices, "self-attention")
    if recurrence is not None:
        settings.must_be(**{"dec-cell": recurrence})
    last, name = settings.take("dec-depth"), "transformer-guided-alignment-layer"
    layer = settings.take(name, "last", None)
    layer = last if layer == "last" else layer
    if type(layer) is not int or not 1 <= layer <= last:
        raise ValueError(
            f"{settings.origin}: `{name}` must be a block of the decoder, from 1 to {last}, or "
            f"'last'. Received: {layer!r}"
        )
    return {"decoder_recurrence": recurrence, "alignment_layer": layer - 1, "alignment_head": 0}


def _positions(arrays):
    if "Wpos" not in arrays:
        return {"positions": "tensor2tensor"}
    # Beside learned positions embeddings are not scaled.
    learned = {"positions": "learned", "max_positions": len(arrays["Wpos"])}
    return {**learned, "embedding_scale": 1.0}


def _sharing(settings):
    shares_all, shares_sides, is_tied = (
        settings.take(name, False, bool)
        for name in ("tied-embeddings-all", "tied-embeddings-src", "tied-embeddings")
    )
    if shares_all or (shares_sides and is_tied):
        return "all"
    if shares_sides:
        return "source_target"
    return "target_output" if is_tied else "none"


def table_names(sharing: str, arrays: Arrays) -> dict[str, str]:
    """The tensor of each table, by the name of our layer.

    Example:
        >>> from keras_transformer.interop.marian_layout import table_names
        >>> table_names("target_output", {})
        {'source_embedding': 'encoder_Wemb', 'target_embedding': 'decoder_Wemb'}
    """
    output = "decoder_ff_logit_out_Wt"  # the transpose, in some models
    output = output if output in arrays else "decoder_ff_logit_out_W"
    sides = {"source_embedding": "encoder_Wemb", "target_embedding": "decoder_Wemb"}
    return {
        "all": {"embedding": "Wemb"},
        "source_target": {"embedding": "Wemb", "output_embedding": output},
        "target_output": sides,
        "none": {**sides, "output_embedding": output},
    }[sharing]


def _rows(arrays, name):
    """The ids of a table."""
    shape = arrays.peek(name).shape
    if len(shape) != 2:
        raise ValueError(f"{name!r} must be a table, of two axes. Received: shape {shape}")
    return shape[1 if name.endswith("_W") else 0]


def fill(model, arrays: Arrays) -> None:
    """Puts the tensors of a model of Marian's into one that its `config_fields` have made.

    Args:
        model: A `Transformer`.
        arrays: The `Arrays`.

    Raises:
        ValueError: if a tensor is missing or has another shape.

    Example:
        >>> from keras_transformer.interop import marian_layout
        >>> marian_layout.fill(model, arrays)  # doctest: +SKIP
    """
    config, tensors = model.config, _Tensors(arrays)
    names = table_names(config.embedding_sharing, arrays)
    for ours, theirs in names.items():
        tensors.table(model.get_layer(ours).embeddings, theirs)
    tensors.output_bias(model.get_layer([*names][-1]).output_bias)
    if config.positions == "learned":
        places = arrays.take("Wpos").astype("float32")
        for side in ("source", "target"):
            model.get_layer(f"{side}_positions").embeddings.assign(places)
    before = config.residual == "pre"
    for side, ours in (("encoder", "source"), ("decoder", "target")):
        if config.embedding_norm:
            tensors.norm(model.get_layer(f"{ours}_embedding_norm"), f"{side}_emb", before=True)
        if config.has_final_norm:
            tensors.norm(model.get_layer(f"{side}_norm"), f"{side}_top")
        for index in range(getattr(config, f"{side}_layers")):
            name = f"{side}_l{index + 1}"
            _fill_block(model.get_layer(f"{side}_{index}"), tensors, name, before)


def _fill_block(block, tensors, name, before):
    if getattr(block, "recurrence", None):
        cell = block.recurrence_layer
        tensors.linear(cell.input_projection, f"{name}_rnn", "")
        tensors.linear(cell.forget_gate, f"{name}_rnn", "f")
        norm = f"{name}_rnn" if before else f"{name}_rnn_ffn"
        tensors.norm(block.recurrence_norm, norm, before)
    else:
        attention, own = block.self_attention, f"{name}_self"
        tensors.linear(attention.query_key_value, own, "q", "k", "v")
        tensors.linear(attention.output_projection, own, "o")
        tensors.norm(block.self_attention_norm, f"{own}_Wo", before)
    if hasattr(block, "cross_attention"):
        cross, other = block.cross_attention, f"{name}_context"
        tensors.linear(cross.query_projection, other, "q")
        tensors.linear(cross.key_projection, other, "k")
        tensors.linear(cross.value_projection, other, "v")
        tensors.linear(cross.output_projection, other, "o")
        tensors.norm(block.cross_attention_norm, f"{other}_Wo", before)
    tensors.linear(block.feed_forward.intermediate, f"{name}_ffn", "1")
    tensors.linear(block.feed_forward.outer, f"{name}_ffn", "2")
    tensors.norm(block.feed_forward_norm, f"{name}_ffn_ffn", before)


class _Tensors:
    """Fills our layers from the tensors of a model, whose kernels are (in, out), as ours."""

    def __init__(self, arrays):
        self.arrays = arrays

    def linear(self, ours, name, *parts):
        """A product with its bias, if ours has one; several parts stand side by side in ours."""
        kernels = [f"{name}_W{part}" for part in parts]
        self._assign(ours.kernel, kernels, [self._array(each) for each in kernels])
        if ours.use_bias:
            biases = [f"{name}_b{part}" for part in parts]
            self._assign(ours.bias, biases, [self._array(each).reshape(-1) for each in biases])

    def norm(self, ours, name, before=False):
        """A norm, before or after what it belongs to."""
        end = "_pre" if before else ""
        for variable, part in ((ours.gamma, "scale"), (ours.beta, "bias")):
            theirs = f"{name}_ln_{part}{end}"
            self._assign(variable, [theirs], [self._array(theirs).reshape(-1)])

    def table(self, variable, name):
        """A table, and rows of zeros behind it."""
        table = self._array(name)
        table = table.T if name.endswith("_W") else table
        missing = variable.shape[0] - len(table)
        self._assign(variable, [name], [np.pad(table, ((0, missing), (0, 0)))])

    def output_bias(self, variable):
        """The bias of the logits; the ids that are none of the model's have no probability."""
        name, size = "decoder_ff_logit_out_b", variable.shape[0]
        output = table_names("none", self.arrays)["output_embedding"]
        tables = [each for each in (output, "decoder_Wemb", "Wemb") if each in self.arrays]
        known = _rows(self.arrays, tables[0])
        bias = self._array(name).reshape(-1) if name in self.arrays else np.zeros(known)
        if len(bias) != known:
            raise ValueError(f"{name!r} must have {known} numbers. Received: {len(bias)}")
        bias = np.pad(bias, (0, size - known), constant_values=_IMPOSSIBLE)
        variable.assign(bias.astype("float32"))

    def _array(self, name):
        array = self.arrays.take(name)
        if array.dtype.kind != "f":
            raise ValueError(
                f"{name!r} must hold floating-point numbers, as a model has them that is not "
                f"quantized. Received: {array.dtype}"
            )
        return array.astype("float32", copy=False)

    def _assign(self, variable, names, parts):
        value = np.concatenate(parts, axis=-1)
        if tuple(variable.shape) != value.shape:
            raise ValueError(
                f"{' and '.join(map(repr, names))} must have the shape that the settings say, "
                f"{tuple(variable.shape)} here. Received: {value.shape}"
            )
        variable.assign(value)
