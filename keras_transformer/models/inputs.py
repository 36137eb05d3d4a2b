"""Checks of a model's inputs by their names, before Keras takes one input for another."""

from typing import Any

import keras
import numpy as np

from keras_transformer.layers.base import check_dense
from keras_transformer.layers.masks import dtype_name, known_values
from keras_transformer.typing import Tensor


class CheckedInputs:
    """Base of a functional `keras.Model` that refuses inputs which it does not have.

    Keras flattens a dict in the order of its keys, and pairs what it finds with the inputs that
    the model has: with a further key every input after it is another's.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        self._check_inputs(inputs)
        masks = keras.tree.flatten(kwargs.get("mask"))  # Keras gives one, or none, for each input
        if any(mask is not None for mask in masks):
            raise ValueError(
                f"`mask` must be None: a {type(self).__name__} finds its padding by "
                f"`config.pad_id`. Received: mask of type {type(kwargs['mask']).__name__}"
            )
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Tensor:
        self._check_inputs(inputs)  # again: Keras' steps on JAX do without `__call__`
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def fit(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> keras.callbacks.History:
        """`keras.Model.fit`; text instead of token ids is refused before anything compiles."""
        self._check_data(x)
        self._check_data(kwargs.get("validation_data"))
        for item in keras.tree.flatten((getattr(x, "element_spec", x), y)):
            dtype = getattr(as_known_array(item), "dtype", "")
            if "string" in str(dtype) or getattr(dtype, "kind", "") in ("U", "S", "O"):
                raise ValueError(
                    "`fit` takes token ids, since XLA cannot compile string operations: tokenize "
                    "in tf.data, for example with `dataset.map`. Received: dtype=string"
                )
        return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        self._check_data(x)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_data(x)
        return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_data(x)
        return super().train_on_batch(x, *args, **kwargs)

    def test_on_batch(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_data(x)
        return super().test_on_batch(x, *args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        self._check_data(x)
        return super().predict_on_batch(x)

    def _check_data(self, data):
        """The check of arrays, of a data set's elements, and of a tuple of inputs and labels.

        What a generator gives is checked, but for its values, when the model is called with it.
        """
        data = getattr(data, "element_spec", data)
        self._check_inputs(data[0] if isinstance(data, tuple) and data else data)

    def _check_inputs(self, inputs):
        expected = [tensor.name for tensor in self.inputs]
        if isinstance(inputs, dict) and {*inputs} != {*expected}:
            unknown = [name for name in inputs if name not in expected]
            missing = [name for name in expected if name not in inputs]
            raise ValueError(
                f"the inputs of a {type(self).__name__} must be {expected}, and no others. "
                f"Received: {[*inputs]}, where {unknown} are unknown and {missing} are missing"
            )
        values = inputs.values() if isinstance(inputs, dict) else keras.tree.flatten(inputs)
        for value in values:
            check_dense(f"inputs of a {type(self).__name__}", value)
            _check_whole(f"inputs of a {type(self).__name__}", value)


def as_known_array(values):
    """Lists, and what has no dtype of its own but is an array, such as a DataFrame, as an array."""
    is_other = hasattr(values, "__array__") and not hasattr(values, "dtype")
    if not is_other and not isinstance(values, (list, tuple)):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError("rows of ids must be of one length: fill them with pads") from error


def _check_whole(what, value):
    """Raises ValueError if ids are known to be other ones as int32, which Keras casts them to."""
    value = as_known_array(value)
    dtype = dtype_name(value) if hasattr(value, "dtype") else ""
    if "float" not in dtype and dtype not in ("int64", "uint64", "uint32"):
        return
    values = known_values(value)
    if values is None or not values.size:
        return
    if "int" in dtype:
        odd = [each for each in (values.min(), values.max()) if not -(2**31) <= each < 2**31]
    else:
        with np.errstate(invalid="ignore"):
            odd = values[values != values.astype("int32")]
    if len(odd):
        raise ValueError(
            f"{what} must be whole numbers of at most 31 bits. Received: {odd[0]}, of dtype={dtype}"
        )
