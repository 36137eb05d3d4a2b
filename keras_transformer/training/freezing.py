"""Parts of a model that training leaves as they are."""

import re

from keras_transformer.layers.base import layers_within

# Names of layers, by the names that `freeze` has for them; other parts are called as their layers.
_LAYERS = {
    "encoder": r"encoder_(\d+|norm)|source_position_bias",
    "decoder": r"decoder_(\d+|norm)|target_position_bias",
    "embeddings": r"((source|target|output)_)?embedding(_norm)?|(source|target)_positions",
    "self_attention": "self_attention|recurrence",  # or what stands in its place
    "normalization": r".*_norm",
}


def freeze(model, parts):
    """Makes parts of a `Transformer` not trainable, before it is compiled.

    Args:
        model: The `Transformer`.
        parts: As `training.freeze`.

    Raises:
        ValueError: if the model lacks a part, or nothing is left to train.
    """
    for part in parts:
        layers = [
            layer
            for layer in layers_within(model)
            if re.fullmatch(_LAYERS.get(part, part), layer.name) and layer.weights
        ]
        if not layers:
            raise ValueError(
                "`training.freeze` must name parts that the model has. "
                f"Received: {part!r}, for encoder_layers={model.config.encoder_layers}, "
                f"decoder_layers={model.config.decoder_layers}"
            )
        for layer in layers:
            layer.trainable = False
    if not model.trainable_variables:
        raise ValueError(
            f"`training.freeze` must leave something to train. Received: freeze={list(parts)}"
        )
