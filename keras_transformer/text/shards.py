"""A tokenized corpus on disk: shards of TFRecords, and an index from which batches are planned.

A record is a `tf.train.Example` with two int64 lists, `source` and `target`: ids without BOS and
EOS. The index, `prepared.json`, holds per shard how many pairs need how many positions, so that no
pass over the data is needed to count batches or to choose buckets.
"""

import copy
import functools
import hashlib
import json
import pathlib

import numpy as np

from keras_transformer.text.corpus import CorpusReport
from keras_transformer.text.lines import Faults
from keras_transformer.text.tokenized import TokenizedCorpus
from keras_transformer.text.tokenizer import find_tokenizer, load_tokenizer

INDEX = "prepared.json"
FORMAT = 1
_READ_CHUNK = 65536  # pairs parsed at once
_IDS = ("vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")


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


def shard_file(shard, shards):
    return f"shard-{shard:05d}-of-{shards:05d}.tfrecord"


class ShardWriter:
    """Writes one shard, pair after pair, and keeps what the index says about it."""

    def __init__(self, path, name, compression, max_length):
        import tensorflow as tf

        options = tf.io.TFRecordOptions(compression_type=compression or "")
        self._name = name
        self._writer = tf.io.TFRecordWriter(str(path), options)
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
        self._writer.write(record)
        self._digest.update(record)
        self._lengths[max(len(source), len(target)) + 1] += 1

    def close(self):
        """Ends the file; returns the shard's entry of the index."""
        self._writer.close()
        lengths = np.flatnonzero(self._lengths)
        return {
            "file": self._name,
            "pairs": int(self._lengths.sum()),
            "length_counts": [[int(at), int(self._lengths[at])] for at in lengths],
            "sha256": self._digest.hexdigest(),
        }


def make_index(name, tokenizers, *, max_length, seed, compression, faults, shards):
    """The content of `prepared.json`, as a string."""
    fields = {
        "format": FORMAT,
        "corpus": name,
        "max_length": max_length,
        "seed": seed,
        "compression": compression,
        "pairs": sum(shard["pairs"] for shard in shards),
        "skipped": {"empty": 0, "too_long": 0} | faults.counts,
        "skipped_lines": faults.lines,
    }
    for side, tokenizer in zip(("tokenizer", "target_tokenizer"), tokenizers, strict=True):
        fields[side] = {"fingerprint": tokenizer.fingerprint}
        fields[side] |= {name: int(getattr(tokenizer, name)) for name in _IDS}
    fields["shards"] = shards
    contents = [fields["tokenizer"], fields["target_tokenizer"]]
    contents += [shard["sha256"] for shard in shards]
    fields["fingerprint"] = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    return json.dumps(fields, sort_keys=True) + "\n"


class PreparedCorpus:
    """A folder that `prepare` wrote: a tokenized corpus of which little is in memory at a time.

    Takes the place of a `TokenizedCorpus` in `training_batches` and its like.

    Args:
        folder: The folder.

    Attributes:
        skipped: How many pairs were left out, by reason.
        skipped_lines: The numbers of the first ten lines of each.
        max_length: The most ids of a side, EOS included.
        fingerprint: A hash of all ids and of the tokenizers.
        length_counts: int64 `(shards, longest + 1)`: how many pairs need how many positions.

    Raises:
        FileNotFoundError: if there is no index, or a shard is missing.
        ValueError: if the index cannot be read.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        path = self.folder / INDEX
        if not path.is_file():
            raise FileNotFoundError(
                f"`folder` must be one that `prepare` wrote, with {INDEX}. Received: {folder}"
            )
        self._read_index(path)
        for shard in self._shards:
            if not (self.folder / shard["file"]).is_file():
                raise FileNotFoundError(
                    f"every shard must be in the folder. Received: {folder} without {shard['file']}"
                )

    def _read_index(self, path):
        try:
            fields = json.loads(path.read_bytes())
            version = fields["format"]
            if version == FORMAT:
                self.skipped, self.skipped_lines = fields["skipped"], fields["skipped_lines"]
                self.max_length, self.fingerprint = fields["max_length"], fields["fingerprint"]
                self._pairs, self._shards = fields["pairs"], fields["shards"]
                self._compression, self._fields = fields["compression"] or "", fields
                longest = max(max(shard["length_counts"])[0] for shard in self._filled())
                self.length_counts = np.zeros((len(self._shards), longest + 1), np.int64)
                for counts, shard in zip(self.length_counts, self._shards, strict=True):
                    for length, count in shard["length_counts"]:
                        counts[length] = count
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{INDEX} must be as `prepare` wrote it. Received: {path}") from error
        if version != FORMAT:
            raise ValueError(
                f"{INDEX} must have format {FORMAT}. Received: {path} with format {version!r}"
            )

    def _filled(self):
        return [shard for shard in self._shards if shard["length_counts"]]

    def __len__(self):
        return self._pairs

    @property
    def name(self):
        return str(self.folder)

    @property
    def shards(self):
        """The number of shards."""
        return len(self._shards)

    @property
    def source_tokenizer(self):
        """The tokenizer of the sources, from its file in the folder."""
        return load_tokenizer(find_tokenizer(self.folder))

    @property
    def target_tokenizer(self):
        """The tokenizer of the targets."""
        path = find_tokenizer(self.folder, "target_tokenizer") or find_tokenizer(self.folder)
        return load_tokenizer(path)

    def check_tokenizers(self, tokenizer, target_tokenizer=None):
        """Raises a `ValueError` if these are not the tokenizers that the ids are from."""
        for side, given in (
            ("tokenizer", tokenizer),
            ("target_tokenizer", target_tokenizer or tokenizer),
        ):
            if given.fingerprint != self._fields[side]["fingerprint"]:
                raise ValueError(
                    f"`{side}` must be the one that the corpus was prepared with. Received: "
                    f"fingerprint={given.fingerprint}, where {self.folder / INDEX} has "
                    f"{self._fields[side]['fingerprint']}"
                )

    def up_to(self, length):
        """The same corpus without the pairs that need more than `length` positions.

        They count as too long. Where they are in the shards, `training_batches` passes over them.

        Raises:
            ValueError: if no pair is left.
        """
        cut = copy.copy(self)
        cut.length_counts = self.length_counts[:, : length + 1]
        cut._pairs = int(cut.length_counts.sum())
        if not cut._pairs:
            raise ValueError(
                f"a corpus must hold a pair of at most {length} ids a side, EOS included. "
                f"Received: {self.name} without one"
            )
        cut.skipped = dict(self.skipped)
        cut.skipped["too_long"] += len(self) - len(cut)
        cut.skipped_lines = {"too_long": []} | self.skipped_lines  # a shard knows no numbers
        return cut

    def check(self):
        """What `prepare` found, as a `CorpusReport`.

        Lengths are in ids, EOS included, and of both sides together; and so are empty sides.
        """
        faults = Faults({k: n for k, n in self.skipped.items() if n}, self.skipped_lines)
        skipped, longest = sum(self.skipped.values()), self.length_counts.shape[1] - 1
        pairs = len(self) + skipped
        empty = self.skipped["empty"]
        return CorpusReport(pairs, empty, empty, skipped, longest, longest, faults)

    def shard_reader(self):
        """A function of a shard's number that reads it in a graph.

        Returns:
            Function of an int64 scalar to two int32 `RaggedTensor` `(pairs, None)`. When it runs
            on a file that is not what the index says, it is a `tf.errors.InvalidArgumentError`.
        """
        import tensorflow as tf

        paths = tf.constant([str(self.folder / shard["file"]) for shard in self._shards])
        length_counts = tf.constant(self.length_counts)

        def read(shard):
            source, target = _read_records(tf.gather(paths, shard), self._compression)
            lengths = tf.maximum(source.row_lengths(), target.row_lengths()) + 1
            size = length_counts.shape[1]
            found = tf.math.bincount(
                tf.cast(lengths, tf.int32), minlength=size, maxlength=size, dtype=tf.int64
            )
            same = tf.reduce_all(found == tf.gather(length_counts, shard))
            check = tf.debugging.Assert(
                same,
                [f"a shard must be as {INDEX} says. Received:", tf.gather(paths, shard)],
            )
            with tf.control_dependencies([] if check is None else [check]):
                return source.with_values(tf.identity(source.values)), target

        return read

    def load_shard(self, shard):
        """One shard as a `TokenizedCorpus`."""
        source, target = self.shard_reader()(np.int64(shard))
        columns = []
        for side in (source, target):
            columns += [side.values.numpy(), side.row_lengths().numpy().astype(np.int32)]
        return TokenizedCorpus(*columns, {})

    def decoded(self):
        """Yields `(source, target)` strings, shard after shard, as the tokenizers decode them."""
        decode = self.source_tokenizer.decode, self.target_tokenizer.decode
        read = self.shard_reader()
        for shard in range(self.shards):
            source, target = (side.to_list() for side in read(np.int64(shard)))
            yield from ((decode[0](s), decode[1](t)) for s, t in zip(source, target, strict=True))


def _read_records(path, compression):
    """The sources and targets of a file, int32 `RaggedTensor`s.

    They grow chunk by chunk, as int64 and as records they would take several times the memory.
    """
    import tensorflow as tf

    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    features = {"source": feature, "target": feature}  # parsed in the order of their names
    records = tf.data.TFRecordDataset(path, compression_type=compression).batch(_READ_CHUNK)

    def append(state, chunk):
        columns = []
        for side in tf.io.parse_example(chunk, features).values():
            columns += [tf.cast(side.values, tf.int32), side.row_lengths()]
        return tuple(tf.concat(pair, axis=0) for pair in zip(state, columns, strict=True))

    empty = tf.zeros([0], tf.int32), tf.zeros([0], tf.int64)
    states = records.reduce((*empty, *empty), append)
    make = functools.partial(tf.RaggedTensor.from_row_lengths, validate=False)
    return make(*states[:2]), make(*states[2:])
