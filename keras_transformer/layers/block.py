"""What both blocks share: sub-layers, each with a residual path, a norm and dropout."""

import keras
from keras import ops

from keras_transformer.arguments import (
    check_block,
    check_choice,
    check_flag,
    check_positive,
    check_rate,
    check_size,
)
from keras_transformer.config import NORMALIZATIONS, RESIDUALS
from keras_transformer.layers.base import BaseLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.feed_forward import (
    PositionwiseFFN,
    activation_of,
    serialized_activation,
)
from keras_transformer.layers.lowering.cache_slots import empty_slots
from keras_transformer.layers.masks import checked_padding
from keras_transformer.layers.multi_head import MultiHeadSelfAttention
from keras_transformer.layers.normalization import normalization_of, normalized

FEED_FORWARD = "feed_forward"


class TransformerBlock(BaseLayer, keras.layers.Layer):
    """Sub-layers with residual paths (section 3.1).

    post: x = Norm(x + Dropout(Sublayer(x)))      (the paper)
    pre:  x = x + Dropout(Sublayer(Norm(x)))
    b2t:  post, and the block's input is added once more before the last norm
          (Takase et al. 2022, arXiv 2206.00330)
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        intermediate_dim,
        value_dim=None,
        dropout=0.0,
        attention_dropout=0.0,
        intermediate_dropout=0.0,
        activation="relu",
        residual="post",
        normalization="layer",
        norm_epsilon=1e-6,
        use_residual=True,
        use_feed_forward=True,
        use_bias=True,
        attention_score="scaled_dot_product",
        rotary=False,
        attention_chunk=None,
        attention_window=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice(RESIDUALS, residual=residual)
        check_choice(NORMALIZATIONS, normalization=normalization)
        check_size(num_heads=num_heads, key_dim=key_dim, intermediate_dim=intermediate_dim)
        check_size(optional=True, value_dim=value_dim)
        check_rate(
            dropout=dropout,
            attention_dropout=attention_dropout,
            intermediate_dropout=intermediate_dropout,
        )
        check_positive(norm_epsilon=norm_epsilon)
        check_flag(use_residual=use_residual, use_feed_forward=use_feed_forward)
        check_block(residual, use_residual, use_feed_forward)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.intermediate_dim = intermediate_dim
        self.value_dim = value_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.intermediate_dropout = intermediate_dropout
        self.activation = activation_of(activation)
        self.residual = residual
        self.normalization = normalization
        self.norm_epsilon = norm_epsilon
        self.use_residual = use_residual
        self.use_feed_forward = use_feed_forward
        self.use_bias = use_bias
        self.attention_score = attention_score
        self.rotary = rotary
        self.attention_chunk = attention_chunk
        self.attention_window = attention_window

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self):
        same = (
            *("num_heads", "key_dim", "intermediate_dim", "value_dim", "dropout"),
            *("attention_dropout", "intermediate_dropout", "residual", "normalization"),
            *(
                "norm_epsilon",
                "use_residual",
                "use_feed_forward",
                "use_bias",
                "attention_score",
                "rotary",
            ),
            *("attention_chunk", "attention_window"),
        )
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in same},
            "activation": serialized_activation(self.activation),
        }

    def _attention(self, layer, name, **options):
        return layer(
            self.num_heads,
            self.key_dim,
            self.value_dim,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            attention_score=self.attention_score,
            attention_chunk=self.attention_chunk,
            dtype=self.dtype_policy,
            name=name,
            **options,
        )

    def _build_self_attention(self, input_shape):
        self.self_attention = self._attention(
            MultiHeadSelfAttention,
            "self_attention",
            rotary=self.rotary,
            attention_window=self.attention_window,
        )
        self.self_attention.build(input_shape)

    def _build_feed_forward(self, input_shape):
        self.feed_forward = PositionwiseFFN(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.intermediate_dropout,
            dtype=self.dtype_policy,
            name=FEED_FORWARD,
        )
        self.feed_forward.build(input_shape)

    def _build_residuals(self, names, input_shape):
        """One norm and one dropout for each sub-layer, as attributes named after it."""
        for name in names:
            norm = normalization_of(self, f"{name}_norm")
            if norm is not None:
                norm.build(input_shape)
            dropout = Dropout(self.dropout, dtype=self.dtype_policy, name=f"{name}_dropout")
            setattr(self, f"{name}_norm", norm)
            setattr(self, f"{name}_dropout", dropout)

    def _check_masks(self, inputs, mask, bias, position_bias, padding_mask):
        """The checks of a call, for symbolic inputs."""
        self.self_attention.compute_output_spec(inputs, mask, bias, position_bias)
        checked_padding("padding_mask", padding_mask, inputs)

    def _start_self_attention(self, batch, size, beams):
        return empty_slots(batch, self.self_attention, size, beams)

    def _enter(self, name, inputs, **norm):
        """What the sub-layer `name` reads."""
        if self.residual != "pre":
            return inputs
        return normalized(getattr(self, f"{name}_norm"), inputs, **norm)

    def _leave(self, name, inputs, outputs, block_inputs=None, **norm):
        """The residual sum after the sub-layer `name`, normalised where the paper does it.

        Args:
            name: Of the sub-layer.
            inputs: What came in before `_enter`.
            outputs: What the sub-layer made of it.
            block_inputs: What came into the block, if this is its last sub-layer.
            **norm: `padding_mask` and `training`, for `normalized`.
        """
        states = getattr(self, f"{name}_dropout")(outputs, training=norm.get("training", False))
        states = ops.cast(states, self.compute_dtype)  # its layers may have another policy
        if self.use_residual:
            states = inputs + states
        if self.residual == "b2t" and block_inputs is not None:
            states = block_inputs + states
        if self.residual == "pre":
            return states
        states = normalized(getattr(self, f"{name}_norm"), states, **norm)
        return ops.cast(states, self.compute_dtype)

    def _feed(self, states, block_inputs, **norm):
        """The feed-forward sub-layer, where there is one."""
        if not self.use_feed_forward:
            return states
        fed = self.feed_forward(
            self._enter(FEED_FORWARD, states, **norm), training=norm.get("training", False)
        )
        return self._leave(FEED_FORWARD, states, fed, block_inputs, **norm)

    def _feeding_layers(self):
        return self.feed_forward.step_layers() if self.use_feed_forward else []
