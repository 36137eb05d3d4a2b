"""The fixed-size buffers of cached decoding."""

from keras import ops


def write_slots(buffer, update, position, slots=None):
    """Writes `update` (B, N, T, H) into slots `position` to `position + T` of (B, N, S, H).

    A select over the buffer, not `ops.slice_update`: on TensorFlow that is an XLA op, which the
    stock TF Serving binary refuses to run, and the select costs no more than a few percent.

    Args:
        buffer: The cache, (B, N, S, H).
        update: What to write, (B, N, T, H).
        position: First slot to write, an integer or a scalar int tensor.
        slots: S, where it is known from elsewhere. Buffers that are given the same tensor share
            the ops that find the slot; a graph optimizer cannot know that their sizes are equal.
    """
    slots = ops.shape(buffer)[2] if slots is None else slots
    length = ops.shape(update)[2]
    offset = ops.arange(slots) - position  # of each slot in `update`
    update = ops.cast(update, buffer.dtype)
    if not (isinstance(length, int) and length == 1):
        update = ops.take(update, ops.clip(offset, 0, length - 1), axis=2)
    written = ops.logical_and(offset >= 0, offset < length)
    return ops.where(ops.reshape(written, (1, 1, -1, 1)), update, buffer)


def empty_slots(batch, attention, slots):
    """Zeros for the keys (B, N, S, H) and values (B, N, S, U) of one self-attention.

    Args:
        batch: B, an integer or a scalar tensor.
        attention: The `MultiHeadSelfAttention`.
        slots: S, likewise.
    """
    shape = (batch, attention.num_heads, slots)
    return (
        ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
        ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
    )
