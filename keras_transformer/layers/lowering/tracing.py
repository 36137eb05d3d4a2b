"""What the graph that is being traced is for: the fastest way differs from one to the other.

All ways give the same numbers, but for the last bits of a sum.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping

import keras
from keras import ops

ANYTHING = "anything"  # eager code and LiteRT's fast kernels: few ops, products and arithmetic
TENSORFLOW_CPU = "TensorFlow on a CPU"  # its own ops on many rows: few passes over large tensors
XLA = "XLA"  # a compiler, which fuses passes and writes in place; on JAX always

_LOWEST = -3e38  # below every float32 that a model makes


@dataclasses.dataclass(frozen=True)
class Tracing:
    """What layers and searches ask for while they are traced.

    Attributes:
        compiled_for: `ANYTHING`, `TENSORFLOW_CPU` or `XLA`.
        weight_folding: Whether a converter may multiply the gain of a norm, or a factor, into the
            weights of the product behind or before it. That saves ops; but weights that are to be
            quantized round worse for it, and what was measured of the model's own weights does
            not fit them.
        kernels: What `prepacked` has made, by the layer's `id`.
        zero: A scalar int32 tensor that is 0, which the converter cannot know, or `None`. In a
            graph of a fixed length whatever hangs on positions alone is known, and would be stored
            as a table.
        tpu_chips: `attention_kernels.Chips` that are not there, for which JAX compiles; `None` for
            the devices that it has.
    """

    compiled_for: str = ANYTHING
    weight_folding: bool = True
    kernels: Mapping[int, object] = dataclasses.field(default_factory=dict)
    zero: object = None
    tpu_chips: object = None


_EAGER = Tracing()
_TRACING = contextvars.ContextVar("tracing", default=_EAGER)


@contextlib.contextmanager
def traced(**fields: object) -> Iterator[None]:
    """Graphs that are traced inside have these fields of `Tracing`, and the others as outside."""
    token = _TRACING.set(dataclasses.replace(_TRACING.get(), **fields))
    try:
        yield
    finally:
        _TRACING.reset(token)


def compiled_for() -> str:
    """What is traced for: `ANYTHING`, `TENSORFLOW_CPU` or `XLA`."""
    return XLA if keras.backend.backend() == "jax" else _TRACING.get().compiled_for


def tpu_chips() -> object:
    """TPUs that what is traced is compiled for ahead of time, or `None`."""
    return _TRACING.get().tpu_chips


def kernels() -> Mapping[int, object]:
    """The kernels that `prepacked` has made for what is traced."""
    return _TRACING.get().kernels


def unfolded(values):
    """The values; a product behind them keeps its weights as they are.

    Where a product has a bias of its own, a converter multiplies the gain of the norm before it
    into its weights, and adds the norm's offset to the bias. A table that is looked up too is then
    in the file twice.
    """
    folds = compiled_for() == ANYTHING and _TRACING.get().weight_folding
    return ops.maximum(values, _LOWEST) if folds else values


def at_run_time(values):
    """The values, which a converter does not know where there is a `zero`."""
    zero = _TRACING.get().zero
    return values if zero is None else values + ops.cast(zero, values.dtype)


def is_of_fixed_length() -> bool:
    """Whether the graph is one of LiteRT's whose sizes are all known."""
    return _TRACING.get().zero is not None


def filled(shape, value, dtype):
    """A tensor of equal numbers, likewise."""
    zero = _TRACING.get().zero
    if zero is not None:
        return ops.full(shape, value + ops.cast(zero, dtype), dtype)
    return ops.full(shape, value, dtype) if value else ops.zeros(shape, dtype)


def unfused(values):
    """The values; without weight folding, the ops before and after them stay two ops."""
    return values if _TRACING.get().weight_folding else ops.maximum(values, _LOWEST)
