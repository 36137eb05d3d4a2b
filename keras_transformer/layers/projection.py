"""A dense layer over rows, and the reshapes that go with it."""

import zlib

import keras
from keras import ops

from keras_transformer.layers.base import BaseLayer
from keras_transformer.layers.lowering import prepacked
from keras_transformer.typing import Tensor


def reshape(inputs, shape):
    """`ops.reshape` that leaves the one unknown size, if there is just one, to be inferred.

    A shape that is known but for one size becomes a constant in the graph, where asking for
    the size at run time costs three ops; an exported decoding loop holds dozens of these.
    """
    unknown = [size for size in shape if not isinstance(size, int)]
    if len(unknown) == 1:
        shape = tuple(size if isinstance(size, int) else -1 for size in shape)
    return ops.reshape(inputs, shape)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Projection(BaseLayer, keras.layers.Dense):
    """`keras.layers.Dense` that multiplies (rows, D) matrices, whatever the rank of its input.

    One matrix product for all tokens, forward and backward, where a product broadcast over the
    batch makes its kernel gradient once a sentence and sums. On the device it is one
    FULLY_CONNECTED op.

    Args:
        units: Output width.
        **kwargs: Those of `keras.layers.Dense`.

    Call arguments:
        inputs: (..., D).

    Returns:
        (..., units) in the compute dtype.

    Example:
        >>> projection = kt.layers.Projection(16, activation="relu")
        >>> ops.shape(projection(np.ones((3, 5, 8), "float32")))
        (3, 5, 16)
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        leading = ops.shape(inputs)[:-1]
        rows = ops.reshape(inputs, (-1, inputs.shape[-1])) if len(leading) > 1 else inputs
        kernel = prepacked.kernel_of(self)
        if kernel is None:
            outputs = super().call(rows, training=training)
        else:
            outputs = prepacked.product(rows, kernel)
            outputs = self.activation(outputs if self.bias is None else outputs + self.bias)
        return reshape(outputs, (*leading, self.units)) if len(leading) > 1 else outputs

    def load_own_variables(self, store):
        super().load_own_variables(store)
        if self.built and self.lora_enabled:
            # The kernel has what the factors had. Keras makes both zero, and then neither learns:
            # the first begins as `enable_lora` has it begin.
            factor = self.lora_kernel_a
            start = keras.initializers.HeUniform(seed=zlib.crc32(self.path.encode()))
            factor.assign(start(factor.shape, factor.dtype))  # the same in all workers

    def prepacked_kernel(self, in_blocks):
        """The kernel for `prepacked`: `ColumnBlocks`, or `None` for the kernel as it is."""
        if not in_blocks:
            return None
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return prepacked.cut(kernel) if prepacked.is_large(kernel) else None


def projection_of(layer, units, name, use_bias=None):
    """A `Projection` inside `layer`, with the layer's biases, initializers and dtype policy.

    `use_bias` says so where it is not the layer's own.
    """
    # Copies: one initializer shared by two kernels would give both the same values.
    kernel_initializer, bias_initializer = (
        initializer.__class__.from_config(initializer.get_config())
        for initializer in (layer.kernel_initializer, layer.bias_initializer)
    )
    return Projection(
        units,
        use_bias=layer.use_bias if use_bias is None else use_bias,
        kernel_initializer=kernel_initializer,
        bias_initializer=bias_initializer,
        dtype=layer.dtype_policy,
        name=name,
    )
