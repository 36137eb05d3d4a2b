"""Positions: section 3.5 of the paper, and what came after it.

Sinusoidal and learned positions are added to the embeddings. Rotary positions rotate queries and
keys. Relative and ALiBi positions are added to the scores, by the distance of query and key.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import check_buckets, check_choice, check_flag, check_size
from keras_transformer.layers.base import BaseLayer, at_least_float32
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.lowering.tracing import at_run_time
from keras_transformer.layers.masks import dtype_name, fits, known_values, offsets
from keras_transformer.typing import Tensor

LAYOUTS = ("interleaved", "split")


def sinusoidal_encoding(positions, dim, layout="interleaved"):
    """Encodes positions: PE[p, 2i] = sin(p / 10000^(2i/d)), PE[p, 2i+1] = cos(same).

    Computed, not looked up, so there is no longest position; in float32, so that neighbouring
    positions stay distinct under any policy.

    Args:
        positions: (P,) integers.
        dim: Width d, odd or even.
        layout: `"interleaved"` (the paper), or `"split"`: Tensor2Tensor's timing signal, all
            sines and then all cosines, with rates 10000^(-i / (d/2 - 1)), and a 0 where d is odd.

    Returns:
        (P, dim) float32.
    """
    pairs = (dim + 1) // 2 if layout == "interleaved" else dim // 2
    exponent = -2.0 / dim if layout == "interleaved" else -1.0 / max(pairs - 1, 1)
    rates = ops.exp(ops.arange(pairs, dtype="float32") * (exponent * math.log(1e4)))
    angles = ops.expand_dims(ops.cast(positions, "float32"), 1) * rates
    if layout == "split":
        waves = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.pad(waves, ((0, 0), (0, dim - 2 * pairs)))
    waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(waves, (-1, 2 * pairs))[:, :dim]


@keras.saving.register_keras_serializable(package="keras_transformer")
class SinusoidalPositions(BaseLayer, keras.layers.Layer):
    """Adds sinusoidal position encodings to embeddings.

    Args:
        layout: `"interleaved"` (the paper) or `"split"` (Tensor2Tensor).

    Call arguments:
        inputs: (B, T, D) embeddings.
        first_position: Position of the first token, an integer or a scalar int tensor; the
            number of tokens already decoded when tokens come one by one.
        positions: (B, T) or (T,) integers, the position of each token, where they do not just
            count up; `None` where they do. In a graph, one that is not whole makes its row NaN.

    Returns:
        (B, T, D) in the compute dtype; the sum is rounded to it once.

    Example:
        >>> positions = kt.SinusoidalPositions()
        >>> ops.convert_to_numpy(positions(np.zeros((1, 3, 4), "float32"))).round(2)
        array([[[ 0.  ,  1.  ,  0.  ,  1.  ],
                [ 0.84,  0.54,  0.01,  1.  ],
                [ 0.91, -0.42,  0.02,  1.  ]]], dtype=float32)
    """

    def __init__(self, layout: str = "interleaved", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_choice(LAYOUTS, layout=layout)
        self.layout = layout
        self.autocast = False  # positions may be floats, and the sum is rounded once
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3)
        self.built = True

    def call(
        self, inputs: Tensor, first_position: int | Tensor = 0, positions: Tensor | None = None
    ) -> Tensor:
        length, dim = ops.shape(inputs)[1], inputs.shape[2]
        if positions is None:
            counted = first_position + _counted(length, first_position)
            encoding = sinusoidal_encoding(counted, dim, self.layout)
        else:
            positions, is_whole = _checked_positions(positions, inputs)
            encoding = sinusoidal_encoding(ops.reshape(positions, (-1,)), dim, self.layout)
            encoding = ops.reshape(encoding, (*ops.shape(positions), dim))
            if is_whole is not None:
                encoding = ops.where(ops.expand_dims(is_whole, -1), encoding, float("nan"))
        states = at_least_float32(inputs)
        return ops.cast(states + ops.cast(encoding, states.dtype), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layout": self.layout}


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositions(BaseLayer, keras.layers.Layer):
    """Adds a learned row for each position to embeddings (Gehring et al. 2017).

    Beyond the table there is nothing that was learned: a sequence that is known to be longer is
    an error; where the length is known only at run time, the rows beyond are NaN, as are those of
    negative positions.

    Args:
        max_positions: Rows of the table.
        embeddings_initializer: Its initializer.

    Call arguments:
        inputs: (B, T, D) embeddings.
        first_position: Position of the first token, an integer or a scalar int tensor.
        positions: (B, T) or (T,) integers, the position of each token, where they do not just
            count up; `None` where they do.

    Returns:
        (B, T, D) in the compute dtype.

    Raises:
        ValueError: if the last position is known to lie beyond the table.

    Example:
        >>> positions = kt.LearnedPositions(max_positions=10)
        >>> ops.shape(positions(np.zeros((2, 7, 8), "float32")))
        (2, 7, 8)
    """

    def __init__(
        self,
        max_positions: int,
        embeddings_initializer: str | dict | keras.initializers.Initializer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_size(max_positions=max_positions)
        self.max_positions = max_positions
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer or keras.initializers.RandomNormal(stddev=0.02)
        )
        self.autocast = False  # positions may be floats
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3)

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_positions, input_shape[-1]),
            initializer=self.embeddings_initializer,
            autocast=False,
        )

    def call(
        self, inputs: Tensor, first_position: int | Tensor = 0, positions: Tensor | None = None
    ) -> Tensor:
        # A position that is a tensor comes from a search, which counts from 0.
        may_be_negative, is_whole = positions is not None, None
        if positions is None:
            may_be_negative = isinstance(first_position, int) and first_position < 0
            self._check(inputs.shape[1], first_position)
            positions = first_position + _counted(ops.shape(inputs)[1], first_position)
        else:
            positions, is_whole = _checked_positions(positions, inputs)
        known = positions < self.max_positions
        if is_whole is not None:
            known = ops.logical_and(known, is_whole)
        places = ops.minimum(positions, self.max_positions - 1)
        if may_be_negative:
            known, places = ops.logical_and(known, positions >= 0), ops.maximum(places, 0)
        rows = ops.take(self.embeddings, places, axis=0)
        rows = ops.cast(rows, self.compute_dtype)  # after, as in `TokenEmbedding`
        known = ops.expand_dims(known, -1)
        rows = ops.where(known, rows, ops.cast(float("nan"), rows.dtype))
        return ops.cast(inputs, self.compute_dtype) + rows

    def _check(self, length, first_position):
        known = isinstance(first_position, int) and length is not None
        if known and first_position + length > self.max_positions:
            raise ValueError(
                "a sequence must have at most `max_positions` tokens. Received: "
                f"{first_position + length} tokens, max_positions={self.max_positions}"
            )

    def compute_output_spec(self, inputs, first_position=0, positions=None):
        if positions is None:
            self._check(inputs.shape[1], first_position)
        return keras.KerasTensor(inputs.shape, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_positions": self.max_positions,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


def _checked_positions(positions, inputs):
    """Positions (T,) or (B, T) of inputs (B, T, D), and which are whole; `None` of integers.

    In floats, as `keras.Input` makes them by default, what is no int32 becomes 0.

    Raises:
        ValueError: if their shape is another, as far as sizes are known, or one is known to be no
            whole number.
    """
    positions = positions if hasattr(positions, "shape") else ops.convert_to_tensor(positions)
    shape, expected = tuple(positions.shape), tuple(inputs.shape[:2])
    if len(shape) not in (1, 2) or not fits(shape, expected[-len(shape) :], ones=False):
        raise ValueError(
            f"`positions` must have shape (T,) or (B, T), here {expected}. Received: shape={shape}"
        )
    if "float" not in dtype_name(positions):
        return positions, None
    values = known_values(positions)
    if values is not None and (odd := values[values != np.round(values)]).size:
        raise ValueError(f"`positions` must be whole numbers. Received: {odd.flat[0]}")
    is_whole = ops.logical_and(positions == ops.floor(positions), ops.abs(positions) < 2.0**31)
    return ops.cast(ops.where(is_whole, positions, 0.0), "int32"), is_whole


def _counted(length, first_position):
    """(T,) int32, 0 to T - 1, that a known first position does not make known."""
    places = arange(length)
    return at_run_time(places) if isinstance(first_position, int) else places


def rotate(states_BNTH, positions_T):
    """Rotary positions (Su et al. 2021, arXiv 2104.09864, eq. 34): rotates each pair of a state.

    Pair i is (i, i + H/2), as in GPT-NeoX and Llama; its angle is position * 10000^(-2i/H). The
    product of a query and a key then depends on their distance alone. Angles are in float32.

    Args:
        states_BNTH: (B, N, T, H) queries or keys, H even.
        positions_T: (T,) integers.

    Returns:
        (B, N, T, H) in the dtype of the states.
    """
    half = states_BNTH.shape[-1] // 2
    rates = ops.exp(ops.arange(half, dtype="float32") * (-math.log(1e4) / half))
    angles_TH = ops.expand_dims(ops.cast(positions_T, "float32"), 1) * rates
    states = at_least_float32(states_BNTH)
    cos, sin = (ops.cast(of(angles_TH), states.dtype) for of in (ops.cos, ops.sin))
    first, second = states[..., :half], states[..., half:]
    rotated = ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return ops.cast(rotated, states_BNTH.dtype)


class PositionBias(BaseLayer, keras.layers.Layer):
    """A bias for the scores of each head, by the distance of key and query."""

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_size(num_heads=num_heads)
        self.num_heads = num_heads
        self.input_spec = keras.InputSpec(min_ndim=2)

    def call(self, inputs: Tensor) -> Tensor:
        length = ops.shape(inputs)[1]
        end = max(length, 1) if isinstance(length, int) else length  # of 0 there is no distance
        return self._bias_at(at_run_time(arange(1 - length, end)))

    def between(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """(T,) and (S,) positions -> (1, N, T, S) float32, for `step`."""
        return ops.expand_dims(self._bias_at(offsets(query_positions, key_positions)), 0)

    def compute_mask(self, inputs, previous_mask=None):
        """`None`: no place of the output is one of the inputs."""

    def compute_output_shape(self, input_shape):
        length = input_shape[1]
        return (self.num_heads, None if length is None else max(2 * length - 1, 0))

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), "float32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}


@keras.saving.register_keras_serializable(package="keras_transformer")
class RelativePositionBias(PositionBias):
    """T5's learned bias for each bucket of distances (Raffel et al. 2020, section 2.1).

    Half of a direction's buckets hold one distance each, the others grow like a logarithm up to
    `max_distance`, and the last holds all beyond. One table serves all blocks of a stack.

    Args:
        num_heads: Heads N.
        num_buckets: Rows of the table.
        max_distance: Distance from which all share a bucket.
        bidirectional: Whether keys behind the query have buckets of their own; `False` for a
            decoder.

    Call arguments:
        inputs: (B, T, ...); only the length T is read.

    Returns:
        (N, 2T - 1) float32: the bias of a key that stands -(T - 1) to T - 1 behind its query,
        for `position_bias` of `MultiHeadSelfAttention`.

    Example:
        >>> states = np.ones((2, 5, 8), "float32")
        >>> bias = kt.RelativePositionBias(num_heads=2)(states)
        >>> ops.shape(bias)
        (2, 9)
        >>> attention = kt.MultiHeadSelfAttention(num_heads=2, key_dim=4)
        >>> ops.shape(attention(states, position_bias=bias))
        (2, 5, 8)
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, **kwargs)
        check_size(num_buckets=num_buckets, max_distance=max_distance)
        check_flag(bidirectional=bidirectional)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        check_buckets(bidirectional, num_buckets=num_buckets, max_distance=max_distance)

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_buckets, self.num_heads),
            initializer=keras.initializers.RandomNormal(stddev=self.num_heads**-0.5),
            autocast=False,
        )

    def bucket(self, offsets: Tensor) -> Tensor:
        """Integer distances of any shape, key minus query -> their buckets, int32."""
        offsets = ops.cast(offsets, "int32")
        buckets = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        distance = ops.abs(offsets) if self.bidirectional else ops.maximum(-offsets, 0)
        # A logarithm would round; the distance at which each bucket begins does not.
        starts = ops.convert_to_tensor(_bucket_starts(buckets, self.max_distance), "int32")
        bucket = ops.sum(ops.cast(ops.expand_dims(distance, -1) >= starts, "int32"), axis=-1)
        behind = ops.cast(offsets > 0, "int32") * buckets
        return bucket + behind if self.bidirectional else bucket

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }

    def _bias_at(self, offsets):
        table_NK = ops.transpose(ops.cast(self.embeddings, "float32"))
        return ops.take(table_NK, self.bucket(offsets), axis=1)


def _bucket_starts(buckets, max_distance):
    """The least distance of each bucket but the first, for one direction."""
    exact = buckets // 2
    growth = np.arange(1, buckets - exact) / (buckets - exact)
    larger = np.ceil(exact * (max_distance / exact) ** growth - 1e-9)
    return np.concatenate([np.arange(1, exact + 1), larger]).astype("int32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class AlibiBias(PositionBias):
    """Minus the distance, times a slope for each head (Press et al. 2022, arXiv 2108.12409).

    The slopes are 2^(-8 i / N) for N a power of 2; for others those of the power below, and
    every second one of the power above, as in the paper's code. The two sides of a query are
    alike in an encoder.

    Args:
        num_heads: Heads N.

    Call arguments:
        inputs: (B, T, ...); only the length T is read.

    Returns:
        (N, 2T - 1) float32: the bias of a key that stands -(T - 1) to T - 1 behind its query,
        for `position_bias` of `MultiHeadSelfAttention`.

    Example:
        >>> ops.convert_to_numpy(kt.AlibiBias(num_heads=2)(np.ones((1, 3, 8), "float32")))
        array([[-0.125     , -0.0625    , -0.        , -0.0625    , -0.125     ],
               [-0.0078125 , -0.00390625, -0.        , -0.00390625, -0.0078125 ]],
              dtype=float32)
    """

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(num_heads, **kwargs)
        self.built = True

    def _bias_at(self, offsets):
        distance = ops.cast(ops.abs(offsets), "float32")
        slopes = np.reshape(_slopes(self.num_heads), (-1, *[1] * len(distance.shape)))
        return -ops.convert_to_tensor(slopes, "float32") * ops.expand_dims(distance, 0)


def _slopes(heads):
    power = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-8.0 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]
