"""The decisions about the runtime that a search takes before its first step, in one place.

They change how fast a search is, and none of its results.
"""

import contextlib
import dataclasses

from keras import ops

from keras_transformer.decoding.compiled import xla
from keras_transformer.decoding.sizing import Sizing, Stages
from keras_transformer.layers.base import layers_within
from keras_transformer.layers.lowering import prepacked
from keras_transformer.layers.lowering.tracing import (
    TENSORFLOW_CPU,
    XLA,
    compiled_for,
    is_of_fixed_length,
    traced,
)
from keras_transformer.typing import Tensor

_LONGER = 8  # most outputs are at most this many tokens longer than their inputs
_BLOCK = 16  # slots that are added at a time: of fewer the loop is left too often
_WORTH_A_STAGE = 0.7  # a stage of more of all slots saves too little for the weights that it packs
_LEAST_ROWS = 8  # smallest batch that XLA compiles a loop for


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the runtime is to run one search. `plan_of` makes it."""

    compiled_for: str  # what runs the steps, see `lowering.tracing`
    jit_compile: bool  # whether XLA compiles the encoder, on TensorFlow
    sizing: Sizing | Stages | None  # how the cache grows and the batch shrinks; `None`: neither
    first_slots: Tensor  # slots of the cache before the first step, an integer or a scalar tensor
    column_blocks: bool  # whether kernels are cut into blocks of columns, for this processor
    vocab_first: bool  # whether the steps give logits (V, R) instead of (R, 1, V)

    @contextlib.contextmanager
    def tracing(self, model):
        """A search that is traced inside follows the plan; `model` is the one that it calls."""
        fields = {"compiled_for": self.compiled_for}
        if self.compiled_for == TENSORFLOW_CPU:
            fields["kernels"] = prepacked.prepacked(_layers_with_kernels(model), self.column_blocks)
        with traced(**fields):
            yield


def plan_of(search, slots, shape, *, jit_compile=False, for_this_cpu=False, shortlist=False):
    """The `Plan` of a search.

    Args:
        search: A `SearchOptions`.
        slots: The most tokens that a row may get, an integer or a scalar int tensor.
        shape: (B, S) of the inputs, likewise.
        jit_compile: Whether XLA may compile the steps, on TensorFlow.
        for_this_cpu: Whether the graph runs on this machine only.
        shortlist: Whether `allowed_ids` or `candidate_ids` are given.
    """
    rows, length = shape
    # Eager code and JAX know all sizes, and keep them; TensorFlow's graphs may change them.
    is_fixed = isinstance(slots, int)
    stages = _stages(slots, length) if is_fixed else None
    # A graph for one row, such as LiteRT's, has no batch that could shrink.
    is_batch = not (is_fixed or isinstance(rows, int))
    compiles = jit_compile and is_batch
    runtime = (XLA if compiles else TENSORFLOW_CPU) if is_batch else compiled_for()
    chooses_freely = search.forbids_only_controls and not shortlist
    return Plan(
        # XLA fuses passes and writes in place. TensorFlow's own ops are fastest with few passes
        # over large tensors. Else what the graph around this one is for.
        compiled_for=runtime,
        # Not the steps alone: one program for the encoder, one for the loop.
        jit_compile=jit_compile,
        # A step costs what the tokens and rows cost that there are, not those that may come.
        sizing=stages if is_fixed else _sizing(slots, length, is_batch, compiles),
        # With a `Sizing` 0, as a tensor: a constant would fix the size of the cache.
        first_slots=(stages.ends[0] if stages else slots) if is_fixed else ops.minimum(slots, 0),
        # oneDNN on AVX-512 reads blocks faster; Eigen takes twice the time with them. So only a
        # graph that never leaves this processor has them.
        column_blocks=for_this_cpu and runtime == TENSORFLOW_CPU and prepacked.suit_this_machine(),
        # For (R, V) XLA on a CPU transposes the embedding again at each step, and reduces the last
        # axis one number after the other. Only a search without rules can choose from (V, R).
        vocab_first=runtime == XLA and search.takes_vocab_first and chooses_freely,
    )


def _stages(slots, length):
    """The `Stages` of a LiteRT signature of a fixed length, or `None`."""
    first = length + _LONGER
    if not is_of_fixed_length() or first > _WORTH_A_STAGE * slots:
        return None
    return Stages((first, slots))


def _sizing(slots, length, is_batch, compiles):
    """The `Sizing` for inputs of this length, where sizes may change."""
    first = ops.minimum(length + _LONGER, slots)
    if compiles:  # few sizes, as XLA compiles for each of them
        return Sizing(first, slots - first, shrinks=True, least=_LEAST_ROWS, compile=xla)
    return Sizing(ops.minimum(first, _BLOCK), _BLOCK, shrinks=is_batch)


def _layers_with_kernels(model):
    """All layers of a model whose kernels can be prepacked.

    TensorFlow prunes the kernels that no step multiplies with, such as the encoder's.
    """
    found = [
        inner for layer in getattr(model, "layers", ()) for inner in (layer, *layers_within(layer))
    ]
    return [layer for layer in found if hasattr(layer, "prepacked_kernel")]
