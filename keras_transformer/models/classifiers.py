"""The encoder alone, with a class for each sequence or for each token."""

from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import check_size
from keras_transformer.config import TransformerConfig
from keras_transformer.layers import masks
from keras_transformer.models.base import TransformerModel, as_config
from keras_transformer.models.stack import Stack, encoder_blocks, token_embedding
from keras_transformer.typing import Tensor


class Classifier(TransformerModel):
    """What both classifiers share: `encoder_layers` blocks, and a dense layer of logits."""

    def __init__(self, config: TransformerConfig | dict[str, Any], num_classes: int, **kwargs: Any):
        config, dtype = as_config(config), kwargs.pop("dtype", None)
        check_size(num_classes=num_classes)
        embedding = token_embedding(config.vocab_size, config, dtype, "embedding", False)
        blocks = encoder_blocks(config, config.encoder_blocks, "encoder", dtype)
        encoder = Stack(config, "source", embedding, blocks, dtype)
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        real_BS = masks.padding_mask(source_ids, config.pad_id)
        states = encoder.encode(source_ids, ops.expand_dims(real_BS, 1))
        dense = keras.layers.Dense(num_classes, dtype="float32", name="classes")
        states = encoder.nan_where_ids_invalid(states, source_ids)
        logits = dense(self._pool(ops.cast(states, "float32"), real_BS))
        super().__init__(config, source_ids, logits, dtype, **kwargs)
        self._encoder, self.num_classes = encoder, num_classes

    def attention_scores(self, source_ids: Tensor) -> tuple[list[Tensor], list, list]:
        """The (B, N, S, S) weights of every block, in lists as those of a `Transformer`."""
        scores = []
        mask_B1S = ops.expand_dims(masks.padding_mask(source_ids, self.config.pad_id), 1)
        self._encoder.encode(source_ids, mask_B1S, scores=scores)
        return scores, [], []

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package="keras_transformer")
class SequenceClassifier(Classifier):
    """(B, S) int32 ids to (B, C) float32 logits: the mean of the real tokens' states, projected.

    A row of pads alone has the logits of a zero mean.

    Args:
        config: A `TransformerConfig`; its decoder is not used.
        num_classes: Classes C.
        **kwargs: `name`, `dtype` (a policy for all layers) and `trainable`, as for a Keras model.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.SequenceClassifier(config, num_classes=5)
        >>> model(np.array([[5, 6, 7, 0], [8, 9, 0, 0]])).shape
        TensorShape([2, 5])
    """

    @staticmethod
    def _pool(states_BSD, real_BS):
        weights_BS1 = ops.expand_dims(ops.cast(real_BS, states_BSD.dtype), -1)
        count_B1 = ops.maximum(ops.sum(weights_BS1, axis=1), 1.0)
        return ops.sum(states_BSD * weights_BS1, axis=1) / count_B1


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenClassifier(Classifier):
    """(B, S) int32 ids to (B, S, C) float32 logits, a class for each token.

    The logits at pads mean nothing.

    Args:
        config: A `TransformerConfig`; its decoder is not used.
        num_classes: Classes C.
        **kwargs: `name`, `dtype` (a policy for all layers) and `trainable`, as for a Keras model.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.TokenClassifier(config, num_classes=5)
        >>> model(np.array([[5, 6, 7, 0], [8, 9, 0, 0]])).shape
        TensorShape([2, 4, 5])
    """

    @staticmethod
    def _pool(states_BSD, real_BS):
        return states_BSD
