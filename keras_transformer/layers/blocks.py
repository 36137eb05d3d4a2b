"""Encoder and decoder blocks: section 3.1 of the paper."""

import keras
from keras import ops

from keras_transformer.layers.block import FEED_FORWARD, TransformerBlock
from keras_transformer.layers.masks import checked_padding
from keras_transformer.layers.multi_head import CrossAttention

SELF_ATTENTION, CROSS_ATTENTION = "self_attention", "cross_attention"


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(TransformerBlock):
    """Self-attention, then the feed-forward network, each with residual, norm and dropout.

    With `use_causal_mask` it is the block of a decoder-only language model.

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
        use_bias: Whether attention's projections have biases.
        attention_score: Of `MultiHeadSelfAttention`; so are `rotary`, `attention_chunk` and
            `attention_window`.

    Call arguments:
        inputs: (B, S, D).
        attention_mask: Boolean, (B, S, S) or broadcastable, such as (B, 1, S) padding.
        attention_bias: Additive mask, (B, S, S) or (B, N, S, S).
        position_bias: (N, 2S - 1) bias by distance, or `None`.
        padding_mask: Boolean (B, S), True at real tokens: those that batch normalization counts.
            Attention has its own mask.
        use_causal_mask: Whether position s sees only positions up to s.
        return_attention_scores: Whether to return the (B, N, S, S) weights too.
        training: Whether dropout is on.

    Returns:
        (B, S, D) in the compute dtype; with `return_attention_scores` a pair of it and the
        weights.
    """

    def build(self, input_shape):
        self._build_self_attention(input_shape)
        names = (SELF_ATTENTION, FEED_FORWARD)
        if self.use_feed_forward:
            self._build_feed_forward(input_shape)
        self._build_residuals(names if self.use_feed_forward else names[:1], input_shape)
        self._settle()

    def call(
        self,
        inputs,
        attention_mask=None,
        attention_bias=None,
        position_bias=None,
        padding_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        padding_mask = checked_padding("padding_mask", padding_mask, inputs)
        norm = dict(padding_mask=padding_mask, training=training)
        attended = self.self_attention(
            self._enter(SELF_ATTENTION, inputs, **norm),
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            position_bias=position_bias,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        attended, weights = attended if return_attention_scores else (attended, None)
        states = self._leave(SELF_ATTENTION, inputs, attended, **norm)
        states = self._feed(states, inputs, **norm)
        return (states, weights) if return_attention_scores else states

    def start(self, batch, size, beams=1):
        """An empty cache for `step`: keys (B, N, `size` * K, H), values (B, N, `size` * K, U)."""
        return self._start_self_attention(batch, size, beams)

    def step_layers(self):
        """The projections that `step` makes, for `layers.lowering.prepacked`."""
        return [*self.self_attention.step_layers(), *self._feeding_layers()]

    def step(self, inputs, cache, slots):
        """The causal call for the next T tokens, at `slots`: their states, the new cache."""
        attended, cache = self.self_attention.step(
            self._enter(SELF_ATTENTION, inputs), cache, slots
        )
        states = self._leave(SELF_ATTENTION, inputs, attended)
        return self._feed(states, inputs), cache

    def compute_output_spec(
        self,
        inputs,
        attention_mask=None,
        attention_bias=None,
        position_bias=None,
        padding_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        self._check_masks(inputs, attention_mask, attention_bias, position_bias, padding_mask)
        states = keras.KerasTensor(inputs.shape, self.compute_dtype)
        if not return_attention_scores:
            return states
        return states, _weights_spec(self, inputs, inputs)


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(TransformerBlock):
    """Causal self-attention, cross-attention to the encoder's output, feed-forward network.

    Args: those of `EncoderBlock`. `rotary` and `attention_window` are for self-attention alone.

    Call arguments:
        inputs: (B, T, D).
        memory: (B, S, E), the encoder's output.
        attention_mask: Boolean, (B, T, T) or broadcastable, beside the causal mask, which is
            always on.
        memory_mask: Boolean, (B, T, S) or broadcastable, such as the source's (B, 1, S) padding.
        attention_bias: Additive mask of self-attention, (B, T, T) or (B, N, T, T).
        position_bias: (N, 2T - 1) bias of self-attention by distance, or `None`.
        padding_mask: Boolean (B, T), True at real tokens: those that batch normalization counts.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout is on.

    Returns:
        (B, T, D) in the compute dtype; with `return_attention_scores` a triple of it, the
        (B, N, T, T) weights of self-attention and the (B, N, T, S) weights of cross-attention.
    """

    def build(self, inputs_shape, memory_shape):
        self._build_self_attention(inputs_shape)
        self.cross_attention = self._attention(CrossAttention, CROSS_ATTENTION)
        self.cross_attention.build(inputs_shape, memory_shape)
        names = (SELF_ATTENTION, CROSS_ATTENTION, FEED_FORWARD)
        if self.use_feed_forward:
            self._build_feed_forward(inputs_shape)
        self._build_residuals(names if self.use_feed_forward else names[:2], inputs_shape)
        self._settle()

    def call(
        self,
        inputs,
        memory,
        attention_mask=None,
        memory_mask=None,
        attention_bias=None,
        position_bias=None,
        padding_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        padding_mask = checked_padding("padding_mask", padding_mask, inputs)
        norm = dict(padding_mask=padding_mask, training=training)
        options = dict(return_attention_scores=return_attention_scores, training=training)
        attended = self.self_attention(
            self._enter(SELF_ATTENTION, inputs, **norm),
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            position_bias=position_bias,
            use_causal_mask=True,
            **options,
        )
        attended, self_weights = attended if return_attention_scores else (attended, None)
        states = self._leave(SELF_ATTENTION, inputs, attended, **norm)
        crossed = self.cross_attention(
            self._enter(CROSS_ATTENTION, states, **norm),
            memory,
            attention_mask=memory_mask,
            **options,
        )
        crossed, cross_weights = crossed if return_attention_scores else (crossed, None)
        states = self._leave(CROSS_ATTENTION, states, crossed, **norm)
        states = self._feed(states, inputs, **norm)
        return (states, self_weights, cross_weights) if return_attention_scores else states

    def start(self, memory, size, beams=1, memory_mask=None):
        """The block's cache for `step`: an empty self-attention cache, and cross keys and values.

        Args:
            memory: (B, S, E), the encoder's output.
            size: Slots of the self-attention cache, an integer or a scalar int tensor.
            beams: Hypotheses K of each source.
            memory_mask: Boolean (B, 1, S), True = attend, or `None`.

        Returns:
            `((keys, values), (cross_keys, cross_values))`: (B, N, `size` * K, H or U), and
            (B, N, S, H or U).
        """
        cross_cache = self.cross_attention.start(memory, attention_mask=memory_mask)
        return self._start_self_attention(ops.shape(memory)[0], size, beams), cross_cache

    def step_layers(self):
        """As of `EncoderBlock`."""
        attentions = self.self_attention, self.cross_attention
        layers = [layer for attention in attentions for layer in attention.step_layers()]
        return [*layers, *self._feeding_layers()]

    def step(self, inputs, cache, slots, memory_bias=None, return_attention_scores=False):
        """`call` for the next T tokens; returns their states and the new cache.

        Args:
            inputs: (B, T, D); with K beams (B, K, D), the next token of each.
            cache: What `start` or the last step gave.
            slots: `layers.lowering.cache_slots.Slots` of these tokens.
            memory_bias: (B, 1, 1, S) float32, 0 or MASK_FILL, or `None`.
            return_attention_scores: Whether to return the weights of cross-attention as well,
                (B, N, T, S) or (B, N, K, S).
        """
        self_cache, cross_cache = cache
        attended, self_cache = self.self_attention.step(
            self._enter(SELF_ATTENTION, inputs), self_cache, slots
        )
        states = self._leave(SELF_ATTENTION, inputs, attended)
        crossed, weights = self.cross_attention.step(
            self._enter(CROSS_ATTENTION, states), cross_cache, memory_bias, True
        )
        states = self._leave(CROSS_ATTENTION, states, crossed)
        states, cache = self._feed(states, inputs), (self_cache, cross_cache)
        return (states, cache, weights) if return_attention_scores else (states, cache)

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
        return_attention_scores=False,
        training=None,
    ):
        self._check_masks(inputs, attention_mask, attention_bias, position_bias, padding_mask)
        self.cross_attention.compute_output_spec(inputs, memory, attention_mask=memory_mask)
        states = keras.KerasTensor(inputs.shape, self.compute_dtype)
        if not return_attention_scores:
            return states
        weights = (_weights_spec(self, inputs, keys) for keys in (inputs, memory))
        return states, *weights


def _weights_spec(block, queries, keys):
    shape = (queries.shape[0], block.num_heads, queries.shape[1], keys.shape[1])
    return keras.KerasTensor(shape, block.compute_dtype)
