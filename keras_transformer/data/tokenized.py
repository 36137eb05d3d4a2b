"""Sentence pairs as ids, in memory."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable

import numpy as np

from keras_transformer.arguments import check_integer
from keras_transformer.data.corpus import Corpus, numbered_pairs
from keras_transformer.data.faults import Faults
from keras_transformer_runner.tokenizers.base import Tokenizer

CHUNK = 8192  # pairs tokenized at once


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """Sentence pairs as ids without BOS and EOS, each side one flat array.

    Attributes:
        source_values: int32, the ids of all sources, one after the other.
        source_lengths: int32 `(pairs,)`, ids per source.
        target_values: int32, the ids of all targets.
        target_lengths: int32 `(pairs,)`, ids per target.
        skipped: How many pairs were left out, by reason: `"empty"`, `"too_long"`, and what else
            the table of `Corpus` names.
        skipped_lines: The numbers of the first ten lines of each.

    Example:
        >>> from keras_transformer.data import tokenize_corpus
        >>> corpus = tokenize_corpus([("ab", "c"), ("a", "")], kt.BytesTokenizer(), max_length=5)
        >>> len(corpus), corpus.source_values, corpus.target_values
        (1, array([101, 102], dtype=int32), array([103], dtype=int32))
        >>> corpus.skipped
        {'empty': 1, 'too_long': 0}
    """

    source_values: np.ndarray
    source_lengths: np.ndarray
    target_values: np.ndarray
    target_lengths: np.ndarray
    skipped: dict
    skipped_lines: dict = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.source_lengths)

    @property
    def pair_lengths(self) -> np.ndarray:
        """int32 `(pairs,)`: positions that a pair needs, the longer side and its EOS."""
        return np.maximum(self.source_lengths, self.target_lengths) + 1

    @property
    def length_counts(self) -> np.ndarray:
        """int64 `(1, longest + 1)`: how many pairs need how many positions; one shard."""
        return np.bincount(self.pair_lengths)[None].astype(np.int64)

    @property
    def fingerprint(self) -> str:
        """A hash of all ids."""
        digest = hashlib.sha256()
        for side in ("source", "target"):
            digest.update(getattr(self, f"{side}_values").tobytes())
            digest.update(getattr(self, f"{side}_lengths").tobytes())
        return digest.hexdigest()

    def shard_reader(self) -> Callable:
        """A function of a shard's number that gives its sources and targets in a graph.

        Returns:
            Function of an int64 scalar to two int32 `RaggedTensor` `(pairs, None)`.
        """
        import tensorflow as tf

        with tf.device("CPU"):
            sides = tuple(
                tf.RaggedTensor.from_row_splits(
                    values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
                )
                for values, lengths in (
                    (self.source_values, self.source_lengths),
                    (self.target_values, self.target_lengths),
                )
            )
        return lambda shard: sides


def tokenize_corpus(
    corpus: Corpus | Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    target_tokenizer: Tokenizer | None = None,
) -> TokenizedCorpus:
    """Tokenizes a corpus in memory, chunk by chunk; `prepare` does it for one that is too large.

    A pair with a side that has no pieces is left out. So is one with a side of more than
    `max_length` ids, EOS included: cutting it off would teach the model never to stop.

    Args:
        corpus: A `Corpus`, or an iterable of `(source, target)` strings.
        tokenizer: A `Tokenizer`.
        max_length: The most ids of a side, EOS included.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.

    Returns:
        A `TokenizedCorpus`.

    Raises:
        ValueError: if `max_length` is not an integer >= 2, a text is no string or holds a lone
            surrogate, or no pair is left.

    Example:
        >>> from keras_transformer.data import tokenize_corpus
        >>> tokenizer = kt.CharacterTokenizer("abc")
        >>> corpus = tokenize_corpus([("ab", "c"), ("abcabc", "c")], tokenizer, max_length=5)
        >>> len(corpus), corpus.source_values.tolist(), corpus.skipped
        (1, [4, 5], {'empty': 0, 'too_long': 1})
    """
    check_integer(2, max_length=max_length)
    faults = Faults()
    tokenizers = tokenizer, target_tokenizer or tokenizer
    chunks = [columns for _, *columns in tokenized_chunks(corpus, tokenizers, max_length, faults)]
    columns = [np.concatenate(column) for column in zip(*chunks, strict=True)]
    check_not_empty(corpus, len(columns[1]) if columns else 0, max_length, faults)
    return TokenizedCorpus(*columns, skipped_counts(faults), faults.lines)


def skipped_counts(faults):
    """The counts of faults; those of tokenizing are there even if there were none."""
    return {"empty": 0, "too_long": 0} | faults.counts


def check_not_empty(corpus, pairs, max_length, faults):
    if not pairs:
        raise ValueError(
            "`corpus` must hold a pair with text on both sides and at most `max_length` ids. "
            f"Received: {corpus_name(corpus)}, max_length={max_length}, skipped pairs: "
            f"{skipped_counts(faults)}"
        )


def corpus_name(corpus):
    return getattr(corpus, "name", type(corpus).__name__)


def tokenized_chunks(corpus, tokenizers, max_length, faults):
    """Yields what `tokenize_chunk` gives for chunk after chunk of a corpus."""
    pairs = iter(numbered_pairs(corpus, faults))
    while chunk := list(itertools.islice(pairs, CHUNK)):
        yield tokenize_chunk(chunk, tokenizers, max_length, faults)


def tokenize_chunk(pairs, tokenizers, max_length, faults):
    """The ids of a list of `(number, source, target)`.

    Returns:
        int64 numbers of the pairs kept; then int32 values and lengths of the sources, and of the
        targets, as in `TokenizedCorpus`.

    Raises:
        ValueError: if a text is no string, or holds a lone surrogate.
    """
    numbers, *texts = zip(*pairs, strict=True)
    sides = [
        tokenizer.tf_encode([_utf8(*each, name) for each in zip(side, numbers, strict=True)])
        for tokenizer, side, name in zip(tokenizers, texts, ("source", "target"), strict=True)
    ]
    numbers = np.array(numbers, np.int64)
    values = [side.flat_values.numpy() for side in sides]
    lengths = [side.row_lengths().numpy().astype(np.int32) for side in sides]
    empty = np.minimum(*lengths) == 0
    too_long = ~empty & (np.maximum(*lengths) + 1 > max_length)
    faults.add("empty", numbers[empty])
    faults.add("too_long", numbers[too_long])
    keep = ~(empty | too_long)
    columns = [numbers[keep]]
    for side_values, side_lengths in zip(values, lengths, strict=True):
        columns += [side_values[np.repeat(keep, side_lengths)], side_lengths[keep]]
    return columns


def _utf8(text, number, side):
    """The bytes of a text, which a graph reads."""
    try:
        return text.encode("utf-8")
    except (AttributeError, UnicodeEncodeError):
        raise ValueError(
            f"the {side} of a pair must be a string without lone surrogates. "
            f"Received: pair {number} with {text!r:.80}"
        ) from None
