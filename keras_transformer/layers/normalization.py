"""Normalization: layer norm of the paper, and what it is compared with."""

import keras
from keras import ops

from keras_transformer.layers.base import BaseLayer, at_least_float32
from keras_transformer.layers.lowering.tracing import unfused
from keras_transformer.layers.masks import merged_padding
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(BaseLayer, keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis in fewer ops (Ba et al. 2016).

    A decoding loop on a device runs dozens of norms of one row each: there every op counts.
    """

    def call(self, inputs):
        states = at_least_float32(inputs)
        centred = states - ops.mean(states, axis=-1, keepdims=True)
        variance = ops.mean(centred * centred, axis=-1, keepdims=True)
        scaled = centred * ops.rsqrt(variance + self.epsilon)
        outputs = scaled * ops.cast(self.gamma, states.dtype) + ops.cast(self.beta, states.dtype)
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_transformer")
class BatchNormalization(BaseLayer, keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` of the real tokens.

    Call arguments:
        inputs: (B, T, D).
        padding_mask: (B, T) boolean, True at real tokens: those that the batch's statistics
            count; all when `None`.
        training: Whether the batch's own statistics are used, and the running ones updated.
        mask, inputs_mask: As `padding_mask`, beside it. Keras' implicit mask of `inputs` is the
            first where `inputs` is the only tensor, else the second.

    Returns:
        (B, T, D) in the compute dtype.

    Example:
        >>> norm = kt.layers.BatchNormalization()
        >>> states = np.array([[[1.0], [3.0], [99.0]]], "float32")
        >>> padding = np.array([[True, True, False]])
        >>> outputs = norm(states, padding_mask=padding, training=True)
        >>> ops.convert_to_numpy(outputs)[0, :2].round(1).tolist()
        [[-1.0], [1.0]]
    """

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
    ) -> Tensor:
        paddings = dict(padding_mask=padding_mask, mask=mask, inputs_mask=inputs_mask)
        mask = merged_padding(inputs, **paddings)
        if mask is None or not (training and self.trainable):
            return super().call(inputs, training=training, mask=mask)
        running = self.moving_mean, self.moving_variance
        before = [ops.copy(ops.convert_to_tensor(each)) for each in running]
        outputs = super().call(inputs, training=training, mask=mask)
        has_tokens = ops.any(mask)  # a batch of pads alone has no statistics
        for each, old in zip(running, before, strict=True):
            each.assign(ops.where(has_tokens, ops.convert_to_tensor(each), old))
        return outputs

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape


def normalization_of(normalization, epsilon, dtype, name):
    """The norm that an option names.

    Args:
        normalization: `"layer"`, `"rms"`, `"batch"` or `"none"`.
        epsilon: Added to the variance.
        dtype: Dtype policy of the new layer.
        name: Its name.

    Returns:
        A Keras layer, or `None` for `"none"`. All compute their statistics in float32.
    """
    options = dict(epsilon=epsilon, dtype=dtype, name=name)
    if normalization == "layer":
        return LayerNormalization(**options)
    if normalization == "rms":
        return keras.layers.RMSNormalization(**options)
    if normalization == "batch":
        return BatchNormalization(**options)
    return None


def normalized(norm, states_BTD, *, padding_mask=None, training=None):
    """`norm` of the states, or the states where there is none.

    Args:
        norm: What `normalization_of` gave.
        states_BTD: (B, T, D).
        padding_mask, training: Of `BatchNormalization`; other norms see one position at a time.
    """
    if norm is None:
        return states_BTD
    if isinstance(norm, BatchNormalization):
        return unfused(norm(states_BTD, padding_mask=padding_mask, training=training))
    return unfused(norm(states_BTD))
