"""What a converter may multiply into weights, and how it is kept from that.

A norm's gain in front of a product, or a factor behind it, becomes part of the product's weights.
That saves ops; but weights that are to be quantized round worse for it, and what was measured of
the model's own weights does not fit them.
"""

import contextlib
import contextvars

from keras import ops

_LOWEST = -3e38  # below every float32 that a model makes
_KEPT = contextvars.ContextVar("without_weight_folding", default=False)


@contextlib.contextmanager
def without_weight_folding():
    """In graphs that are traced inside, `unfused` holds."""
    token = _KEPT.set(True)
    try:
        yield
    finally:
        _KEPT.reset(token)


def unfused(values):
    """The values; inside `without_weight_folding`, the ops before and after them stay two ops."""
    return ops.maximum(values, _LOWEST) if _KEPT.get() else values
