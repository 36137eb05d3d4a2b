"""Encoder and decoder blocks: section 3.1 of the paper."""

import keras
from keras import ops

from keras_transformer.arguments import check_choice, check_rate, check_size
from keras_transformer.config import RESIDUALS
from keras_transformer.layers.attention import CrossAttention, MultiHeadSelfAttention
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.feed_forward import PositionwiseFFN

LAYER_NORM_EPSILON = 1e-6


class TransformerBlock(keras.layers.Layer):
    """What both blocks share: sub-layers, each with a residual path, a norm and dropout.

    post: x = Norm(x + Dropout(Sublayer(x)))      (the paper)
    pre:  x = x + Dropout(Sublayer(Norm(x)))
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        intermediate_dim,
        value_dim=None,
        dropout=0.0,
        attention_dropout=0.0,
        activation="relu",
        residual="post",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice(RESIDUALS, residual=residual)
        check_size(num_heads=num_heads, key_dim=key_dim, intermediate_dim=intermediate_dim)
        check_size(optional=True, value_dim=value_dim)
        check_rate(dropout=dropout, attention_dropout=attention_dropout)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.intermediate_dim = intermediate_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation = keras.activations.get(activation)
        self.residual = residual

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "intermediate_dim": self.intermediate_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": keras.activations.serialize(self.activation),
            "residual": self.residual,
        }

    def _attention(self, layer, name):
        return layer(
            self.num_heads,
            self.key_dim,
            self.value_dim,
            dropout=self.attention_dropout,
            dtype=self.dtype_policy,
            name=name,
        )

    def _build_feed_forward(self, input_shape):
        self.feed_forward = PositionwiseFFN(
            self.intermediate_dim,
            activation=self.activation,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build(input_shape)

    def _build_residuals(self, names, input_shape):
        """One norm and one dropout for each sub-layer, as attributes named after it."""
        for name in names:
            norm = keras.layers.LayerNormalization(
                epsilon=LAYER_NORM_EPSILON, dtype=self.dtype_policy, name=f"{name}_norm"
            )
            norm.build(input_shape)
            dropout = Dropout(self.dropout, dtype=self.dtype_policy, name=f"{name}_dropout")
            setattr(self, f"{name}_norm", norm)
            setattr(self, f"{name}_dropout", dropout)

    def _enter(self, name, inputs):
        """What the sub-layer `name` reads."""
        return getattr(self, f"{name}_norm")(inputs) if self.residual == "pre" else inputs

    def _leave(self, name, inputs, outputs, training=False):
        """The residual sum after the sub-layer `name`, normalised where the paper does it."""
        outputs = inputs + getattr(self, f"{name}_dropout")(outputs, training=training)
        return getattr(self, f"{name}_norm")(outputs) if self.residual == "post" else outputs


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderBlock(TransformerBlock):
    """Self-attention, then the feed-forward network, each with residual, norm and dropout.

    Args:
        num_heads: Heads N.
        key_dim: Query and key width per head H (d_k).
        intermediate_dim: Inner width F of the feed-forward network.
        value_dim: Value width per head U (d_v); `key_dim` when `None`.
        dropout: Rate for each sub-layer's output (section 5.4).
        attention_dropout: Rate for attention weights.
        activation: Activation of the feed-forward network.
        residual: `"post"` (the paper) or `"pre"`; with `"pre"` the stack needs a final norm.

    Call arguments:
        inputs: (B, S, D).
        attention_mask: Boolean, (B, S, S) or broadcastable, such as (B, 1, S) padding.
        training: Whether dropout is on.

    Returns:
        (B, S, D) in the compute dtype.
    """

    def build(self, input_shape):
        self.self_attention = self._attention(MultiHeadSelfAttention, "self_attention")
        self.self_attention.build(input_shape)
        self._build_feed_forward(input_shape)
        self._build_residuals(("self_attention", "feed_forward"), input_shape)

    def call(self, inputs, attention_mask=None, training=None):
        attended = self.self_attention(
            self._enter("self_attention", inputs), attention_mask=attention_mask, training=training
        )
        states = self._leave("self_attention", inputs, attended, training)
        fed = self.feed_forward(self._enter("feed_forward", states), training=training)
        return self._leave("feed_forward", states, fed, training)


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderBlock(TransformerBlock):
    """Causal self-attention, cross-attention to the encoder's output, feed-forward network.

    Args: those of `EncoderBlock`.

    Call arguments:
        inputs: (B, T, D).
        memory: (B, S, E), the encoder's output.
        attention_mask: Boolean, (B, T, T) or broadcastable, beside the causal mask, which is
            always on.
        memory_mask: Boolean, (B, T, S) or broadcastable, such as the source's (B, 1, S) padding.
        training: Whether dropout is on.

    Returns:
        (B, T, D) in the compute dtype.
    """

    def build(self, inputs_shape, memory_shape):
        self.self_attention = self._attention(MultiHeadSelfAttention, "self_attention")
        self.self_attention.build(inputs_shape)
        self.cross_attention = self._attention(CrossAttention, "cross_attention")
        self.cross_attention.build(inputs_shape, memory_shape)
        self._build_feed_forward(inputs_shape)
        self._build_residuals(("self_attention", "cross_attention", "feed_forward"), inputs_shape)

    def call(self, inputs, memory, attention_mask=None, memory_mask=None, training=None):
        attended = self.self_attention(
            self._enter("self_attention", inputs),
            attention_mask=attention_mask,
            use_causal_mask=True,
            training=training,
        )
        states = self._leave("self_attention", inputs, attended, training)
        crossed = self.cross_attention(
            self._enter("cross_attention", states),
            memory,
            attention_mask=memory_mask,
            training=training,
        )
        states = self._leave("cross_attention", states, crossed, training)
        fed = self.feed_forward(self._enter("feed_forward", states), training=training)
        return self._leave("feed_forward", states, fed, training)

    def start(self, memory, max_length):
        """The block's cache for `step`: an empty self-attention cache, and cross keys and values.

        Args:
            memory: (B, S, E), the encoder's output.
            max_length: Slots of the self-attention cache, an integer or a scalar int tensor.

        Returns:
            `((keys, values), (cross_keys, cross_values))`, the first two with `max_length`
            slots, the last two with S.
        """
        cross_cache = self.cross_attention.project_memory(memory)
        batch, heads = ops.shape(memory)[0], self.num_heads
        attention, dtype = self.self_attention, self.compute_dtype
        keys = ops.zeros((batch, heads, max_length, attention.key_dim), dtype)
        values = ops.zeros((batch, heads, max_length, attention.value_dim), dtype)
        return (keys, values), cross_cache

    def step(self, inputs, cache, position, attention_mask, memory_mask):
        """`call` for the T tokens from `position` on; returns their states and the new cache."""
        self_cache, cross_cache = cache
        attended, self_cache = self.self_attention.step(
            self._enter("self_attention", inputs), self_cache, position, attention_mask
        )
        states = self._leave("self_attention", inputs, attended)
        crossed = self.cross_attention.step(
            self._enter("cross_attention", states), cross_cache, memory_mask
        )
        states = self._leave("cross_attention", states, crossed)
        fed = self.feed_forward(self._enter("feed_forward", states))
        return self._leave("feed_forward", states, fed), (self_cache, cross_cache)

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        return inputs_shape
