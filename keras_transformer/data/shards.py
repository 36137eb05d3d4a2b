"""A tokenized corpus on disk: shards of TFRecords, and an index from which batches are planned.

A record is a `tf.train.Example` with two int64 lists, `source` and `target`: ids without BOS and
EOS. The index, `prepared.json`, holds per shard how many pairs need how many positions, so that no
pass over the data is needed to count batches or to choose buckets.
"""

import copy
import functools
import gzip
import hashlib
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator

import numpy as np

from keras_transformer.data.corpus import CorpusReport
from keras_transformer.data.faults import Faults
from keras_transformer.data.places import near, open_bytes, path_in, place, status
from keras_transformer.data.shard_index import (
    INDEX,
    SMALL_FILES,
    length_counts,
    read_index,
    tokenizer_fingerprints,
)
from keras_transformer_runner.tokenizers.base import Tokenizer
from keras_transformer_runner.tokenizers.files import find_tokenizer, load_tokenizer

_READ_CHUNK = 65536  # pairs parsed at once
_BLOCK = 1 << 20  # bytes of a file read at once
_RULE = f"a shard must be as {INDEX} says. Received:"
_RULE_OF_ROWS = f"lengths and ids of a {_RULE.removeprefix('a ')}"


def shard_of(numbers, shards, seed):
    """The shard of each pair number: SplitMix64's finalizer (Steele et al., 2014) of both.

    Args:
        numbers: int64 array.

    Returns:
        int64 array, each in [0, shards).
    """
    mixed = _mix(np.asarray(numbers).astype(np.uint64) ^ _mix(np.array([seed], np.uint64)))
    return (mixed % np.uint64(shards)).astype(np.int64)


def _mix(values):
    values = values + np.uint64(0x9E3779B97F4A7C15)  # wraps around
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class ShardWriter:
    """Writes one shard, pair after pair, and keeps what the index says about it."""

    def __init__(self, path, name, compression, max_length):
        import tensorflow as tf

        options = tf.io.TFRecordOptions(compression_type=compression or "")
        self._path, self._name = pathlib.Path(path), name
        self._error = tf.errors.OpError
        self._writer = self._told(tf.io.TFRecordWriter, str(path), options)
        self._digest = hashlib.sha256()
        self._lengths = np.zeros(max_length + 1, np.int64)
        self._feature = tf.train.Feature
        self._int64_list = tf.train.Int64List
        self._features = tf.train.Features
        self._example = tf.train.Example

    def write(self, source, target):
        """Appends a pair of int32 arrays of ids."""
        feature = {
            name: self._feature(int64_list=self._int64_list(value=ids))
            for name, ids in (("source", source), ("target", target))
        }
        example = self._example(features=self._features(feature=feature))
        record = example.SerializeToString(deterministic=True)
        self._told(self._writer.write, record)
        self._digest.update(record)
        self._lengths[max(len(source), len(target)) + 1] += 1

    def close(self):
        """Ends the file; returns the shard's entry of the index."""
        self._told(self._writer.close)
        lengths = np.flatnonzero(self._lengths)
        return {
            "file": self._name,
            "pairs": int(self._lengths.sum()),
            "length_counts": [[int(at), int(self._lengths[at])] for at in lengths],
            "sha256": self._digest.hexdigest(),  # of its records, whatever the compression
            "file_sha256": _file_checksum(self._path),
            "bytes": self._path.stat().st_size,
        }

    def _told(self, do, *arguments):
        try:
            return do(*arguments)
        except self._error as error:
            raise OSError(
                f"a shard must be written whole. Received: {self._name}: {error.message}"
            ) from error


class PreparedCorpus:
    """A tokenized corpus in a folder that `prepare` wrote, of which little is in memory at a time.

    It can stand for a `TokenizedCorpus` in `training_batches` and the functions beside it.

    Args:
        folder: The folder; on this machine, or where TensorFlow's `tf.io.gfile` reaches it, such as
            `"gs://bucket/prepared"`: then index and tokenizers are copied here, and each shard is
            read from there.

    Attributes:
        folder: The folder, as a `pathlib.Path`, or as text if it is remote.
        skipped: How many pairs were left out, by reason.
        skipped_lines: The numbers of the first ten lines of each.
        max_length: The most ids of a side, EOS included.
        fingerprint: A hash of all ids and of the tokenizers.
        length_counts: int64 `(shards, longest + 1)`: how many pairs need how many positions.

    Raises:
        FileNotFoundError: if there is no index, or a file that it lists is missing.
        OSError: if a remote folder cannot be reached.
        ValueError: if the index cannot be right, or a file is not what it lists.

    Example:
        >>> from keras_transformer.data import PreparedCorpus, prepare
        >>> _ = prepare([("ab", "c")], kt.BytesTokenizer(), "prepared", max_length=8)
        >>> corpus = PreparedCorpus("prepared")
        >>> len(corpus), corpus.max_length, list(corpus.decoded())
        (1, 8, [('ab', 'c')])
    """

    def __init__(self, folder: os.PathLike | str):
        self.folder = place(folder)
        self._near = near(folder, SMALL_FILES)
        self._fields = fields = read_index(folder, self._near.path)
        self.skipped, self.skipped_lines = fields["skipped"], fields["skipped_lines"]
        self.max_length, self.fingerprint = fields["max_length"], fields["fingerprint"]
        self._shards, self._compression = fields["shards"], fields["compression"] or ""
        self.length_counts = length_counts(fields)
        self._checked = {}  # what the system says of each shard that was as it must be

    def __len__(self) -> int:
        return self._fields["pairs"]

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._shards)

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of the sources, from its file in the folder."""
        return load_tokenizer(find_tokenizer(self._near.path))

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of the targets."""
        *_, name = tokenizer_fingerprints(self._fields)
        return load_tokenizer(find_tokenizer(self._near.path, name))

    def check_tokenizers(
        self, tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None
    ) -> None:
        """Raises a `ValueError` if these are not the tokenizers that the ids are from."""
        for side, given in (
            ("tokenizer", tokenizer),
            ("target_tokenizer", target_tokenizer or tokenizer),
        ):
            if given.fingerprint != self._fields[side]["fingerprint"]:
                raise ValueError(
                    f"`{side}` must be the one that the corpus was prepared with. Received: "
                    f"fingerprint={given.fingerprint}, where {path_in(self.folder, INDEX)} has "
                    f"{self._fields[side]['fingerprint']}"
                )

    def up_to(self, length: int) -> "PreparedCorpus":
        """The same corpus without the pairs that need more than `length` positions.

        They count as too long. Where they are in the shards, `training_batches` passes over them.

        Raises:
            ValueError: if no pair is left.
        """
        cut = copy.copy(self)
        cut.length_counts = self.length_counts[:, : length + 1]
        cut._fields = self._fields | {"pairs": int(cut.length_counts.sum())}
        if not len(cut):
            raise ValueError(
                f"a corpus must hold a pair of at most {length} ids a side, EOS included. "
                f"Received: {self.name} without one"
            )
        cut.skipped = dict(self.skipped)
        cut.skipped["too_long"] += len(self) - len(cut)
        cut.skipped_lines = {"too_long": []} | self.skipped_lines  # a shard knows no numbers
        return cut

    def check(self) -> CorpusReport:
        """What `prepare` found, as a `CorpusReport`.

        Lengths are in ids, EOS included, and of both sides together; and so are empty sides.
        """
        faults = Faults({k: n for k, n in self.skipped.items() if n}, self.skipped_lines)
        skipped, longest = sum(self.skipped.values()), self.length_counts.shape[1] - 1
        pairs = len(self) + skipped
        empty = self.skipped["empty"]
        return CorpusReport(pairs, empty, empty, skipped, longest, longest, faults)

    def shard_reader(self) -> Callable:
        """A function of a shard's number that reads it in a graph.

        Before the first reading its checksum is compared with the index, and again when the file
        has changed since.

        Returns:
            Function of an int64 scalar to two int32 `RaggedTensor` `(pairs, None)`. When it runs
            on a file that is not what the index says, it is a `tf.errors.InvalidArgumentError`.
        """
        import tensorflow as tf

        paths = tf.constant([str(path_in(self.folder, shard["file"])) for shard in self._shards])
        lengths_of_shards = tf.constant(self.length_counts)
        sides = self._fields["tokenizer"], self._fields["target_tokenizer"]
        sizes = [tf.constant(side["vocab_size"], tf.int64) for side in sides]

        def read(shard):
            fault = tf.ensure_shape(tf.numpy_function(self._fault, [shard], tf.string), ())
            with _checked(fault == "", _RULE, fault):
                path = tf.identity(tf.gather(paths, shard))
            source, target = _read_records(path, self._compression)
            lengths = tf.maximum(source.row_lengths(), target.row_lengths()) + 1
            size = lengths_of_shards.shape[1]
            found = tf.math.bincount(
                tf.cast(lengths, tf.int32), minlength=size, maxlength=size, dtype=tf.int64
            )
            same = tf.reduce_all(found == tf.gather(lengths_of_shards, shard))
            for side, vocab_size in zip((source, target), sizes, strict=True):
                values = tf.cast(side.values, tf.int64)
                same &= tf.reduce_all((values >= 0) & (values < vocab_size))
            with _checked(same, _RULE_OF_ROWS, path):
                return source.with_values(tf.identity(source.values)), target

        return read

    def _fault(self, shard):
        """What is wrong with a shard's file, as bytes; none of one that is as it must be."""
        entry = self._shards[shard]
        path = path_in(self.folder, entry["file"])
        try:
            found = status(path)
            if self._checked.get(entry["file"]) == found:
                return b""
            if "file_sha256" in entry:
                expected, received = entry["file_sha256"], _file_checksum(path)
            else:  # of an earlier version of this package
                expected = entry["sha256"]
                received = _records_checksum(path, self._compression, self.max_length)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            return f"{path}: {error}".encode("utf-8", "backslashreplace")
        if received != expected:
            message = f"{path}: sha256 {received}, expected {expected}"
            return message.encode("utf-8", "backslashreplace")
        self._checked[entry["file"]] = found
        return b""

    def decoded(self) -> Iterator[tuple[str, str]]:
        """Yields `(source, target)` strings, shard after shard: `corpus_text` of the tokenizers.

        Text that was split before, for a vocabulary, is split as it was.

        Raises:
            ValueError: if a shard is not what the index says.
        """
        text_of = self.source_tokenizer.corpus_text, self.target_tokenizer.corpus_text
        for shard in range(self.shards):
            source, target = (side.to_list() for side in self._read(shard))
            yield from ((text_of[0](s), text_of[1](t)) for s, t in zip(source, target, strict=True))

    def _read(self, shard):
        import tensorflow as tf

        try:
            return self.shard_reader()(np.int64(shard))
        except tf.errors.OpError as error:
            path = path_in(self.folder, self._shards[shard]["file"])
            message = error.message.split()
            fault = self._fault(shard).decode() or f"{path}: {' '.join(message)}"
            raise ValueError(f"{_RULE} {fault}") from error


def _checked(is_right, rule, received):
    """What follows in a graph waits for the check; without a graph it has been made."""
    import tensorflow as tf

    check = tf.debugging.Assert(is_right, [rule, received])
    return tf.control_dependencies([] if check is None else [check])


def _file_checksum(path):
    digest = hashlib.sha256()
    with open_bytes(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _records_checksum(path, compression, max_length):
    """The SHA-256 of a file's records, one behind the other.

    Raises:
        OSError, EOFError, zlib.error: if the file cannot be read.
        ValueError: if it is no file of records of at most `max_length` ids a side.
    """
    digest, longest = hashlib.sha256(), 20 * max_length + 1024  # an id has at most 10 bytes
    with open_bytes(path) as opened, gzip.open(opened) if compression else opened as file:
        # A record lies between its length of 8 bytes, and 4 each to check that and the record.
        while head := file.read(12):
            size = int.from_bytes(head[:8], "little")
            record = file.read(size + 4) if size <= longest else b""
            if len(head) + len(record) != size + 16:
                raise ValueError("a record that is not whole")
            digest.update(memoryview(record)[:size])
    return digest.hexdigest()


def _read_records(path, compression):
    """The sources and targets of a file, int32 `RaggedTensor`s.

    They grow chunk by chunk: as int64 and as records they would take several times the memory.
    """
    import tensorflow as tf

    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    features = {"source": feature, "target": feature}  # parsed in the order of their names
    records = tf.data.TFRecordDataset(path, compression_type=compression).batch(_READ_CHUNK)

    @tf.autograph.experimental.do_not_convert
    def append(state, chunk):
        columns = []
        for side in tf.io.parse_example(chunk, features).values():
            columns += [tf.cast(side.values, tf.int32), side.row_lengths()]
        return tuple(tf.concat(pair, axis=0) for pair in zip(state, columns, strict=True))

    empty = tf.zeros([0], tf.int32), tf.zeros([0], tf.int64)
    states = records.reduce((*empty, *empty), append)
    make = functools.partial(tf.RaggedTensor.from_row_lengths, validate=False)
    return make(*states[:2]), make(*states[2:])
