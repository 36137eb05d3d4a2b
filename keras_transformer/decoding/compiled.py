"""Decoding as a graph: traced once, and always with the weights of now."""

import keras
import numpy as np

_COLUMNS = 16


def compiled(function, model):
    """`function(ids)` as a graph of the backend's own kind.

    On TensorFlow there is one graph for every (B, S). JAX compiles for one size at a time: there
    the rows are filled up to a power of two and the columns to a multiple of 16, which changes no
    result and leaves a handful of sizes.

    Args:
        function: Takes (B, S) int32 ids, returns a structure of arrays with B rows each, and
            reads no variables but weights of `model`.
        model: The model.

    Returns:
        A function of the same ids. On JAX it gives NumPy arrays.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, input_signature=[tf.TensorSpec((None, None), tf.int32)])
    return _compiled_by_jax(function, model) if keras.backend.backend() == "jax" else function


def _compiled_by_jax(function, model):
    import jax

    weights = model.weights

    @jax.jit
    def run(values, ids):
        # As arguments: what a trace reads from a variable itself is a constant from then on.
        with keras.StatelessScope(list(zip(weights, values, strict=True))):
            return function(ids)

    def call(ids):
        outputs = run([weight.value for weight in weights], _filled(ids, model.config))
        return jax.tree.map(lambda x: np.asarray(x)[: len(ids)], outputs)

    return call


def _filled(ids, config):
    """Ids with more rows, copies of the last one, and more columns, which hold pads."""
    rows, columns = np.shape(ids)
    more_rows = (1 << (rows - 1).bit_length()) - rows
    more_columns = -columns % _COLUMNS
    if config.max_positions is not None:  # no column that learned positions lack
        more_columns = max(0, min(more_columns, config.max_positions - columns))
    ids = np.pad(ids, [(0, 0), (0, more_columns)], constant_values=config.pad_id)
    return np.pad(ids, [(0, more_rows), (0, 0)], mode="edge")
