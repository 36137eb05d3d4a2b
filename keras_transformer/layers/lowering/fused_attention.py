"""Attention in one kernel of a GPU, whose weights are never in memory: cuDNN's, on JAX.

It serves where it computes what our own ops compute. FlashAttention (Dao et al. 2022, arXiv
2205.14135) has no dropout by places as ours, and a bias there, and its gradient, are in the low
dtype. `keras.ops.dot_product_attention` is not used: on a TPU it takes a causal mask where none is
given, and the first row's mask for all rows.
"""

import keras
from keras import ops

_SCALES = {"scaled_dot_product": None, "dot_product": 1.0}  # `None`: 1 / sqrt(H)
_WIDEST = 128  # of a head, from Ampere on


def fits(implementation, states, mask, score):
    """Whether a fused kernel gives the numbers of `attention.attend`.

    Args:
        implementation: Of `jax.nn.dot_product_attention`: `"cudnn"` or `"xla"`.
        states: Queries (B, N, T, H), keys (B, N, S, H) and values (B, N, S, U).
        mask: An `AttentionMask`.
        score: The name of the score function.
    """
    query_BNTH, key_BNSH, value_BNSU = states
    width, lengths = query_BNTH.shape[-1], (query_BNTH.shape[2], key_BNSH.shape[2])
    has_bias = mask.bias is not None or mask.position_bias is not None
    if score not in _SCALES or has_bias or width != value_BNSU.shape[-1]:
        return False
    if implementation == "xla":
        return True
    is_low = keras.backend.standardize_dtype(query_BNTH.dtype) in ("bfloat16", "float16")
    # A mask is a bias to cuDNN, which in training must have even sizes.
    return is_low and width % 8 == 0 and width <= _WIDEST and not any(n % 2 for n in lengths)


def attend_fused(implementation, states, visible, causal, score):
    """The (B, N, T, H) context of `attention.attend`.

    Args:
        implementation, states, score: See `fits`.
        visible: Boolean, True = attend, broadcastable to (B, N, T, S), or `None`.
        causal: Whether `visible` shows no later key, so that the kernel need not look.
    """
    import jax

    sees = None
    if visible is not None:
        lengths = states[0].shape[2], states[1].shape[2]
        visible = ops.broadcast_to(visible, (*visible.shape[:2], *lengths))  # as cuDNN asks
        sees = ops.any(visible, axis=-1, keepdims=True)
    context_BTNH = jax.nn.dot_product_attention(
        *(ops.transpose(each, (0, 2, 1, 3)) for each in states),
        mask=visible,
        scale=_SCALES[score],
        is_causal=causal,
        implementation=implementation,
    )
    context_BNTH = ops.transpose(context_BTNH, (0, 2, 1, 3))
    # The softmax over hidden keys alone is uniform; a row that sees nothing gives zeros.
    return context_BNTH if sees is None else ops.where(sees, context_BNTH, 0)
