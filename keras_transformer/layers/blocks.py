"""What all blocks share, and the encoder's: section 3.1 of the paper."""

from collections.abc import Callable
from typing import Any

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
from keras_transformer.layers.lowering.cache_slots import Slots, empty_slots
from keras_transformer.layers.masks import AttentionMask, merged_padding
from keras_transformer.layers.multi_head import MultiHeadSelfAttention
from keras_transformer.layers.normalization import normalization_of, normalized
from keras_transformer.layers.rematerialization import recomputed
from keras_transformer.typing import Tensor


class TransformerBlock(BaseLayer, keras.layers.Layer):
    """Sub-layers with residual paths (section 3.1).

    post: x = Norm(x + Dropout(Sublayer(x)))      (the paper)
    pre:  x = x + Dropout(Sublayer(Norm(x)))
    b2t:  post, and the block's input is added once more before the last norm
          (Takase et al. 2022, arXiv 2206.00330)
    """

    # Those of attention are named as in the attention layers, and all as in `TransformerConfig`.
    OPTIONS = (
        *("num_heads", "key_dim", "intermediate_dim", "value_dim", "dropout", "attention_dropout"),
        *("intermediate_dropout", "activation", "residual", "normalization", "norm_epsilon"),
        *("use_residual", "use_feed_forward", "use_bias", "feed_forward_bias"),
        *("attention_score", "rotary", "attention_chunk", "attention_window"),
    )

    rematerialize = False  # which `training.rematerialize` sets; not in the config

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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # of biases, which attention adds in float32; `_run` casts states
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3)
        check_choice(RESIDUALS, residual=residual)
        check_choice(NORMALIZATIONS, normalization=normalization)
        check_size(num_heads=num_heads, key_dim=key_dim, intermediate_dim=intermediate_dim)
        check_size(optional=True, value_dim=value_dim)
        check_rate(dropout=dropout, attention_dropout=attention_dropout)
        check_rate(intermediate_dropout=intermediate_dropout)
        check_positive(norm_epsilon=norm_epsilon)
        check_flag(use_residual=use_residual, use_feed_forward=use_feed_forward)
        check_flag(feed_forward_bias=feed_forward_bias)
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
        self.feed_forward_bias = feed_forward_bias
        self.attention_score = attention_score
        self.rotary = rotary
        self.attention_chunk = attention_chunk
        self.attention_window = attention_window

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in self.OPTIONS},
            "activation": serialized_activation(self.activation),
        }

    def _run(self, apply, inputs, tensors, **options):
        """`apply(inputs, **tensors, **options)`, whose inside may be computed again: the call."""
        inputs = ops.cast(inputs, self.compute_dtype)
        if self.rematerialize and options["training"] and not options["return_attention_scores"]:
            return recomputed(self, apply, inputs, tensors, **options)
        return apply(inputs, **tensors, **options)

    def _residual(
        self, x, sublayer, norm_layer, dropout, block_inputs=None, padding_mask=None, training=False
    ):
        """One sub-layer with its residual path, norm and dropout, in the formula of `residual`.

        Args:
            x: (B, T, D), what comes in.
            sublayer: A function of (B, T, D) states, which gives such states, or a pair of them
                and an extra, such as attention weights.
            norm_layer, dropout: What `_residual_layers` gave.
            block_inputs: What came into the block, if this is its last sub-layer.
            padding_mask, training: See the call.

        Returns:
            (B, T, D), and the extra of the sub-layer, or `None`.
        """
        extra = None

        def norm(states):
            states = normalized(norm_layer, states, padding_mask=padding_mask, training=training)
            return ops.cast(states, self.compute_dtype)  # a layer inside may have another policy

        def dropped(states):  # Dropout(Sublayer(states))
            nonlocal extra
            states = sublayer(states)
            if isinstance(states, tuple):
                states, extra = states
            return ops.cast(dropout(states, training=training), self.compute_dtype)

        def add(x, states):
            return x + states if self.use_residual else states

        if self.residual == "pre":
            x = add(x, dropped(norm(x)))
        elif self.residual == "b2t" and block_inputs is not None:
            x = norm(block_inputs + add(x, dropped(x)))
        else:
            x = norm(add(x, dropped(x)))
        return x, extra

    def _feed_forward(self, x, block_inputs, padding_mask=None, training=False):
        """The feed-forward sub-layer, where there is one."""
        if not self.use_feed_forward:
            return x

        def feed(states):
            return self.feed_forward(states, training=training)

        layers = self.feed_forward_norm, self.feed_forward_dropout
        return self._residual(x, feed, *layers, block_inputs, padding_mask, training)[0]

    def _check_self_attention(self, inputs, mask=None, bias=None, position_bias=None):
        """Raises ValueError for masks of another shape, in a layer that may not be built yet."""
        batch, length = inputs.shape[:2]
        AttentionMask.checked((batch, self.num_heads, length, length), mask, bias, position_bias)

    def _attention(self, layer_class, name):
        """An attention layer with the block's options of the same names."""
        shared = [option for option in layer_class.OPTIONS if option in self.OPTIONS]
        options = {option: getattr(self, option) for option in shared}
        options["dropout"] = self.attention_dropout
        return layer_class(**options, dtype=self.dtype_policy, name=name)

    def _build_feed_forward(self, input_shape):
        options = dict(activation=self.activation, dropout=self.intermediate_dropout)
        options.update(use_bias=self.feed_forward_bias)
        options.update(dtype=self.dtype_policy, name="feed_forward")
        self.feed_forward = PositionwiseFFN(self.intermediate_dim, **options)
        self.feed_forward.build(input_shape)

    def _residual_layers(self, name, input_shape):
        """The norm, or `None`, and the dropout of the sub-layer of this name."""
        policy = self.dtype_policy
        norm = normalization_of(self.normalization, self.norm_epsilon, policy, f"{name}_norm")
        if norm is not None:
            norm.build(input_shape)
        return norm, Dropout(self.dropout, dtype=policy, name=f"{name}_dropout")

    def _output_spec(self, inputs, keys, return_attention_scores):
        """(B, T, D) states, and with scores the (B, N, T, S) weights for each of the keys."""
        states = keras.KerasTensor(inputs.shape, self.compute_dtype)
        sizes = inputs.shape[0], self.num_heads, inputs.shape[1]
        weights = (keras.KerasTensor((*sizes, each.shape[1]), self.compute_dtype) for each in keys)
        return (states, *weights) if return_attention_scores else states


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
        feed_forward_bias: Whether the products of the feed-forward network have biases.
        attention_score: `"scaled_dot_product"` (the paper), `"dot_product"` or `"additive"`.
        rotary: Whether queries and keys are rotated by their position.
        attention_chunk: Queries that attend at once, for less memory; all when `None`.
        attention_window: A token sees itself and the tokens nearer than this to each side; all
            when `None`.

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
        mask, inputs_mask: Boolean (B, S), True at real tokens, for attention and batch
            normalization, beside the masks above. Keras' implicit mask of `inputs` is the first
            where `inputs` is the only tensor, else the second.

    Returns:
        (B, S, D) in the compute dtype; with `return_attention_scores` a pair of it and the
        weights.

    Example:
        >>> block = kt.EncoderBlock(num_heads=2, key_dim=4, intermediate_dim=16)
        >>> states = np.ones((3, 7, 8), "float32")
        >>> padding = np.arange(7) < np.array([[7], [4], [2]])
        >>> ops.shape(block(states, attention_mask=padding[:, None, :]))
        (3, 7, 8)
    """

    def build(self, input_shape):
        self.self_attention = self._attention(MultiHeadSelfAttention, "self_attention")
        self.self_attention.build(input_shape)
        if self.use_feed_forward:
            self._build_feed_forward(input_shape)
        layers = self._residual_layers("self_attention", input_shape)
        self.self_attention_norm, self.self_attention_dropout = layers
        if self.use_feed_forward:
            layers = self._residual_layers("feed_forward", input_shape)
            self.feed_forward_norm, self.feed_forward_dropout = layers
        self._settle()

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        position_bias: Tensor | None = None,
        padding_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
    ) -> Tensor:
        tensors = dict(attention_mask=attention_mask, attention_bias=attention_bias)
        tensors.update(position_bias=position_bias, padding_mask=padding_mask)
        tensors["inputs_mask"] = merged_padding(inputs, mask=mask, inputs_mask=inputs_mask)
        options = dict(return_attention_scores=return_attention_scores, training=training)
        options.update(use_causal_mask=use_causal_mask)
        return self._run(self._apply, inputs, tensors, **options)

    def _apply(
        self,
        inputs,
        attention_mask,
        attention_bias,
        position_bias,
        padding_mask,
        inputs_mask,
        use_causal_mask,
        return_attention_scores,
        training,
    ):
        def attend(states):
            return self.self_attention(
                states,
                attention_mask=attention_mask,
                attention_bias=attention_bias,
                position_bias=position_bias,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                inputs_mask=inputs_mask,
            )

        paddings = dict(padding_mask=padding_mask, inputs_mask=inputs_mask)
        padding_mask = merged_padding(inputs, **paddings)
        options = dict(padding_mask=padding_mask, training=training)
        layers = self.self_attention_norm, self.self_attention_dropout
        x, weights = self._residual(inputs, attend, *layers, **options)
        x = self._feed_forward(x, inputs, **options)
        return (x, weights) if return_attention_scores else x

    def start(self, batch: int | Tensor, size: int | Tensor, beams: int = 1) -> tuple:
        """An empty cache for `step`: keys (B, N, `size` * K, H), values (B, N, `size` * K, U)."""
        return empty_slots(batch, self.self_attention, size, beams)

    def step(self, inputs: Tensor, cache: tuple, slots: Slots) -> tuple[Tensor, tuple]:
        """The causal call for the next T tokens, at `slots`: their states, the new cache."""

        def attend(states):
            return self.self_attention.step(states, cache, slots)

        layers = self.self_attention_norm, self.self_attention_dropout
        x, cache = self._residual(inputs, attend, *layers)
        return self._feed_forward(x, inputs), cache

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
        mask=None,
        inputs_mask=None,
    ):
        masks = attention_mask, attention_bias, position_bias
        self._check_self_attention(inputs, *masks)
        paddings = dict(padding_mask=padding_mask, mask=mask, inputs_mask=inputs_mask)
        merged_padding(inputs, **paddings)
        return self._output_spec(inputs, [inputs], return_attention_scores)
