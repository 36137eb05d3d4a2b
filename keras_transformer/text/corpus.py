"""Parallel corpora in files: read line by line, checked before anything is trained on them."""

import contextlib
import dataclasses
import gzip
import itertools
import pathlib
import sys
import zlib

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path):
    """Yields the lines of a UTF-8 text file, plain or gzip, without their ends.

    Only LF and CRLF end a line: U+2028 and its like are text. A byte order mark is dropped.

    Args:
        path: A file, or `"-"` for standard input (plain text).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if a line is not UTF-8 (with its number), or gzip data are damaged.
    """
    name = "standard input" if str(path) == "-" else str(path)
    with _open_bytes(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text must be UTF-8. Received: {name}, line {number}: {error}"
            ) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"a gzip file must be complete. Received: {name}: {error}") from error


@contextlib.contextmanager
def _open_bytes(path):
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    if not pathlib.Path(path).exists():
        raise FileNotFoundError(f"a text file must exist. Received: {path}")
    with open(path, "rb") as file:
        if file.peek(2)[:2] == _GZIP_MAGIC:
            with gzip.open(file) as unpacked:
                yield unpacked
        else:
            yield file


@dataclasses.dataclass(frozen=True)
class CorpusReport:
    """What one pass over a corpus found.

    Attributes:
        pairs: Lines (of each side).
        empty_source: Pairs whose source is empty or white space.
        empty_target: The same for the target.
        skipped: Pairs with an empty side, which training leaves out.
        longest_source: Length of the longest source, in characters.
        longest_target: The same for the target.
    """

    pairs: int
    empty_source: int
    empty_target: int
    skipped: int
    longest_source: int
    longest_target: int

    @property
    def usable(self):
        """Pairs with text on both sides."""
        return self.pairs - self.skipped


@dataclasses.dataclass(frozen=True)
class ParallelCorpus:
    """Sentence pairs in two files with a sentence a line, or in one tab-separated file.

    Iterating reads the files anew, a line at a time, and yields `(source, target)` strings, empty
    ones too. Files are UTF-8, plain or gzip.

    Args:
        source: The source sentences; or, without `target`, a file with the source in its first
            and the target in its second column, whose further columns are ignored.
        target: The target sentences, line for line.
    """

    source: str | pathlib.Path
    target: str | pathlib.Path | None = None

    def __iter__(self):
        return self._aligned_lines() if self.target is not None else self._columns()

    def _aligned_lines(self):
        sources, targets = read_lines(self.source), read_lines(self.target)
        for pairs, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
            if source is None or target is None:
                longer = pairs + 1 + sum(1 for _ in (targets if source is None else sources))
                counts = (pairs, longer) if source is None else (longer, pairs)
                raise ValueError(
                    "`source` and `target` must have the same number of lines. Received: "
                    f"{self.source} with {counts[0]} and {self.target} with {counts[1]} lines"
                )
            yield source, target

    def _columns(self):
        for number, line in enumerate(read_lines(self.source), start=1):
            source, tab, rest = line.partition("\t")
            if not tab:
                raise ValueError(
                    "every line must have a tab between source and target. "
                    f"Received: {self.source}, line {number}: {line[:80]!r}"
                )
            yield source, rest.partition("\t")[0]

    def sentences(self):
        """Yields the text of both sides in turn, to train a joint vocabulary on."""
        return itertools.chain.from_iterable(self)

    def check(self):
        """Reads everything once and reports.

        Returns:
            A `CorpusReport`.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if the sides differ in length, a line is not UTF-8 or has no tab, or no
                pair has text on both sides. The message names the file and line.
        """
        pairs = empty_source = empty_target = skipped = longest_source = longest_target = 0
        for source, target in self:
            no_source, no_target = not source.strip(), not target.strip()
            pairs += 1
            empty_source += no_source
            empty_target += no_target
            skipped += no_source or no_target
            longest_source = max(longest_source, len(source))
            longest_target = max(longest_target, len(target))
        if pairs == skipped:
            names = self.source if self.target is None else f"{self.source} and {self.target}"
            raise ValueError(
                "a corpus must hold a pair with text on both sides. "
                f"Received: {names} with {pairs} pairs"
            )
        return CorpusReport(
            pairs, empty_source, empty_target, skipped, longest_source, longest_target
        )
