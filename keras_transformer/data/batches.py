"""From ids to batches: a closed set of shapes, in an order that can be resumed.

Everything about a batch but the token ids is planned in advance from the lengths of the pairs, so
that the number of batches is exact, skipping is free, and XLA compiles once per bucket. A corpus
is a number of shards, one when it is in memory; an epoch goes through them one at a time.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.arguments import check_integer
from keras_transformer.config import TransformerConfig
from keras_transformer.data.buckets import check_lengths_fit, choose_buckets
from keras_transformer.data.joined import MixedCorpus
from keras_transformer.data.scored import TEACHER_IDS, TEACHER_LOG_PROBS
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer.data.tokenized import TokenizedCorpus
from keras_transformer_runner.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    import tensorflow as tf

_KEY_BITS = 40  # random bits of a sort key, below the bucket number
_SHARD_SEED_BITS = 32  # what shards add to the seed lies above these


def batches_per_epoch(
    corpus: TokenizedCorpus | MixedCorpus | PreparedCorpus,
    *,
    batch_tokens: int,
    buckets: Sequence[int] | None = None,
) -> int:
    """Counts the batches of one pass over the corpus, exactly, without making them.

    Args:
        corpus: A `TokenizedCorpus`, a `MixedCorpus` or a `PreparedCorpus`.
        batch_tokens: The most positions of a batch, a side.
        buckets: Ascending lengths to pad to, EOS included; `choose_buckets` when `None`.

    Returns:
        The number of batches that `training_batches` gives an epoch.

    Raises:
        ValueError: if a number is out of range, or `buckets` do not hold the longest pair.

    Example:
        >>> from keras_transformer.data import batches_per_epoch, tokenize_corpus
        >>> corpus = tokenize_corpus([("a", "b")] * 5, kt.CharacterTokenizer("ab"), max_length=4)
        >>> batches_per_epoch(corpus, batch_tokens=8, buckets=[4])
        3
    """
    return _Plan.make(corpus, batch_tokens, buckets).count


def training_batches(
    corpus: TokenizedCorpus | MixedCorpus | PreparedCorpus,
    ids: Tokenizer | TransformerConfig,
    *,
    batch_tokens: int,
    buckets: Sequence[int] | None = None,
    seed: int = 0,
    start_epoch: int = 0,
    skip_batches: int = 0,
    epochs: int | None = None,
) -> "tf.data.Dataset":
    """Shuffled batches, epoch after epoch, for `model.fit`.

    A pair goes to the first bucket that holds its longer side. All batches of bucket i have the
    same shape `(B_i, L_i)` with `B_i * L_i <= batch_tokens` (but at least one row); rows are
    spread evenly over a bucket's batches, and rows of pads fill the last one. Every pair is seen
    exactly once an epoch. Shards, their pairs and their batches are in an order that depends on
    `(seed, epoch)` alone, so a run that stopped continues with the batches that it would have
    seen, and reads no shard that it has finished.

    Args:
        corpus: A `TokenizedCorpus`, a `MixedCorpus`, or a `PreparedCorpus`, of which two shards are
            in memory.
        ids: Has `pad_id`, `bos_id` and `eos_id`: a tokenizer or a `TransformerConfig`.
        batch_tokens: The most positions of a batch, a side.
        buckets: Ascending lengths to pad to, EOS included; `choose_buckets` when `None`.
        seed: An integer >= 0.
        start_epoch: The epoch to begin with.
        skip_batches: Batches of that epoch to leave out.
        epochs: How many epochs to give; `None` for no end.

    Returns:
        A `tf.data.Dataset` of `({"source_ids", "target_ids"}, labels)`, all int32 `(B_i, L_i)`:
        source and labels end in EOS, `target_ids` are the labels shifted right behind BOS. Those
        of a `ScoredCorpus` have further inputs, see there.

    Raises:
        ValueError: if a number is out of range, or `buckets` do not hold the longest pair.

    Example:
        >>> from keras_transformer.data import tokenize_corpus, training_batches
        >>> tokenizer = kt.CharacterTokenizer("ab")
        >>> corpus = tokenize_corpus([("a", "ba")], tokenizer, max_length=4)
        >>> batches = training_batches(corpus, tokenizer, batch_tokens=4, buckets=[4])
        >>> inputs, labels = next(iter(batches))
        >>> inputs["source_ids"].numpy(), inputs["target_ids"].numpy(), labels.numpy()
        (array([[4, 3, 0, 0]], dtype=int32), array([[2, 5, 4, 0]], dtype=int32), \
array([[5, 4, 3, 0]], dtype=int32))
    """
    import tensorflow as tf

    plan = _Plan.make(corpus, batch_tokens, buckets)
    check_integer(0, seed=seed, start_epoch=start_epoch, skip_batches=skip_batches)
    if epochs is not None:
        check_integer(1, epochs=epochs)
    if skip_batches > plan.count:
        raise ValueError(
            "`skip_batches` must be at most the batches of an epoch. "
            f"Received: skip_batches={skip_batches}, batches of an epoch={plan.count}"
        )

    @tf.autograph.experimental.do_not_convert
    def shards_of(epoch):
        skip = tf.where(epoch == start_epoch, tf.constant(skip_batches, tf.int64), 0)
        shards, first = plan.shard_order(tf.stack([tf.constant(seed, tf.int64), epoch]), skip)
        epochs_of_shards = tf.fill(tf.shape(shards), epoch)
        return tf.data.Dataset.from_tensor_slices((epochs_of_shards, shards, first))

    def arrange(epoch, shard, pairs):
        shard_seed = shard * (1 << _SHARD_SEED_BITS) + seed  # `seed` itself for the only shard
        return pairs.shuffled(tf.stack([shard_seed, epoch]))

    end = np.iinfo(np.int64).max if epochs is None else start_epoch + epochs
    shards = tf.data.Dataset.range(start_epoch, end).flat_map(shards_of)
    size = tf.data.INFINITE_CARDINALITY if epochs is None else epochs * plan.count - skip_batches
    return _assembled(_pairs_of_batches(shards, corpus, plan, arrange), ids, size)


def evaluation_batches(
    corpus: TokenizedCorpus | MixedCorpus | PreparedCorpus,
    ids: Tokenizer | TransformerConfig,
    *,
    batch_tokens: int,
    buckets: Sequence[int] | None = None,
) -> "tf.data.Dataset":
    """Gives the batches of `training_batches` once, in the order of each shard within a bucket.

    Args:
        corpus, ids, batch_tokens, buckets: As for `training_batches`.

    Returns:
        A `tf.data.Dataset` of the same elements.

    Raises:
        ValueError: if a number is out of range, or `buckets` do not hold the longest pair.

    Example:
        >>> from keras_transformer.data import evaluation_batches, tokenize_corpus
        >>> tokenizer = kt.CharacterTokenizer("ab")
        >>> corpus = tokenize_corpus([("a", "b"), ("b", "a")], tokenizer, max_length=4)
        >>> for inputs, labels in evaluation_batches(corpus, tokenizer, batch_tokens=8):
        ...     print(inputs["source_ids"].numpy().tolist(), labels.numpy().tolist())
        [[4, 3, 0, 0], [5, 3, 0, 0]] [[5, 3, 0, 0], [4, 3, 0, 0]]
    """
    import tensorflow as tf

    plan = _Plan.make(corpus, batch_tokens, buckets)
    # No shard is skipped, but those without a pair are.
    shards = tf.where(plan.shard_batches > 0)[:, 0]
    zeros = tf.zeros_like(shards)
    shards = tf.data.Dataset.from_tensor_slices((zeros, shards, zeros))
    batches = _pairs_of_batches(shards, corpus, plan, lambda epoch, shard, pairs: pairs.in_order())
    return _assembled(batches, ids, plan.count)


@dataclasses.dataclass(frozen=True, eq=False)
class _Plan:
    """How many batches of which shape each shard gives.

    The fields are int64 tensors, so that a `tf.data` graph captures and does not copy them.
    """

    bucket_shape: object  # (buckets, 2) rows and length of its batches, in all shards
    shard_pairs: object  # (shards, buckets) pairs
    shard_batches: object  # (shards,) batches
    count: int  # batches of an epoch

    @classmethod
    def make(cls, corpus, batch_tokens, buckets):
        import tensorflow as tf

        check_integer(1, batch_tokens=batch_tokens)
        counts = corpus.length_counts
        buckets = choose_buckets(corpus) if buckets is None else buckets
        check_lengths_fit(buckets, longest=int(np.flatnonzero(counts.sum(axis=0))[-1]))
        ends = np.concatenate([[0], np.minimum(np.add(buckets, 1), counts.shape[1])])
        below = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
        pairs = np.diff(below[:, ends], axis=1)
        most_rows = np.maximum(1, batch_tokens // np.asarray(buckets, np.int64))
        batches = -(-pairs // most_rows)
        # Even batches leave the fewest rows of pads; of several shards, the fullest decides.
        rows = (-(-pairs // np.maximum(batches, 1))).max(axis=0)
        fields = np.stack([rows, buckets], axis=1), pairs, batches.sum(axis=1)
        with tf.device("CPU"):
            fields = [tf.constant(field, tf.int64) for field in fields]
        return cls(*fields, int(batches.sum()))

    def shard_order(self, seed, skip):
        """Shards shuffled, and the first batch of each when an epoch's first `skip` are left out.

        A shard of which nothing is left is not among them.
        """
        import tensorflow as tf

        keys = tf.random.stateless_uniform(
            [len(self.shard_batches)],
            seed * [-1, 1] - [1, 0],  # no shard's own
            minval=0,
            maxval=1 << _KEY_BITS,
            dtype=tf.int64,
            alg="philox",
        )
        order = tf.argsort(keys, stable=True)
        batches = tf.gather(self.shard_batches, order)
        first = tf.maximum(skip - (tf.cumsum(batches) - batches), 0)
        left = first < batches
        return tf.cast(order, tf.int64)[left], first[left]

    def pairs(self, shard, lengths):
        """The `_ShardPlan` of a shard whose pairs need `lengths` (pairs,)."""
        import tensorflow as tf

        pairs = tf.gather(self.shard_pairs, shard)
        rows, length = tf.unstack(self.bucket_shape, axis=1)
        batches = -(-pairs // tf.maximum(rows, 1))
        batch_bucket = tf.repeat(tf.range(tf.shape(pairs, tf.int64)[0]), batches)
        number = tf.range(tf.shape(batch_bucket, tf.int64)[0])
        number -= tf.gather(tf.cumsum(batches) - batches, batch_bucket)
        bucket_end = tf.cumsum(pairs)
        start = tf.gather(bucket_end - pairs, batch_bucket)
        start += number * tf.gather(rows, batch_bucket)
        end = tf.minimum(start + tf.gather(rows, batch_bucket), tf.gather(bucket_end, batch_bucket))
        bucket = tf.searchsorted(length, tf.cast(lengths, tf.int64), out_type=tf.int64)
        slices = tf.stack([start, end], axis=1)
        return _ShardPlan(bucket, slices, tf.gather(self.bucket_shape, batch_bucket))


@dataclasses.dataclass(frozen=True, eq=False)
class _ShardPlan:
    """Which slices of a shard's pairs, sorted by bucket, are its batches; int64 tensors."""

    bucket: object  # (pairs,) bucket of each pair
    slices: object  # (batches, 2) first pair and the one behind the last
    shapes: object  # (batches, 2) rows and length

    def shuffled(self, seed):
        """Pairs sorted by bucket and shuffled within; slices and shapes of shuffled batches."""
        import tensorflow as tf

        pairs = tf.shape(self.bucket)[0]
        keys = tf.random.stateless_uniform(
            [pairs + tf.shape(self.slices)[0]],
            seed,
            minval=0,
            maxval=1 << _KEY_BITS,
            dtype=tf.int64,
            alg="philox",  # the same on every machine
        )
        order = tf.argsort(keys[pairs:])
        rows = tf.argsort(keys[:pairs] + self.bucket * (1 << _KEY_BITS))
        return rows, tf.gather(self.slices, order), tf.gather(self.shapes, order)

    def in_order(self):
        """The same, in the order of the shard within a bucket."""
        import tensorflow as tf

        return tf.argsort(self.bucket, stable=True), self.slices, self.shapes


def _pairs_of_batches(shards, corpus, plan, arrange):
    """From a dataset of `(epoch, shard, first batch)` to one of sides and shapes.

    The sides are sources and targets, and those of a `ScoredCorpus` what its teachers say.

    `arrange(epoch, shard, plan of the shard)` decides the order.
    """
    import tensorflow as tf

    if isinstance(corpus, MixedCorpus):
        read_epoch = corpus.epoch_reader()
    else:
        read_shard = corpus.shard_reader()

    @tf.autograph.experimental.do_not_convert
    def load(epoch, shard, first):
        if isinstance(corpus, MixedCorpus):
            *sides, lengths = read_epoch(epoch)
        else:
            sides = read_shard(shard)
            source, target, *_ = sides
            lengths = tf.maximum(source.row_lengths(), target.row_lengths()) + 1
        return (tuple(sides), first, *arrange(epoch, shard, plan.pairs(shard, lengths)))

    @tf.autograph.experimental.do_not_convert
    def batches_of(sides, first, rows, slices, shapes):
        @tf.autograph.experimental.do_not_convert
        def batch(number):
            pairs = rows[slices[number, 0] : slices[number, 1]]
            return tuple(tf.gather(side, pairs) for side in sides), shapes[number]

        return tf.data.Dataset.range(first, tf.shape(slices, tf.int64)[0]).map(batch)

    loaded = shards.map(load)
    if len(plan.shard_batches) > 1:
        loaded = loaded.prefetch(1)  # the next shard is read while this one trains
    return loaded.flat_map(batches_of)


def _assembled(dataset, ids, size):
    """Turns pairs and shapes into padded ids; `size` is the number of batches."""
    import tensorflow as tf

    def padded(ragged, shape):
        """Pieces, and pieces with EOS, as `shape`; and whether a row holds a pair."""
        pieces = tf.ensure_shape(ragged.to_tensor(ids.pad_id, shape=shape), (None, None))
        lengths = ragged.row_lengths()
        missing = shape[0] - tf.shape(lengths, tf.int64)[0]
        lengths = tf.pad(lengths, [[0, missing]], constant_values=-1)[:, None]
        ends = tf.range(shape[1]) == lengths
        return pieces, tf.where(ends, tf.constant(ids.eos_id, tf.int32), pieces), lengths >= 0

    @tf.autograph.experimental.do_not_convert
    def assemble(sides, shape):
        source, target, *teacher = sides
        _, source_ids, _ = padded(source, shape)
        pieces, labels, is_pair = padded(target, shape)
        # Shift right: the pieces follow BOS, and EOS is no input. Rows of pads stay so. Where
        # pairs are packed, the next one's BOS stands in the place of an EOS.
        first = tf.where(is_pair, tf.constant(ids.bos_id, tf.int32), ids.pad_id)
        rest = tf.where(pieces == ids.eos_id, tf.constant(ids.bos_id, tf.int32), pieces)[:, :-1]
        target_ids = tf.concat([first, rest], axis=1)
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        for name, ragged in zip((TEACHER_IDS, TEACHER_LOG_PROBS), teacher, strict=False):
            top_k = ragged.shape[-1]
            array = ragged.to_tensor(shape=tf.concat([shape, [top_k]], axis=0))
            inputs[name] = tf.ensure_shape(array, (None, None, top_k))
        if teacher:
            inputs[TEACHER_LOG_PROBS] = tf.cast(inputs[TEACHER_LOG_PROBS], tf.float32)
        return inputs, labels

    dataset = dataset.map(assemble, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(size))
    options = tf.data.Options()
    # An iterator that goes may miss the end of its tuning, and then sleeps up to a minute: all that
    # is tuned here is the number of threads of a map, which is that of the cores without.
    options.autotune.enabled = False
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)
