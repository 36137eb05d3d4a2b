"""What the graph that is being traced will run on: some results have another fastest way on each.

All ways give the same numbers, but for the last bits of a sum.
"""

import contextlib
import contextvars

import keras

ANYTHING = "anything"  # eager code and LiteRT's fast kernels: few ops, products and arithmetic
TENSORFLOW_CPU = "batches"  # TensorFlow's own ops on many rows: few passes over the large tensors
XLA = "XLA"  # a compiler, which fuses passes and writes in place; on JAX always

_TARGET = contextvars.ContextVar("target", default=ANYTHING)


@contextlib.contextmanager
def traced_for(target):
    """Graphs that are traced inside are for this target; also where it stands inside another."""
    token = _TARGET.set(target)
    try:
        yield
    finally:
        _TARGET.reset(token)


def compiled_for():
    """What is traced for: `ANYTHING`, `TENSORFLOW_CPU` or `XLA`."""
    return XLA if keras.backend.backend() == "jax" else _TARGET.get()
