"""Parallel corpora in files: read line by line, checked before anything is trained on them."""

import abc
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

from keras_transformer.data.faults import Faults
from keras_transformer_runner.lines import check_file, read_byte_lines

_GZIP_RATIO = 3  # of text, about


@dataclasses.dataclass(frozen=True)
class CorpusReport:
    """What one pass over a corpus found.

    Attributes:
        pairs: Lines (of each side), faulty ones too.
        empty_source: Pairs whose source is empty or white space.
        empty_target: The same for the target.
        skipped: Pairs that training leaves out: those with an empty side, and faulty lines.
        longest_source: Length of the longest source, in characters.
        longest_target: The same for the target.
        faults: `Faults`: what was skipped, by kind, with the numbers of the first lines.

    Example:
        >>> with open("pairs.tsv", "w") as file:
        ...     _ = file.write("a\\tb\\n\\tc\\n")
        >>> print(kt.ParallelCorpus("pairs.tsv").check())
        2 pairs, 1 usable, longest source 1 and target 1 characters; left out: empty: 1 (line 2)
    """

    pairs: int
    empty_source: int
    empty_target: int
    skipped: int
    longest_source: int
    longest_target: int
    faults: Faults = dataclasses.field(default_factory=Faults)

    @property
    def usable(self) -> int:
        """Pairs with text on both sides."""
        return self.pairs - self.skipped

    def __str__(self):
        left_out = f"; left out: {self.faults}" if self.skipped else ""
        return (
            f"{self.pairs:,} pairs, {self.usable:,} usable, longest source {self.longest_source:,} "
            f"and target {self.longest_target:,} characters{left_out}"
        )


class Corpus(abc.ABC):
    """Sentence pairs from anywhere. Each iteration reads them again: `(source, target)` strings.

    Every pair has a number, the line's in a file (from 1), which reports name. What a fault is,
    and what becomes of it:

    | kind | fault | rule |
    |---|---|---|
    | | the two files differ in length | error, with both counts |
    | | damaged gzip data | error |
    | `invalid_utf8` | a line is not UTF-8 | `invalid` |
    | `no_tab` | a line of tab-separated columns without a tab | `invalid` |
    | `not_object` | a line of JSON that is no object | `invalid` |
    | `no_text` | a JSON object without one of the keys, or with no string there | `invalid` |
    | `empty` | a side is empty or white space | left out of training, counted |
    | `too_long` | a side has more than `max_length` ids, EOS included | the same |

    `invalid="error"`, the default, stops at the first such line and names it; `"skip"` leaves it
    out and counts it, and `check` and `prepare` report the numbers of the first ten.

    To `check` a side of any white space of Unicode is empty; in training, one that its tokenizer
    has no pieces for: those of bytes, characters and words keep white space beyond ASCII as text.

    Example:
        >>> from keras_transformer.data import Corpus
        >>> class Numerals(Corpus):
        ...     name = "numerals"
        ...
        ...     def numbered_pairs(self, faults):
        ...         yield 1, "one", "uno"
        ...         yield 2, "two", "due"
        >>> list(Numerals())
        [('one', 'uno'), ('two', 'due')]
        >>> list(Numerals().sentences())
        ['one', 'uno', 'two', 'due']
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the corpus in messages."""

    @abc.abstractmethod
    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        """Yields `(number, source, target)`, and adds the lines that it skips to `faults`."""

    @property
    def files(self) -> Sequence[os.PathLike | str]:
        """The files that are read; empty for a dataset."""
        return ()

    def check_files(self) -> None:
        """Raises a `FileNotFoundError` if a file is missing, without reading any."""
        for file in self.files:
            check_file(file)

    def text_bytes(self) -> int | None:
        """About how many bytes of text there are; `None` if that is not known without reading."""
        return None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((source, target) for _, source, target in self.numbered_pairs(Faults()))

    def sentences(self) -> Iterator[str]:
        """Yields the text of both sides in turn, to train a joint vocabulary on."""
        return itertools.chain.from_iterable(self)

    def check(self) -> CorpusReport:
        """Reads everything once and reports.

        Returns:
            A `CorpusReport`.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if the sides differ in length, a line is faulty and `invalid` is
                `"error"`, no pair has text on both sides, or standard input was read before. The
                message names the file and line.
        """
        faults = Faults()
        good = empty_source = empty_target = longest_source = longest_target = 0
        for number, source, target in self.numbered_pairs(faults):
            no_source, no_target = not source.strip(), not target.strip()
            good += 1
            empty_source += no_source
            empty_target += no_target
            if no_source or no_target:
                faults.add("empty", [number])
            longest_source = max(longest_source, len(source))
            longest_target = max(longest_target, len(target))
        skipped = sum(faults.counts.values())
        pairs = good + skipped - faults.counts.get("empty", 0)
        if pairs == skipped:
            raise ValueError(
                "a corpus must hold a pair with text on both sides. "
                f"Received: {self.name} with {pairs} pairs"
            )
        return CorpusReport(
            pairs, empty_source, empty_target, skipped, longest_source, longest_target, faults
        )


def numbered_pairs(corpus, faults):
    """`(number, source, target)` of a `Corpus`, or of any iterable of pairs, from 1."""
    if isinstance(corpus, Corpus):
        return corpus.numbered_pairs(faults)
    return ((number, *pair) for number, pair in enumerate(corpus, start=1))


class FaultyLine(ValueError):
    """A line that holds no pair; `kind` as in the table of `Corpus`."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def decoded(line, place):
    """The text of a line's bytes.

    Raises:
        FaultyLine: if they are not UTF-8.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FaultyLine(
            "invalid_utf8", f"text must be UTF-8. Received: {place}: {error}"
        ) from error


SKIP_HINT = ' (with invalid="skip" such lines are left out)'


def parsed_pairs(items, parse, invalid, faults, first=1):
    """Yields `(number, source, target)` of what `parse(item, number)` gives for each item.

    `first` is the number of the first.
    """
    for number, item in enumerate(items, start=first):
        try:
            source, target = parse(item, number)
        except FaultyLine as error:
            if invalid == "error":
                raise FaultyLine(error.kind, f"{error}{SKIP_HINT}") from error.__cause__
            faults.add(error.kind, [number])
            continue
        yield number, source, target


def check_same_lines(corpus, counts):
    """Raises a `ValueError` if the files of a corpus have not equally many lines, `counts`."""
    if len(set(counts)) > 1:
        raise ValueError(
            "`source` and `target` must have the same number of lines. Received: "
            f"{corpus.source} with {counts[0]} and {corpus.target} with {counts[1]} lines"
        )


def check_invalid(invalid):
    if invalid not in ("error", "skip"):
        raise ValueError(f"`invalid` must be 'error' or 'skip'. Received: {invalid!r}")


@dataclasses.dataclass(frozen=True)
class ParallelCorpus(Corpus):
    """Sentence pairs in two files with a sentence a line, or in one tab-separated file.

    Each iteration reads the files again, a line at a time, and yields `(source, target)` strings,
    empty ones too. Files are UTF-8, plain or gzip (known by content, not by name).

    Args:
        source: The source sentences; or, without `target`, a file with the source in its first
            and the target in its second column, whose further columns are ignored. `"-"` is
            standard input, which can be read only once.
        target: The target sentences, line for line.
        invalid: What to do with a faulty line: `"error"` or `"skip"`, see `Corpus`. A skipped line
            of one file takes that of the other with it.

    Raises:
        ValueError: if `invalid` is neither.

    Example:
        >>> with open("train.en", "w") as english, open("train.de", "w") as german:
        ...     _ = english.write("A man rides.\\nTwo dogs.\\n")
        ...     _ = german.write("Ein Mann fährt.\\nZwei Hunde.\\n")
        >>> corpus = kt.ParallelCorpus("train.en", "train.de")
        >>> list(corpus)
        [('A man rides.', 'Ein Mann fährt.'), ('Two dogs.', 'Zwei Hunde.')]
    """

    source: str | pathlib.Path
    target: str | pathlib.Path | None = None
    invalid: str = "error"

    def __post_init__(self):
        check_invalid(self.invalid)

    @property
    def name(self) -> str:
        return str(self.source) if self.target is None else f"{self.source} and {self.target}"

    @property
    def files(self) -> Sequence[os.PathLike | str]:
        return (self.source,) if self.target is None else (self.source, self.target)

    def text_bytes(self) -> int | None:
        return file_bytes(*self.files)

    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        lines = read_byte_lines(self.source) if self.target is None else self._aligned_lines()
        return self.pairs_of_lines(lines, faults)

    def pairs_of_lines(self, lines, faults, first=1):
        """`numbered_pairs` of some lines as bytes, or of pairs of lines where there are two files.

        `first` is the number of the first.
        """
        parse = self._columns if self.target is None else self._both
        return parsed_pairs(lines, parse, self.invalid, faults, first)

    def _aligned_lines(self):
        sources, targets = (
            read_byte_lines(path, plain=True) for path in (self.source, self.target)
        )
        for pairs, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
            if source is None or target is None:
                longer = pairs + 1 + sum(1 for _ in (targets if source is None else sources))
                check_same_lines(self, (pairs, longer) if source is None else (longer, pairs))
            yield source, target

    def _both(self, lines, number):
        source, target = lines
        return (
            decoded(source, f"{self.source}, line {number}"),
            decoded(target, f"{self.target}, line {number}"),
        )

    def _columns(self, line, number):
        place = f"{self.source}, line {number}"
        source, tab, rest = decoded(line, place).partition("\t")
        if not tab:
            raise FaultyLine(
                "no_tab",
                "every line must have a tab between source and target. "
                f"Received: {place}: {source[:80]!r}",
            )
        return source, rest.partition("\t")[0]


def file_bytes(*paths):
    """About how many bytes of text the files hold, packed or not; `None` with standard input."""
    if any(str(path) == "-" or not os.path.isfile(path) for path in paths):
        return None
    return sum(
        os.path.getsize(path) * (_GZIP_RATIO if str(path).endswith(".gz") else 1) for path in paths
    )
