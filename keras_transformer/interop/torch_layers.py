"""Weights of torch's layers into ours, each tensor of a checkpoint taken once."""

from collections.abc import Sequence

import numpy as np

from keras_transformer.interop.arrays import Arrays


class TorchLayers:
    """Fills our layers from the tensors of a checkpoint, one after the other.

    torch keeps a kernel as (out, in), we as (in, out).

    Args:
        arrays: The checkpoint's `Arrays`.
        order: Where each of our D channels lies in the checkpoint's, `None` for the same order.

    Example:
        >>> from keras_transformer.interop.arrays import read_arrays
        >>> from keras_transformer.interop.torch_layers import TorchLayers
        >>> np.savez("model.npz", **{"fc.weight": np.eye(2, 3), "fc.bias": np.ones(2)})
        >>> layer = keras.layers.Dense(2)
        >>> layer.build((None, 3))
        >>> TorchLayers(read_arrays("model.npz")).linear(layer, "fc")
        >>> layer.bias.numpy()
        array([1., 1.], dtype=float32)
    """

    def __init__(self, arrays: Arrays, order: np.ndarray | None = None):
        self.arrays = arrays
        self.order = order

    def linear(self, ours, *names: str, enters: bool = False, leaves: bool = False) -> None:
        """A product with its bias; several `names` stand next to each other in ours.

        Args:
            ours: A layer with `kernel`, `use_bias` and `bias`.
            *names: Of the checkpoint's layers.
            enters: Whether the product reads D channels.
            leaves: Whether it gives D channels.
        """
        kernels, biases = [], []
        for name in names:
            kernel = self._array(f"{name}.weight").T
            kernel = self._ordered(kernel, axis=0) if enters else kernel
            kernels.append(self._ordered(kernel) if leaves else kernel)
            if ours.use_bias:
                bias = self._array(f"{name}.bias")
                biases.append(self._ordered(bias) if leaves else bias)
        self._assign(ours.kernel, np.concatenate(kernels, axis=1), names)
        if biases:
            self._assign(ours.bias, np.concatenate(biases), names)

    def norm(self, ours, name: str) -> None:
        """A norm: its scale, and its offset where ours has one."""
        has_offset = hasattr(ours, "gamma")
        scale = ours.gamma if has_offset else ours.scale
        self._assign(scale, self._ordered(self._array(f"{name}.weight")), [name])
        if has_offset:
            self._assign(ours.beta, self._ordered(self._array(f"{name}.bias")), [name])

    def table(self, variable, names: Sequence[str], *, factor: float = 1.0, skip: int = 0) -> None:
        """A table of rows of D channels: the first of `names` that there is; the others are copies.

        Args:
            variable: Of ours.
            names: Of the checkpoint.
            factor: What the table is multiplied with.
            skip: Rows at its start that are left out.

        Raises:
            ValueError: if two of them differ.
        """
        found = [name for name in names if name in self.arrays] or [names[0]]
        table = self.arrays.take(found[0])
        for name in found[1:]:
            if not np.array_equal(self.arrays.take(name), table):
                raise ValueError(f"{name!r} must be the same tensor as {found[0]!r}")
        table = self._ordered(table[skip:].astype("float32", copy=False))
        self._assign(variable, table if factor == 1 else table * np.float32(factor), found)

    def vector(self, variable, name: str) -> None:
        """A vector, in whatever shape the checkpoint has it."""
        self._assign(variable, self._array(name).reshape(-1), [name])

    def _array(self, name):
        return self.arrays.take(name).astype("float32", copy=False)

    def _ordered(self, array, axis=-1):
        """D channels of the checkpoint in our order. What has not D is left to `_assign`."""
        if self.order is None or array.shape[axis] != len(self.order):
            return array
        return np.take(array, self.order, axis)

    def _assign(self, variable, value, names):
        if tuple(variable.shape) != value.shape:
            raise ValueError(
                f"{' and '.join(map(repr, names))} must have the shape that the settings say, "
                f"{tuple(variable.shape)} here. Received: {value.shape}"
            )
        variable.assign(value)
