"""Tensors that a TensorFlow graph writes into, without a copy.

`tf.tensor_scatter_nd_update` copies its input every time. These ops do not: whoever else holds the
tensor sees it change. So a tensor that is written must have a single reader at a time, and come
from `zeros`, or from an op that makes a new tensor of it: never from `tf.zeros`, of which a graph
optimizer makes one tensor for all that are alike.
"""

from keras import ops


def zeros(shape, dtype):
    """Zeros that no other op shares."""
    import tensorflow as tf

    return tf.raw_ops.Empty(shape=tf.stack(shape), dtype=dtype, init=True)


def overwrite_rows(tensor, rows, updates, width):
    """The tensor with `updates` at `rows`; what was given must not be read any more.

    Args:
        tensor: Of any shape, seen as rows of `width` numbers.
        rows: (R,) int32.
        updates: R * `width` numbers, of any shape.
        width: An integer.
    """
    import tensorflow as tf

    flat, updates = (ops.reshape(values, (-1, width)) for values in (tensor, updates))
    flat = tf.raw_ops.InplaceUpdate(x=flat, i=rows, v=updates)
    written = tf.reshape(flat, tf.shape(tensor))
    written.set_shape(tensor.shape)
    return written
