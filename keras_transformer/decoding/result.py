"""From source ids to target ids: encode, search, and what came of it."""

from typing import NamedTuple

from keras import ops


class DecodingResult(NamedTuple):
    """What a search found, a row a sentence."""

    ids: object  # (B, T) int32: the tokens, EOS if there is one, then pads
    truncated: object  # (B,) boolean: the row reached its limit without an EOS


def decode(model, source_ids, strategy):
    """Decodes a batch of source ids.

    A row without any token but EOS and pads gives an empty row. Each row's limit is the number
    of its own tokens plus `strategy.extra_length`, so padding and batch mates change nothing.

    Args:
        model: A `Transformer`, or anything with its `config`, `encode`, `start` and `step`.
        source_ids: (B, S) int32, pieces and EOS, then pads.
        strategy: A search strategy such as `Greedy()`.

    Returns:
        A `DecodingResult`.
    """
    config = model.config
    is_real = ops.not_equal(source_ids, config.pad_id)
    is_content = ops.logical_and(is_real, ops.not_equal(source_ids, config.eos_id))
    lengths = ops.sum(ops.cast(is_real, "int32"), axis=1)
    limits = ops.where(ops.any(is_content, axis=1), lengths + strategy.extra_length, 0)
    slots = ops.shape(source_ids)[1] + strategy.extra_length
    if strategy.max_length is not None:
        limits = ops.minimum(limits, strategy.max_length)
        slots = ops.minimum(slots, strategy.max_length)
    memory = model.encode(source_ids)
    ids = strategy.search(model.step, model.start(memory, slots), limits, slots, config)
    ends = ops.any(ops.equal(ids, config.eos_id), axis=1)
    return DecodingResult(ids, ops.logical_and(limits > 0, ops.logical_not(ends)))
