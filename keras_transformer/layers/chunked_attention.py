"""Attention for long sequences: the same sums as `attention.attend`, in less memory.

`attend` holds a (T, S) matrix for every head, and training keeps it for the gradient.
"""

import dataclasses
import functools

import keras
from keras import ops

from keras_transformer.layers.attention import attend
from keras_transformer.layers.lowering.places import arange


def attend_in_chunks(
    query_BNTH, key_BNSH, value_BNSU, mask, chunk, recompute, *, vector_NH=None, drop, **options
):
    """The (B, N, T, U) context of `attend`, `chunk` queries at a time.

    Args:
        query_BNTH, key_BNSH, value_BNSU: See `attend`.
        mask: An `AttentionMask`.
        chunk: Queries that attend at once.
        recompute: See `in_chunks`.
        vector_NH: See `attend`.
        drop: `drop(weights, part=index)`: dropout of the weights of one chunk.
        **options: Other options of `attend`.
    """
    mask = mask.of_length(ops.shape(query_BNTH)[2])
    key_positions = arange(ops.shape(key_BNSH)[2])
    tensors = {"bias": mask.bias, "position_bias": mask.position_bias, "vector_NH": vector_NH}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def attend_rows(query_BNCH, rows, index, key_BNSH, value_BNSU, *others):
        given = dict(zip(tensors, others, strict=True))
        vector_NH = given.pop("vector_NH", None)
        seen = dataclasses.replace(mask, **given)
        return attend(
            query_BNCH,
            key_BNSH,
            value_BNSU,
            *seen.mask_and_bias(rows, key_positions, rows),
            vector_NH=vector_NH,
            drop=functools.partial(drop, part=index),
            **options,
        )[0]

    others = (key_BNSH, value_BNSU, *tensors.values())
    return in_chunks(attend_rows, query_BNTH, others, chunk, recompute)


def attend_in_windows(query_BNTH, key_BNTH, value_BNTU, mask, window, **options):
    """The (B, N, T, U) context of `attend` where tokens see their neighbours only.

    Args:
        query_BNTH, key_BNTH, value_BNTU: See `attend`.
        mask: An `AttentionMask` of this window, the same for all queries.
        window: Only keys nearer than this are seen.
        **options: Options of `attend`.
    """
    batch, _, length, _ = ops.shape(query_BNTH)
    real_BT = ops.ones((batch, length), "bool")
    if mask.mask is not None:
        given = mask.mask if len(mask.mask.shape) == 3 else mask.mask[:, 0]
        real_BT = ops.logical_and(real_BT, given[:, 0])

    def attend_block(query, key, value, query_positions, key_positions, real):
        near = dataclasses.replace(mask, mask=real)
        seen = near.mask_and_bias(query_positions, key_positions)
        return attend(query, key, value, *seen, **options)[0]

    states = query_BNTH, key_BNTH, value_BNTU
    return in_windows(attend_block, *states, real_BT, window, mask.causal)


def in_chunks(attend, query_BNTH, others, chunk, recompute):
    """`attend` for `chunk` queries at a time: memory grows with T and S, not with T * S.

    In training nothing inside a chunk is kept for the gradient, it is computed again (Rabe and
    Staats 2021, arXiv 2112.05682; here a chunk of queries sees all keys at once, so there is
    nothing to rescale).

    Args:
        attend: `attend(query (B, N, C, H), rows, index, *others) -> (B, N, C, U)`, where `rows`
            are the (C,) queries and `index` is the chunk's number. Gradients reach `query` and
            `others`, and nothing else that it uses.
        query_BNTH: (B, N, T, H).
        others: The other tensors that need a gradient.
        chunk: C.
        recompute: Whether the inside of a chunk is computed again for the gradient.

    Returns:
        (B, N, T, U).
    """
    batch, heads, length, width = ops.shape(query_BNTH)
    count = _blocks(length, chunk)
    padded = _pad_length(query_BNTH, 0, count * chunk - length)
    chunks_CBNcH = ops.transpose(
        ops.reshape(padded, (batch, heads, count, chunk, width)), (2, 0, 1, 3, 4)
    )

    def one(inputs):
        chunk_BNcH, index = inputs
        rows = ops.minimum(index * chunk + arange(chunk), length - 1)  # pads: any row will do

        def attend_rows(query, *others):
            return attend(query, rows, index, *others)

        return (keras.remat(attend_rows) if recompute else attend_rows)(chunk_BNcH, *others)

    context_BNCcU = ops.transpose(ops.map(one, (chunks_CBNcH, arange(count))), (1, 2, 0, 3, 4))
    width = context_BNCcU.shape[-1]
    return ops.reshape(context_BNCcU, (batch, heads, count * chunk, width))[:, :, :length]


def in_windows(attend, query_BNTH, key_BNTH, value_BNTU, real_BT, window, causal):
    """`attend` in blocks of `window` queries, each to its own and the neighbouring keys.

    Time and memory are T * 3 * window (2 when causal) instead of T * T.

    Args:
        attend: `attend(query (B*, N, W, H), key (B*, N, K, H), value (B*, N, K, U), query
            positions (W,), key positions (K,), mask (B*, 1, 1, K)) -> (B*, N, W, U)`, B* for
            batch times blocks; positions count from the start of the block.
        query_BNTH, key_BNTH: (B, N, T, H).
        value_BNTU: (B, N, T, U).
        real_BT: (B, T) boolean, which keys are real.
        window: W.
        causal: Whether keys behind the query's block are needed at all.

    Returns:
        (B, N, T, U).
    """
    batch, heads, length, width = ops.shape(query_BNTH)
    count = _blocks(length, window)
    rest, behind = count * window - length, 0 if causal else window

    def neighbours(states_BNTH):
        """(B, N, T, H) -> (B*, N, K, H): each block with those next to it."""
        states_BNTH = _pad_length(states_BNTH, window, rest + behind)
        batch, heads, _, width = ops.shape(states_BNTH)
        total = count + (1 if causal else 2)
        blocks_BNCWH = ops.reshape(states_BNTH, (batch, heads, total, window, width))
        parts = [blocks_BNCWH[:, :, first : first + count] for first in range(3 - causal)]
        return _blocks_in_batch(ops.concatenate(parts, axis=3))

    padded = _pad_length(query_BNTH, 0, rest)
    blocks_BNCWH = ops.reshape(padded, (batch, heads, count, window, width))
    context = attend(
        _blocks_in_batch(blocks_BNCWH),
        neighbours(key_BNTH),
        neighbours(value_BNTU),
        arange(window),
        arange(-window, window + behind),
        ops.transpose(neighbours(ops.expand_dims(real_BT, (1, 3))), (0, 1, 3, 2)),
    )
    width = context.shape[-1]
    context_BNCWU = ops.transpose(
        ops.reshape(context, (batch, count, heads, window, width)), (0, 2, 1, 3, 4)
    )
    return ops.reshape(context_BNCWU, (batch, heads, count * window, width))[:, :, :length]


def _blocks(length, size):
    return (length + size - 1) // size


def _pad_length(states, before, after):
    """Zeros before and after along axis -2."""
    return ops.pad(states, ((0, 0), (0, 0), (before, after), (0, 0)))


def _blocks_in_batch(blocks_BNCKH):
    """(B, N, C, K, H) -> (B * C, N, K, H)."""
    batch, heads, count, keys, width = ops.shape(blocks_BNCKH)
    return ops.reshape(
        ops.transpose(blocks_BNCKH, (0, 2, 1, 3, 4)), (batch * count, heads, keys, width)
    )
