"""Multi-head attention and self-attention: sections 3.2.2 and 3.2.3 of the paper."""

import functools
from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import (
    check_choice,
    check_flag,
    check_key_dim,
    check_rate,
    check_reach,
    check_size,
)
from keras_transformer.config import SCORES
from keras_transformer.layers.attention import (
    SCORE_FUNCTIONS,
    additive,
    attend,
    attend_cached,
    dot_product,
    merge_heads,
    split_heads,
)
from keras_transformer.layers.base import BaseLayer
from keras_transformer.layers.chunked_attention import attend_in_chunks, attend_in_windows
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.lowering.attention_kernels import kernel_of
from keras_transformer.layers.lowering.cache_slots import Slots, write_slots
from keras_transformer.layers.lowering.fused_attention import attend_fused, fits
from keras_transformer.layers.lowering.head_layout import layout_by_head, project_by_head
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.lowering.tracing import at_run_time
from keras_transformer.layers.masks import AttentionMask, with_padding
from keras_transformer.layers.positions import rotate
from keras_transformer.layers.projection import projection_of
from keras_transformer.typing import Tensor


class MultiHeadAttention(BaseLayer, keras.layers.Layer):
    """What self-attention and cross-attention share: heads, equation 1 for each, and W^O."""

    OPTIONS = (
        *("num_heads", "key_dim", "value_dim", "output_dim", "dropout", "use_bias"),
        *("attention_score", "attention_chunk"),
    )

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        output_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        attention_score: str = "scaled_dot_product",
        attention_chunk: int | None = None,
        kernel_initializer: str | dict | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | dict | keras.initializers.Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # of biases, which are added in float32; projections cast states
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3)
        check_size(num_heads=num_heads, key_dim=key_dim)
        check_size(optional=True, value_dim=value_dim, output_dim=output_dim)
        check_size(optional=True, attention_chunk=attention_chunk)
        check_rate(dropout=dropout)
        check_choice(SCORES, attention_score=attention_score)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        self.output_dim = output_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.attention_score = attention_score
        self.attention_chunk = attention_chunk
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.fused = None  # set by `training.fuse_attention`

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return (*input_shape[:-1], self.output_dim or input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in self.OPTIONS},
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _build_output(self, query_shape):
        self.score_vector = None
        if self.attention_score == "additive":
            self.score_vector = self.add_weight(
                name="score_vector",
                shape=(self.num_heads, self.key_dim),
                initializer=keras.initializers.RandomNormal(stddev=self.key_dim**-0.5),
            )
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        self.output_projection = projection_of(self, self.output_dim or query_shape[-1], "output")
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.value_dim))

    def _attend(self, query_BNTH, key_BNSH, value_BNSU, mask, training):
        """Equation 1 for all queries at once: (B, N, T, U) context, (B, N, T, S) weights."""
        lengths = ops.shape(query_BNTH)[2], ops.shape(key_BNSH)[2]
        visible, bias = mask.mask_and_bias(*(at_run_time(arange(size)) for size in lengths))
        options = self._attend_options(training)
        return attend(query_BNTH, key_BNSH, value_BNSU, visible, bias, **options)

    def _attend_in_chunks(self, query_BNTH, key_BNSH, value_BNSU, mask, training):
        """The same context, and no weights."""
        states, options = (query_BNTH, key_BNSH, value_BNSU), self._attend_options(training)
        chunk, recompute = self.attention_chunk, bool(training)
        return attend_in_chunks(*states, mask, chunk, recompute, **options), None

    def _attend_fused(self, query_BNTH, key_BNSH, value_BNSU, mask, training):
        """The same context in one kernel of the device, and no weights."""
        lengths = ops.shape(query_BNTH)[2], ops.shape(key_BNSH)[2]
        visible, _ = mask.mask_and_bias(*map(arange, lengths))
        states, how = (query_BNTH, key_BNSH, value_BNSU), (mask.causal, self.attention_score)
        return attend_fused(self.fused, states, visible, *how), None

    def _can_be_fused(self, states, mask, training):
        drops = training and self.dropout > 0
        return self.fused and not drops and fits(self.fused, states, mask, self.attention_score)

    def _attend_options(self, training):
        seed = self.dropout_layer.next_seed(training)
        return dict(
            score=SCORE_FUNCTIONS[self.attention_score],
            vector_NH=self._vector(),
            drop=functools.partial(self.dropout_layer.drop, seed=seed),
            dtype=self.compute_dtype,
        )

    def _attend_cached(self, query_BNTH, key_BNSH, value_BNSU, bias):
        score = additive if self.attention_score == "additive" else dot_product
        options = dict(score=score, vector_NH=self._vector(), dtype=self.compute_dtype)
        return attend_cached(query_BNTH, key_BNSH, value_BNSU, bias, **options)

    @property
    def score_factor(self):
        """What products of queries and keys are multiplied by; keys in a cache, once, before."""
        return self.key_dim**-0.5 if self.attention_score == "scaled_dot_product" else 1.0

    def _vector(self):
        return None if self.score_vector is None else ops.convert_to_tensor(self.score_vector)

    def _sizes(self, queries, keys):
        """B, N, T and S of the scores, from (B, T, ...) and (B, S, ...), `None` where unknown."""
        batch = keys.shape[0] if queries.shape[0] is None else queries.shape[0]
        return batch, self.num_heads, queries.shape[1], keys.shape[1]

    def _output_spec(self, query, keys, return_attention_scores):
        output = keras.KerasTensor(self.compute_output_shape(query.shape), self.compute_dtype)
        shape = (query.shape[0], *self._sizes(query, keys)[1:])
        scores = keras.KerasTensor(shape, self.compute_dtype)
        return (output, scores) if return_attention_scores else output


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
        attention_score: `"scaled_dot_product"` (the paper), `"dot_product"` or `"additive"`.
        rotary: Whether queries and keys are rotated by their position.
        attention_chunk: Queries that attend at once, for memory that grows with T and not with
            T^2; the result is the same. All at once when `None`.
        attention_window: A token sees itself and the tokens nearer than this to each side; time
            and memory grow with T. It sees all when `None`.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.

    Call arguments:
        inputs: (B, T, D).
        attention_mask: Boolean, (B, T, T) or (B, N, T, T), or sizes of 1 in it, such as (B, 1, T)
            padding; True = attend. Numbers must be 0 and 1, and in a graph integers.
        attention_bias: Additive mask of the same shapes: the paper's M.
        position_bias: (N, 2T - 1) bias by distance, which `RelativePositionBias` and `AlibiBias`
            make.
        use_causal_mask: Whether position t sees only positions up to t.
        return_attention_scores: Whether to return the weights too. That takes memory T^2.
        training: Whether dropout is on.
        mask, inputs_mask: Boolean (B, T), True = attend, beside `attention_mask`. Keras' implicit
            mask of `inputs` is the first where `inputs` is the only tensor, else the second.

    Returns:
        (B, T, output_dim) in the compute dtype; with `return_attention_scores` a pair of it and
        the (B, N, T, T) weights before dropout. A query that may see nothing gives the output
        of a zero context.

    Raises:
        ValueError: if `inputs`, a mask or a bias has another shape, as far as sizes are known, or
            a mask holds other numbers.

    Example:
        >>> attention = kt.MultiHeadSelfAttention(num_heads=2, key_dim=4)
        >>> states = np.ones((3, 5, 8), "float32")
        >>> padding = np.array([[True] * 5, [True] * 3 + [False] * 2, [False] * 5])
        >>> outputs, weights = attention(
        ...     states, attention_mask=padding[:, None, :], return_attention_scores=True
        ... )
        >>> ops.shape(outputs), ops.shape(weights)
        ((3, 5, 8), (3, 2, 5, 5))
        >>> ops.convert_to_numpy(weights[:, 0, 0]).round(2)
        array([[0.2 , 0.2 , 0.2 , 0.2 , 0.2 ],
               [0.33, 0.33, 0.33, 0.  , 0.  ],
               [0.  , 0.  , 0.  , 0.  , 0.  ]], dtype=float32)
    """

    OPTIONS = (*MultiHeadAttention.OPTIONS, "rotary", "attention_window")

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        output_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        attention_score: str = "scaled_dot_product",
        rotary: bool = False,
        attention_chunk: int | None = None,
        attention_window: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            key_dim,
            value_dim,
            output_dim,
            dropout,
            use_bias,
            attention_score,
            attention_chunk,
            **kwargs,
        )
        check_flag(rotary=rotary)
        check_size(optional=True, attention_window=attention_window)
        check_key_dim(rotary, key_dim)
        check_reach(attention_chunk, attention_window)
        self.rotary = rotary
        self.attention_window = attention_window

    def build(self, input_shape):
        widths = 2 * self.key_dim + self.value_dim
        self.query_key_value = projection_of(self, self.num_heads * widths, "query_key_value")
        self.query_key_value.build(input_shape)
        self._build_output(input_shape)
        self._settle()

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        position_bias: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
    ) -> Tensor:
        masks = attention_mask, attention_bias, position_bias, use_causal_mask
        mask = self._mask(inputs, *masks, mask=mask, inputs_mask=inputs_mask)
        way = self._attend if return_attention_scores else self._way(inputs.shape[1], mask)
        is_whole = way == self._attend and not return_attention_scores
        if is_whole and not self.rotary:
            kernel = kernel_of(self, self._sizes(inputs, inputs), mask)
            if kernel:
                return self.output_projection(kernel([self.query_key_value(inputs)], training))
        states = self._project(inputs, at_run_time(arange(ops.shape(inputs)[1])))
        if is_whole and self._can_be_fused(states, mask, training):
            way = self._attend_fused
        context_BNTU, weights_BNTT = way(*states, mask, training)
        output_BTD = self.output_projection(merge_heads(context_BNTU))
        return (output_BTD, weights_BNTT) if return_attention_scores else output_BTD

    def step(self, inputs: Tensor, cache: tuple, slots: Slots) -> tuple[Tensor, tuple]:
        """The next tokens only, with the keys and values of earlier ones from a cache.

        Args:
            inputs: (B, T, D), the next T tokens; T is usually 1. With K beams (B, K, D), the next
                token of each.
            cache: Pair of keys and values, which `layers.lowering.cache_slots.empty_slots` makes.
            slots: `layers.lowering.cache_slots.Slots` of these tokens.

        Returns:
            The output, (B, T, output_dim) or (B, K, output_dim), and the cache with the tokens'
            slots written.
        """
        query_BNTH, key_BNTH, value_BNTU = self._project(inputs, slots.positions)
        keys = write_slots(cache[0], key_BNTH, slots, self.score_factor)
        values = write_slots(cache[1], value_BNTU, slots)
        context_BNTU, _ = self._attend_cached(query_BNTH, keys, values, slots.bias)
        return self.output_projection(merge_heads(context_BNTU)), (keys, values)

    def compute_output_spec(
        self,
        inputs,
        attention_mask=None,
        attention_bias=None,
        position_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
        inputs_mask=None,
    ):
        masks = attention_mask, attention_bias, position_bias, use_causal_mask
        self._mask(inputs, *masks, mask=mask, inputs_mask=inputs_mask)
        return self._output_spec(inputs, inputs, return_attention_scores)

    def _project(self, inputs, positions_T):
        """Queries (B, N, T, H), keys (B, N, T, H) and values (B, N, T, U)."""
        layout = layout_by_head(self.query_key_value)
        if layout is not None:
            widths = (self.key_dim, self.key_dim, self.value_dim)
            parts = project_by_head(self.query_key_value, inputs, self.num_heads, widths, layout)
        else:
            parts = self._split(self.query_key_value(inputs))
        query_BNTH, key_BNTH, value_BNTU = parts
        if self.rotary:
            query_BNTH, key_BNTH = rotate(query_BNTH, positions_T), rotate(key_BNTH, positions_T)
        return query_BNTH, key_BNTH, value_BNTU

    def _split(self, states):
        """(B, T, N (2H + U)) -> (B, N, T, H) twice and (B, N, T, U)."""
        if self.key_dim == self.value_dim:
            # All heads in one transpose, and then three equal parts: fewer and faster ops.
            heads = split_heads(states, 3 * self.num_heads)
            return ops.split(heads, 3, axis=1)
        width = self.num_heads * self.key_dim
        parts = ops.split(states, [width, 2 * width], axis=-1)
        return [split_heads(part, self.num_heads) for part in parts]

    def _mask(self, inputs, attention_mask, bias, position_bias, causal, **paddings):
        sizes = self._sizes(inputs, inputs)
        seen = with_padding(attention_mask, sizes, inputs, **paddings)
        window = self.attention_window
        return AttentionMask.checked(sizes, seen, bias, position_bias, causal, window)

    def _way(self, length, mask):
        """The way to attend that suits the length, `None` where unknown, and the mask."""

        def is_longer_than(size):
            return size is not None and not (length is not None and length <= size)

        if is_longer_than(self.attention_chunk):
            return self._attend_in_chunks
        if is_longer_than(self.attention_window) and mask.same_for_all_queries:
            return self._attend_in_windows
        return self._attend

    def _attend_in_windows(self, query_BNTH, key_BNTH, value_BNTU, mask, training):
        """The same context, and no weights."""
        states, options = (query_BNTH, key_BNTH, value_BNTU), self._attend_options(training)
        return attend_in_windows(*states, mask, self.attention_window, **options), None
