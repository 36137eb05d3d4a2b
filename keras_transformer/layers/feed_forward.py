"""Position-wise feed-forward network: section 3.3 of the paper."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_transformer.arguments import check_rate, check_size
from keras_transformer.config import GATED_ACTIVATIONS
from keras_transformer.layers.base import BaseLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.projection import projection_of
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionwiseFFN(BaseLayer, keras.layers.Layer):
    """FFN(x) = activation(x W1 + b1) W2 + b2, the same at every position (eq. 2).

    With a gated activation, FFN(x) = (activation(x Wg + bg) * (x W1 + b1)) W2 + b2
    (Shazeer 2020, arXiv 2002.05202).

    Args:
        intermediate_dim: Inner width F.
        output_dim: Output width; that of the input when `None`.
        activation: Name of a Keras activation, or a callable; the paper's is `"relu"`. The
            gated pairs are `"glu"` (sigmoid), `"reglu"`, `"geglu"`, `"geglu_tanh"` and `"swiglu"`
            (silu). `"gelu_tanh"` is GELU by its approximation with a hyperbolic tangent.
        dropout: Rate for the inner activations. The paper has none there.
        use_bias: Whether the two products have biases.
        kernel_initializer: Initializer of both kernels.
        bias_initializer: Initializer of both biases.

    Call arguments:
        inputs: (B, T, D), or any shape that ends in D.
        training: Whether dropout is on.

    Returns:
        Shape of `inputs` with the last size replaced by `output_dim`, in the compute dtype.

    Example:
        >>> network = kt.PositionwiseFFN(intermediate_dim=32, activation="swiglu")
        >>> ops.shape(network(np.ones((3, 5, 8), "float32")))
        (3, 5, 8)
    """

    def __init__(
        self,
        intermediate_dim: int,
        output_dim: int | None = None,
        activation: str | Callable = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: str | dict | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | dict | keras.initializers.Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_size(intermediate_dim=intermediate_dim)
        check_size(optional=True, output_dim=output_dim)
        check_rate(dropout=dropout)
        self.intermediate_dim = intermediate_dim
        self.output_dim = output_dim
        self.activation = activation_of(activation)
        self.is_gated = isinstance(activation, str) and activation in GATED_ACTIVATIONS
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.supports_masking = True

    def build(self, input_shape):
        model_dim = input_shape[-1]
        self.intermediate = projection_of(self, self.intermediate_dim, "intermediate")
        self.intermediate.build(input_shape)
        if self.is_gated:
            self.gate = projection_of(self, self.intermediate_dim, "gate")
            self.gate.build(input_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        self.outer = projection_of(self, self.output_dim or model_dim, "output")
        self.outer.build((*input_shape[:-1], self.intermediate_dim))
        self._settle()

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        hidden_BTF = self.intermediate(inputs)
        if self.is_gated:
            function = activation_function(GATED_ACTIVATIONS[self.activation])
            hidden_BTF = function(self.gate(inputs)) * hidden_BTF
        else:
            hidden_BTF = activation_function(self.activation)(hidden_BTF)
        return self.outer(self.dropout_layer(hidden_BTF, training=training))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.output_dim or input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "output_dim": self.output_dim,
            "activation": serialized_activation(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def activation_of(identifier):
    """A Keras activation; a name that Keras does not have, of ours or of a gated pair, as it is.

    Raises:
        ValueError: if neither knows such an activation.
    """
    is_ours = isinstance(identifier, str) and identifier in ("gelu_tanh", *GATED_ACTIVATIONS)
    return identifier if is_ours else keras.activations.get(identifier)


def activation_function(activation):
    """The function of what `activation_of` gave, or of the name of one that is not gated."""
    if isinstance(activation, str) and activation == "gelu_tanh":
        return functools.partial(keras.activations.gelu, approximate=True)
    return keras.activations.get(activation)


def serialized_activation(activation):
    """The identifier of an activation that `activation_of` gave, ready for JSON."""
    return activation if isinstance(activation, str) else keras.activations.serialize(activation)
