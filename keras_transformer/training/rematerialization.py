"""Training in less memory: what is inside a block is computed again for its gradient."""

import keras

from keras_transformer.layers.base import layers_within
from keras_transformer.layers.blocks import TransformerBlock


def rematerialize(model: keras.Model) -> None:
    """Lets each block of a model keep only its inputs for the gradient, and compute the rest again.

    Memory for activations then grows with the states between blocks alone, and a training step
    takes about a third more operations: the forward pass of the blocks once more. Dropout's masks
    are the same the second time, so losses and gradients stay what they are.

    It is a setting of this process: files do not keep it. Set it before `fit` compiles its step.

    Args:
        model: A model of this package, or any with its blocks inside.

    Raises:
        ValueError: if it has no block, or one with batch normalization, whose running averages
            would be updated twice.

    Example:
        >>> from keras_transformer.training import rematerialize
        >>> model = kt.Transformer(kt.TransformerConfig.preset("tiny", vocab_size=11))
        >>> rematerialize(model)
        >>> all(block.rematerialize for block in model.layers if block.name[:7] == "encoder")
        True
    """
    blocks = [each for each in layers_within(model) if isinstance(each, TransformerBlock)]
    if not blocks:
        raise ValueError(
            f"`rematerialize` is for a model with blocks. Received: {model.name}, which has none"
        )
    for block in blocks:
        if block.normalization == "batch":
            raise ValueError(
                "`rematerialize` does not go with batch normalization, whose averages it would "
                f"update twice. Received: normalization='batch' in {block.name}"
            )
    for block in blocks:
        block.rematerialize = True
