"""Multi-head attention: section 3.2 of the paper."""

import dataclasses

import keras
from keras import ops

from keras_transformer.arguments import check_flag, check_key_dim, check_reach, check_size
from keras_transformer.layers.cache import write_slots
from keras_transformer.layers.checked_masks import (
    checked_bias,
    checked_mask,
    checked_position_bias,
)
from keras_transformer.layers.folding import unfused
from keras_transformer.layers.long import in_windows
from keras_transformer.layers.masks import with_heads
from keras_transformer.layers.multi_head import MultiHeadAttention
from keras_transformer.layers.positions import rotate
from keras_transformer.layers.projection import projection_of


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
        score: `"scaled_dot_product"` (the paper), `"dot_product"` or `"additive"`.
        rotary: Whether queries and keys are turned by their position.
        chunk_size: Queries that attend at once, for memory that grows with T and not with T^2;
            the result is the same. All at once when `None`.
        window_size: Only the `window_size` nearest tokens to each side are seen, the token itself
            included; time and memory grow with T. All are seen when `None`.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.

    Call arguments:
        inputs: (B, T, D).
        attention_mask: Boolean, (B, T, T) or (B, N, T, T), or sizes of 1 in it, such as (B, 1, T)
            padding; True = attend. Numbers must be 0 and 1, and in a graph integers.
        attention_bias: Additive mask of the same shapes: the paper's M.
        position_bias: (N, 2T - 1) bias by distance, as `RelativePositionBias` and `AlibiBias`
            make it.
        use_causal_mask: Whether position t sees only positions up to t.
        return_attention_scores: Whether to return the weights too. That takes memory T^2.
        training: Whether dropout is on.

    Returns:
        (B, T, output_dim) in the compute dtype; with `return_attention_scores` a pair of it and
        the (B, N, T, T) weights before dropout. A query that may see nothing gives the output
        of a zero context.

    Raises:
        ValueError: if a mask or a bias has another shape, as far as sizes are known, or a mask
            holds other numbers.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=True,
        score="scaled_dot_product",
        rotary=False,
        chunk_size=None,
        window_size=None,
        **kwargs,
    ):
        super().__init__(
            num_heads,
            key_dim,
            value_dim,
            output_dim,
            dropout,
            use_bias,
            score,
            chunk_size,
            **kwargs,
        )
        check_flag(rotary=rotary)
        check_size(optional=True, window_size=window_size)
        check_key_dim(rotary, key_dim)
        check_reach(chunk_size, window_size, suffix="_size")
        self.rotary = rotary
        self.window_size = window_size

    def build(self, input_shape):
        widths = 2 * self.key_dim + self.value_dim
        self.query_key_value = projection_of(self, self.num_heads * widths, "query_key_value")
        self.query_key_value.build(input_shape)
        self._build_output(input_shape)
        self._settle()

    def call(
        self,
        inputs,
        attention_mask=None,
        attention_bias=None,
        position_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        states = self._project(inputs, ops.arange(ops.shape(inputs)[1]))
        sight = self._sight(inputs, attention_mask, attention_bias, position_bias, use_causal_mask)
        if return_attention_scores:
            context_BNTU, weights_BNTT = self._attend(*states, sight, training)
            return self._merge_heads(context_BNTU), weights_BNTT
        return self._merge_heads(self._long_or_plain(inputs, *states, sight, training))

    def step_layers(self):
        """The projections that `step` makes, for `layers.ready_kernels`."""
        return [self.query_key_value, self.output_projection]

    def step(self, inputs, cache, slots):
        """The next tokens only, with the keys and values of earlier ones from a cache.

        Args:
            inputs: (B, T, D), the next T tokens; T is usually 1. With K beams (B, K, D), the next
                token of each.
            cache: Pair of keys and values, as `layers.cache.empty_slots` makes it.
            slots: `layers.cache.Slots` of these tokens.

        Returns:
            The output, (B, T, output_dim) or (B, K, output_dim), and the cache with the tokens'
            slots written.
        """
        query_BNTH, key_BNTH, value_BNTU = self._project(inputs, slots.positions)
        keys = write_slots(cache[0], key_BNTH, slots, self._key_factor)
        values = write_slots(cache[1], value_BNTU, slots)
        context_BNTU, _ = self._attend_cached(query_BNTH, keys, values, slots.bias)
        return self._merge_heads(context_BNTU), (keys, values)

    def compute_output_spec(
        self,
        inputs,
        attention_mask=None,
        attention_bias=None,
        position_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        self._sight(inputs, attention_mask, attention_bias, position_bias, use_causal_mask)
        return self._output_spec(inputs, inputs.shape[1], return_attention_scores)

    def get_config(self):
        return {**super().get_config(), "rotary": self.rotary, "window_size": self.window_size}

    def _sight(self, inputs, mask, bias, position_bias, causal):
        sizes = self._sizes(inputs, inputs)
        position_bias = checked_position_bias(position_bias, sizes)
        sight = self._checked_sight(sizes, mask, bias)
        return dataclasses.replace(
            sight, position_bias=position_bias, causal=causal, window=self.window_size
        )

    def _project(self, inputs, positions_T):
        states = self.query_key_value(inputs)
        if self.key_dim == self.value_dim:
            # All heads in one transpose, and then three equal parts: fewer and faster ops.
            heads = self._split_heads(states, self.key_dim, 3 * self.num_heads)
            query_BNTH, key_BNTH, value_BNTU = ops.split(heads, 3, axis=1)
        else:
            width = self.num_heads * self.key_dim
            query, key, value = ops.split(states, [width, 2 * width], axis=-1)
            query_BNTH = self._split_heads(query, self.key_dim)
            key_BNTH = self._split_heads(key, self.key_dim)
            value_BNTU = self._split_heads(value, self.value_dim)
        if self.rotary:
            query_BNTH, key_BNTH = rotate(query_BNTH, positions_T), rotate(key_BNTH, positions_T)
        return query_BNTH, key_BNTH, value_BNTU

    def _long_or_plain(self, inputs, query_BNTH, key_BNTH, value_BNTU, sight, training):
        """The (B, N, T, U) context, the way that suits the length."""
        length = inputs.shape[1]
        states = query_BNTH, key_BNTH, value_BNTU
        if self.chunk_size is not None and not (length and length <= self.chunk_size):
            return self._attend_in_chunks(*states, sight, training)
        is_long = self.window_size is not None and not (length and length <= self.window_size)
        if is_long and sight.same_for_all_queries:
            return self._attend_in_windows(*states, sight, training)
        return self._attend(*states, sight, training)[0]

    def _attend_in_windows(self, query_BNTH, key_BNTH, value_BNTU, sight, training):
        batch, _, length, _ = ops.shape(query_BNTH)
        real_BT = ops.ones((batch, length), "bool")
        if sight.mask is not None:
            mask = sight.mask if len(sight.mask.shape) == 3 else sight.mask[:, 0]
            real_BT = ops.logical_and(real_BT, mask[:, 0])

        def attend(query, key, value, query_positions, key_positions, mask):
            mask, bias = dataclasses.replace(sight, mask=mask).mask_and_bias(
                query_positions, key_positions
            )
            weights = self._weights(query, key, mask, bias, self._vector())
            return self._context(weights, value, self.dropout_layer.next_seed(training))

        states = query_BNTH, key_BNTH, value_BNTU
        return in_windows(attend, *states, real_BT, self.window_size, sight.causal)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CrossAttention(MultiHeadAttention):
    """Attention of one sequence to another: the decoder's view of the encoder's output.

    Args: those of `MultiHeadSelfAttention`, but for `rotary` and `window_size`: positions of
        source and target are not on one scale.

    Call arguments:
        query: (B, T, D).
        value: (B, S, E), the encoder's output; its width may differ from the query's.
        key: (B, S, G); `value` when `None`, as in `keras.layers.MultiHeadAttention`.
        attention_mask: Boolean, (B, T, S) or (B, N, T, S), or sizes of 1 in it, such as the
            source's (B, 1, S) padding; True = attend. Numbers as in `MultiHeadSelfAttention`.
        attention_bias: Additive mask of the same shapes: the paper's M.
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
        self._settle()

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
        query_BNTH = self._split_heads(self.query_projection(query), self.key_dim)
        states = query_BNTH, *self._project_memory(value, key)
        sight = self._checked_sight(self._sizes(query, value), attention_mask, attention_bias)
        if self.chunk_size is not None and not return_attention_scores:
            return self._merge_heads(self._attend_in_chunks(*states, sight, training))
        context_BNTU, weights_BNTS = self._attend(*states, sight, training)
        output_BTD = self._merge_heads(context_BNTU)
        return (output_BTD, weights_BNTS) if return_attention_scores else output_BTD

    def start(self, value, key=None, attention_mask=None):
        """What `step` needs of the source, the same at every step.

        Args:
            value, key: As of the call.
            attention_mask: Boolean (B, 1, S) or (B, N, 1, S), True = attend, or `None` for all.

        Returns:
            Keys (B, N, S, H), times what scores are divided by, and values (B, N, S, U), zero
            where a row may see nothing.
        """
        key_BNSH, value_BNSU = self._project_memory(value, key)
        if attention_mask is not None:
            sizes = (value.shape[0], self.num_heads, 1, value.shape[1])
            mask = with_heads(checked_mask("attention_mask", attention_mask, sizes))
            sees_BN11 = ops.any(mask, axis=-1, keepdims=True)
            value_BNSU = value_BNSU * ops.cast(sees_BN11, value_BNSU.dtype)
        return unfused(key_BNSH) * self._key_factor, value_BNSU

    def step_layers(self):
        """The projections that `step` makes, for `layers.ready_kernels`."""
        return [self.query_projection, self.output_projection]

    def step(self, query, cache, bias=None, return_attention_scores=False):
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
        query_BNTH = self._split_heads(self.query_projection(query), self.key_dim)
        context_BNTU, weights = self._attend_cached(query_BNTH, *cache, bias)
        output = self._merge_heads(context_BNTU)
        return (output, weights) if return_attention_scores else output

    def _project_memory(self, value, key=None):
        """Keys (B, N, S, H) and values (B, N, S, U) of the source."""
        key_BSE = self.key_projection(value if key is None else key)
        value_BSE = self.value_projection(value)
        return (
            self._split_heads(key_BSE, self.key_dim),
            self._split_heads(value_BSE, self.value_dim),
        )

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
    ):
        self._checked_sight(self._sizes(query, value), attention_mask, attention_bias)
        return self._output_spec(query, value.shape[1], return_attention_scores)
