"""The few lengths that batches are padded to."""

from collections.abc import Sequence

import numpy as np

from keras_transformer.arguments import check_integer
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer.data.tokenized import TokenizedCorpus


def choose_buckets(
    lengths: TokenizedCorpus | PreparedCorpus | Sequence[int], count: int = 7
) -> tuple[int, ...]:
    """The lengths to pad to that add the least padding.

    Args:
        lengths: A `TokenizedCorpus` or `PreparedCorpus`; or integers, what each pair needs.
        count: The most buckets, and so the most shapes that XLA compiles. With 7, less than 15%
            of the target positions of a corpus such as Multi30k are pads.

    Returns:
        A tuple of at most `count` ascending multiples of 4, the last of which holds the longest.

    Raises:
        ValueError: if `lengths` is empty or `count` is not an integer >= 1.

    Example:
        >>> from keras_transformer.data import choose_buckets
        >>> choose_buckets([3, 5, 5, 6, 11, 30], count=2)
        (12, 32)
    """
    check_integer(1, count=count)
    if hasattr(lengths, "length_counts"):
        counts = lengths.length_counts.sum(axis=0)
    else:
        counts = np.bincount(np.asarray(lengths, np.int64))
    if not counts.sum():
        raise ValueError("`lengths` must not be empty. Received: no lengths")
    bounds, pairs = _grouped(counts)
    below = np.concatenate([[0], np.cumsum(pairs)])
    # cost[i, j]: padded size of one bucket of length bounds[j] for groups i..j.
    cost = np.where(
        np.tri(len(bounds), dtype=bool).T, (below[None, 1:] - below[:-1, None]) * bounds, np.inf
    )
    best = cost[0]  # best[j]: least padded size of groups 0..j
    starts = []  # per bucket added: where it starts when it ends at j
    for _ in range(min(count, len(bounds)) - 1):
        total = np.concatenate([[np.inf], best[:-1]])[:, None] + cost
        starts.append(total.argmin(axis=0))
        best = total.min(axis=0)
    buckets, end = [], len(bounds) - 1
    for start in reversed(starts):
        buckets.append(int(bounds[end]))
        end = start[end] - 1
    return tuple(reversed([*buckets, int(bounds[end])]))


def _grouped(counts):
    """Bounds of groups of lengths, and how many pairs fit each best, from counts by length."""
    # Only multiples of 4 that some pair needs can be bounds.
    lengths = np.flatnonzero(counts)
    bounds, group = np.unique(-(-lengths // 4) * 4, return_inverse=True)
    return bounds, np.bincount(group, weights=counts[lengths]).astype(np.int64)


def check_ascending(name, buckets, minimum=1):
    array = np.asarray(buckets)
    is_ascending = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    if not is_ascending or any(np.diff(array, prepend=minimum - 1) <= 0):
        raise ValueError(f"`{name}` must be ascending integers >= {minimum}. Received: {buckets!r}")


def check_lengths_fit(buckets, longest):
    check_ascending("buckets", buckets)
    if buckets[-1] < longest:
        raise ValueError(
            "the last of `buckets` must hold the longest pair, EOS included. "
            f"Received: buckets={buckets!r}, longest={longest}"
        )
