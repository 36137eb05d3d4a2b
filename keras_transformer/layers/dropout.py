"""Dropout whose mask is a hash of the element's index and a seed."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import check_rate
from keras_transformer.layers.base import BaseLayer
from keras_transformer.typing import Tensor

_GOLDEN = 0x9E3779B9
MIX_1 = 0x7FEB352D
MIX_2 = 0x846CA68B


def mix_bits(bits):
    """The finaliser `lowbias32` of C. Wellons' hash prospector: every bit moves every bit."""
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, as_uint32(16))) * as_uint32(MIX_1)
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, as_uint32(15))) * as_uint32(MIX_2)
    return ops.bitwise_xor(bits, ops.right_shift(bits, as_uint32(16)))


def as_uint32(value):
    """`value` as a tensor of 32-bit words, which is what `mix_bits` takes."""
    return ops.cast(value, "uint32")


def keep_mask(shape, rate, seed):
    """A boolean array of `shape`, True with probability `1 - rate`.

    Args:
        shape: Sizes, integers or scalar tensors.
        rate: Probability of False.
        seed: (2,) integer tensor. Masks of different seeds are independent: the seed picks both
            the stride and the offset of the sequence that is hashed, so that two masks are not
            windows of one sequence.
    """
    stride, offset = sequence_of(seed)
    size = 1
    for length in shape:
        size = size * length
    index = as_uint32(ops.arange(size, dtype="int32"))
    kept = mix_bits(index * stride + offset) >= as_uint32(threshold_of(rate))
    return ops.reshape(kept, shape)


def sequence_of(seed):
    """The stride and the offset of the sequence that a mask hashes, two 32-bit words."""
    low, high = mix_bits(as_uint32(seed[0])), as_uint32(seed[1])
    offset = mix_bits(low + high * as_uint32(_GOLDEN))
    return ops.bitwise_or(mix_bits(ops.bitwise_xor(offset, as_uint32(MIX_1))), as_uint32(1)), offset


def threshold_of(rate):
    """The lowest 32-bit word that keeps an element, an integer."""
    return min(int(round(rate * 2**32)), 2**32 - 1)


def seed_of_part(seed, index):
    """A seed of its own for each part of what `seed` was drawn for."""
    return ops.stack(
        [mix_bits(as_uint32(seed[0]) + as_uint32(index) * as_uint32(_GOLDEN)), as_uint32(seed[1])]
    )


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(BaseLayer, keras.layers.Layer):
    """Inverted dropout, as `keras.layers.Dropout`, with masks that survive saving.

    The mask is a hash of index and seed, so it needs no generator on any backend. It depends on
    `seed` and on how often the layer was called; Keras leaves the latter out of its files, this
    layer puts it in, so that a reloaded model goes on with the masks that would have come next.

    Args:
        rate: Probability that an element is set to 0, in [0, 1).
        seed: Integer, or `None` for one from Keras' global generator.

    Call arguments:
        inputs: A tensor of any shape.
        training: Whether elements are dropped.

    Returns:
        A tensor of the same shape and dtype, in which the elements that are kept are divided by
        `1 - rate`.

    Example:
        >>> dropout = kt.layers.Dropout(0.5, seed=1)
        >>> kept = ops.convert_to_numpy(dropout(np.ones((1000,), "float32"), training=True))
        >>> sorted(set(kept.tolist())), bool(400 < (kept > 0).sum() < 600)
        ([0.0, 2.0], True)
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_rate(rate=rate)
        self.rate = rate
        self.seed = seed
        self.seed_generator = None
        if rate > 0:  # named, as Keras would number it by creation
            self.seed_generator = keras.random.SeedGenerator(seed, name=f"{self.name}_seed")
        self._drawn = ()  # the seed that `drawn` gives
        self.supports_masking = True
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        return self.drop(inputs, self.next_seed(training))

    def next_seed(self, training):
        """The seed of the next mask, or `None` where nothing is dropped."""
        if self._drawn:
            return self._drawn[0]
        return self.seed_generator.next() if training and self.rate > 0 else None

    @contextlib.contextmanager
    def drawn(self, seed: Tensor | None) -> Iterator[None]:
        """Within, `next_seed` is a seed that was drawn before."""
        self._drawn = (seed,)
        try:
            yield
        finally:
            self._drawn = ()

    def drop(self, inputs, seed, part=None):
        """`inputs` with the mask of `seed`, or with that of a part, by the part's number."""
        if seed is None:
            return inputs
        if part is not None:
            seed = seed_of_part(seed, part)
        keep = keep_mask(ops.shape(inputs), self.rate, seed)
        scaled = inputs * ops.cast(1.0 / (1.0 - self.rate), inputs.dtype)
        return ops.where(keep, scaled, ops.zeros((), inputs.dtype))

    def compute_output_shape(self, input_shape):
        return input_shape

    def save_own_variables(self, store):
        if self.seed_generator is not None:
            store["seed"] = self.seed_generator.state

    def load_own_variables(self, store):
        # Weights trained without dropout hold no seed.
        if self.seed_generator is not None and "seed" in store.keys():  # noqa: SIM118 (H5 store)
            self.seed_generator.state.assign(store["seed"])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
