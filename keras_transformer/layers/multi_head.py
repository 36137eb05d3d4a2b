"""Equation 1 of the paper for many heads: what self-attention and cross-attention share."""

import dataclasses

import keras
from keras import ops

from keras_transformer.arguments import check_choice, check_rate, check_size
from keras_transformer.config import SCORES
from keras_transformer.layers import scores
from keras_transformer.layers.base import BaseLayer
from keras_transformer.layers.checked_masks import checked_bias, checked_mask
from keras_transformer.layers.dropout import Dropout, seed_of_part
from keras_transformer.layers.long import in_chunks
from keras_transformer.layers.masks import (
    AttentionMask,
    at_least_float32,
    attention_softmax,
    plain_softmax,
)
from keras_transformer.layers.projection import projection_of, reshape


class MultiHeadAttention(BaseLayer, keras.layers.Layer):
    """softmax(Q K^T / sqrt(d_k) + M) V for every head, then one product with W^O."""

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=True,
        score="scaled_dot_product",
        chunk_size=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size(num_heads=num_heads, key_dim=key_dim)
        check_size(optional=True, value_dim=value_dim, output_dim=output_dim, chunk_size=chunk_size)
        check_rate(dropout=dropout)
        check_choice(SCORES, score=score)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        self.output_dim = output_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.score = score
        self.chunk_size = chunk_size
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
            "score": self.score,
            "chunk_size": self.chunk_size,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _build_output(self, query_shape):
        self.score_vector = None
        if self.score == "additive":
            self.score_vector = self.add_weight(
                name="score_vector",
                shape=(self.num_heads, self.key_dim),
                initializer=keras.initializers.RandomNormal(stddev=self.key_dim**-0.5),
            )
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")
        self.output_projection = projection_of(self, self.output_dim or query_shape[-1], "output")
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.value_dim))

    def _split_heads(self, states_BTE, head_dim, heads=None):
        """(B, T, heads * head_dim) -> (B, heads, T, head_dim); N heads when `None`."""
        batch, length = ops.shape(states_BTE)[:2]
        heads = heads or self.num_heads
        if states_BTE.shape[1] == 1:  # a token alone: nothing changes places
            return reshape(states_BTE, (batch, heads, 1, head_dim))
        states_BTNH = reshape(states_BTE, (batch, length, heads, head_dim))
        return ops.transpose(states_BTNH, (0, 2, 1, 3))

    def _merge_heads(self, context_BNTU):
        """(B, N, T, U) -> (B, T, output_dim)."""
        batch, _, length, _ = ops.shape(context_BNTU)
        if context_BNTU.shape[2] != 1:
            context_BNTU = ops.transpose(context_BNTU, (0, 2, 1, 3))
        context_BTE = reshape(context_BNTU, (batch, length, self.num_heads * self.value_dim))
        return self.output_projection(context_BTE)

    def _sizes(self, queries, keys):
        """B, N, T and S of the scores, from (B, T, ...) and (B, S, ...), `None` where unknown."""
        batch = keys.shape[0] if queries.shape[0] is None else queries.shape[0]
        return batch, self.num_heads, queries.shape[1], keys.shape[1]

    def _checked_sight(self, sizes, mask, bias):
        """The `AttentionMask` of what was given as masks, which fits."""
        return AttentionMask(
            checked_mask("attention_mask", mask, sizes), checked_bias("attention_bias", bias, sizes)
        )

    def _attend(self, query_BNTH, key_BNSH, value_BNSU, sight, training):
        """Equation 1 for all queries at once: (B, N, T, U) context, (B, N, T, S) weights."""
        lengths = ops.shape(query_BNTH)[2], ops.shape(key_BNSH)[2]
        mask, bias = sight.mask_and_bias(*map(ops.arange, lengths))
        weights_BNTS = self._weights(query_BNTH, key_BNSH, mask, bias, self._vector())
        seed = self.dropout_layer.next_seed(training)
        return self._context(weights_BNTS, value_BNSU, seed), weights_BNTS

    def _attend_cached(self, query_BNTH, key_BNSH, value_BNSU, bias):
        """The same, of keys that hold `_key_factor` already, under an additive bias or `None`."""
        score = scores.additive if self.score == "additive" else scores.dot_product
        scores_BNTS = at_least_float32(score(query_BNTH, key_BNSH, self._vector()))
        if bias is not None:
            scores_BNTS = scores_BNTS + ops.cast(bias, scores_BNTS.dtype)
        weights_BNTS = ops.cast(plain_softmax(scores_BNTS), self.compute_dtype)
        return ops.matmul(weights_BNTS, value_BNSU), weights_BNTS

    @property
    def _key_factor(self):
        """What keys in a cache are multiplied by once, for all the queries to come."""
        return self.key_dim**-0.5 if self.score == "scaled_dot_product" else 1.0

    def _attend_in_chunks(self, query_BNTH, key_BNSH, value_BNSU, sight, training):
        """The same (B, N, T, U) context, `chunk_size` queries at a time."""
        seed = self.dropout_layer.next_seed(training)
        sight = sight.of_length(ops.shape(query_BNTH)[2])
        key_positions = ops.arange(ops.shape(key_BNSH)[2])
        fields = {"bias": sight.bias, "position_bias": sight.position_bias}
        fields = {name: tensor for name, tensor in fields.items() if tensor is not None}
        vector = () if self.score_vector is None else (self._vector(),)

        def attend(query_BNCH, rows, index, key_BNSH, value_BNSU, *others):
            biases, vector = others[: len(fields)], others[len(fields) :]
            seen = dataclasses.replace(sight, **dict(zip(fields, biases, strict=True)))
            mask, bias = seen.mask_and_bias(rows, key_positions, rows)
            weights_BNCS = self._weights(query_BNCH, key_BNSH, mask, bias, *vector)
            part = None if seed is None else seed_of_part(seed, index)
            return self._context(weights_BNCS, value_BNSU, part)

        others = (key_BNSH, value_BNSU, *fields.values(), *vector)
        return in_chunks(attend, query_BNTH, others, self.chunk_size, recompute=bool(training))

    def _weights(self, query_BNTH, key_BNSH, mask, bias, vector_NH=None):
        scores_BNTS = scores.FUNCTIONS[self.score](query_BNTH, key_BNSH, vector_NH)
        weights_BNTS = attention_softmax(scores_BNTS, mask, bias)
        return ops.cast(weights_BNTS, self.compute_dtype)

    def _context(self, weights_BNTS, value_BNSU, seed):
        return ops.matmul(self.dropout_layer.drop(weights_BNTS, seed), value_BNSU)

    def _vector(self):
        return None if self.score_vector is None else ops.convert_to_tensor(self.score_vector)
