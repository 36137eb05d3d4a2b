"""Large calls a few rows at a time, so that their memory has a bound."""

import tensorflow as tf


def in_pieces(run, columns, tokens, dtypes, further=0):
    """What `run(*columns)` gives, found for some of the rows at a time, one piece after another.

    Args:
        run: `run(*columns) -> tuple of tensors`, each with a row for each row that is given, and
            each row for its own: no other changes it.
        columns: Tensors of as many rows, with the tokens on axis 1.
        tokens: Most tokens of a piece, pads included; a row that has more is a piece of its own.
        dtypes: Those of what `run` gives.
        further: Tokens that each row gets while it runs.

    Returns:
        A tuple of tensors.
    """
    rows = tf.shape(columns[0])[0]
    width = tf.reduce_max([tf.shape(column)[1] for column in columns])
    at_once = tf.maximum(1, tokens // tf.maximum(1, width + further))
    shapes = []

    def piece(start, arrays):
        found = run(*(column[start : start + at_once] for column in columns))
        shapes[:] = [value.shape[1:] for value in found]
        index = start // at_once
        return start + at_once, tuple(
            array.write(index, value) for array, value in zip(arrays, found, strict=True)
        )

    def goes_on(start, arrays):
        return (start == 0) | (start < rows)  # once without rows too, for the other sizes

    arrays = tuple(
        tf.TensorArray(dtype, size=0, dynamic_size=True, infer_shape=False) for dtype in dtypes
    )
    # One after another: pieces side by side would take the memory of the whole.
    _, arrays = tf.while_loop(goes_on, piece, (0, arrays), parallel_iterations=1)
    return tuple(
        tf.ensure_shape(array.concat(), (None, *shape))
        for array, shape in zip(arrays, shapes, strict=True)
    )
