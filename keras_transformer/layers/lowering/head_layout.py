"""A fused kernel of queries, keys and values, split over devices on the borders of heads."""

import keras
from keras import ops

BY_HEAD = "by_head"  # the last part of its key in a `LayoutMap`


def layout_by_head(layer):
    """How the kernel of a layer lies while it is multiplied, or `None` where it is not split.

    Args:
        layer: A `Projection` with a kernel of heads.
    """
    distribution = keras.distribution.distribution()
    return distribution and distribution.get_tensor_layout(f"{layer.path}/{BY_HEAD}")


def project_by_head(layer, inputs, heads, widths, layout):
    """The product with a kernel whose columns of a head have been brought together.

    It is stored as all queries, all keys, all values. Equal parts of that do not end between heads,
    so that each of the results, which are as large as all tokens, would be moved between devices
    after the product. A kernel is smaller: its columns are moved before it.

    Args:
        layer: The `Projection`.
        inputs: (B, T, D).
        heads: N.
        widths: The widths of queries, keys and values per head.
        layout: What `layout_by_head` gives.

    Returns:
        (B, N, T, width) of each.
    """
    dtype = layer.compute_dtype
    kernel = _by_head(ops.cast(layer.kernel, dtype), heads, widths)
    kernel = keras.distribution.distribute_tensor(kernel, layout)
    states = ops.matmul(ops.cast(inputs, dtype), kernel)
    if layer.bias is not None:
        states = states + _by_head(ops.cast(layer.bias, dtype), heads, widths)
    batch, length, _ = ops.shape(states)
    states_BTNW = ops.reshape(states, (batch, length, heads, sum(widths)))
    parts = ops.split(states_BTNW, [widths[0], widths[0] + widths[1]], axis=-1)
    return [ops.transpose(part, (0, 2, 1, 3)) for part in parts]


def _by_head(weight, heads, widths):
    """Columns of all queries, all keys, all values -> those of each head next to each other."""
    ends = [heads * widths[0], heads * (widths[0] + widths[1])]
    parts = [
        ops.reshape(part, (*part.shape[:-1], heads, -1))
        for part in ops.split(weight, ends, axis=-1)
    ]
    return ops.reshape(ops.concatenate(parts, axis=-1), weight.shape)
