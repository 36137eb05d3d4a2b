"""The model's own log-probability of a given translation."""

from typing import NamedTuple

from keras import ops


class PairScores(NamedTuple):
    """What a model thinks of given targets."""

    log_probs: object  # (B, T) float32 of each target token, 0 at pads
    totals: object  # (B,) float32, their sums; what a search reports for the same tokens


def score(model, source_ids, target_ids):
    """Log-probabilities of target tokens, given the source and the tokens before.

    Args:
        model: A `Transformer`.
        source_ids: (B, S) int32, pieces and EOS, then pads.
        target_ids: (B, T) int32, pieces and EOS, then pads; no BOS.

    Returns:
        `PairScores`, before any length penalty.
    """
    config = model.config
    source_ids, target_ids = (ops.convert_to_tensor(x, "int32") for x in (source_ids, target_ids))
    is_real = ops.not_equal(target_ids, config.pad_id)
    starts = ops.full((ops.shape(target_ids)[0], 1), config.bos_id, "int32")
    inputs = ops.concatenate([starts, target_ids[:, :-1]], axis=1)
    logits = model({"source_ids": source_ids, "target_ids": inputs}, training=False)
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    chosen = ops.take_along_axis(log_probs, ops.expand_dims(target_ids, -1), axis=-1)[..., 0]
    log_probs = ops.where(is_real, chosen, 0.0)
    return PairScores(log_probs, ops.sum(log_probs, axis=1))
