"""Which query may see which key: every mask is made here and combined here, once.

Masks are boolean, True = attend. They end as one float32 bias that is added to the scores, so
that the additive mask M of the paper (`attention_bias`) and the boolean masks meet in one sum.
"""

from keras import ops

# A finite fill: `exp` of it is exactly 0 next to any key that may be seen, and never NaN.
MASK_FILL = -1e9


def padding_mask(ids, pad_id):
    """(B, S) ids -> (B, S) boolean, True at real tokens."""
    return ops.not_equal(ids, pad_id)


def causal_mask(query_length, key_length, first_position=0):
    """(1, T, S) boolean: query t, at position `first_position + t`, sees keys up to itself.

    Args:
        query_length: T, an integer or a scalar tensor.
        key_length: S, likewise; the size of the cache in cached decoding.
        first_position: Position of the first query, an integer or a scalar tensor.
    """
    query_positions_T1 = first_position + ops.expand_dims(ops.arange(query_length), 1)
    key_positions_1S = ops.expand_dims(ops.arange(key_length), 0)
    return ops.expand_dims(key_positions_1S <= query_positions_T1, 0)


def merge(*masks):
    """The logical and of the masks that are not `None`, or `None`; shapes broadcast."""
    merged = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            merged = mask if merged is None else ops.logical_and(merged, mask)
    return merged


def attention_softmax(scores_BNTS, mask=None, attention_bias=None):
    """Masked softmax over the keys, in float32.

    Args:
        scores_BNTS: (B, N, T, S) scores of any float dtype.
        mask: Boolean, (B, T, S) or (B, N, T, S), or broadcastable to it; `None` for no mask.
        attention_bias: Additive mask of the same shapes, or `None`; -1e9 and below forbids.

    Returns:
        (B, N, T, S) float32 weights. They sum to 1, except in a row that may see no key: there
        they are all 0, so an empty sentence gives zeros and never NaN.
    """
    scores_BNTS = ops.cast(scores_BNTS, "float32")
    if attention_bias is not None:
        bias = _with_heads(ops.cast(attention_bias, "float32"), "attention_bias")
        scores_BNTS = scores_BNTS + ops.maximum(bias, MASK_FILL)  # -inf in a whole row is NaN
    if mask is not None:
        mask = _with_heads(mask, "attention_mask")
    if attention_bias is not None:
        # What the bias forbids is masked: two fills must not meet as equals in the softmax.
        mask = merge(mask, bias > MASK_FILL)
    if mask is None:
        return _softmax(scores_BNTS)
    weights_BNTS = _softmax(ops.where(mask, scores_BNTS, MASK_FILL))
    return weights_BNTS * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32")


def _softmax(scores):
    # `ops.softmax` warns where there is a single key, as in the first step of decoding.
    return ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def _with_heads(mask, name):
    if len(mask.shape) not in (3, 4):
        # Two sizes could be (B, S) or (T, S), and a wrong guess would be silent.
        raise ValueError(
            f"`{name}` must have shape (B, T, S) or (B, N, T, S); padding (B, S) is given as "
            f"`mask[:, None, :]`. Received: shape={tuple(mask.shape)}"
        )
    return ops.expand_dims(mask, 1) if len(mask.shape) == 3 else mask
