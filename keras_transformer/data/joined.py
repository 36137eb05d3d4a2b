"""Several corpora as one, and how often an epoch has the pairs of each."""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from keras_transformer.arguments import check_positive
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.faults import Faults
from keras_transformer.data.tokenized import TokenizedCorpus


@dataclasses.dataclass(frozen=True)
class TaggedCorpus(Corpus):
    """A corpus with the same words before every source, such as the language to translate to.

    Args:
        corpus: A `Corpus`.
        tag: The words.

    Example:
        >>> from keras_transformer.data import TaggedCorpus
        >>> with open("pairs.tsv", "w") as file:
        ...     _ = file.write("one\\tuno\\n")
        >>> list(TaggedCorpus(kt.ParallelCorpus("pairs.tsv"), "<es>"))
        [('<es> one', 'uno')]
    """

    corpus: Corpus
    tag: str

    @property
    def name(self) -> str:
        return f"{self.corpus.name} with {self.tag}"

    @property
    def files(self) -> Sequence:
        return self.corpus.files

    def text_bytes(self) -> int | None:
        return self.corpus.text_bytes()

    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        for number, source, target in self.corpus.numbered_pairs(faults):
            # A source without text becomes one that no tokenizer has pieces for.
            yield number, f"{self.tag} {source}" if source.strip() else "", target


@dataclasses.dataclass(frozen=True)
class JoinedCorpus(Corpus):
    """Corpora one behind the other.

    Pairs keep the numbers that they have in their part, so that reports count faults without
    naming lines.

    Args:
        parts: A sequence of `Corpus`.

    Example:
        >>> from keras_transformer.data import JoinedCorpus
        >>> for name in ("a", "b"):
        ...     with open(name, "w") as file:
        ...         _ = file.write(f"{name}1\\tx\\n{name}2\\tx\\n")
        >>> corpus = JoinedCorpus([kt.ParallelCorpus("a"), kt.ParallelCorpus("b")])
        >>> [source for source, _ in corpus], [source for source, _ in corpus.in_turn()]
        (['a1', 'a2', 'b1', 'b2'], ['a1', 'b1', 'a2', 'b2'])
    """

    parts: Sequence[Corpus]

    @property
    def name(self) -> str:
        return ", ".join(part.name for part in self.parts)

    @property
    def files(self) -> Sequence:
        return [file for part in self.parts for file in part.files]

    def numbered_pairs(self, faults: Faults) -> Iterator[tuple[int, str, str]]:
        faults.leave_out_lines()
        return itertools.chain.from_iterable(part.numbered_pairs(faults) for part in self.parts)

    def in_turn(self) -> Iterator[tuple[str, str]]:
        """Yields a pair of each part, and again, until all are at their end."""
        for pairs in itertools.zip_longest(*self.parts):
            yield from (pair for pair in pairs if pair is not None)


def weights_of_temperature(sizes: Sequence[int], temperature: float) -> list[float]:
    """Weights that sample corpora in proportion to the `temperature`-th root of their size.

    An epoch is as long as without (Arivazhagan et al. 2019, arXiv 1907.05019, sec. 4).

    Args:
        sizes: Pairs of each corpus.
        temperature: 1 for each pair once; the larger, the more equal are the corpora: at infinity
            they are.

    Raises:
        ValueError: if `temperature` is not positive.

    Example:
        >>> from keras_transformer.data import weights_of_temperature
        >>> weights_of_temperature([100, 400], temperature=2)
        [1.6666666666666665, 0.8333333333333333]
    """
    if temperature != math.inf:
        check_positive(temperature=temperature)
    sizes = np.asarray(sizes, "float64")
    shares = (sizes / sizes.sum()) ** (1 / temperature)
    return (shares / shares.sum() * sizes.sum() / sizes).tolist()


def join_tokenized(parts: Sequence[TokenizedCorpus]) -> TokenizedCorpus:
    """Tokenized corpora one behind the other.

    Example:
        >>> from keras_transformer.data import join_tokenized, tokenize_corpus
        >>> one = tokenize_corpus([("a", "b")], kt.CharacterTokenizer("ab"), max_length=4)
        >>> len(join_tokenized([one, one]))
        2
    """
    columns = ("source_values", "source_lengths", "target_values", "target_lengths")
    kinds = dict.fromkeys(kind for part in parts for kind in part.skipped)
    return TokenizedCorpus(
        *(np.concatenate([getattr(part, column) for part in parts]) for column in columns),
        {kind: sum(part.skipped.get(kind, 0) for part in parts) for kind in kinds},
    )


class MixedCorpus:
    """Tokenized corpora of which an epoch has each pair more or less often than once.

    It can stand for a `TokenizedCorpus` in `training_batches` and the functions beside it. Which
    pairs an epoch has depends on its number alone. They take turns: no pair of a corpus comes a
    second time before all (of about its length) have come once. Every epoch has as many pairs of
    each length, so that batches are planned in advance; where a weight leaves less than one pair
    of a length, neighbouring lengths take turns in the place of the longest.

    Args:
        parts: `TokenizedCorpus`es.
        weights: How often an epoch has the pairs of each: 1 is once, 0.5 every second one.

    Raises:
        ValueError: if a weight is not positive, or leaves none of a corpus.

    Example:
        >>> from keras_transformer.data import MixedCorpus, tokenize_corpus
        >>> tokenizer = kt.CharacterTokenizer("ab")
        >>> small = tokenize_corpus([("a", "b")], tokenizer, max_length=4)
        >>> large = tokenize_corpus([("b", "a")] * 9, tokenizer, max_length=4)
        >>> len(MixedCorpus([small, large], weights=[3, 0.5]))
        8
    """

    def __init__(self, parts: Sequence[TokenizedCorpus], weights: Sequence[float]):
        if len(parts) != len(weights):
            raise ValueError(
                "`weights` must be as many as `parts`. "
                f"Received: {len(weights)} weights, {len(parts)} parts"
            )
        self.whole = join_tokenized(parts)
        self.weights = tuple(weights)
        self.skipped = self.whole.skipped
        groups, first = [], 0
        for part, weight in zip(parts, weights, strict=True):
            check_positive(weight=weight)
            groups += _groups(part.pair_lengths, weight, first)
            first += len(part)
        self._groups = groups

    def __len__(self) -> int:
        return sum(taken for _, taken, _ in self._groups)

    @property
    def length_counts(self) -> np.ndarray:
        """int64 `(1, longest + 1)`: for how many positions pairs of an epoch are planned."""
        return np.bincount(self._slots(2))[None].astype(np.int64)

    @property
    def fingerprint(self) -> str:
        """A hash of all ids and of the weights."""
        return hashlib.sha256(f"{self.whole.fingerprint} {self.weights}".encode()).hexdigest()

    def epoch_reader(self) -> Callable:
        """A function of an epoch's number that gives its pairs in a graph.

        Returns:
            Function of an int64 scalar to two int32 `RaggedTensor` `(pairs, None)`, and int64
            `(pairs,)`: the positions that each is planned for.
        """
        import tensorflow as tf

        sizes = np.array([len(members) for members, _, _ in self._groups])
        taken = np.array([count for _, count, _ in self._groups])
        starts = np.cumsum(sizes) - sizes
        turns = np.concatenate([np.arange(count) for count in taken])
        order = np.concatenate([members for members, _, _ in self._groups])
        columns = (np.repeat(each, taken) for each in (sizes, taken, starts))
        with tf.device("CPU"):
            size, step, start = (tf.constant(column, tf.int64) for column in columns)
            order, turns, planned = (
                tf.constant(each, tf.int64) for each in (order, turns, self._slots(2))
            )
        pairs = self.whole.shard_reader()(0)

        def read(epoch):
            rows = tf.gather(order, start + (epoch * step + turns) % size)
            return (*(tf.gather(side, rows) for side in pairs), planned)

        return read

    def _slots(self, field):
        """A field of its group for each pair of an epoch."""
        return np.concatenate([np.full(group[1], group[field]) for group in self._groups])


def _groups(lengths, weight, first):
    """Pairs of a length that take turns: lists of `(pairs, pairs an epoch, length)`.

    A group is so large that an epoch has at least one of it.
    """
    found, members = [], []
    for length in np.unique(lengths):
        members.append(np.flatnonzero(lengths == length) + first)
        if weight * sum(map(len, members)) >= 1:
            found.append([np.concatenate(members), int(length)])
            members = []
    if not found:
        raise ValueError(
            "`weights` must leave a pair of each corpus in an epoch. "
            f"Received: weight={weight} for {len(lengths)} pairs"
        )
    if members:  # the longest are too few
        found[-1] = [np.concatenate([found[-1][0], *members]), int(lengths.max())]
    ends = np.cumsum([len(pairs) for pairs, _ in found])
    counts = np.diff(np.floor(weight * ends + 0.5).astype(int), prepend=0)
    shuffle = np.random.default_rng(first).permutation
    return [
        (shuffle(pairs), int(count), length)
        for (pairs, length), count in zip(found, counts, strict=True)
    ]
