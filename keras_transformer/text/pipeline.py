"""From sentence pairs to batches: a closed set of shapes, in an order that can be resumed.

Everything about a batch but the token ids is planned in advance from the lengths of the pairs, so
that the number of batches is exact, skipping is free, and XLA compiles once per bucket.
"""

import dataclasses
import itertools

import numpy as np

_CHUNK = 8192  # pairs tokenized at once
_KEY_BITS = 40  # random bits of a sort key, below the bucket number


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """Sentence pairs as ids without BOS and EOS, each side one flat array.

    Attributes:
        source_values: int32, the ids of all sources, one after the other.
        source_lengths: int32 `(pairs,)`, ids per source.
        target_values: int32, the ids of all targets.
        target_lengths: int32 `(pairs,)`, ids per target.
        skipped: How many pairs were left out, by reason: `"empty"`, `"too_long"`.
    """

    source_values: np.ndarray
    source_lengths: np.ndarray
    target_values: np.ndarray
    target_lengths: np.ndarray
    skipped: dict

    def __len__(self):
        return len(self.source_lengths)

    @property
    def pair_lengths(self):
        """int32 `(pairs,)`: positions that a pair needs, the longer side and its EOS."""
        return np.maximum(self.source_lengths, self.target_lengths) + 1


def tokenize_corpus(corpus, tokenizer, *, max_length, target_tokenizer=None):
    """Tokenizes a corpus with TensorFlow Text, chunk by chunk.

    A pair with a side that has no pieces is left out. So is one with a side of more than
    `max_length` ids, EOS included: cutting it off would teach the model never to stop.

    Args:
        corpus: An iterable of `(source, target)` strings, such as a `ParallelCorpus`.
        tokenizer: A tokenizer with `tf_encode`.
        max_length: The most ids of a side, EOS included.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.

    Returns:
        A `TokenizedCorpus`.

    Raises:
        ValueError: if `max_length` is not an integer >= 2, or no pair is left.
    """
    _check_integer("max_length", max_length, minimum=2)
    skipped = {"empty": 0, "too_long": 0}
    tokenizers = tokenizer, target_tokenizer or tokenizer
    chunks = []
    pairs = iter(corpus)
    while chunk := list(itertools.islice(pairs, _CHUNK)):
        chunks.append(_tokenize_chunk(chunk, tokenizers, max_length, skipped))
    columns = [np.concatenate(column) for column in zip(*chunks, strict=True)]
    if not columns or not len(columns[1]):
        raise ValueError(
            "`corpus` must hold a pair with text on both sides and at most `max_length` ids. "
            f"Received: max_length={max_length}, skipped pairs: {skipped}"
        )
    return TokenizedCorpus(*columns, skipped)


def _tokenize_chunk(pairs, tokenizers, max_length, skipped):
    sides = [
        tokenizer.tf_encode(list(side))
        for tokenizer, side in zip(tokenizers, zip(*pairs, strict=True), strict=True)
    ]
    values = [side.flat_values.numpy() for side in sides]
    lengths = [side.row_lengths().numpy().astype(np.int32) for side in sides]
    empty = np.minimum(*lengths) == 0
    too_long = ~empty & (np.maximum(*lengths) + 1 > max_length)
    skipped["empty"] += int(empty.sum())
    skipped["too_long"] += int(too_long.sum())
    keep = ~(empty | too_long)
    columns = []
    for side_values, side_lengths in zip(values, lengths, strict=True):
        columns += [side_values[np.repeat(keep, side_lengths)], side_lengths[keep]]
    return columns


def choose_buckets(lengths, count=6):
    """The lengths to pad to that add the least padding.

    Args:
        lengths: Integers, what each pair needs (`TokenizedCorpus.pair_lengths`).
        count: The most buckets, and so the most shapes that XLA compiles.

    Returns:
        A tuple of at most `count` ascending multiples of 4, the last of which holds the longest.

    Raises:
        ValueError: if `lengths` is empty or `count` is not an integer >= 1.
    """
    _check_integer("count", count, minimum=1)
    if not len(lengths):
        raise ValueError("`lengths` must not be empty. Received: no lengths")
    # Only multiples of 4 that some pair needs can be bounds: pairs[i] of them fit bounds[i] best.
    bounds, pairs = np.unique(-(-np.asarray(lengths, np.int64) // 4) * 4, return_counts=True)
    below = np.concatenate([[0], np.cumsum(pairs)])
    # cost[i, j]: padded size of one bucket of length bounds[j] for groups i..j.
    cost = np.where(
        np.tri(len(bounds), dtype=bool).T, (below[None, 1:] - below[:-1, None]) * bounds, np.inf
    )
    best = cost[0]  # best[j]: least padded size of groups 0..j
    starts = []  # per bucket added: where it starts when it ends at j
    for _ in range(min(count, len(bounds)) - 1):
        total = np.concatenate([[np.inf], best[:-1]])[:, None] + cost
        starts.append(total.argmin(axis=0))
        best = total.min(axis=0)
    buckets, end = [], len(bounds) - 1
    for start in reversed(starts):
        buckets.append(int(bounds[end]))
        end = start[end] - 1
    return tuple(reversed([*buckets, int(bounds[end])]))


def batches_per_epoch(tokenized, *, batch_tokens, buckets=None):
    """The exact number of batches that one pass over the corpus takes."""
    return len(_Plan.make(tokenized, batch_tokens, buckets).batch_bucket)


def training_batches(
    tokenized,
    ids,
    *,
    batch_tokens,
    buckets=None,
    seed=0,
    start_epoch=0,
    skip_batches=0,
    epochs=None,
):
    """Shuffled batches, epoch after epoch, for `model.fit`.

    A pair goes to the first bucket that holds its longer side. All batches of bucket i have the
    same shape `(B_i, L_i)` with `B_i * L_i <= batch_tokens` (but at least one row); rows are
    spread evenly over a bucket's batches, and what is still missing in its last one is rows of
    pads. Every pair is seen exactly once an epoch. Pairs and batches are in an order that depends
    on `(seed, epoch)` alone, so a run that stopped continues with the very batches it would have
    seen.

    Args:
        tokenized: A `TokenizedCorpus`.
        ids: What knows `pad_id`, `bos_id` and `eos_id`: a tokenizer or a `TransformerConfig`.
        batch_tokens: The most positions of a batch, a side.
        buckets: Ascending lengths to pad to, EOS included; `choose_buckets` when `None`.
        seed: An integer >= 0.
        start_epoch: The epoch to begin with.
        skip_batches: Batches of that epoch to leave out.
        epochs: How many epochs to give; `None` for no end.

    Returns:
        A `tf.data.Dataset` of `({"source_ids", "target_ids"}, labels)`, all int32 `(B_i, L_i)`:
        source and labels end in EOS, `target_ids` are the labels shifted right behind BOS.

    Raises:
        ValueError: if a number is out of range, or `buckets` do not hold the longest pair.
    """
    import tensorflow as tf

    plan = _Plan.make(tokenized, batch_tokens, buckets)
    count = len(plan.batch_bucket)
    _check_integer("seed", seed, minimum=0)
    _check_integer("start_epoch", start_epoch, minimum=0)
    _check_integer("skip_batches", skip_batches, minimum=0)
    if epochs is not None:
        _check_integer("epochs", epochs, minimum=1)
    if skip_batches > count:
        raise ValueError(
            "`skip_batches` must be at most the batches of an epoch. "
            f"Received: skip_batches={skip_batches}, batches of an epoch={count}"
        )

    def batches_of(epoch):
        rows, order = plan.shuffled(tf.stack([tf.constant(seed, tf.int64), epoch]))
        first = tf.where(epoch == start_epoch, tf.constant(skip_batches, tf.int64), 0)
        positions = tf.data.Dataset.range(first, count)
        return positions.map(lambda position: plan.batch(rows, order[position]))

    end = np.iinfo(np.int64).max if epochs is None else start_epoch + epochs
    dataset = tf.data.Dataset.range(start_epoch, end).flat_map(batches_of)
    size = tf.data.INFINITE_CARDINALITY if epochs is None else epochs * count - skip_batches
    return _assembled(dataset, tokenized, ids, size)


def evaluation_batches(tokenized, ids, *, batch_tokens, buckets=None):
    """The batches of `training_batches` once, in the order of the corpus within a bucket."""
    import tensorflow as tf

    plan = _Plan.make(tokenized, batch_tokens, buckets)
    rows = tf.argsort(plan.bucket, stable=True)
    count = len(plan.batch_bucket)
    dataset = tf.data.Dataset.range(count).map(lambda batch: plan.batch(rows, batch))
    return _assembled(dataset, tokenized, ids, count)


@dataclasses.dataclass(frozen=True, eq=False)
class _Plan:
    """Which slices of the pairs, sorted by bucket, are the batches of an epoch.

    The fields are int64 tensors, so that a `tf.data` graph captures and does not copy them.
    """

    bucket: object  # (pairs,) bucket of each pair
    bucket_shape: object  # (buckets, 2) rows and length of its batches
    batch_bucket: object  # (batches,)
    batch_start: object  # (batches,) first pair
    batch_end: object  # (batches,) behind the last pair

    @classmethod
    def make(cls, tokenized, batch_tokens, buckets):
        import tensorflow as tf

        _check_integer("batch_tokens", batch_tokens, minimum=1)
        lengths = tokenized.pair_lengths
        buckets = choose_buckets(lengths) if buckets is None else buckets
        _check_buckets(buckets, longest=int(lengths.max()))
        bucket = np.searchsorted(buckets, lengths)
        pairs = np.bincount(bucket, minlength=len(buckets))
        most_rows = np.maximum(1, batch_tokens // np.asarray(buckets, np.int64))
        batches = -(-pairs // most_rows)
        rows = -(-pairs // np.maximum(batches, 1))  # even batches leave the fewest rows of pads
        batch_bucket = np.repeat(np.arange(len(buckets)), batches)
        number = np.arange(len(batch_bucket)) - np.repeat(np.cumsum(batches) - batches, batches)
        bucket_end = np.cumsum(pairs)
        start = (bucket_end - pairs)[batch_bucket] + number * rows[batch_bucket]
        end = np.minimum(start + rows[batch_bucket], bucket_end[batch_bucket])
        fields = bucket, np.stack([rows, buckets], axis=1), batch_bucket, start, end
        with tf.device("CPU"):
            return cls(*(tf.constant(field, tf.int64) for field in fields))

    def shuffled(self, seed):
        """Pairs sorted by bucket and shuffled within, and batch numbers shuffled."""
        import tensorflow as tf

        pairs = len(self.bucket)
        keys = tf.random.stateless_uniform(
            [pairs + len(self.batch_bucket)],
            seed,
            minval=0,
            maxval=1 << _KEY_BITS,
            dtype=tf.int64,
            alg="philox",  # the same on every machine
        )
        return tf.argsort(keys[:pairs] + self.bucket * (1 << _KEY_BITS)), tf.argsort(keys[pairs:])

    def batch(self, rows, number):
        """The pairs `(rows,)` and the shape `(2,)` of batch `number`."""
        import tensorflow as tf

        start, end = tf.gather(self.batch_start, number), tf.gather(self.batch_end, number)
        shape = tf.gather(self.bucket_shape, tf.gather(self.batch_bucket, number))
        return rows[start:end], shape


def _assembled(dataset, tokenized, ids, size):
    """Turns pairs and shapes into padded ids; `size` is the number of batches."""
    import tensorflow as tf

    sources = _with_eos(tokenized.source_values, tokenized.source_lengths, ids.eos_id)
    targets = _with_eos(tokenized.target_values, tokenized.target_lengths, ids.eos_id)

    def padded(ragged, pairs, shape):
        dense = tf.gather(ragged, pairs).to_tensor(ids.pad_id, shape=shape)
        return tf.ensure_shape(dense, (None, None))

    def assemble(pairs, shape):
        labels = padded(targets, pairs, shape)
        # Shift right: the pieces follow BOS, and EOS is no input. Rows of pads stay so.
        first = tf.where(labels[:, :1] == ids.pad_id, ids.pad_id, ids.bos_id)
        rest = tf.where(labels == ids.eos_id, ids.pad_id, labels)[:, :-1]
        inputs = {
            "source_ids": padded(sources, pairs, shape),
            "target_ids": tf.concat([first, rest], axis=1),
        }
        return inputs, labels

    dataset = dataset.map(assemble, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(size))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _with_eos(values, lengths, eos_id):
    """The rows of a flat array, each with EOS behind it, as a `RaggedTensor`."""
    import tensorflow as tf

    splits = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = np.insert(values, splits[1:], np.int32(eos_id))
    with tf.device("CPU"):
        return tf.RaggedTensor.from_row_splits(values, splits + np.arange(len(splits)))


def _check_buckets(buckets, longest):
    array = np.asarray(buckets)
    if array.ndim != 1 or array.dtype.kind not in "iu" or any(np.diff(array, prepend=0) <= 0):
        raise ValueError(f"`buckets` must be ascending integers >= 1. Received: {buckets!r}")
    if buckets[-1] < longest:
        raise ValueError(
            "the last of `buckets` must hold the longest pair, EOS included. "
            f"Received: buckets={buckets!r}, longest={longest}"
        )


def _check_integer(name, value, minimum):
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"`{name}` must be an integer >= {minimum}. Received: {value!r}")
