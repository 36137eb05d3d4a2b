"""The decoder's block: section 3.1 of the paper, or with a recurrence for its self-attention."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import check_choice
from keras_transformer.config import RECURRENCES
from keras_transformer.layers.base import check_states
from keras_transformer.layers.blocks import TransformerBlock
from keras_transformer.layers.cross_attention import CrossAttention
from keras_transformer.layers.lowering.cache_slots import Slots, empty_slots
from keras_transformer.layers.masks import AttentionMask, checked_padding, merged_padding
from keras_transformer.layers.multi_head import MultiHeadSelfAttention
from keras_transformer.layers.recurrence import SSRU
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(TransformerBlock):
    """Causal self-attention, cross-attention to the encoder's output, feed-forward network.

    Args:
        num_heads: Heads N.
        key_dim: Query and key width per head H (d_k).
        intermediate_dim: Inner width F of the feed-forward network.
        value_dim: Value width per head U (d_v); `key_dim` when `None`.
        dropout: Rate for each sub-layer's output (section 5.4).
        attention_dropout: Rate for attention weights.
        intermediate_dropout: Rate inside the feed-forward network.
        activation: Of the feed-forward network: a Keras activation, or a gated pair by name.
        residual: `"post"` (the paper), `"pre"` (the stack then needs a final norm) or `"b2t"`.
        normalization: `"layer"` (the paper), `"rms"`, `"batch"` or `"none"`.
        norm_epsilon: Added to the variance.
        use_residual: Whether there are residual paths.
        use_feed_forward: Whether there is a feed-forward network.
        use_bias: Whether attention's projections, and a recurrence's gate, have biases.
        feed_forward_bias: Whether the products of the feed-forward network have biases.
        attention_score: `"scaled_dot_product"` (the paper), `"dot_product"` or `"additive"`.
        rotary: Whether self-attention rotates queries and keys by their position.
        attention_chunk: Queries that attend at once, for less memory; all when `None`.
        attention_window: In self-attention a token sees itself and the tokens nearer than this
            before it; all when `None`.
        recurrence: `"ssru"` for an `SSRU` in the place of self-attention, which `rotary` and
            `attention_window` are for; self-attention when `None`.

    Call arguments:
        inputs: (B, T, D).
        memory: (B, S, E), the encoder's output.
        attention_mask: Boolean, (B, T, T) or broadcastable, beside the causal mask, which is
            always on.
        memory_mask: Boolean, the source's padding (B, S), or (B, T, S) or broadcastable; True =
            attend. Keras' implicit mask of `memory` is combined with it.
        attention_bias: Additive mask of self-attention, (B, T, T) or (B, N, T, T).
        position_bias: (N, 2T - 1) bias of self-attention by distance, or `None`.
        padding_mask: Boolean (B, T), True at real tokens: those that batch normalization counts.
        segment_starts: Of a recurrence alone, in the place of masks: boolean (B, T), True where a
            sequence of several in a row begins, or `None`.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout is on.
        inputs_mask: Boolean (B, T), True at real tokens, for self-attention or the recurrence and
            batch normalization, beside the masks above; Keras' implicit mask of `inputs` when
            `None`.

    Returns:
        (B, T, D) in the compute dtype; with `return_attention_scores` a triple of it, the
        (B, N, T, T) weights of self-attention and the (B, N, T, S) weights of cross-attention. A
        recurrence has no weights: then a pair.

    Example:
        >>> block = kt.DecoderBlock(num_heads=2, key_dim=4, intermediate_dim=16)
        >>> target, memory = np.ones((3, 5, 8), "float32"), np.ones((3, 7, 8), "float32")
        >>> padding = np.arange(7) < np.array([[7], [4], [2]])
        >>> ops.shape(block(target, memory, memory_mask=padding[:, None, :]))
        (3, 5, 8)
    """

    OPTIONS = (*TransformerBlock.OPTIONS, "recurrence")

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        intermediate_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        intermediate_dropout: float = 0.0,
        activation: str | Callable = "relu",
        residual: str = "post",
        normalization: str = "layer",
        norm_epsilon: float = 1e-6,
        use_residual: bool = True,
        use_feed_forward: bool = True,
        use_bias: bool = True,
        feed_forward_bias: bool = True,
        attention_score: str = "scaled_dot_product",
        rotary: bool = False,
        attention_chunk: int | None = None,
        attention_window: int | None = None,
        recurrence: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            key_dim,
            intermediate_dim,
            value_dim,
            dropout,
            attention_dropout,
            intermediate_dropout,
            activation,
            residual,
            normalization,
            norm_epsilon,
            use_residual,
            use_feed_forward,
            use_bias,
            feed_forward_bias,
            attention_score,
            rotary,
            attention_chunk,
            attention_window,
            **kwargs,
        )
        check_choice((None, *RECURRENCES), recurrence=recurrence)
        if recurrence is not None and (rotary or attention_window is not None):
            raise ValueError(
                "`rotary` and `attention_window` are for self-attention, which a block with a "
                f"`recurrence` has not. Received: recurrence={recurrence!r}, rotary={rotary}, "
                f"attention_window={attention_window}"
            )
        self.recurrence = recurrence

    def build(self, inputs_shape, memory_shape):
        if self.recurrence is None:
            self.self_attention = self._attention(MultiHeadSelfAttention, "self_attention")
            self.self_attention.build(inputs_shape)
        else:
            options = dict(use_bias=self.use_bias, dtype=self.dtype_policy)
            self.recurrence_layer = SSRU(**options, name="recurrence")
            self.recurrence_layer.build(inputs_shape)
        self.cross_attention = self._attention(CrossAttention, "cross_attention")
        self.cross_attention.build(inputs_shape, memory_shape)
        if self.use_feed_forward:
            self._build_feed_forward(inputs_shape)
        if self.recurrence is None:
            layers = self._residual_layers("self_attention", inputs_shape)
            self.self_attention_norm, self.self_attention_dropout = layers
        else:
            layers = self._residual_layers("recurrence", inputs_shape)
            self.recurrence_norm, self.recurrence_dropout = layers
        layers = self._residual_layers("cross_attention", inputs_shape)
        self.cross_attention_norm, self.cross_attention_dropout = layers
        if self.use_feed_forward:
            layers = self._residual_layers("feed_forward", inputs_shape)
            self.feed_forward_norm, self.feed_forward_dropout = layers
        self._settle()

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        position_bias: Tensor | None = None,
        padding_mask: Tensor | None = None,
        segment_starts: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        inputs_mask: Tensor | None = None,
    ) -> Tensor:
        masks = dict(attention_mask=attention_mask, attention_bias=attention_bias)
        masks["position_bias"] = position_bias
        self._check_masks(segment_starts, **masks)
        check_states(memory=memory)
        memory_mask = _with_queries(memory_mask, memory)
        tensors = dict(memory=memory, memory_mask=memory_mask, padding_mask=padding_mask, **masks)
        tensors.update(segment_starts=segment_starts, inputs_mask=inputs_mask)
        options = dict(return_attention_scores=return_attention_scores, training=training)
        return self._run(self._apply, inputs, tensors, **options)

    def _apply(
        self,
        inputs,
        memory,
        memory_mask,
        padding_mask,
        segment_starts,
        inputs_mask,
        return_attention_scores,
        training,
        **masks,
    ):
        options = dict(return_attention_scores=return_attention_scores, training=training)

        def look_back(states):
            if self.recurrence is not None:
                tensors = dict(segment_starts=segment_starts, inputs_mask=inputs_mask)
                return self.recurrence_layer(states, **tensors)
            tensors = dict(masks, inputs_mask=inputs_mask)
            return self.self_attention(states, **tensors, use_causal_mask=True, **options)

        def attend_to_memory(states):
            return self.cross_attention(states, memory, attention_mask=memory_mask, **options)

        paddings = dict(padding_mask=padding_mask, inputs_mask=inputs_mask)
        mode = dict(padding_mask=merged_padding(inputs, **paddings), training=training)
        x, self_weights = self._residual(inputs, look_back, *self._first_layers, **mode)
        layers = self.cross_attention_norm, self.cross_attention_dropout
        x, cross_weights = self._residual(x, attend_to_memory, *layers, **mode)
        x = self._feed_forward(x, inputs, **mode)
        if not return_attention_scores:
            return x
        return (x, self_weights, cross_weights) if self.recurrence is None else (x, cross_weights)

    def start(
        self, memory: Tensor, size: int | Tensor, beams: int = 1, memory_mask: Tensor | None = None
    ) -> tuple:
        """The block's cache for `step`: of self-attention or the recurrence, and of the source.

        Args:
            memory: (B, S, E), the encoder's output.
            size: Slots of the self-attention cache, an integer or a scalar int tensor.
            beams: Hypotheses K of each source.
            memory_mask: Boolean (B, 1, S), True = attend, or `None`.

        Returns:
            `((keys, values), (cross_keys, cross_values))`: (B, N, `size` * K, H or U), and
            (B, N, S, H or U). Of a recurrence, a `RecurrentState` and the latter.
        """
        batch = ops.shape(memory)[0]
        cross_cache = self.cross_attention.start(memory, attention_mask=memory_mask)
        if self.recurrence is not None:
            return self.recurrence_layer.start(batch, beams), cross_cache
        return empty_slots(batch, self.self_attention, size, beams), cross_cache

    def step(
        self,
        inputs: Tensor,
        cache: tuple,
        slots: Slots,
        memory_bias: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> tuple:
        """`call` for the next T tokens; returns their states and the new cache.

        Args:
            inputs: (B, T, D); with K beams (B, K, D), the next token of each.
            cache: What `start` or the last step gave.
            slots: `layers.lowering.cache_slots.Slots` of these tokens.
            memory_bias: (B, 1, 1, S) float32, 0 or MASK_FILL, or `None`.
            return_attention_scores: Whether to return the weights of cross-attention as well,
                (B, N, T, S) or (B, N, K, S).
        """
        own_cache, cross_cache = cache

        def look_back(states):
            layer = self.self_attention if self.recurrence is None else self.recurrence_layer
            return layer.step(states, own_cache, slots)

        def attend_to_memory(states):
            return self.cross_attention.step(states, cross_cache, memory_bias, True)

        x, own = self._residual(inputs, look_back, *self._first_layers)
        layers = self.cross_attention_norm, self.cross_attention_dropout
        x, weights = self._residual(x, attend_to_memory, *layers)
        x, cache = self._feed_forward(x, inputs), (own, cross_cache)
        return (x, cache, weights) if return_attention_scores else (x, cache)

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        return inputs_shape

    def compute_output_spec(
        self,
        inputs,
        memory,
        attention_mask=None,
        memory_mask=None,
        attention_bias=None,
        position_bias=None,
        padding_mask=None,
        segment_starts=None,
        return_attention_scores=False,
        training=None,
        inputs_mask=None,
    ):
        check_states(memory=memory)
        masks = dict(attention_mask=attention_mask, attention_bias=attention_bias)
        masks["position_bias"] = position_bias
        self._check_masks(segment_starts, **masks)
        if self.recurrence is None:
            self._check_self_attention(inputs, *masks.values())
        else:
            checked_padding("segment_starts", segment_starts, inputs)
        merged_padding(inputs, padding_mask=padding_mask, inputs_mask=inputs_mask)
        batch = memory.shape[0] if inputs.shape[0] is None else inputs.shape[0]
        sizes = batch, self.num_heads, inputs.shape[1], memory.shape[1]
        AttentionMask.checked(sizes, _with_queries(memory_mask, memory), None)
        keys = [inputs, memory] if self.recurrence is None else [memory]
        return self._output_spec(inputs, keys, return_attention_scores)

    @property
    def _first_layers(self):
        """The norm and the dropout of the sub-layer that sees the target."""
        if self.recurrence is None:
            return self.self_attention_norm, self.self_attention_dropout
        return self.recurrence_norm, self.recurrence_dropout

    def _check_masks(self, segment_starts, **masks):
        """Raises ValueError for masks of what the block has not."""
        given = [name for name, mask in masks.items() if mask is not None]
        if self.recurrence is not None and given:
            raise ValueError(
                "a recurrence sees all tokens before one, and takes `segment_starts` in the place "
                f"of masks. Received: {', '.join(given)}"
            )
        if self.recurrence is None and segment_starts is not None:
            raise ValueError(
                "`segment_starts` is for a block with a `recurrence`; self-attention takes "
                "`attention_mask`. Received: recurrence=None"
            )


def _with_queries(memory_mask, memory):
    """Padding (B, S) of the memory as (B, 1, S); another mask, or `None`, as it is."""
    if memory_mask is None:
        return None
    shape = memory_mask.shape if hasattr(memory_mask, "shape") else np.shape(memory_mask)
    if len(shape) != 2:
        return memory_mask
    return ops.expand_dims(checked_padding("memory_mask", memory_mask, memory), 1)
