"""Kernels that are laid out once for the many products of a search, in a TensorFlow graph.

On processors with AVX-512 TensorFlow multiplies with oneDNN, which copies a kernel into its own
layout for each product: with a large kernel that is a quarter of the time of 32 rows, and more than
half of the time of 8 rows. A kernel in blocks of 32 columns has that layout already.
"""

import contextlib
import functools
import os
from typing import NamedTuple

from keras import ops

from keras_transformer.layers.lowering import tracing

_WIDTH = 32  # columns of a block: two registers
_LEAST = 256  # rows and columns of a kernel below which it stays in a near cache


class ColumnBlocks(NamedTuple):
    """A kernel (K, N) cut into blocks of columns."""

    columns: object  # (ceil(N / 32), K, 32), zeros behind the last column
    units: int  # N


def prepacked(layers, in_blocks):
    """The kernels of layers for `tracing.traced(kernels=…)`, where these are laid out once.

    Args:
        layers: Any that have `prepacked_kernel`.
        in_blocks: Whether large kernels are cut into `ColumnBlocks`.
    """
    return {id(layer): layer.prepacked_kernel(in_blocks) for layer in layers}


def kernel_of(layer):
    """The (K, N) tensor or the `ColumnBlocks` made for a layer, or `None`."""
    return tracing.kernels().get(id(layer))


def product(rows, kernel):
    """(R, K) rows times what `kernel_of` gave, (R, N)."""
    if not isinstance(kernel, ColumnBlocks):
        return ops.matmul(rows, kernel)
    outputs = ops.matmul(ops.expand_dims(rows, 0), kernel.columns)
    width = kernel.columns.shape[0] * _WIDTH
    outputs = ops.reshape(ops.transpose(outputs, (1, 0, 2)), (-1, width))
    return outputs if width == kernel.units else outputs[:, : kernel.units]


@functools.cache
def suit_this_machine():
    """Whether blocks are the faster way here: TensorFlow with oneDNN on AVX-512, and no GPU.

    With Eigen, which TensorFlow multiplies with elsewhere, they take twice the time.
    """
    import tensorflow as tf

    if tf.config.get_visible_devices("GPU"):
        return False
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1").lower() not in ("1", "true"):
        return False
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
        # Of AVX-512 processors TensorFlow takes oneDNN by itself on those with one of these.
        return "avx512_vnni" in flags or "avx512_bf16" in flags
    return False


def is_large(kernel):
    """Whether a kernel gains by blocks."""
    return min(kernel.shape) >= _LEAST


def cut(kernel):
    """The `ColumnBlocks` of a kernel (K, N)."""
    dim, units = kernel.shape
    if missing := -units % _WIDTH:
        kernel = ops.pad(kernel, [(0, 0), (0, missing)])
    return ColumnBlocks(ops.transpose(ops.reshape(kernel, (dim, -1, _WIDTH)), (1, 0, 2)), units)


def cut_transposed(table):
    """The `ColumnBlocks` of the transpose of a table (N, K)."""
    units, dim = table.shape
    if missing := -units % _WIDTH:
        table = ops.pad(table, [(0, missing), (0, 0)])
    return ColumnBlocks(ops.transpose(ops.reshape(table, (-1, _WIDTH, dim)), (0, 2, 1)), units)
