"""The best of many scores, and rows chosen by index: in ops that are fast on every runtime."""

import math

from keras import ops

from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.layers.projection import reshape

_SHORT = 512  # scores that are looked through one by one
_WIDTHS = range(48, 80)  # of blocks


def likeliest(scores):
    """(R, V) -> (R,) int32: the highest score's id; of equals, the lowest.

    (Not `ops.argmax`, which has no LiteRT form.)
    """
    return ops.cast(ops.reshape(ops.top_k(scores, 1)[1], (-1,)), "int32")


def best_sums(scores_BKV, offsets_BK, count):
    """The `count` highest of scores + offsets of each of B rows.

    Long rows are cut into blocks: the highest sums lie in the blocks with the highest maxima. So
    only a few of the sums are made.

    Args:
        scores_BKV: (B, K, V) float32.
        offsets_BK: (B, K) float32.
        count: How many; all K * V where there are fewer.

    Returns:
        (B, count) sums, highest first, and int32 where they stand in K and in V; of equals, the
        first in K and then in V.
    """
    batch, beams, vocab_size = ops.shape(scores_BKV)
    count = min(count, beams * vocab_size)
    if vocab_size <= max(_SHORT, 2 * count * _WIDTHS[-1]):
        sums = scores_BKV + ops.expand_dims(offsets_BK, 2)
        sums, places = ops.top_k(reshape(sums, (batch, beams * vocab_size)), count)
        places = ops.cast(places, "int32")
        return sums, places // vocab_size, places % vocab_size
    width = min(_WIDTHS, key=lambda width: (-vocab_size % width, width))
    if vocab_size % width:
        fill = ((0, 0), (0, 0), (0, -vocab_size % width))
        scores_BKV = ops.pad(scores_BKV, fill, constant_values=2 * IMPOSSIBLE)
    blocks = math.ceil(vocab_size / width)
    cut = ops.reshape(scores_BKV, (-1, width))  # (B * K * blocks, width)
    maxima = reshape(ops.max(cut, axis=-1), (batch, beams, blocks))
    maxima = reshape(maxima + ops.expand_dims(offsets_BK, 2), (batch, beams * blocks))
    chosen = ops.cast(ops.top_k(maxima, count)[1], "int32")
    chosen = -ops.top_k(-chosen, count)[0]  # ascending, so that of equals the first comes first
    first = ops.expand_dims(ops.arange(batch) * (beams * blocks), 1)
    near = ops.take(cut, ops.reshape(chosen + first, (-1,)), axis=0)
    near = reshape(near, (batch, count, width))
    near = near + ops.expand_dims(taken(choice(chosen // blocks, beams), offsets_BK), 2)
    sums, index = ops.top_k(reshape(near, (batch, count * width)), count)
    index = ops.cast(index, "int32")
    block = taken(choice(index // width, count), chosen)
    return sums, block // blocks, (block % blocks) * width + index % width


def choice(index, count):
    """(B, N) int32 indices below `count` -> (B, N, `count`) float32, 1 at each index.

    A product with it takes rows, in LiteRT's fast kernels, where `ops.take_along_axis` is a
    dozen slow ops.
    """
    return ops.cast(ops.equal(ops.expand_dims(index, 2), ops.arange(count)), "float32")


def taken(choice_BNK, values):
    """The values (B, K, …) at each index of a `choice`: (B, N, …). Integers must be below 2^24."""
    dtype = values.dtype
    flat = ops.cast(values, "float32")
    if len(values.shape) == 2:
        return ops.cast(ops.matmul(choice_BNK, ops.expand_dims(flat, 2))[:, :, 0], dtype)
    return ops.cast(ops.matmul(choice_BNK, flat), dtype)
