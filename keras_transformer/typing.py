"""Types of the public interface that have no class of their own."""

from typing import Any

Tensor = Any  # a tensor of Keras' backend, a NumPy array, or a `keras.KerasTensor` in a model
