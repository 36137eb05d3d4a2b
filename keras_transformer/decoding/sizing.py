"""The loop that all searches run in, whose tensors grow with the text and shrink with the batch."""

import dataclasses
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.layers.lowering.places import arange
from keras_transformer.typing import Tensor


@dataclasses.dataclass(frozen=True)
class Sizing:
    """How the cache of a search gets slots as tokens come, and loses rows that have ended.

    The cost of a step follows the tokens that there are, not the most that there might be, and
    the rows that are not done. A change of size is not free either: LiteRT lays out all memory
    again, XLA compiles again.

    Attributes:
        first, more: Slots at first, and how many are added at a time after that. Integers or
            scalar int tensors.
        shrinks: Whether rows that have ended leave the batch; otherwise all stay to the end.
        least: A batch of this many rows shrinks no further. Above 1 the number of rows stays a
            power of two.
        compile: Makes a function of tensors a faster one of the same, or `None`.
    """

    first: Tensor
    more: Tensor
    shrinks: bool = False
    least: int = 1
    compile: Callable | None = None

    def with_free_slots(self, cache, position, end):
        """The cache with free slots from `position` on, and the position where they end.

        Args:
            cache: A cache with slots up to `end`.
            position, end: Scalar ints.
        """
        count = ops.where(end > 0, self.more, self.first)
        count = ops.where(position < end, 0, count) if self.shrinks else count
        return cache.grown(count), end + count

    def few_rows(self, rows):
        """Scalar int: the others of a batch leave when this many or fewer are not done."""
        return ops.where(rows > self.least, rows // 2, ops.cast(0, "int32"))

    def kept_rows(self, done):
        """(C,) int32, the rows that stay: those that are not done, and others to fill up."""
        rows, alive = _counts(done)
        if self.least > 1:
            doublings = ops.ceil(ops.log2(ops.cast(ops.maximum(alive, self.least), "float32")))
            alive = ops.minimum(rows, ops.cast(ops.power(2.0, doublings), "int32"))
        order = ops.argsort(ops.cast(done, "int32"))  # stable
        return ops.sort(ops.cast(order[:alive], "int32"))


@dataclasses.dataclass(frozen=True)
class Stages:
    """How the cache of a search grows where every size must be known: a loop for each size.

    Each loop is a subgraph of a LiteRT file. They share the weights in it; what the runtime packs
    them into is in memory once for each, unless it has a weight cache.

    Attributes:
        ends: The slots in each stage, ascending; the last are all that the search may need.
    """

    ends: tuple[int, ...]


def search_loop(loop, cache, sizing=None):
    """Runs a search to its end.

    Args:
        loop: A `TokenLoop` or `BeamLoop`.
        cache: What its `step` needs before the first token: with all slots that the search may
            need, without any under a `Sizing`, or with those of the first of `Stages`.
        sizing: A `Sizing`, `Stages`, or `None`.

    Returns:
        The result of the loop's `outcome`.
    """
    state = loop.start(cache)
    kind = type(state)

    def is_unfinished(*fields):
        return ops.logical_not(ops.all(loop.done(kind(*fields))))

    def advance(*fields):
        return loop.advance(kind(*fields))

    if sizing is None:
        return loop.outcome(kind(*ops.while_loop(is_unfinished, advance, state)))
    if isinstance(sizing, Stages):
        return _staged_loop(loop, state, sizing)
    if sizing.shrinks:
        return _shrinking_loop(loop, state, sizing)

    def block(*fields):
        state = kind(*fields)
        cache, end = sizing.with_free_slots(state.cache, state.position, state.position)

        def is_within(position, *others):
            return ops.logical_and(is_unfinished(position, *others), position < end)

        return ops.while_loop(is_within, advance, state._replace(cache=cache))

    return loop.outcome(kind(*ops.while_loop(is_unfinished, block, state)))


def _staged_loop(loop, state, stages):
    """The outcome of a search in one loop after the other, each with more slots."""
    kind, ends = type(state), stages.ends
    if state.cache.grown(1) is state.cache:  # a recurrence, which has no slots
        ends = ends[-1:]

    def is_within(end):
        def continues(*fields):
            state = kind(*fields)
            return ops.logical_and(ops.logical_not(ops.all(loop.done(state))), state.position < end)

        return continues

    for before, end in zip((None, *ends), ends, strict=False):
        if before is not None:
            state = state._replace(cache=state.cache.grown(end - before))
        state = kind(
            *ops.while_loop(is_within(end), lambda *fields: loop.advance(kind(*fields)), state)
        )
    return loop.outcome(state)


def _shrinking_loop(loop, state, sizing):
    """The outcome of a search whose rows leave as they end."""
    everyone, kind = loop, type(state)

    def is_unfinished(sources, end, state, outcome):
        return ops.logical_not(ops.all(everyone.done(state)))

    def block(sources, end, state, outcome):
        loop = everyone.subset(sources)
        cache, end = sizing.with_free_slots(state.cache, state.position, end)

        def run(state, end):
            rows, _ = _counts(loop.done(state))
            few = sizing.few_rows(rows)  # once, not at each step

            def continues(*fields):
                state = kind(*fields)
                _, alive = _counts(loop.done(state))
                return ops.logical_and(state.position < end, alive > few)

            return kind(
                *ops.while_loop(continues, lambda *fields: loop.advance(kind(*fields)), state)
            )

        run = sizing.compile(run) if sizing.compile else run
        state = run(state._replace(cache=cache), end)
        found = loop.outcome(state)
        outcome = keras.tree.map_structure(
            lambda values, updates: _put(values, sources, updates), outcome, found
        )
        rows = sizing.kept_rows(loop.done(state))
        return ops.take(sources, rows, axis=0), end, loop.selected(state, rows), outcome

    sources = arange(ops.shape(loop.done(state))[0])
    start = (sources, ops.zeros((), "int32"), state, loop.outcome(state))
    return ops.while_loop(is_unfinished, block, start)[3]


def _counts(done):
    """Scalar ints: how many rows there are, and how many are not done."""
    return ops.shape(done)[0], ops.sum(ops.cast(ops.logical_not(done), "int32"))


def _put(values, places, updates):
    """(B, …) values with the (C, …) updates at the rows (C,) of `places`."""
    return ops.scatter_update(values, ops.expand_dims(places, 1), updates)
