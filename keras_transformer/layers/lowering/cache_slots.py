"""The buffers of cached decoding: how they are written, and what of them a token sees.

A buffer has a slot for every position, K of them with K beams. A slot holds zeros until it is
written, once. Keys, (B, N, S * K, H), and values, (B, N, S * K, U), of beams are never moved: a
beam that goes on from another one sees the slots of its ancestors.
"""

from typing import NamedTuple

from keras import ops

from keras_transformer.layers import masks
from keras_transformer.layers.lowering import in_place
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.lowering.tracing import TENSORFLOW_CPU, XLA, compiled_for, filled
from keras_transformer.layers.projection import reshape


class Slots(NamedTuple):
    """Where the next T tokens go, and which slots they see: the same for all layers of a stack."""

    positions: object  # (T,) int, of the tokens; with K beams (K,), all the same
    first_slot: object  # scalar int, the slot of the first
    one_hot: object  # (1, 1, S, T) or (1, 1, S * K, K) float32, 1 where a slot is a token's own
    bias: object  # float32, (1, 1 | N, T, S) or with beams (B, 1 | N, K, S * K), 0 or MASK_FILL
    flat_rows: object = ()  # (B * N * T,) or (B * N,) int32, for TENSORFLOW_CPU: the tokens' rows
    beams: int = 1  # K; a row of a buffer holds the slots of one position, one for each beam

    def in_buffers(self, batch, heads):
        """The `Slots` with what `write_slots` needs of buffers of B rows and N heads."""
        if compiled_for() != TENSORFLOW_CPU:
            return self
        beams, size = self.beams, ops.shape(self.one_hot)[2]
        rows = self.first_slot // beams + arange(ops.shape(self.positions)[0] // beams)
        first = arange(batch * heads) * (size // beams)
        return self._replace(flat_rows=ops.reshape(ops.expand_dims(first, 1) + rows, (-1,)))


def next_slots(count, slot_ids, position, window=None, position_bias=None):
    """The `Slots` of `count` tokens from `position` on.

    Args:
        count: T, an integer or a scalar tensor.
        slot_ids: (S,) int32, 0 to S - 1: the buffers' slots. They are counted once, not at each
            step: LiteRT plans all memory again after an op whose size it cannot know.
        position: Tokens in the buffers, likewise. `position + count` is at most S.
        window: How many tokens, itself included, a token sees; all when `None`.
        position_bias: `position_bias(query_positions, key_positions) -> (1, N, T, S)`, or `None`.
    """
    positions_T = position + arange(count)
    one_hot_ST = ops.equal(ops.expand_dims(slot_ids, 1), ops.expand_dims(positions_T, 0))
    seen_TS = masks.position_mask(positions_T, slot_ids, causal=True, window=window)
    bias = ops.expand_dims(masks.additive(seen_TS), (0, 1))
    if position_bias is not None:
        bias = bias + position_bias(positions_T, slot_ids)
    return Slots(positions_T, position, ops.cast(one_hot_ST, "float32")[None, None], bias)


def slots_of_states(count, position, beams=1):
    """The `Slots` of what a recurrence reads alone: tokens have positions, and no slots.

    Args:
        count, position: See `next_slots`.
        beams: K; with beams `count` is 1.
    """
    positions = position + (arange(count) if beams == 1 else ops.zeros(beams, "int32"))
    return Slots(positions, position, (), (), beams=beams)


def no_ancestors(rows, size, beams):
    """(R, S, K) float32: what R = B * K beams see of empty buffers, which is nothing."""
    return filled((rows, size, beams), masks.MASK_FILL, "float32")


def next_beam_slots(ancestors, slot_ids, position, window=None, position_bias=None):
    """The `Slots` of one token of each beam, and the ancestors with these tokens among them.

    Args:
        ancestors: (R, S, K) float32: for each beam, 0 at those of the K entries of a slot that
            it goes on from, and MASK_FILL elsewhere.
        slot_ids, position, window, position_bias: See `next_slots`.
    """
    rows, size, beams = ops.shape(ancestors)
    is_now_S11 = ops.expand_dims(ops.cast(ops.equal(slot_ids, position), "float32"), (1, 2))
    one_hot_SKK = is_now_S11 * ops.eye(beams, dtype="float32")
    one_hot = ops.expand_dims(reshape(one_hot_SKK, (size * beams, beams)), (0, 1))
    # MASK_FILL - MASK_FILL is exactly 0.
    now_KSK = -masks.MASK_FILL * ops.transpose(one_hot_SKK, (1, 0, 2))
    ancestors = reshape(ancestors, (rows // beams, beams, size, beams)) + now_KSK
    bias = reshape(ancestors, (rows // beams, 1, beams, size * beams))
    positions_1 = position + arange(1)
    near = []
    if window is not None:
        seen_1S = masks.position_mask(positions_1, slot_ids, causal=True, window=window)
        near.append(ops.expand_dims(masks.additive(seen_1S), (0, 1)))
    if position_bias is not None:
        near.append(position_bias(positions_1, slot_ids))
    for each in near:
        bias = bias + ops.repeat(each, beams, axis=-1)
    positions = position + ops.zeros(beams, "int32")
    slots = Slots(positions, position * beams, one_hot, bias, beams=beams)
    return slots, reshape(ancestors, (rows, size, beams))


def write_slots(buffer, update, slots, factor=1.0):
    """Writes `update`, times `factor`, into the slots of (B, N, S, H) that hold zeros yet.

    XLA updates a slice, in place. TensorFlow's own graphs for many rows write rows in place, as
    all its other ways copy the buffer. Everywhere else, on a device above all, zeros plus a product
    is the way: LiteRT runs it in its fast kernels, but a select number by number; and a slice
    update is an XLA op in a TensorFlow graph, which the stock TF Serving binary refuses.

    Args:
        buffer: The cache; with K beams of S * K slots.
        update: (B, N, T, H) or (B, N, K, H).
        slots: The `Slots` of these tokens.
        factor: A number.
    """
    update = ops.cast(update, buffer.dtype)
    if compiled_for() == XLA:
        update = update * ops.cast(factor, buffer.dtype)
        return ops.slice_update(buffer, (0, 0, slots.first_slot, 0), update)
    if compiled_for() == TENSORFLOW_CPU:
        update = update if factor == 1 else update * ops.cast(factor, buffer.dtype)
        return in_place.overwrite_rows(
            buffer, slots.flat_rows, update, slots.beams * buffer.shape[3]
        )
    one_hot = slots.one_hot if factor == 1 else slots.one_hot * factor
    one_hot = ops.cast(one_hot, buffer.dtype)
    return buffer + (one_hot * update if one_hot.shape[3] == 1 else ops.matmul(one_hot, update))


def empty_slots(batch, attention, size, beams=1):
    """Zeros for the keys (B, N, S * K, H) and values (B, N, S * K, U) of one self-attention.

    Args:
        batch: B, an integer or a scalar tensor.
        attention: The `MultiHeadSelfAttention`.
        size: S, likewise.
        beams: K.
    """
    shape = (batch, attention.num_heads, size * beams)
    return (
        _zeros((*shape, attention.key_dim), attention.compute_dtype),
        _zeros((*shape, attention.value_dim), attention.compute_dtype),
    )


def more_slots(buffer, count, axis=2, value=0.0):
    """The buffer with `count` more slots, an integer or a scalar tensor, behind those it has."""
    shape = [*ops.shape(buffer)]
    shape[axis] = count
    more = filled(shape, value, buffer.dtype) if value else _zeros(shape, buffer.dtype)
    return ops.concatenate([buffer, more], axis=axis)


def _zeros(shape, dtype):
    if compiled_for() == TENSORFLOW_CPU:
        return in_place.zeros(shape, dtype)
    return filled(shape, 0.0, dtype)


def rows_of(sources, beams):
    """(C,) int32 sources -> (C * K,) int32, the K rows of each, which stand next to each other."""
    if beams == 1:
        return sources
    return ops.reshape(ops.expand_dims(sources * beams, 1) + arange(beams), (-1,))
