"""What cached decoding carries from step to step.

A search calls `reordered`, `grown` and `selected`; a model of one's own may have another cache with
these methods.
"""

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.layers import masks
from keras_transformer.layers.lowering.cache_slots import more_slots, rows_of
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.projection import reshape
from keras_transformer.layers.recurrence import RecurrentState


class Cache(NamedTuple):
    """The caches of all blocks of a decoder, and what its tokens may see."""

    # A block: (keys, values); beside a source: (these or a `RecurrentState`, the source's pair).
    blocks: tuple
    memory_bias: object  # (B, 1, 1, S) float32, of the source's padding; () without a source
    slot_ids: object  # (T,) int32, 0 to T - 1, the slots for tokens; () where none are needed
    ancestors: object  # (R, T, K) float32, which slots a beam sees; () without beams or slots

    def own_buffers(self, index):
        """The keys and values of self-attention of a block, or its `RecurrentState`."""
        block = self.blocks[index]
        return block[0] if isinstance(block[0], tuple) else block

    def _with_own(self, function):
        """The blocks with what a function makes of the own buffers of each."""
        blocks = []
        for index, block in enumerate(self.blocks):
            own = function(self.own_buffers(index))
            blocks.append((own, block[1]) if isinstance(block[0], tuple) else own)
        return tuple(blocks)

    def reordered(self, rows):
        """The cache whose row r continues what row `rows[r]` has decoded; rows are (R,) int32.

        Rows stay within one source. Without beams a row can only continue itself. Keys and values
        stay where they are, and `ancestors` follow; a state is moved.
        """

        def moved(own):
            if not isinstance(own, RecurrentState) or own.values.shape[1] == 1:
                return own
            shape = ops.shape(own.values)
            states = ops.take(ops.reshape(own.values, (-1, shape[2])), rows, axis=0)
            return RecurrentState(reshape(states, shape))

        ancestors = self.ancestors
        if not isinstance(ancestors, tuple):
            ancestors = ops.take(ancestors, rows, axis=0)
        return self._replace(blocks=self._with_own(moved), ancestors=ancestors)

    def selected(self, sources):
        """The cache of some sources, (C,) int32 indices below B, each with all its beams."""

        def rows_of_sources(values):
            return ops.take(values, sources, axis=0)

        ancestors = self.ancestors
        if not isinstance(ancestors, tuple):
            ancestors = ops.take(ancestors, rows_of(sources, ancestors.shape[2]), axis=0)
        return self._replace(
            blocks=keras.tree.map_structure(rows_of_sources, self.blocks),
            memory_bias=keras.tree.map_structure(rows_of_sources, self.memory_bias),
            ancestors=ancestors,
        )

    def grown(self, count):
        """The cache with slots for `count` more tokens; a state needs none."""
        if isinstance(self.slot_ids, tuple):
            return self
        beams = 1 if isinstance(self.ancestors, tuple) else self.ancestors.shape[2]

        def longer(own):
            return tuple(more_slots(each, count * beams) for each in own)

        ancestors = self.ancestors
        if not isinstance(ancestors, tuple):
            ancestors = more_slots(ancestors, count, axis=1, value=masks.MASK_FILL)
        slot_ids = arange(ops.shape(self.slot_ids)[0] + count)
        blocks = self._with_own(longer)
        return self._replace(blocks=blocks, slot_ids=slot_ids, ancestors=ancestors)
