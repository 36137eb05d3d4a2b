"""Which query may see which key: every mask is made here and combined here, once.

Masks are boolean, True = attend. The additive mask M of the paper (`attention_bias`) and the
biases of relative positions are added to the scores in float32, where both meet the masks.
"""

import dataclasses

import keras
from keras import ops

from keras_transformer.layers.checked_masks import checked_bias, checked_mask

# A finite fill: `exp` of it is exactly 0 next to any key that may be seen, and never NaN.
MASK_FILL = -1e9


def padding_mask(ids, pad_id):
    """(B, S) ids -> (B, S) boolean, True at real tokens."""
    return ops.not_equal(ids, pad_id)


def causal_mask(query_length, key_length, first_position=0, window=None):
    """(1, T, S) boolean: query t, at position `first_position + t`, sees keys up to itself.

    Args:
        query_length: T, an integer or a scalar tensor.
        key_length: S, likewise; the size of the cache in cached decoding.
        first_position: Position of the first query, an integer or a scalar tensor.
        window: How many keys, itself included, a query sees; all when `None`.
    """
    positions_T = first_position + ops.arange(query_length)
    mask_TS = sight_mask(positions_T, ops.arange(key_length), causal=True, window=window)
    return ops.expand_dims(mask_TS, 0)


def sight_mask(query_positions, key_positions, *, causal, window):
    """(T, S) boolean from (T,) and (S,) positions, or `None` where every query sees every key."""
    offsets_TS = offsets(query_positions, key_positions)
    causal_TS = offsets_TS <= 0 if causal else None
    return merge(causal_TS, None if window is None else ops.abs(offsets_TS) < window)


def offsets(query_positions, key_positions):
    """(T, S) integers: how far each key stands behind each query; negative before it."""
    return ops.expand_dims(key_positions, 0) - ops.expand_dims(query_positions, 1)


def merge(*masks):
    """The logical and of the masks that are not `None`, or `None`; shapes broadcast."""
    merged = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            merged = mask if merged is None else ops.logical_and(merged, mask)
    return merged


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """What the queries of one attention may see, for all of them or for some.

    Attributes:
        mask: Boolean, (B, T, S) or (B, N, T, S), or broadcastable to it; `None` for no mask.
        bias: Additive mask of the same shapes, or `None`; -1e9 and below forbids.
        position_bias: (N, 2T - 1) bias of a key that stands -(T - 1) to T - 1 behind the query,
            or `None`.
        causal: Whether a query sees only keys up to itself.
        window: Keys this near are seen, or `None` for all.
    """

    mask: object = None
    bias: object = None
    position_bias: object = None
    causal: bool = False
    window: int | None = None

    @property
    def same_for_all_queries(self):
        """Whether the masks that were given only say which keys are real."""
        if self.bias is not None or self.mask is None:
            return self.bias is None
        return self.mask.shape[-2] == 1 and self.mask.shape[1:-2] in ((), (1,))

    def of_length(self, length):
        """The same, whose masks have a row for each of T queries, or one for all.

        What has another number, where sizes are known only at run time, is an error there: a
        single row would be taken in silence.
        """

        def rows(values, combine, neutral):
            known = values is not None and isinstance(values.shape[-2], int)
            if values is None or (known and (values.shape[-2] == 1 or isinstance(length, int))):
                return values
            return combine(values, ops.full((length, 1), neutral, values.dtype))

        return dataclasses.replace(
            self,
            mask=rows(self.mask, ops.logical_and, True),
            bias=rows(self.bias, ops.add, 0),
        )

    def mask_and_bias(self, query_positions, key_positions, rows=None):
        """The boolean mask and the float bias, each (B, N, T, S), broadcastable, or `None`.

        Args:
            query_positions: (T,) integers.
            key_positions: (S,) integers.
            rows: (T,) indices of these queries in the masks; `None` when the masks are for them.
        """
        sight = sight_mask(query_positions, key_positions, causal=self.causal, window=self.window)
        if sight is not None:
            sight = ops.expand_dims(sight, (0, 1))
        bias = _rows(with_heads(self.bias), rows)
        if self.position_bias is not None:
            shift = (ops.shape(self.position_bias)[1] - 1) // 2  # T - 1
            index = ops.clip(offsets(query_positions, key_positions) + shift, 0, 2 * shift)
            bias_1NTS = ops.expand_dims(ops.take(self.position_bias, index, axis=1), 0)
            bias = bias_1NTS if bias is None else ops.cast(bias, bias_1NTS.dtype) + bias_1NTS
        return merge(_rows(with_heads(self.mask), rows), sight), bias


def attention_softmax(scores_BNTS, mask=None, attention_bias=None):
    """Masked softmax over the keys, in float32 (in float64 for float64 scores).

    Args:
        scores_BNTS: (B, N, T, S) scores of any float dtype.
        mask: Boolean, (B, T, S) or (B, N, T, S), or broadcastable to it; `None` for no mask.
        attention_bias: Additive mask of the same shapes, or `None`; -1e9 and below forbids.

    Returns:
        (B, N, T, S) weights. They sum to 1, except in a row that may see no key: there they are
        all 0, so an empty sentence gives zeros and never NaN.
    """
    scores_BNTS = at_least_float32(scores_BNTS)
    mask = with_heads(checked_mask("attention_mask", mask, scores_BNTS.shape))
    bias = with_heads(checked_bias("attention_bias", attention_bias, scores_BNTS.shape))
    if bias is not None:
        bias = ops.cast(bias, scores_BNTS.dtype)
        scores_BNTS = scores_BNTS + ops.maximum(bias, MASK_FILL)  # -inf in a whole row is NaN
        # What the bias forbids is masked: two fills must not meet as equals in the softmax.
        mask = merge(mask, bias > MASK_FILL)
    if mask is None:
        return plain_softmax(scores_BNTS)
    weights_BNTS = plain_softmax(ops.where(mask, scores_BNTS, MASK_FILL))
    return weights_BNTS * ops.cast(ops.any(mask, axis=-1, keepdims=True), weights_BNTS.dtype)


def additive(mask):
    """A boolean mask, True = attend, as a float32 bias of scores: 0 or MASK_FILL."""
    return ops.where(mask, ops.cast(0.0, "float32"), ops.cast(MASK_FILL, "float32"))


def at_least_float32(values):
    """`values` in float32, or as they are in float64."""
    return ops.cast(values, keras.backend.result_type(values.dtype, "float32"))


def plain_softmax(scores):
    """Softmax over the last axis."""
    # `ops.softmax` warns where there is a single key, as in the first step of decoding.
    return ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def with_heads(mask):
    """(B, T, S) as (B, 1, T, S); (B, N, T, S) and `None` as they are."""
    return mask if mask is None or len(mask.shape) == 4 else ops.expand_dims(mask, 1)


def _rows(mask, rows):
    """The rows of a mask that has one for each query."""
    if mask is None or rows is None or mask.shape[-2] == 1:
        return mask
    return ops.take(mask, rows, axis=-2)
