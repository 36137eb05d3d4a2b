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


def as_graph(function, specs):
    """A `tf.function` with one graph, however many others call it.

    Nothing that is exported is Python's `if` or `while` over tensors, and AutoGraph needs several
    times as long to rewrite all code as TensorFlow needs to trace it.
    """
    return tf.function(function, input_signature=specs, autograph=False)
