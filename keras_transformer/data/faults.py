"""Pairs of a corpus that no one can train on: how many, and where."""

import dataclasses

_LINES_KEPT = 10


@dataclasses.dataclass(eq=True)
class Faults:
    """Pairs left out: how many of each kind, and where the first of them are.

    Attributes:
        counts: Pairs, by kind.
        lines: The numbers of the first ten lines (from 1), by kind, ascending.
    """

    counts: dict = dataclasses.field(default_factory=dict)
    lines: dict = dataclasses.field(default_factory=dict)

    def add(self, kind, numbers):
        """Counts the lines `numbers` as faults of one kind."""
        self._merge(kind, len(numbers), numbers)

    def update(self, other):
        """Adds the faults of another part of the same corpus; the order of parts is no matter."""
        for kind, count in other.counts.items():
            self._merge(kind, count, other.lines[kind])

    def _merge(self, kind, count, numbers):
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + count
            first = sorted([*self.lines.get(kind, []), *map(int, numbers)])
            self.lines[kind] = first[:_LINES_KEPT]

    def __str__(self):
        return "; ".join(
            f"{kind}: {count:,} (line{'s' * (count > 1)} {_listed(self.lines[kind], count)})"
            for kind, count in sorted(self.counts.items())
        )


def _listed(numbers, count):
    return ", ".join(map(str, numbers)) + (", ..." if count > len(numbers) else "")
