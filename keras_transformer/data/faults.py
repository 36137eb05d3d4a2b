"""Pairs of a corpus that no one can train on: how many, and where."""

import dataclasses
from collections.abc import Sequence

_LINES_KEPT = 10


@dataclasses.dataclass(eq=True)
class Faults:
    """Pairs left out: how many of each kind, and where the first of them are.

    Attributes:
        counts: Pairs, by kind.
        lines: The numbers of the first ten lines (from 1), by kind, ascending.
        numbered: Whether `lines` are kept: not where they would be of several files.

    Example:
        >>> from keras_transformer.data import Faults
        >>> faults = Faults()
        >>> faults.add("empty", [3, 1])
        >>> faults.add("no_tab", range(20, 31))
        >>> print(faults)
        empty: 2 (lines 1, 3); no_tab: 11 (lines 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, ...)
    """

    counts: dict = dataclasses.field(default_factory=dict)
    lines: dict = dataclasses.field(default_factory=dict)
    numbered: bool = True

    def add(self, kind: str, numbers: Sequence[int]) -> None:
        """Counts the lines `numbers` as faults of one kind."""
        self._merge(kind, len(numbers), numbers)

    def update(self, other: "Faults") -> None:
        """Adds the faults of another part of the same corpus; parts may come in any order."""
        if not other.numbered:
            self.leave_out_lines()
        for kind, count in other.counts.items():
            self._merge(kind, count, other.lines.get(kind, []))

    def leave_out_lines(self) -> None:
        """Keeps counts alone, now and later: numbers of several files name no line."""
        self.numbered, self.lines = False, {}

    def _merge(self, kind, count, numbers):
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count
        if count and self.numbered:
            first = sorted([*self.lines.get(kind, []), *map(int, numbers)])
            self.lines[kind] = first[:_LINES_KEPT]

    def __str__(self):
        return "; ".join(
            f"{kind}: {count:,}{_places(self.lines.get(kind), count)}"
            for kind, count in sorted(self.counts.items())
            if count
        )


def _places(numbers, count):
    """The lines in brackets; nothing where they are of several files, and so not known."""
    if not numbers:
        return ""
    more = ", ..." if count > len(numbers) else ""
    return f" (line{'s' * (count > 1)} {', '.join(map(str, numbers))}{more})"
