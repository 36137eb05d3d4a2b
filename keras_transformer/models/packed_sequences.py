"""Several pairs in one row, kept apart: which of them a token belongs to is read off its ids."""

from keras import ops


def segments_ending_with(ids, end_id, pad_id):
    """(B, S) ids -> (B, S) int32: how many ends stand before each token; pads are of the last."""
    is_end, is_pad = (ops.cast(ops.equal(ids, token), "int32") for token in (end_id, pad_id))
    return ops.maximum(ops.cumsum(is_end, axis=1) - is_end - is_pad, 0)


def segments_starting_with(ids, start_id):
    """(B, T) ids -> (B, T) int32: how many starts follow the first one, up to each token."""
    is_start = ops.cast(ops.equal(ids, start_id), "int32")
    return ops.maximum(ops.cumsum(is_start, axis=1) - 1, 0)


def same_segment(queries, keys):
    """(B, T) and (B, S) segments -> (B, T, S) boolean: both belong to one pair."""
    return ops.equal(ops.expand_dims(queries, 2), ops.expand_dims(keys, 1))


def positions_within(segments):
    """(B, T) segments -> (B, T) int32: the place of each token in its own."""
    index = ops.cumsum(ops.ones_like(segments), axis=1)  # a symbolic length has no arange
    before = ops.expand_dims(index, 1) < ops.expand_dims(index, 2)  # (B, T, S)
    same = ops.logical_and(same_segment(segments, segments), before)
    return ops.sum(ops.cast(same, "int32"), axis=2)
