"""The loop that all searches run in, and the cache that grows in it."""

import dataclasses

from keras import ops


@dataclasses.dataclass(frozen=True)
class Stages:
    """More room for tokens where sizes must be known, as under XLA: two loops, of two sizes.

    Attributes:
        grow: As of `Growth`.
        likely: Tokens that will likely do: the room of the first loop. An integer.
        slots: Tokens that there may be at most: the room of the second. An integer.
    """

    grow: object
    likely: int
    slots: int

    @property
    def counts_and_ends(self):
        """How many slots each loop adds, and the position where they end."""
        first = min(self.likely, self.slots)
        both = ((first, first), (self.slots - first, self.slots))
        return both if self.slots > first else both[:1]


@dataclasses.dataclass(frozen=True)
class Growth:
    """More room for tokens, a block at a time. The sizes of the loop's tensors change then.

    What a step costs follows the tokens that there are, not the most that there might be. A block
    costs a little too: LiteRT lays out all memory anew.

    Attributes:
        grow: `grow(cache, count) -> cache` with slots for `count` more tokens, as of a model.
        block: Tokens.
        likely: Tokens that will likely do; there is no room for more at first. An integer or a
            scalar int tensor.
    """

    grow: object
    block: int
    likely: object

    def __call__(self, cache, position):
        """The cache with free slots from `position` on, and the position where they end."""
        count = ops.where(position > 0, self.block, ops.minimum(self.likely, self.block))
        return self.grow(cache, count), position + count


def search_loop(is_unfinished, advance, state, growth=None):
    """`ops.while_loop` over the state of a search, whose cache may grow as the search goes on.

    Args:
        is_unfinished, advance: Of the fields of the state: a scalar boolean, and the next state.
        state: A named tuple with `position`, the tokens decoded so far, first, and `cache`.
        growth: A `Growth` or a `Stages`, for a cache that begins with no slots; `None` where all
            slots that the search may need are there.
    """
    kind = type(state)
    if growth is None:
        return kind(*ops.while_loop(is_unfinished, advance, state))

    def go_on(state, cache, end):
        def is_within(position, *fields):
            return ops.logical_and(is_unfinished(position, *fields), position < end)

        return kind(*ops.while_loop(is_within, advance, state._replace(cache=cache)))

    if isinstance(growth, Stages):
        for count, end in growth.counts_and_ends:
            state = go_on(state, growth.grow(state.cache, count), end)
        return state

    def block(*fields):
        state = kind(*fields)
        return go_on(state, *growth(state.cache, state.position))

    return kind(*ops.while_loop(is_unfinished, block, state))
