"""Multi-head attention: section 3.2 of the paper."""

import math

import keras
from keras import ops

from keras_transformer.arguments import check_rate, check_size
from keras_transformer.layers import masks
from keras_transformer.layers.cache import write_slots
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.projection import projection_of, reshape


class MultiHeadAttention(keras.layers.Layer):
    """What self-attention and cross-attention share: widths, heads, equation 1, the output.

    softmax(Q K^T / sqrt(d_k) + M) V, for every head, then one product with W^O.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size(num_heads=num_heads, key_dim=key_dim)
        check_size(optional=True, value_dim=value_dim, output_dim=output_dim)
        check_rate(dropout=dropout)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        self.output_dim = output_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return (*input_shape[:-1], self.output_dim or input_shape[-1])

    def _output_spec(self, query, key_length, return_attention_scores):
        output = keras.KerasTensor(self.compute_output_shape(query.shape), self.compute_dtype)
        shape = (query.shape[0], self.num_heads, query.shape[1], key_length)
        scores = keras.KerasTensor(shape, self.compute_dtype)
        return (output, scores) if return_attention_scores else output

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _build_output(self, query_shape):
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        self.output_projection = projection_of(self, self.output_dim or query_shape[-1], "output")
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.value_dim))

    def _split_heads(self, states_BTE, head_dim):
        """(B, T, N * head_dim) -> (B, N, T, head_dim)."""
        batch, length = ops.shape(states_BTE)[:2]
        states_BTNH = reshape(states_BTE, (batch, length, self.num_heads, head_dim))
        return ops.transpose(states_BTNH, (0, 2, 1, 3))

    def _attend(self, query_BNTH, key_BNSH, value_BNSU, mask, attention_bias, training):
        """Equation 1 and the output product; returns (B, T, output_dim) and (B, N, T, S)."""
        scores_BNTS = ops.matmul(
            query_BNTH * (1.0 / math.sqrt(self.key_dim)), ops.transpose(key_BNSH, (0, 1, 3, 2))
        )
        weights_BNTS = masks.attention_softmax(scores_BNTS, mask, attention_bias)
        weights_BNTS = ops.cast(weights_BNTS, value_BNSU.dtype)
        dropped_BNTS = self.dropout_layer(weights_BNTS, training=training)
        context_BTNU = ops.transpose(ops.matmul(dropped_BNTS, value_BNSU), (0, 2, 1, 3))
        batch, length = ops.shape(context_BTNU)[:2]
        context_BTE = reshape(context_BTNU, (batch, length, self.num_heads * self.value_dim))
        return self.output_projection(context_BTE), weights_BNTS


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadSelfAttention(MultiHeadAttention):
    """Attention of a sequence to itself (eq. 1, and the three uses of section 3.2.3).

    Args:
        num_heads: Heads N.
        key_dim: Query and key width per head H (d_k).
        value_dim: Value width per head U (d_v); `key_dim` when `None`.
        output_dim: Output width; that of the input when `None`.
        dropout: Rate for the attention weights.
        use_bias: Whether the products have biases.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.

    Call arguments:
        inputs: (B, T, D).
        attention_mask: Boolean, (B, T, T) or broadcastable, such as (B, 1, T) padding;
            True = attend.
        attention_bias: Additive mask, (B, T, T) or (B, N, T, T): the paper's M.
        use_causal_mask: Whether position t sees only positions up to t.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout is on.

    Returns:
        (B, T, output_dim) in the compute dtype; with `return_attention_scores` a pair of it and
        the (B, N, T, T) weights before dropout. A query that may see nothing gives the output
        of a zero context.
    """

    def build(self, input_shape):
        widths = 2 * self.key_dim + self.value_dim
        self.query_key_value = projection_of(self, self.num_heads * widths, "query_key_value")
        self.query_key_value.build(input_shape)
        self._build_output(input_shape)

    def call(
        self,
        inputs,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        query_BNTH, key_BNTH, value_BNTU = self._project(inputs)
        length = ops.shape(inputs)[1]
        mask = masks.merge(
            attention_mask, masks.causal_mask(length, length) if use_causal_mask else None
        )
        output_BTD, weights_BNTT = self._attend(
            query_BNTH, key_BNTH, value_BNTU, mask, attention_bias, training
        )
        return (output_BTD, weights_BNTT) if return_attention_scores else output_BTD

    def compute_output_spec(self, inputs, *args, return_attention_scores=False, **kwargs):
        return self._output_spec(inputs, inputs.shape[1], return_attention_scores)

    def step(self, inputs, cache, position, attention_mask):
        """The next tokens only, with the keys and values of earlier ones from a cache.

        Args:
            inputs: (B, T, D), the T tokens from `position` on; T is usually 1.
            cache: Pair of (B, N, S, H) keys and (B, N, S, U) values, S the longest sequence.
            position: Scalar int, tokens already in the cache.
            attention_mask: Boolean (1, T, S), `causal_mask(T, S, position)`.

        Returns:
            The (B, T, output_dim) output and the cache with T more slots written.
        """
        query_BNTH, key_BNTH, value_BNTU = self._project(inputs)
        slots = ops.shape(attention_mask)[-1]
        keys = write_slots(cache[0], key_BNTH, position, slots)
        values = write_slots(cache[1], value_BNTU, position, slots)
        output_BTD, _ = self._attend(query_BNTH, keys, values, attention_mask, None, False)
        return output_BTD, (keys, values)

    def _project(self, inputs):
        states = self.query_key_value(inputs)
        key_width = self.num_heads * self.key_dim
        query, key, value = ops.split(states, [key_width, 2 * key_width], axis=-1)
        return (
            self._split_heads(query, self.key_dim),
            self._split_heads(key, self.key_dim),
            self._split_heads(value, self.value_dim),
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class CrossAttention(MultiHeadAttention):
    """Attention of one sequence to another: the decoder's view of the encoder's output.

    Args: those of `MultiHeadSelfAttention`.

    Call arguments:
        query: (B, T, D).
        value: (B, S, E), the encoder's output; its width may differ from the query's.
        key: (B, S, G); `value` when `None`, as in `keras.layers.MultiHeadAttention`.
        attention_mask: Boolean, (B, T, S) or broadcastable, such as the source's (B, 1, S)
            padding; True = attend.
        attention_bias: Additive mask, (B, T, S) or (B, N, T, S): the paper's M.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout is on.

    Returns:
        (B, T, output_dim) in the compute dtype; with `return_attention_scores` a pair of it and
        the (B, N, T, S) weights before dropout. Where the source is empty the context is zero.
    """

    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = key_shape or value_shape
        self.query_projection = projection_of(self, self.num_heads * self.key_dim, "query")
        self.query_projection.build(query_shape)
        self.key_projection = projection_of(self, self.num_heads * self.key_dim, "key")
        self.key_projection.build(key_shape)
        self.value_projection = projection_of(self, self.num_heads * self.value_dim, "value")
        self.value_projection.build(value_shape)
        self._build_output(query_shape)

    def call(
        self,
        query,
        value,
        key=None,
        attention_mask=None,
        attention_bias=None,
        return_attention_scores=False,
        training=None,
    ):
        key_BNSH, value_BNSU = self.project_memory(value, key)
        output_BTD, weights_BNTS = self._attend(
            self._split_heads(self.query_projection(query), self.key_dim),
            key_BNSH,
            value_BNSU,
            masks.merge(attention_mask),
            attention_bias,
            training,
        )
        return (output_BTD, weights_BNTS) if return_attention_scores else output_BTD

    def project_memory(self, value, key=None):
        """Keys (B, N, S, H) and values (B, N, S, U) of the source, the same at every step."""
        key_BSE = self.key_projection(value if key is None else key)
        value_BSE = self.value_projection(value)
        return (
            self._split_heads(key_BSE, self.key_dim),
            self._split_heads(value_BSE, self.value_dim),
        )

    def step(self, query, memory_cache, attention_mask):
        """`call` with the keys and values that `project_memory` gave: (B, T, D) -> (B, T, D)."""
        output_BTD, _ = self._attend(
            self._split_heads(self.query_projection(query), self.key_dim),
            *memory_cache,
            attention_mask,
            None,
            False,
        )
        return output_BTD

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return super().compute_output_shape(query_shape)

    def compute_output_spec(self, query, value, *args, return_attention_scores=False, **kwargs):
        return self._output_spec(query, value.shape[1], return_attention_scores)
