"""A corpus in files of lines, cut into parts that are read each by itself."""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from keras_transformer.data.corpus import Corpus, check_same_lines
from keras_transformer.data.faults import Faults
from keras_transformer_runner.lines import BYTE_ORDER_MARK, GZIP_MAGIC, read_byte_lines

PART = 1 << 16  # pairs
_BLOCK = 1 << 22  # bytes searched at once


@dataclasses.dataclass(frozen=True)
class CorpusPart(Corpus):
    """Some pairs of a corpus, with the numbers that they have there.

    Attributes:
        corpus: The `Corpus`, with a method `pairs_of_lines`.
        starts: Where its first line begins in each file, in bytes.
        first: The number of the first pair.
        pairs: How many.
    """

    corpus: Corpus
    starts: tuple[int, ...]
    first: int
    pairs: int

    @property
    def name(self) -> str:
        return self.corpus.name

    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        files = zip(self.corpus.files, self.starts, strict=True)
        lines = [_lines(file, start, self.pairs) for file, start in files]
        lines = lines[0] if len(lines) == 1 else zip(*lines, strict=True)
        return self.corpus.pairs_of_lines(lines, faults, first=self.first)


def corpus_parts(corpus, pairs=PART):
    """Parts of `pairs` pairs, the last of fewer; the corpus alone where it cannot be cut.

    Only plain files of lines can: what is packed is read from its beginning. The files are read
    once, for the places where lines begin.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if two files differ in length, or one is UTF-16.
    """
    if not hasattr(corpus, "pairs_of_lines"):
        return [corpus]
    corpus.check_files()
    if any(map(_is_packed, corpus.files)):
        return [corpus]
    starts, counts = zip(*(_line_starts(file, pairs) for file in corpus.files), strict=True)
    check_same_lines(corpus, counts)
    first = range(1, counts[0] + 1, pairs)
    return [
        CorpusPart(corpus, places, number, min(pairs, counts[0] + 1 - number))
        for number, places in zip(first, zip(*starts, strict=True), strict=True)
    ] or [corpus]


def _is_packed(path):
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _line_starts(path, every):
    """Where lines 1, 1 + every, 1 + 2 * every, ... begin, in bytes; and the number of lines."""
    next(read_byte_lines(path), None)  # refuses UTF-16
    ends, place, last, starts = 0, 0, b"\n", [0]
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            starts += (found[every - 1 - ends % every :: every] + 1 + place).tolist()
            ends, place, last = ends + len(found), place + len(block), block[-1:]
    lines = ends + (last != b"\n")
    return starts[: -(-lines // every)], lines


def _lines(path, start, count):
    with open(path, "rb") as file:
        file.seek(start)
        for number, line in enumerate(itertools.islice(file, count)):
            if start == number == 0:
                line = line.removeprefix(BYTE_ORDER_MARK)
            yield line.removesuffix(b"\n").removesuffix(b"\r")
