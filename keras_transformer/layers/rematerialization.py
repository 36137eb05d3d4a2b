"""Blocks that keep nothing inside for the gradient, and compute it again: time for memory."""

import contextlib

import keras
from keras import ops

from keras_transformer.layers.base import layers_within
from keras_transformer.layers.dropout import Dropout


def recomputed(block, call, inputs, tensors, **options):
    """`call(inputs, **tensors, **options)` of a block, of which only the inputs are kept.

    Dropout's seeds are drawn before, once, so that the second time has the masks of the first.

    Args:
        block: A layer that holds everything that has a state.
        call: A function of states (B, T, D) and keywords.
        inputs: (B, T, D).
        tensors: Tensors or `None` by keyword. Gradients reach those of floating point.
        **options: What else it is called with.
    """
    given = {name: value for name, value in tensors.items() if _is_float(value)}
    others = {name: value for name, value in tensors.items() if name not in given}
    dropouts = [each for each in layers_within(block) if isinstance(each, Dropout)]
    seeds = [each.next_seed(True) for each in dropouts]

    def run(inputs, *values):
        with contextlib.ExitStack() as drawn:
            for dropout, seed in zip(dropouts, seeds, strict=True):
                drawn.enter_context(dropout.drawn(seed))
            return call(inputs, **dict(zip(given, values, strict=True)), **others, **options)

    return keras.remat(run)(ops.convert_to_tensor(inputs), *given.values())


def _is_float(value):
    return value is not None and keras.backend.is_float_dtype(
        keras.backend.standardize_dtype(value.dtype)
    )
