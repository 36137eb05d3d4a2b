"""What a whole model looks at: the attention weights of every block, as arrays."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.typing import Tensor


class AttentionScores(NamedTuple):
    """Attention weights by block, float32 arrays; a part that the model lacks is empty.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> scores = kt.attention_scores(kt.SequenceClassifier(config, 3), np.array([[5, 6, 7]]))
        >>> [block.shape for block in scores.encoder], scores.decoder, scores.cross
        ([(1, 2, 3, 3)], (), ())
    """

    encoder: tuple[np.ndarray, ...]  # (B, N, S, S) a block: query and key are source tokens
    decoder: tuple[np.ndarray, ...]  # (B, N, T, T) a block: query and key are target tokens
    cross: tuple[np.ndarray, ...]  # (B, N, T, S) a block: query a target token, key a source token


def attention_scores(
    model: keras.Model, source_ids: Tensor, target_ids: Tensor | None = None
) -> AttentionScores:
    """Gives the weights with which every token looks at every other one, without dropout.

    Args:
        model: A `Transformer`, a `LanguageModel` or a classifier.
        source_ids: (B, S) ids of a `Transformer` or a classifier, (B, T) ids of a
            `LanguageModel`.
        target_ids: (B, T) ids of a `Transformer`'s target, BOS first; for others `None`.

    Returns:
        `AttentionScores`. Rows sum to 1, but for those that may see nothing, which are 0.

    Raises:
        ValueError: if ids are missing, not wanted, or no (B, length) integers.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> source_ids, target_ids = np.array([[5, 6, 3, 0]]), np.array([[2, 7]])
        >>> scores = kt.attention_scores(kt.Transformer(config), source_ids, target_ids)
        >>> scores.cross[0].shape  # (B, N, T, S)
        (1, 4, 2, 4)
        >>> scores.cross[0][0, 0].sum(axis=-1).round(3)
        array([1., 1.], dtype=float32)
    """
    wanted = 2 if len(model.inputs) == 2 else 1
    rows = [ids for ids in (source_ids, target_ids) if ids is not None]
    if len(rows) != wanted:
        raise ValueError(
            f"a {type(model).__name__} must be given {wanted} batches of ids. Received: {len(rows)}"
        )
    arrays = [_checked(np.asarray(ids)) for ids in rows]
    return AttentionScores(
        *(
            tuple(ops.convert_to_numpy(ops.cast(weights, "float32")) for weights in part)
            for part in model.attention_scores(*arrays)
        )
    )


def _checked(ids):
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"ids must be (B, length) integers. Received: shape={ids.shape}, dtype={ids.dtype}"
        )
    return ids.astype("int32")
