"""Lines of text files, and the count of those that no one can train on."""

import contextlib
import dataclasses
import gzip
import pathlib
import sys
import weakref
import zlib

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINES_KEPT = 10

_streams_read = weakref.WeakSet()


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


def read_lines(path):
    """Yields the lines of a UTF-8 text file, plain or gzip, without their ends.

    Only LF and CRLF end a line: U+2028 and its like are text. A byte order mark is dropped.

    Args:
        path: A file, or `"-"` for standard input (plain or gzip), which can be read only once.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line is not UTF-8 (with its number), gzip data are damaged, or standard
            input was read before.
    """
    for number, line in enumerate(read_byte_lines(path), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text must be UTF-8. Received: {_display(path)}, line {number}: {error}"
            ) from error


def read_byte_lines(path):
    """`read_lines` without the decoding: a line that is not UTF-8 is the caller's to judge."""
    with _open_bytes(path) as file:
        try:
            for number, line in enumerate(file):
                if number == 0:
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"a gzip file must be complete. Received: {_display(path)}: {error}"
            ) from error


def _display(path):
    return "standard input" if str(path) == "-" else str(path)


@contextlib.contextmanager
def _open_bytes(path):
    if str(path) == "-":
        yield _unpacked(_standard_input())
        return
    if not pathlib.Path(path).exists():
        raise FileNotFoundError(f"a text file must exist. Received: {path}")
    with open(path, "rb") as file:
        yield _unpacked(file)


def _unpacked(file):
    """`file`, or what is packed in it."""
    # Not every stream that stands in for standard input can be peeked at.
    magic = file.peek(2)[:2] if hasattr(file, "peek") else b""
    return gzip.open(file) if magic == _GZIP_MAGIC else file


def _standard_input():
    stream = sys.stdin.buffer
    if stream in _streams_read:
        raise ValueError(
            "standard input can be read only once; what needs a second pass (a check, a "
            "vocabulary, another epoch) needs a file, or the folder that `prepare` writes. "
            "Received: a second pass over '-'"
        )
    _streams_read.add(stream)
    return stream
