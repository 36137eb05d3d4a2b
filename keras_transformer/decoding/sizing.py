"""The loop that all searches run in, whose tensors grow with the text and shrink with the batch."""

import dataclasses

import keras
from keras import ops


@dataclasses.dataclass(frozen=True)
class Growth:
    """More room for tokens as they come, and none for rows that have ended.

    What a step costs follows the tokens that there are, not the most that there might be, and the
    rows that go on. The sizes of the loop's tensors change for that, which is not free either:
    LiteRT lays out all memory anew, XLA compiles.

    Attributes:
        grow: `grow(cache, count) -> cache` with slots for `count` more tokens, as of a model.
        first, more: Slots at first, and how many come at a time after that. Integers or scalar
            int tensors.
        select: `select(cache, sources) -> cache` of some sources, as of a model; `None` where
            all rows stay to the end.
        least: Rows that are not worth being fewer. Above 1 the rows stay a power of two.
        compile: Makes a function of tensors a faster one of the same, or `None`.
    """

    grow: object
    first: object
    more: object
    select: object = None
    least: int = 1
    compile: object = None

    def room(self, cache, position, end):
        """The cache with free slots from `position` on, and the position where they end.

        Args:
            cache: A cache with slots up to `end`.
            position, end: Scalar ints.
        """
        count = ops.where(end > 0, self.more, self.first)
        count = ops.where(position < end, 0, count) if self.select else count
        return self.grow(cache, count), end + count

    def is_too_wide(self, done):
        """Scalar boolean: whether so many of the rows are done (B,) that they had better go."""
        rows, alive = _counts(done)
        return ops.logical_and(2 * alive <= rows, rows > self.least)

    def survivors(self, done):
        """(C,) int32, the rows that stay: those that are not done, and what fills them up."""
        rows, alive = _counts(done)
        if self.least > 1:
            doublings = ops.ceil(ops.log2(ops.cast(ops.maximum(alive, self.least), "float32")))
            alive = ops.minimum(rows, ops.cast(ops.power(2.0, doublings), "int32"))
        order = ops.argsort(ops.cast(done, "int32"))  # stable
        return ops.sort(ops.cast(order[:alive], "int32"))


def search_loop(loop, cache, growth=None):
    """Runs a search to its end.

    Args:
        loop: A `TokenLoop` or `BeamLoop`.
        cache: What its `step` needs before the first token, with all slots that the search may
            need, or with none under `growth`.
        growth: A `Growth`, or `None`.

    Returns:
        What the loop's `outcome` gives.
    """
    state = loop.start(cache)
    kind = type(state)

    def is_unfinished(*fields):
        return ops.logical_not(ops.all(loop.done(kind(*fields))))

    def advance(*fields):
        return loop.advance(kind(*fields))

    if growth is None:
        return loop.outcome(kind(*ops.while_loop(is_unfinished, advance, state)))
    if growth.select is not None:
        return _outcome_of_survivors(loop, state, growth)

    def block(*fields):
        state = kind(*fields)
        cache, end = growth.room(state.cache, state.position, state.position)

        def is_within(position, *others):
            return ops.logical_and(is_unfinished(position, *others), position < end)

        return ops.while_loop(is_within, advance, state._replace(cache=cache))

    return loop.outcome(kind(*ops.while_loop(is_unfinished, block, state)))


def _outcome_of_survivors(loop, state, growth):
    """The outcome of a search that its rows leave as they end."""
    everyone, kind = loop, type(state)

    def is_unfinished(sources, end, state, outcome):
        return ops.logical_not(ops.all(everyone.done(state)))

    def block(sources, end, state, outcome):
        loop = everyone.of(sources)
        cache, end = growth.room(state.cache, state.position, end)

        def run(state, end):
            def goes_on(*fields):
                state = kind(*fields)
                done = loop.done(state)
                stops = ops.logical_or(ops.all(done), growth.is_too_wide(done))
                return ops.logical_and(state.position < end, ops.logical_not(stops))

            return kind(
                *ops.while_loop(goes_on, lambda *fields: loop.advance(kind(*fields)), state)
            )

        run = growth.compile(run) if growth.compile else run
        state = run(state._replace(cache=cache), end)
        found = loop.outcome(state)
        outcome = keras.tree.map_structure(
            lambda values, updates: _put(values, sources, updates), outcome, found
        )
        rows = growth.survivors(loop.done(state))
        state = loop.selected(state, rows, growth.select)
        return ops.take(sources, rows, axis=0), end, state, outcome

    sources = ops.arange(ops.shape(loop.done(state))[0])
    start = (sources, ops.zeros((), "int32"), state, loop.outcome(state))
    return ops.while_loop(is_unfinished, block, start)[3]


def _counts(done):
    """Scalar ints: how many rows there are, and how many are not done."""
    return ops.shape(done)[0], ops.sum(ops.cast(ops.logical_not(done), "int32"))


def _put(values, places, updates):
    """(B, …) values with the (C, …) updates at the rows (C,) of `places`."""
    return ops.scatter_update(values, ops.expand_dims(places, 1), updates)
