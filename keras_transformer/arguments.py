"""Checks of arguments, each with the error that a user needs.

Each check takes the arguments by their names, as keywords.
"""

import difflib
import numbers
import sys


def check_size(*, optional=False, **sizes):
    """Raises ValueError unless every named argument is a positive integer (or an optional None)."""
    for name, value in sizes.items():
        if not (optional and value is None) and not _is_integer(value, 1):
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")


def check_count(**counts):
    """Raises ValueError unless every named argument is an integer of at least 0."""
    for name, value in counts.items():
        if not _is_integer(value, 0):
            raise ValueError(
                f"`{name}` must be an integer of at least 0. Received: {name}={value!r}"
            )


def check_integer(minimum, **values):
    """Raises ValueError unless every named argument is an integer of at least `minimum`."""
    for name, value in values.items():
        if not _is_integer(value, minimum):
            raise ValueError(f"`{name}` must be an integer >= {minimum}. Received: {value!r}")


def _is_integer(value, minimum):
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def check_least(minimum, *, optional=False, **values):
    """Raises ValueError unless every named number is at least `minimum` (or an optional None)."""
    for name, value in values.items():
        if not (optional and value is None) and value < minimum:
            raise ValueError(f"`{name}` must be at least {minimum}. Received: {name}={value}")


def check_rate(**rates):
    """Raises ValueError unless every named argument is a number in [0, 1)."""
    for name, value in rates.items():
        if not isinstance(value, numbers.Real) or not 0 <= value < 1:
            raise ValueError(f"`{name}` must be a rate in [0, 1). Received: {name}={value!r}")


def check_choice(choices, **values):
    """Raises ValueError unless every named argument is one of `choices`."""
    for name, value in values.items():
        if value not in choices:
            raise ValueError(f"`{name}` must be one of {tuple(choices)}. Received: {value!r}")


def check_name(what, name, known, *, cutoff=0.6):
    """Raises ValueError unless `name` is known; the error names the nearest one.

    Args:
        what: What the name is of, such as "a section".
        name: The name.
        known: The names that there are.
        cutoff: How near a name must be to be proposed, from 0 (any) to 1.
    """
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{what} must be one of {list(known)}. Received: {name!r}.{hint}")


def check_flag(*, optional=False, **flags):
    """Raises ValueError unless every named argument is a bool (or an optional None)."""
    for name, value in flags.items():
        if not (isinstance(value, bool) or (optional and value is None)):
            raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")


def check_positive(*, optional=False, **values):
    """Raises ValueError unless every named number is finite and above 0 (or an optional None)."""
    for name, value in values.items():
        if optional and value is None:
            continue
        if not is_finite(value) or value <= 0:
            raise ValueError(
                f"`{name}` must be a finite number above 0. Received: {name}={value!r:.40}"
            )


def check_key_dim(rotary, key_dim):
    """Raises ValueError for rotary positions of an odd width: they turn pairs."""
    if rotary and key_dim % 2:
        raise ValueError(
            f"`key_dim` must be even for rotary positions. Received: key_dim={key_dim}"
        )


def check_reach(attention_chunk, attention_window):
    """Raises ValueError if attention is to be both in chunks and in a window."""
    if attention_chunk is not None and attention_window is not None:
        raise ValueError(
            "at most one of `attention_chunk` and `attention_window` may be given. "
            f"Received: {attention_chunk} and {attention_window}"
        )


def check_block(residual, use_residual, use_feed_forward):
    """Raises ValueError if the bottom-to-top connection has nothing to connect."""
    if residual == "b2t" and not (use_residual and use_feed_forward):
        raise ValueError(
            "`residual='b2t'` must have `use_residual` and `use_feed_forward`. Received: "
            f"use_residual={use_residual}, use_feed_forward={use_feed_forward}"
        )


def check_tied_layers(count, **layers):
    """Which blocks are one, as a tuple; `None` for none.

    Args:
        count: Blocks.
        **layers: For each the number of the first that has its weights; a list or a tuple.

    Raises:
        ValueError: if it is anything else.
    """
    ((name, numbers),) = layers.items()
    if numbers is None:
        return None
    is_list = isinstance(numbers, (list, tuple)) and all(type(each) is int for each in numbers)
    if not is_list or len(numbers) != count:
        raise ValueError(
            f"`{name}` must be a list of integers, one for each of {count} blocks. "
            f"Received: {numbers!r}"
        )
    for place, number in enumerate(numbers):
        if not (0 <= number <= place and numbers[number] == number):
            raise ValueError(
                f"`{name}` must give each block its own number, or that of an earlier one which "
                f"has its own. Received: {number} at place {place} of {numbers!r}"
            )
    return tuple(numbers)


def check_buckets(bidirectional, **sizes):
    """Raises ValueError unless each direction of relative positions has two buckets and a last one.

    Args:
        bidirectional: Whether two directions share the buckets.
        **sizes: The number of buckets and the largest distance, in this order.
    """
    buckets, distance = sizes
    number, largest = sizes[buckets], sizes[distance]
    own = number // 2 if bidirectional else number
    if (bidirectional and number % 2) or own < 2 or largest <= own // 2:
        raise ValueError(
            f"`{buckets}` must be even and at least 4 (at least 2 for one direction), and "
            f"`{distance}` more than half a direction's buckets. Received: "
            f"{buckets}={number}, {distance}={largest}"
        )


def check_finite(**values):
    """Raises ValueError unless every named argument is a finite number."""
    for name, value in values.items():
        if not is_finite(value):
            raise ValueError(f"`{name}` must be a finite number. Received: {name}={value!r:.40}")


def is_finite(value) -> bool:
    """Whether something is a number, neither infinite nor NaN, that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= sys.float_info.max  # false of NaN, too
