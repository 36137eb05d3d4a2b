"""Token embedding, shared with the output projection: section 3.4 of the paper."""

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import check_flag, check_positive, check_size
from keras_transformer.layers.base import BaseLayer
from keras_transformer.layers.lowering import prepacked
from keras_transformer.layers.lowering.tracing import unfolded
from keras_transformer.layers.projection import reshape
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(BaseLayer, keras.layers.Layer):
    """Rows of one (V, D) matrix, scaled; with `reverse`, the logits of that matrix.

    The paper's scale, sqrt(D), makes embeddings of standard deviation 1 from a matrix of standard
    deviation D^-0.5, which is what the tied output projection needs. No Keras mask is made, one
    of the inputs is passed on: which ids are padding is the model's business, and a padding id may
    be any id.

    Under a mixed policy the rows are looked up and scaled in float32 and then cast, so that the
    gradients of an id that occurs often are summed in float32. The logits are a product in the
    compute dtype, cast to float32: they have its resolution, and take half the memory of a float32
    product in training. With `dtype="float32"` the layer has both in float32, in a model of any
    policy: `model.token_embeddings["output"].dtype_policy = "float32"`.

    Args:
        vocab_size: Rows V.
        dim: Width D.
        embeddings_initializer: Initializer of the matrix; normal with standard deviation
            D^-0.5 when `None`.
        embedding_scale: Factor of the rows; sqrt(D) when `None`.
        output_bias: Whether the logits have a bias, (V,) float32.

    Call arguments:
        inputs: (B, T) whole ids in [0, V) of any number type, or (B, T, D) states with
            `reverse=True`.
        reverse: Whether to project states to logits, as in `keras.layers.ReversibleEmbedding`.

    Returns:
        (B, T, D) embeddings in the compute dtype, or (B, T, V) float32 logits. In eager code and
        in graphs, an id outside [0, V), or one that is no whole number, gives NaN.

    Raises:
        ValueError: if states have another width than D.

    Example:
        >>> embedding = kt.TokenEmbedding(vocab_size=11, dim=8)
        >>> states = embedding(np.array([[4, 7, 10]]))
        >>> ops.shape(states), ops.shape(embedding(states, reverse=True))
        ((1, 3, 8), (1, 3, 11))
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        embeddings_initializer: str | dict | keras.initializers.Initializer | None = None,
        embedding_scale: float | None = None,
        output_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # of ids, which a low precision has no numbers for
        self.supports_masking = True
        check_size(vocab_size=vocab_size, dim=dim)
        check_positive(optional=True, embedding_scale=embedding_scale)
        check_flag(output_bias=output_bias)
        self.vocab_size = vocab_size
        self.dim = dim
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer or keras.initializers.RandomNormal(stddev=dim**-0.5)
        )
        self.embedding_scale = embedding_scale
        self.has_output_bias = output_bias
        self.output_bias = None

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.dim),
            initializer=self.embeddings_initializer,
            autocast=False,
        )
        if self.has_output_bias:
            self.output_bias = self.add_weight(
                name="output_bias", shape=(self.vocab_size,), initializer="zeros", autocast=False
            )

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            return self._logits(inputs)
        return self._checked_lookup(inputs)

    def lookup(self, ids: Tensor) -> Tensor:
        """The call for ids that are known to be in [0, V), such as those that a search chose."""
        # Flat ids: one row lookup, which the LiteRT exporter quantizes together with the logits.
        rows = ops.take(self.embeddings, ops.reshape(ids, (-1,)), axis=0)
        scale = math.sqrt(self.dim) if self.embedding_scale is None else self.embedding_scale
        rows = rows if scale == 1 else rows * scale
        # Cast last: the gradients of an id's many places are then summed in the variable's dtype.
        rows = ops.cast(rows, self.compute_dtype)
        return reshape(rows, (*ops.shape(ids), self.dim))

    def vocab_first_logits(self, states: Tensor) -> Tensor:
        """(B, T, D) states -> (V, B * T) float32 logits, for a search that XLA compiles.

        On a CPU, XLA multiplies the matrix with columns faster than rows with the transposed
        matrix, and finds the best of a column in whole registers.
        """
        self._check_width(states)
        columns = ops.transpose(ops.reshape(states, (-1, self.dim)))
        table = ops.cast(self.embeddings, self.compute_dtype)
        logits = ops.cast(ops.matmul(table, ops.cast(columns, table.dtype)), "float32")
        if self.output_bias is None:
            return logits
        return logits + ops.expand_dims(ops.cast(self.output_bias, "float32"), 1)

    def prepacked_kernel(self, in_blocks):
        """The kernel of the logits for `prepacked`: `ColumnBlocks`, or the transposed matrix.

        TensorFlow's matrix product would transpose it itself at every step.
        """
        table = ops.cast(self.embeddings, self.compute_dtype)
        if in_blocks and prepacked.is_large(table):
            return prepacked.cut_transposed(table)
        return ops.transpose(table)

    def compute_output_spec(self, inputs, reverse=False):
        if reverse:
            self._check_width(inputs)
        shape = self.compute_output_shape(inputs.shape, reverse)
        return keras.KerasTensor(shape, "float32" if reverse else self.compute_dtype)

    def compute_output_shape(self, input_shape, reverse=False):
        if reverse:
            return (*input_shape[:-1], self.vocab_size)
        return (*input_shape, self.dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "dim": self.dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "embedding_scale": self.embedding_scale,
            "output_bias": self.has_output_bias,
        }

    def _check_width(self, states):
        if tuple(states.shape[-1:]) not in ((self.dim,), (None,)):
            raise ValueError(
                "states that become logits must have the width `dim`. Received: "
                f"shape={tuple(states.shape)}, dim={self.dim}"
            )

    def _logits(self, states):
        self._check_width(states)
        kernel = prepacked.kernel_of(self)
        if kernel is None:
            kernel = ops.transpose(ops.cast(self.embeddings, self.compute_dtype))
        leading = ops.shape(states)[:-1]
        states = states if self.output_bias is None else unfolded(states)
        states = ops.cast(states, self.compute_dtype)
        logits = prepacked.product(ops.reshape(states, (-1, self.dim)), kernel)
        logits = ops.cast(logits, "float32")
        if self.output_bias is not None:
            logits = logits + ops.cast(self.output_bias, "float32")
        return reshape(logits, (*leading, self.vocab_size))

    def _checked_lookup(self, ids):
        dtype = keras.backend.standardize_dtype(ids.dtype)
        if dtype in ("bool", "int8", "uint8", "int16", "uint16"):  # which may not hold V
            ids = ops.cast(ids, "int32")
        known = ops.logical_and(ids >= 0, ids < self.vocab_size)
        if keras.backend.is_float_dtype(dtype):  # as `keras.Input` makes them by default
            known = ops.logical_and(known, ops.equal(ids, ops.floor(ids)))
            ids = ops.where(known, ids, 0.0)  # of NaN `clip` makes NaN
        rows = self.lookup(ops.cast(ops.clip(ids, 0, self.vocab_size - 1), "int32"))
        return ops.where(ops.expand_dims(known, -1), rows, ops.cast(float("nan"), rows.dtype))
