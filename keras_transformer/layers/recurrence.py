"""A recurrence in the place of self-attention: the Simpler Simple Recurrent Unit."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.arguments import check_flag
from keras_transformer.layers.base import BaseLayer, at_least_float32
from keras_transformer.layers.lowering.cache_slots import Slots
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.masks import checked_padding, merged_padding
from keras_transformer.layers.projection import projection_of
from keras_transformer.typing import Tensor


class RecurrentState(NamedTuple):
    """What a recurrence carries from token to token, however many there were."""

    values: object  # (B, K, D) float32, of each beam; K is 1 without beams


@keras.saving.register_keras_serializable(package="keras_transformer")
class SSRU(BaseLayer, keras.layers.Layer):
    """The Simpler Simple Recurrent Unit (Kim et al. 2019, D19-5632, section 4.1).

        f_t = sigmoid(x_t W_f + b_f)
        c_t = f_t * c_(t-1) + (1 - f_t) * (x_t W),  c_0 = 0
        o_t = relu(c_t)

    A state of D numbers is all that a next token needs of those before it, so cached decoding
    takes the same time at every position. All tokens of a full pass are computed at once, in
    log2(T) passes over the states. The state is float32 under every policy (float64 under
    `float64`).

    Args:
        use_bias: Whether the gate has a bias b_f.
        kernel_initializer: Initializer of both kernels.
        bias_initializer: Initializer of the bias.

    Call arguments:
        inputs: (B, T, D).
        segment_starts: Boolean (B, T), True at tokens before which the state is 0, for rows that
            hold several sequences; the first token needs no mark. One sequence when `None`.
        mask, inputs_mask: Boolean (B, T), True at real tokens: the state stays as it is at the
            others. Keras' implicit mask of `inputs` is the first where `inputs` is the only
            tensor, else the second.

    Returns:
        (B, T, D) in the compute dtype. A token sees itself and those before it in its sequence:
        pads behind it change nothing.

    Raises:
        ValueError: if `inputs` or a mask has another shape, as far as sizes are known, or a mask
            other numbers than 0 and 1.

    Example:
        >>> layer = kt.SSRU()
        >>> states = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
        >>> outputs = layer(states)
        >>> ops.shape(outputs)
        (3, 5, 8)
        >>> bool(np.allclose(layer(states[:, :2]), outputs[:, :2], atol=1e-6))
        True
    """

    def __init__(
        self,
        use_bias: bool = True,
        kernel_initializer: str | dict | keras.initializers.Initializer = "glorot_uniform",
        bias_initializer: str | dict | keras.initializers.Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3)
        check_flag(use_bias=use_bias)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape):
        width = input_shape[-1]
        self.input_projection = projection_of(self, width, "input", use_bias=False)
        self.input_projection.build(input_shape)
        self.forget_gate = projection_of(self, width, "forget_gate")
        self.forget_gate.build(input_shape)
        self._settle()

    def call(
        self,
        inputs: Tensor,
        segment_starts: Tensor | None = None,
        mask: Tensor | None = None,
        inputs_mask: Tensor | None = None,
    ) -> Tensor:
        projected, forget = self._project(inputs)
        real_BT = merged_padding(inputs, mask=mask, inputs_mask=inputs_mask)
        if real_BT is not None:
            forget = ops.where(ops.expand_dims(real_BT, 2), forget, ops.ones_like(forget))
        starts_BT = checked_padding("segment_starts", segment_starts, inputs)
        decay = forget
        if starts_BT is not None:
            decay = ops.where(ops.expand_dims(starts_BT, 2), ops.zeros_like(forget), forget)
        return self._output(linear_recurrence(decay, (1 - forget) * projected))

    def start(self, batch: int | Tensor, beams: int = 1) -> RecurrentState:
        """The `RecurrentState` before the first token, of B sources of K beams each."""
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        return RecurrentState(ops.zeros((batch, beams, self.forget_gate.units), dtype))

    def step(
        self, inputs: Tensor, state: RecurrentState, slots: Slots
    ) -> tuple[Tensor, RecurrentState]:
        """The next tokens only, after those that the state has seen.

        Args:
            inputs: (B, T, D), the next T tokens; with K beams (B, K, D), the next one of each.
            state: What `start` or the last step gave.
            slots: `layers.lowering.cache_slots.Slots` of these tokens.

        Returns:
            The output, (B, T, D) or (B, K, D), and the state that has seen these tokens too.
        """
        projected, forget = self._project(inputs)
        if slots.beams > 1 or inputs.shape[1] == 1:
            states = projected + forget * (state.values - projected)
            return self._output(states), RecurrentState(states)
        updates = (1 - forget) * projected
        first = updates[:, :1] + forget[:, :1] * state.values
        states = linear_recurrence(forget, ops.concatenate([first, updates[:, 1:]], axis=1))
        return self._output(states), RecurrentState(states[:, -1:])

    def compute_output_spec(self, inputs, segment_starts=None, mask=None, inputs_mask=None):
        checked_padding("segment_starts", segment_starts, inputs)
        merged_padding(inputs, mask=mask, inputs_mask=inputs_mask)
        return keras.KerasTensor(inputs.shape, self.compute_dtype)

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _project(self, inputs):
        """x W, and the gate f, both (B, T, D) in float32."""
        projected = at_least_float32(self.input_projection(inputs))
        return projected, ops.sigmoid(at_least_float32(self.forget_gate(inputs)))

    def _output(self, states):
        return ops.cast(ops.relu(states), self.compute_dtype)


@ops.custom_gradient
def linear_recurrence(decay, updates):
    """c_t = decay_t * c_(t-1) + updates_t for all t at once, with c_(-1) = 0.

    Its gradient is a recurrence again, from the last token to the first. So nothing but the
    result is kept for it, and a length that is unknown when a graph is traced is no obstacle.

    Args:
        decay, updates: (B, T, D).

    Returns:
        (B, T, D).
    """
    states = _recurrence(decay, updates)

    def gradient(*upstream):
        # d c_t = upstream_t + decay_(t+1) * d c_(t+1)
        of_updates = _recurrence(_shifted(decay, -1), upstream[0], reverse=True)
        return of_updates * _shifted(states, 1), of_updates

    return states, gradient


def _recurrence(decay, updates, reverse=False):
    """`linear_recurrence`, or with `reverse` from the last token to the first.

    After k passes a state has taken in its 2^k nearest updates (Hillis and Steele 1986).
    """
    length = ops.shape(updates)[1]

    def widened(reach, decay, updates):
        by = -reach if reverse else reach
        updates = updates + decay * _shifted(updates, by)
        return 2 * reach, decay * _shifted(decay, by), updates

    values = 1, decay, updates
    if not isinstance(length, int):
        return ops.while_loop(lambda reach, *_: reach < length, widened, values)[2]
    while values[0] < length:
        values = widened(*values)
    return values[2]


def _shifted(values, by):
    """(B, T, D) moved by so many places along T, and 0 where nothing is left."""
    length = ops.shape(values)[1]
    places = arange(length) - by
    inside = ops.logical_and(places >= 0, places < length)
    moved = ops.take(values, ops.clip(places, 0, length - 1), axis=1)
    return ops.where(ops.expand_dims(inside, 1), moved, ops.zeros_like(moved))
