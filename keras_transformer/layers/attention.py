"""Attention: section 3.2 of the paper, as functions of tensors without state.

Queries are (B, N, T, H), keys (B, N, S, H), values (B, N, S, U); scores and weights (B, N, T, S).
"""

import math

from keras import ops

from keras_transformer.layers.base import at_least_float32
from keras_transformer.layers.lowering.tracing import unfused
from keras_transformer.layers.masks import MASK_FILL, merge
from keras_transformer.layers.projection import reshape


def split_heads(states_BTE, heads):
    """(B, T, N * H) -> (B, N, T, H), for N heads."""
    batch, length, width = ops.shape(states_BTE)
    if states_BTE.shape[1] == 1:  # one token: there is nothing to transpose
        return reshape(states_BTE, (batch, heads, 1, width // heads))
    states_BTNH = reshape(states_BTE, (batch, length, heads, width // heads))
    return ops.transpose(states_BTNH, (0, 2, 1, 3))


def merge_heads(context_BNTU):
    """(B, N, T, U) -> (B, T, N * U)."""
    batch, heads, length, width = ops.shape(context_BNTU)
    if context_BNTU.shape[2] != 1:
        context_BNTU = ops.transpose(context_BNTU, (0, 2, 1, 3))
    return reshape(context_BNTU, (batch, length, heads * width))


def scaled_dot_product(query_BNTH, key_BNSH, vector_NH=None):
    """Q K^T / sqrt(d_k), equation 1."""
    return dot_product(unfused(query_BNTH) * (1.0 / math.sqrt(query_BNTH.shape[-1])), key_BNSH)


def dot_product(query_BNTH, key_BNSH, vector_NH=None):
    """Q K^T."""
    return ops.matmul(query_BNTH, ops.transpose(key_BNSH, (0, 1, 3, 2)))


def additive(query_BNTH, key_BNSH, vector_NH):
    """v . tanh(q + k), Bahdanau et al. 2015 (arXiv 1409.0473), appendix A.1.2."""
    sums_BNTSH = ops.expand_dims(query_BNTH, 3) + ops.expand_dims(key_BNSH, 2)
    vector_N11H = ops.cast(ops.expand_dims(vector_NH, (1, 2)), sums_BNTSH.dtype)
    return ops.sum(ops.tanh(sums_BNTSH) * vector_N11H, axis=-1)


SCORE_FUNCTIONS = {
    "scaled_dot_product": scaled_dot_product,
    "dot_product": dot_product,
    "additive": additive,
}


def attend(
    query_BNTH,
    key_BNSH,
    value_BNSU,
    mask=None,
    bias=None,
    *,
    score=scaled_dot_product,
    vector_NH=None,
    drop=None,
    dtype=None,
):
    """softmax(Q K^T / sqrt(d_k) + M) V, equation 1 of the paper.

    Args:
        query_BNTH: Queries Q.
        key_BNSH: Keys K.
        value_BNSU: Values V.
        mask: Boolean, True = attend, broadcastable to (B, N, T, S); `None` for no mask.
        bias: The paper's M, of the same shapes, or `None`; -1e9 and below forbids.
        score: One of `SCORE_FUNCTIONS`.
        vector_NH: What additive scores need besides.
        drop: Dropout, a function of the weights; none when `None`.
        dtype: Of the weights; that of the values when `None`.

    Returns:
        The (B, N, T, U) context, and the (B, N, T, S) weights before dropout.
    """
    scores_BNTS = score(query_BNTH, key_BNSH, vector_NH)
    weights_BNTS = ops.cast(masked_softmax(scores_BNTS, mask, bias), dtype or value_BNSU.dtype)
    dropped_BNTS = weights_BNTS if drop is None else drop(weights_BNTS)
    return ops.matmul(dropped_BNTS, value_BNSU), weights_BNTS


def attend_cached(
    query_BNTH, key_BNSH, value_BNSU, bias=None, *, score=dot_product, vector_NH=None, dtype=None
):
    """`attend` in as few ops as a device needs, with the keys and values of a cache.

    The keys hold the factor of the scores already, and all masks are in the bias.
    """
    scores_BNTS = at_least_float32(score(query_BNTH, key_BNSH, vector_NH))
    if bias is not None:
        scores_BNTS = scores_BNTS + ops.cast(bias, scores_BNTS.dtype)
    weights_BNTS = ops.cast(_softmax(scores_BNTS), dtype or value_BNSU.dtype)
    return ops.matmul(weights_BNTS, value_BNSU), weights_BNTS


def masked_softmax(scores_BNTS, mask=None, bias=None):
    """Softmax over the keys that may be seen, in float32 (in float64 for float64 scores).

    Args:
        scores_BNTS: Scores of any float dtype.
        mask, bias: See `attend`.

    Returns:
        (B, N, T, S) weights. They sum to 1, except in a row that may see no key: there they are
        all 0, so an empty sentence gives zeros and never NaN.
    """
    scores_BNTS = at_least_float32(scores_BNTS)
    if bias is not None:
        bias = ops.cast(bias, scores_BNTS.dtype)
        scores_BNTS = scores_BNTS + ops.maximum(bias, MASK_FILL)  # -inf in a whole row is NaN
        # What the bias forbids is masked: two fills must not meet as equals in the softmax.
        mask = merge(mask, bias > MASK_FILL)
    if mask is None:
        return _softmax(scores_BNTS)
    weights_BNTS = _softmax(ops.where(mask, scores_BNTS, MASK_FILL))
    return weights_BNTS * ops.cast(ops.any(mask, axis=-1, keepdims=True), weights_BNTS.dtype)


def _softmax(scores_BNTS):
    # `ops.softmax` warns where there is a single key, as in the first step of decoding.
    return ops.ones_like(scores_BNTS) if scores_BNTS.shape[-1] == 1 else ops.softmax(scores_BNTS)
