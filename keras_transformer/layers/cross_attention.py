"""Cross-attention: section 3.2.3 of the paper, the decoder's view of the encoder's output."""

import keras
from keras import ops

from keras_transformer.layers.attention import merge_heads, split_heads
from keras_transformer.layers.base import check_states
from keras_transformer.layers.lowering.attention_kernels import kernel_of
from keras_transformer.layers.lowering.tracing import unfused
from keras_transformer.layers.masks import (
    AttentionMask,
    checked_bias,
    checked_mask,
    with_heads,
    with_padding,
)
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.projection import projection_of
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class CrossAttention(MultiHeadAttention):
    """Attention of one sequence to another: the decoder's view of the encoder's output.

    It has neither `rotary` nor `attention_window`: positions of source and target are not on one
    scale.

    Args:
        num_heads: Heads N.
        key_dim: Query and key width per head H (d_k).
        value_dim: Value width per head U (d_v); `key_dim` when `None`.
        output_dim: Output width; that of the query when `None`.
        dropout: Rate for the attention weights.
        use_bias: Whether the products have biases.
        attention_score: `"scaled_dot_product"` (the paper), `"dot_product"` or `"additive"`.
        attention_chunk: Queries that attend at once, for memory that does not grow with T * S;
            the result is the same. All at once when `None`.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.

    Call arguments:
        query: (B, T, D).
        value: (B, S, E), the encoder's output; its width may differ from the query's.
        key: (B, S, G); `value` when `None`, as in `keras.layers.MultiHeadAttention`.
        attention_mask: Boolean, (B, T, S) or (B, N, T, S), or sizes of 1 in it, such as the
            source's (B, 1, S) padding; True = attend. Numbers must be 0 and 1, and in a graph
            integers.
        attention_bias: Additive mask of the same shapes: the paper's M.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout is on.
        value_mask, key_mask: Boolean (B, S), True = attend; Keras' implicit masks of `value` and
            `key` when `None`.

    Returns:
        (B, T, output_dim) in the compute dtype; with `return_attention_scores` a pair of it and
        the (B, N, T, S) weights before dropout. Where the source is empty the context is zero.

    Raises:
        ValueError: if a mask or a bias has another shape, as far as sizes are known, or a mask
            holds other numbers; if what attends or is attended to has another rank.

    Example:
        >>> attention = kt.CrossAttention(num_heads=2, key_dim=4)
        >>> target, source = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 6), "float32")
        >>> ops.shape(attention(target, source))
        (3, 5, 8)
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
        self._settle()

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        mask = self._mask(query, value, key, attention_mask, attention_bias, value_mask, key_mask)
        sizes = self._sizes(query, value)
        way, is_whole = self._attend, not return_attention_scores
        if is_whole and self.attention_chunk is not None and query.shape[1] != 0:
            way, is_whole = self._attend_in_chunks, False
        states = self.query_projection(query), *self._project_memory(value, key)
        # One source for all rows is seen by all: a kernel sees that of its own row.
        by_rows = len({one.shape[0] for one in states}) == 1
        if is_whole and by_rows and (kernel := kernel_of(self, sizes, mask)):
            return self.output_projection(kernel(states, training))
        states = [split_heads(one, self.num_heads) for one in states]
        if is_whole and self._can_be_fused(states, mask, training):
            way = self._attend_fused
        context_BNTU, weights_BNTS = way(*states, mask, training)
        output_BTD = self.output_projection(merge_heads(context_BNTU))
        return (output_BTD, weights_BNTS) if return_attention_scores else output_BTD

    def start(
        self, value: Tensor, key: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What `step` needs of the source, the same at every step.

        Args:
            value, key: See the call.
            attention_mask: Boolean (B, 1, S) or (B, N, 1, S), True = attend, or `None` for all.

        Returns:
            Keys (B, N, S, H), times what scores are divided by, and values (B, N, S, U), zero
            where a row may see nothing.
        """
        projected = self._project_memory(value, key)
        key_BNSH, value_BNSU = (split_heads(one, self.num_heads) for one in projected)
        if attention_mask is not None:
            sizes = (value.shape[0], self.num_heads, 1, value.shape[1])
            mask = with_heads(checked_mask("attention_mask", attention_mask, sizes))
            sees_BN11 = ops.any(mask, axis=-1, keepdims=True)
            value_BNSU = value_BNSU * ops.cast(sees_BN11, value_BNSU.dtype)
        return unfused(key_BNSH) * self.score_factor, value_BNSU

    def step(
        self,
        query: Tensor,
        cache: tuple[Tensor, Tensor],
        bias: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Tensor:
        """`call` with the keys and values that `start` gave: (B, T, D) -> (B, T, output_dim).

        K beams of a source are K queries of its row: they share one copy of keys and values.

        Args:
            query: (B, T, D).
            cache: The pair that `start` gave.
            bias: `masks.additive` of the source's padding, (B, 1, 1, S), or `None`.
            return_attention_scores: Whether to return the weights too, (B, N, T, S).
        """
        sizes = (query.shape[0], self.num_heads, query.shape[1], cache[0].shape[2])
        bias = checked_bias("bias", bias, sizes)
        query_BNTH = split_heads(self.query_projection(query), self.num_heads)
        context_BNTU, weights = self._attend_cached(query_BNTH, *cache, bias)
        output = self.output_projection(merge_heads(context_BNTU))
        return (output, weights) if return_attention_scores else output

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return super().compute_output_shape(query_shape)

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        attention_mask=None,
        attention_bias=None,
        return_attention_scores=False,
        training=None,
        value_mask=None,
        key_mask=None,
    ):
        self._mask(query, value, key, attention_mask, attention_bias, value_mask, key_mask)
        return self._output_spec(query, value, return_attention_scores)

    def _project_memory(self, value, key=None):
        """Keys (B, S, N * H) and values (B, S, N * U) of the source."""
        return self.key_projection(value if key is None else key), self.value_projection(value)

    def _mask(self, query, value, key, mask, bias, value_mask, key_mask):
        check_states(value=value, key=key)
        sizes = self._sizes(query, value)
        mask = with_padding(mask, sizes, value, value_mask=value_mask, key_mask=key_mask)
        return AttentionMask.checked(sizes, mask, bias)
