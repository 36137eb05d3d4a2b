"""Places along an axis, int32 whatever `keras.config.floatx()` is."""

from keras import backend, ops


def arange(start, stop=None):
    """`ops.arange` of int32, where Keras takes as many bits as `floatx` has."""
    return ops.arange(start, stop, dtype="int32")


def places_where(chosen, most):
    """(V,) boolean -> int32 indices where it holds, ascending: the op whose size values tell.

    JAX compiles no size that it does not know: there are `most` indices there, others at the end.

    Args:
        chosen: The condition.
        most: How many there can be; an integer on JAX.
    """
    if backend.backend() == "tensorflow":
        import tensorflow as tf

        # `ops.nonzero` is the same, and an op more that LiteRT does not have.
        return ops.cast(tf.where(chosen)[:, 0], "int32")
    if backend.backend() != "jax":
        return ops.cast(ops.nonzero(chosen)[0], "int32")
    places = arange(chosen.shape[0])
    order = ops.argsort(ops.where(chosen, places, places + chosen.shape[0]))
    return ops.cast(order[:most], "int32")
