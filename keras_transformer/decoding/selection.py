"""The best of many scores, and rows chosen by index: in ops that are fast on every runtime."""

import math

from keras import ops

from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.lowering.tracing import TENSORFLOW_CPU, XLA, compiled_for
from keras_transformer.layers.projection import reshape

_SHORT = 512  # scores that are searched one by one
_WIDTHS = range(48, 80)  # of blocks


def argmax(scores):
    """(R, V) -> (R,) int32: the highest score's id; of equals, the lowest."""
    if compiled_for() == XLA:  # `top_k` is a sort there, and `argmax` one number after the other
        best, last = ops.max(scores, axis=-1, keepdims=True), ops.shape(scores)[-1] - 1
        return ops.min(ops.where(scores == best, arange(last + 1), last), axis=-1)
    # `ops.argmax` has no LiteRT form, and elsewhere gains nothing.
    return ops.cast(ops.reshape(ops.top_k(scores, 1)[1], (-1,)), "int32")


def argmax_vocab_first(scores, banned=()):
    """(V, R) float32 -> (R,) int32: the same as `argmax`, in one pass if XLA compiles it.

    The ids are cut into blocks, and only the block with the highest score is searched.

    Args:
        scores: The scores.
        banned: A few integers below V, which are not chosen.
    """
    size = scores.shape[0]
    width = size if size <= _SHORT else min(_WIDTHS, key=lambda width: (size % width, width))
    count = size // width

    def highest(start):
        ids = ops.expand_dims(arange(start, start + width), 1)
        scores_of_ids = _without(scores[start : start + width], ids, banned)
        return ops.max(scores_of_ids, axis=0, keepdims=True)

    maxima = ops.max(ops.reshape(scores[: count * width], (count, width, -1)), axis=1)
    for block in sorted({index // width for index in banned if index < count * width}):
        maxima = ops.slice_update(maxima, (block, 0), highest(block * width))
    if size % width:  # one more, which reaches back into the last
        maxima = ops.concatenate([maxima, highest(size - width)])
    starts = ops.minimum(_first_highest(maxima) * width, size - width)
    ids = starts + ops.expand_dims(arange(width), 1)
    near = _without(ops.take_along_axis(scores, ids, axis=0), ids, banned)
    return starts + _first_highest(near)


def _first_highest(scores):
    """(N, R) -> (R,) int32: where in each column the highest score comes first."""
    places, last = ops.expand_dims(arange(scores.shape[0]), 1), scores.shape[0] - 1
    return ops.min(ops.where(scores == ops.max(scores, axis=0), places, last), axis=0)


def log_total(logits):
    """(R, V) float32 -> (R,) log of the sum of their exponentials."""
    if compiled_for() != TENSORFLOW_CPU:
        return ops.logsumexp(logits, axis=-1)
    # Softmax is one op, and one pass where TensorFlow has oneDNN.
    highest = ops.max(ops.softmax(logits, axis=-1), axis=-1)
    return ops.max(logits, axis=-1) - ops.log(highest)


def best_sums(scores_BKV, offsets_BK, count, banned=()):
    """The `count` highest of scores + offsets of each of B rows.

    Long rows are cut into blocks: the highest sums lie in the blocks with the highest maxima. So
    only a few of the sums are made.

    Args:
        scores_BKV: (B, K, V) float32.
        offsets_BK: (B, K) float32.
        count: How many; all K * V if there are fewer. Where V is not known, at most K.
        banned: A few integers below V, whose scores count as IMPOSSIBLE.

    Returns:
        (B, count) sums, highest first, and int32 where they stand in K and in V; of equals, the
        first in K and then in V.
    """
    batch, beams, vocab_size = ops.shape(scores_BKV)
    is_known = isinstance(vocab_size, int)  # not of the candidates of a shortlist
    count = min(count, beams * vocab_size) if is_known else count
    if not is_known or vocab_size <= max(_SHORT, 2 * count * _WIDTHS[-1]):
        scores_BKV = _without(scores_BKV, arange(vocab_size), banned)
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
    # A block that a banned score leads takes a place from one that may hold one of the best.
    most = min(count + beams * len({index // width for index in banned}), beams * blocks)
    chosen = ops.cast(ops.top_k(maxima, most)[1], "int32")
    chosen = -ops.top_k(-chosen, most)[0]  # ascending, so that of equals the first comes first
    first = ops.expand_dims(arange(batch) * (beams * blocks), 1)
    near = ops.take(cut, ops.reshape(chosen + first, (-1,)), axis=0)
    near = reshape(near, (batch, most, width))
    if banned:
        starts = ops.expand_dims(chosen % blocks * width, 2)
        near = _without(near, starts + arange(width), banned)
    near = near + ops.expand_dims(gather_rows(one_hot_rows(chosen // blocks, beams), offsets_BK), 2)
    sums, index = ops.top_k(reshape(near, (batch, most * width)), count)
    index = ops.cast(index, "int32")
    block = gather_rows(one_hot_rows(index // width, most), chosen)
    return sums, block // blocks, (block % blocks) * width + index % width


def _without(scores, ids, banned):
    """The scores, IMPOSSIBLE where an id of theirs, broadcastable to them, is banned."""
    bias = 0.0
    for each in banned:
        bias = bias + ops.where(ids == each, ops.cast(IMPOSSIBLE, "float32"), 0.0)
    return scores + bias


def one_hot_rows(index, count):
    """(B, N) int32 indices below `count` -> (B, N, `count`) float32, 1 at each index.

    A product with it gathers rows, in LiteRT's fast kernels; `ops.take_along_axis` is a dozen
    slow ops there.
    """
    return ops.cast(ops.equal(ops.expand_dims(index, 2), arange(count)), "float32")


def gather_rows(one_hot_BNK, values):
    """The values (B, K, …) at each index of `one_hot_rows`: (B, N, …); integers below 2^24."""
    dtype = values.dtype
    flat = ops.cast(values, "float32")
    if len(values.shape) == 2:
        return ops.cast(ops.matmul(one_hot_BNK, ops.expand_dims(flat, 2))[:, :, 0], dtype)
    return ops.cast(ops.matmul(one_hot_BNK, flat), dtype)
