"""A corpus to shards on disk, in one pass and with memory that does not grow with it."""

import contextlib
import os
from collections.abc import Iterable

import numpy as np

from keras_transformer.arguments import check_integer
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.faults import Faults
from keras_transformer.data.places import is_remote, remote_folder
from keras_transformer.data.shard_index import INDEX, make_index, shard_file
from keras_transformer.data.shards import PreparedCorpus, ShardWriter, shard_of
from keras_transformer.data.tokenized import check_not_empty, corpus_name, tokenized_chunks
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.tokenizers.base import Tokenizer, check_special_ids

KIND = "a prepared corpus"
_SHARD_TEXT = 64 << 20  # bytes of text, both sides
_SHARDS = 16  # where nothing is known
_MOST_SHARDS = 1000  # as many files are open at once


def prepare(
    corpus: Corpus | Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    folder: os.PathLike | str,
    *,
    max_length: int,
    target_tokenizer: Tokenizer | None = None,
    shards: int | None = None,
    seed: int = 0,
    compression: str | None = None,
) -> PreparedCorpus:
    """Tokenizes a corpus into shards, which `training_batches` reads as a `PreparedCorpus`.

    Pairs are spread over the shards by a hash of `(seed, number of the pair)`, so every shard is a
    random sample of the corpus, and within a shard they keep their order. What `tokenize_corpus`
    leaves out is left out here. The same input gives the same bytes. The tokenizers are written
    beside the shards; the folder appears when all is done.

    Args:
        corpus: A `Corpus` (standard input too: it is read once), or an iterable of pairs.
        tokenizer: A `Tokenizer`.
        folder: The folder to make; on this machine, or where `tf.io.gfile` reaches it, such as
            `"gs://bucket/prepared"`. There it is not renamed: the index is written last, and you
            see to it that one process writes it.
        max_length: The most ids of a side, EOS included.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        shards: How many. Training holds two in memory. When `None`: one for every 64 MiB of text
            where the corpus is files, else 16.
        seed: An integer >= 0, for the spreading.
        compression: `"GZIP"` or `None`.

    Returns:
        A `PreparedCorpus`.

    Raises:
        FileExistsError: if `folder` exists and is not empty.
        TargetInUseError: if another process is writing it.
        OSError: if the shards cannot be written.
        ValueError: if an argument is out of range, a line is faulty, a text is no string or holds
            a lone surrogate, or no pair is left.

    Example:
        >>> from keras_transformer.data import prepare
        >>> pairs = [("ab", "c"), ("a", "bc"), ("", "b")]
        >>> corpus = prepare(pairs, kt.BytesTokenizer(), "prepared", max_length=8, shards=2)
        >>> len(corpus), corpus.shards, corpus.skipped
        (2, 2, {'empty': 1, 'too_long': 0})
    """
    shards = check_options(corpus, max_length, shards, seed, compression)
    tokenizers = tokenizer, target_tokenizer or tokenizer
    faults = Faults()
    names = [shard_file(shard, shards) for shard in range(shards)]
    with _folder(folder, names) as temporary, contextlib.ExitStack() as open_files:
        check_special_ids(*tokenizers)
        writers = []
        for name in names:
            writers.append(ShardWriter(temporary / name, name, compression, max_length))
            open_files.callback(writers[-1].close)
        for numbers, *columns in tokenized_chunks(corpus, tokenizers, max_length, faults):
            places = shard_of(numbers, shards, seed).tolist()
            for place, source, target in zip(places, *rows(columns), strict=True):
                writers[place].write(source, target)
        entries = [writer.close() for writer in writers]
        options = {"max_length": max_length, "seed": seed, "compression": compression}
        finish(temporary, corpus, tokenizer, target_tokenizer, entries, faults, **options)
    return PreparedCorpus(folder)


def _folder(folder, names):
    """A folder that appears whole. What is for a remote one is first made on this machine."""
    if is_remote(folder):
        return remote_folder(folder, names, last=INDEX, what=KIND)
    return new_folder(folder, what=KIND)


def finish(folder, corpus, tokenizer, target_tokenizer, entries, faults, **options):
    """Writes what stands beside the shards: the tokenizers, and the index of their entries.

    Raises:
        ValueError: if there is no pair.
    """
    pairs = sum(entry["pairs"] for entry in entries)
    check_not_empty(corpus, pairs, options["max_length"], faults)
    save_tokenizers(folder, tokenizer, target_tokenizer)
    tokenizers = tokenizer, target_tokenizer or tokenizer
    index = make_index(corpus_name(corpus), tokenizers, faults=faults, shards=entries, **options)
    (folder / INDEX).write_text(index, encoding="utf-8")


def check_options(corpus, max_length, shards, seed, compression):
    """Returns the number of shards."""
    check_integer(2, max_length=max_length)
    check_integer(0, seed=seed)
    if seed >= 1 << 63:
        raise ValueError(f"`seed` must be below 2^63. Received: {seed}")
    if shards is None:
        size = corpus.text_bytes() if hasattr(corpus, "text_bytes") else None
        shards = _SHARDS if size is None else min(_MOST_SHARDS, max(1, -(-size // _SHARD_TEXT)))
    check_integer(1, shards=shards)
    if shards > _MOST_SHARDS:
        raise ValueError(f"`shards` must be at most {_MOST_SHARDS}. Received: {shards}")
    if compression not in (None, "GZIP"):
        raise ValueError(f"`compression` must be 'GZIP' or None. Received: {compression!r}")
    return shards


def rows(columns):
    """The rows of sources and of targets, from flat values and lengths of each."""
    for values, lengths in (columns[:2], columns[2:]):
        yield np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []


def save_tokenizers(folder, tokenizer, target_tokenizer):
    tokenizer.save(folder / f"tokenizer{tokenizer.file_suffix}")
    if target_tokenizer is not None:
        target_tokenizer.save(folder / f"target_tokenizer{target_tokenizer.file_suffix}")
