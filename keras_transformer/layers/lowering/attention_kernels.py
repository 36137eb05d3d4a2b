"""Attention by one kernel of the machine, where there is one that gives the same numbers.

There is one for TPUs (`tpu_attention`), for lengths up to some 512.
"""

import dataclasses

import keras
from keras import ops

from keras_transformer.layers.dropout import sequence_of
from keras_transformer.layers.lowering import tracing

_ITEMSIZES = {"bfloat16": 2, "float32": 4}


@dataclasses.dataclass(frozen=True)
class Chips:
    """TPUs that share the rows of a batch.

    Attributes:
        mesh: A `jax.sharding.Mesh`; `None` for one chip.
        axis: The name of its axis of rows.
        interpret: Whether kernels are interpreted, for machines without a TPU.
    """

    mesh: object = None
    axis: str | None = None
    interpret: bool = False


def chips():
    """What runs what is traced: `Chips`, or `None` where that is no TPU.

    Several chips are used where a `keras.distribution.DataParallel` says how rows lie on them: a
    kernel is not split by the compiler.
    """
    given = tracing.tpu_chips()
    if given is not None or keras.backend.backend() != "jax":
        return given
    import jax

    # Within `keras.device` the device that it names, or the name of its kind.
    chosen = jax.config.jax_default_device
    if getattr(chosen, "platform", chosen or jax.default_backend()) != "tpu":
        return None
    distribution = keras.distribution.distribution()
    if distribution is None:
        return Chips() if jax.device_count() == 1 else None
    if not isinstance(distribution, keras.distribution.DataParallel):
        return None
    return Chips(distribution.device_mesh.backend_mesh, distribution.batch_dim_name)


def kernel_of(layer, sizes, mask):
    """A kernel that gives an attention's context, or `None` where none does.

    Args:
        layer: A `MultiHeadAttention`.
        sizes: B, N, T and S of the scores, `None` or symbols where unknown.
        mask: `AttentionMask`.

    Returns:
        `None`, or a function of states and `training` that gives (B, T, N * U). The states are
        queries (B, T, N * H), keys (B, S, N * H) and values (B, S, N * U); or for self-attention
        one array, all three side by side.
    """
    machine = chips()
    batch, heads, *lengths = sizes
    itemsize = _ITEMSIZES.get(layer.compute_dtype)
    if machine is None or itemsize is None:
        return None
    if not all(isinstance(size, int) for size in (batch, *lengths)):  # unknown, or an export's
        return None
    if layer.attention_score == "additive" or not _divides(batch, machine):
        return None
    from keras_transformer.layers.lowering import tpu_attention

    widths = tuple(heads * size for size in (layer.key_dim, layer.key_dim, layer.value_dim))
    given = _mask_by_rows(mask, batch, lengths)
    if given is None or not tpu_attention.block_rows(lengths, widths, itemsize):
        return None

    def attend(states, training):
        seed, rate = layer.dropout_layer.next_seed(training), layer.dropout
        if seed is None:
            seed, rate = [0, 0], 0.0
        kernel = tpu_attention.Attention(
            heads, widths, layer.score_factor, mask.causal, rate, machine
        )
        return tpu_attention.attend(kernel, given, ops.stack(sequence_of(seed)), *states)

    return attend


def _mask_by_rows(mask, batch, lengths):
    """(B, 1, S) or (B, T, S) int32, not 0 = attend; `None` for a mask that kernels do not know."""
    if mask.bias is not None or mask.position_bias is not None:
        return None
    if mask.window is not None and mask.window < max(lengths):
        return None
    if mask.mask is None:
        return ops.ones((batch, 1, lengths[1]), "int32")
    given = mask.mask
    if len(given.shape) == 4:
        if given.shape[1] != 1:
            return None
        given = given[:, 0]
    return ops.broadcast_to(ops.cast(given, "int32"), (batch, given.shape[1], lengths[1]))


def _divides(batch, machine):
    return machine.mesh is None or batch % machine.mesh.shape[machine.axis] == 0
