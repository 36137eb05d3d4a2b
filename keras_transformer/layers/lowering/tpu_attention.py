"""Attention as one kernel of a TPU, in Pallas, for lengths whose scores fit beside the chip's core.

Where XLA multiplies heads it brings them into a layout of their own, writes all scores, and keeps
the weights for the gradient: most of the bytes that a training step on short sentences moves. This
kernel takes queries, keys and values as the projections leave them, (B, T, N * H), for a few rows
at a time; scores and weights never leave the core, and the gradient computes them a second time. It
gives the numbers of `layers.attention.attend`, with the dropout of `layers.dropout`, but for the
last bits: its scores are not rounded to the compute dtype before the softmax.

Imported on JAX only. `attention_kernels` says when it is used.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas
from jax.experimental.pallas import tpu
from jax.sharding import PartitionSpec

from keras_transformer.layers.dropout import MIX_1, MIX_2, threshold_of
from keras_transformer.layers.masks import MASK_FILL

_LANES = 128
_MOST_ROWS = 8  # in a block: its scores are 8 x 64 x 128 float32 at the paper's lengths
_BLOCK_SCORES = 2**16  # in a block, with the lanes that fill a tile
_BLOCK_BYTES = 2**22  # of arrays in a block; two blocks lie in memory at a time
_SIGN = 1 << 31


@dataclasses.dataclass(frozen=True)
class Attention:
    """What a kernel is compiled for.

    Attributes:
        heads: N.
        widths: N * H of queries and of keys, N * U of values.
        factor: What scores are multiplied by.
        causal: Whether a query sees only keys up to itself.
        rate: Of dropout; 0 for none.
        chips: `attention_kernels.Chips`.
    """

    heads: int
    widths: tuple[int, int, int]
    factor: float
    causal: bool
    rate: float
    chips: object


def block_rows(lengths, widths, itemsize):
    """Rows of a block, or 0 where one row is too long for the memory beside the core."""
    queries, keys = lengths
    row_scores = queries * -(-keys // _LANES) * _LANES
    # queries, keys and values and their gradients, and the gradient of the context
    row_bytes = itemsize * (2 * queries * widths[0] + 2 * keys * widths[1] + 2 * keys * widths[2])
    row_bytes += itemsize * queries * widths[2]
    if row_scores > 4 * _BLOCK_SCORES or row_bytes > 2 * _BLOCK_BYTES:
        return 0
    return max(1, min(_MOST_ROWS, _BLOCK_SCORES // row_scores, _BLOCK_BYTES // row_bytes))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(attention, mask, seed, *states):
    """softmax(Q K^T factor + M) V, by rows.

    Args:
        attention: `Attention`.
        mask: (B, 1, S) or (B, T, S) int32, not 0 = attend.
        seed: (2,) uint32, the stride and the offset of the hash that dropout is.
        *states: (B, T, N * H), (B, S, N * H) and (B, S, N * U); or for self-attention one array,
            (B, T, N (2H + U)), all queries first, then all keys.

    Returns:
        (B, T, N * U).
    """
    batch, length, _ = states[0].shape
    context = jax.ShapeDtypeStruct((batch, length, attention.widths[2]), states[0].dtype)
    return _by_rows(_forward, attention, mask, seed, states, [context])[0]


def _attend_and_keep(attention, mask, seed, *states):
    return attend(attention, mask, seed, *states), (mask, seed, states)


def _gradients(attention, kept, gradient):
    mask, seed, states = kept
    arrays = (gradient, *states)
    return (None, None, *_by_rows(_backward, attention, mask, seed, arrays, states))


attend.defvjp(_attend_and_keep, _gradients)


def _by_rows(kernel, attention, mask, seed, arrays, outputs):
    """The kernel on all rows, each device on its own."""
    chips, rows = attention.chips, jnp.arange(mask.shape[0], dtype="int32")[:, None, None]
    words = lax.bitcast_convert_type(seed, jnp.int32)[None]  # a core compares signed ones
    call = functools.partial(_blocks, kernel, attention, [output.dtype for output in outputs])
    if chips.mesh is not None:
        split, whole = PartitionSpec(chips.axis), PartitionSpec()
        call = jax.shard_map(
            call,
            mesh=chips.mesh,
            in_specs=(split, split, whole, *[split] * len(arrays)),
            out_specs=(split,) * len(outputs),
            check_vma=False,  # which a kernel does not say
        )
    return call(mask, rows, words, *arrays)


def _blocks(kernel, attention, dtypes, mask, rows, seed, *arrays):
    """The kernel on a few rows after the other."""
    batch, forward = mask.shape[0], kernel is _forward
    states = arrays if forward else arrays[1:]
    lengths = states[0].shape[1], states[-1].shape[1]
    size = block_rows(lengths, attention.widths, states[0].dtype.itemsize)

    def block(array):
        return pallas.BlockSpec((size, *array.shape[1:]), lambda index: (index, 0, 0))

    shapes = (
        [(batch, lengths[0], attention.widths[2])] if forward else [one.shape for one in states]
    )
    outputs = [jax.ShapeDtypeStruct(*one) for one in zip(shapes, dtypes, strict=True)]
    found = pallas.pallas_call(
        functools.partial(kernel, attention),
        grid=(pallas.cdiv(batch, size),),
        in_specs=[
            block(mask), block(rows), pallas.BlockSpec(memory_space=tpu.SMEM), *map(block, arrays)
        ],
        out_specs=[block(output) for output in outputs],
        out_shape=outputs,
        compiler_params=tpu.CompilerParams(dimension_semantics=("parallel",)),
        cost_estimate=_cost(forward, attention, batch, lengths, [mask, *arrays, *outputs]),
        interpret=attention.chips.interpret,
        name="attention" if forward else "attention_gradient",
    )(mask, rows, seed, *arrays)  # fmt: skip
    return tuple(found)


def _cost(forward, attention, batch, lengths, arrays):
    """What XLA is told, which does not look into a kernel."""
    query_key, _, value = attention.widths
    products = query_key + value if forward else 3 * query_key + 2 * value
    scores = batch * math.prod(lengths)
    return pallas.CostEstimate(
        flops=2 * scores * products,
        transcendentals=scores * attention.heads,
        bytes_accessed=sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays),
    )


# --- Kernels: references to arrays beside the core, of `size` rows -------------------------------


def _forward(attention, mask_ref, rows_ref, seed_ref, *refs):
    *state_refs, context_ref = refs
    states = _parts(attention, state_refs)
    visible = _visible(attention, mask_ref, states)
    for head in range(attention.heads):
        query, key, value = (part[:, :, here] for part, here in _of_head(attention, states, head))
        weights = _weights(attention, query, key, visible)
        dropped = _drop(attention, weights, _kept(attention, rows_ref, seed_ref, weights, head))
        context = _product(dropped.astype(value.dtype), value, 2, 1)
        context_ref[:, :, _lanes(attention, 2, head)] = context.astype(context_ref.dtype)


def _backward(attention, mask_ref, rows_ref, seed_ref, gradient_ref, *refs):
    half = len(refs) // 2
    states, gradients = _parts(attention, refs[:half]), _parts(attention, refs[half:])
    visible = _visible(attention, mask_ref, states)
    for head in range(attention.heads):
        query, key, value = (part[:, :, here] for part, here in _of_head(attention, states, head))
        context_gradient = gradient_ref[:, :, _lanes(attention, 2, head)]
        weights = _weights(attention, query, key, visible)
        kept = _kept(attention, rows_ref, seed_ref, weights, head)
        dropped = _drop(attention, weights, kept).astype(value.dtype)
        change = _drop(attention, _product(context_gradient, value, 2, 2), kept)
        change = weights * (change - jnp.sum(weights * change, axis=-1, keepdims=True))
        change = (change * attention.factor).astype(query.dtype)
        found = (
            _product(change, key, 2, 1),
            _product(change, query, 1, 1),
            _product(dropped, context_gradient, 1, 1),
        )
        for (part, here), values in zip(_of_head(attention, gradients, head), found, strict=True):
            part[:, :, here] = values.astype(part.dtype)


def _parts(attention, refs):
    """References to queries, keys and values: three, or views of one."""
    if len(refs) == 3:
        return refs
    (ref,), ends = refs, [0]
    for width in attention.widths:
        ends.append(ends[-1] + width)
    return [ref.at[:, :, start:end] for start, end in zip(ends, ends[1:], strict=False)]


def _of_head(attention, parts, head):
    return [(part, _lanes(attention, index, head)) for index, part in enumerate(parts)]


def _lanes(attention, index, head):
    width = attention.widths[index] // attention.heads
    return slice(head * width, (head + 1) * width)


def _product(left, right, left_axis, right_axis):
    """A product of the matrices of each row."""
    axes = (((left_axis,), (right_axis,)), ((0,), (0,)))
    return lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)


def _visible(attention, mask_ref, states):
    """Which keys (B, T, S) a query sees."""
    shape = (*states[0].shape[:2], states[1].shape[1])
    visible = jnp.broadcast_to(mask_ref[...], shape) != 0
    if attention.causal:
        visible &= _places(shape, 2) <= _places(shape, 1)
    return visible


def _weights(attention, query, key, visible):
    """(B, T, S) float32: all 0 in a row that sees no key."""
    scores = jnp.where(visible, _product(query, key, 2, 2) * attention.factor, MASK_FILL)
    powers = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    powers = jnp.where(visible, powers, 0.0)
    sums = jnp.sum(powers, axis=-1, keepdims=True)
    return powers / jnp.where(sums > 0, sums, 1.0)


def _kept(attention, rows_ref, seed_ref, weights, head):
    """`layers.dropout.keep_mask` of a head, in signed words."""
    if not attention.rate:
        return None
    _, queries, keys = shape = weights.shape
    index = (rows_ref[...] * attention.heads + head) * (queries * keys)
    index = index + _places(shape, 1) * keys + _places(shape, 2)
    bits = _mix(index * seed_ref[0, 0] + seed_ref[0, 1])
    return (bits ^ _word(_SIGN)) >= _word(threshold_of(attention.rate) ^ _SIGN)


def _drop(attention, values, kept):
    if kept is None:
        return values
    return jnp.where(kept, values * (1.0 / (1.0 - attention.rate)), 0.0)


def _mix(bits):
    """`layers.dropout.mix_bits`."""
    bits = (bits ^ lax.shift_right_logical(bits, jnp.full_like(bits, 16))) * _word(MIX_1)
    bits = (bits ^ lax.shift_right_logical(bits, jnp.full_like(bits, 15))) * _word(MIX_2)
    return bits ^ lax.shift_right_logical(bits, jnp.full_like(bits, 16))


def _word(value):
    """The int32 of the bits of a number below 2^32."""
    return jnp.int32(value - 2 * _SIGN if value >= _SIGN else value)


def _places(shape, axis):
    return lax.broadcasted_iota(jnp.int32, shape, axis)
