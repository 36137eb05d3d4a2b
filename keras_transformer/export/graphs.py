"""What all exported graphs share."""

import keras
import tensorflow as tf


def check_backend():
    """Raises RuntimeError unless Keras runs on TensorFlow, whose graphs are what is exported."""
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "exports are made on TensorFlow: `model.save(...)`, and `keras.models.load_model` in a "
            f"process without KERAS_BACKEND. Received: backend={keras.backend.backend()!r}"
        )


def variables(model):
    """The tensors of a model's weights, for a module to track."""
    # Not the trainable ones only: a user may have frozen layers.
    return [variable.value for variable in model.weights]


def short(ids, max_positions):
    """`ids`, once they are known to fit the table of learned positions, if there is one."""
    if max_positions is None:
        return ids
    length = tf.shape(ids)[1]
    received = [f"a source must have at most {max_positions} tokens. Received:", length]
    with tf.control_dependencies([tf.debugging.Assert(length <= max_positions, received)]):
        return tf.identity(ids)


def inside(ids, vocab_size):
    """`ids`, once they are known to be rows of the embedding: a GPU would read zeros there."""
    is_known = tf.reduce_all((ids >= 0) & (ids < vocab_size))
    rule = f"ids must lie in [0, {vocab_size}). Received:"
    received = [rule, tf.reduce_min(ids), "to", tf.reduce_max(ids)]
    with tf.control_dependencies([tf.debugging.Assert(is_known, received)]):
        return tf.identity(ids)
