"""How well a query and a key match: section 3.2.1 of the paper, and what it compares with.

Each function takes queries (B, N, T, H), keys (B, N, S, H) and a vector (N, H) that only additive
attention has, and gives scores (B, N, T, S).
"""

import math

from keras import ops

from keras_transformer.layers.folding import unfused


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


FUNCTIONS = {
    "scaled_dot_product": scaled_dot_product,
    "dot_product": dot_product,
    "additive": additive,
}
