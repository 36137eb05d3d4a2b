"""Sinusoidal positions: section 3.5 of the paper."""

import math

import keras
from keras import ops


def sinusoidal_encoding(positions, dim):
    """Encodes positions: PE[p, 2i] = sin(p / 10000^(2i/d)), PE[p, 2i+1] = cos(same).

    Computed, not looked up, so there is no longest position; in float32, so that neighbouring
    positions stay distinct under any policy.

    Args:
        positions: (P,) integers.
        dim: Width d, odd or even.

    Returns:
        (P, dim) float32.
    """
    pairs = (dim + 1) // 2
    rates = ops.exp(ops.arange(pairs, dtype="float32") * (-2.0 * math.log(1e4) / dim))
    angles = ops.expand_dims(ops.cast(positions, "float32"), 1) * rates
    waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(waves, (-1, 2 * pairs))[:, :dim]


@keras.saving.register_keras_serializable(package="keras_transformer")
class SinusoidalPositions(keras.layers.Layer):
    """Adds sinusoidal position encodings to embeddings.

    Call arguments:
        inputs: (B, T, D) embeddings.
        first_position: Position of the first token, an integer or a scalar int tensor; the
            number of tokens already decoded when tokens come one by one.

    Returns:
        (B, T, D) in the compute dtype; the sum is rounded to it once.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, inputs, first_position=0):
        length, dim = ops.shape(inputs)[1], inputs.shape[2]
        encoding_TD = sinusoidal_encoding(first_position + ops.arange(length), dim)
        return ops.cast(ops.cast(inputs, "float32") + encoding_TD, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape
