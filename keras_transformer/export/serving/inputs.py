"""Inputs of a server as they come: rows of ids within bounds, and what is wrong with the others.

An error would fail every request that a server has put into the same batch. So a row that cannot
be answered is left empty, and its `status` says why; the rows beside it know nothing of it.
"""

import tensorflow as tf

from keras_transformer_runner.tokenizers.base import BYTES_A_TOKEN

OK = "ok"
TOO_LONG = "too_long"
OUTSIDE = "id_outside_vocabulary"
BAD_N_BEST = "bad_n_best"
TARGET_TOO_LONG = "target_too_long"
NO_TOKENS = "no_tokens"


def bounds(max_length, ids_only):
    """The bounds of an input as the description has them."""
    text_bytes = None if ids_only else BYTES_A_TOKEN * max_length
    return {"source_tokens": max_length, "text_bytes": text_bytes}


def rows_of_text(text, tokenizer, max_length, ends=True):
    """Tokenizes a batch of strings within a bound on their length.

    Args:
        text: Strings (B,).
        tokenizer: A `Tokenizer`.
        max_length: Most tokens of a row, EOS included.
        ends: Whether EOS comes behind the row.

    Returns:
        int32 `RaggedTensor` (B, None) of pieces, and (B,) boolean: the row is too long. Such a
        row has no pieces.
    """
    too_long = tf.strings.length(text) > BYTES_A_TOKEN * max_length
    pieces = tokenizer.tf_encode(tf.where(too_long, "", text))
    too_long |= pieces.row_lengths() + int(ends) > max_length
    return without(pieces, too_long), too_long


def without(pieces, rows):
    """A `RaggedTensor` (B, None) of which the `rows` (B,) boolean are left empty."""
    lengths = pieces.row_lengths()
    kept = tf.boolean_mask(pieces.flat_values, tf.repeat(~rows, lengths))
    return tf.RaggedTensor.from_row_lengths(
        kept, tf.where(rows, tf.zeros_like(lengths), lengths), validate=False
    )


def begun(pieces, prefix_ids):
    """A `RaggedTensor` (B, None) of pieces that has the prefix in empty rows too."""
    if not prefix_ids:
        return pieces
    lengths = pieces.row_lengths()
    missing = tf.where(lengths == 0, tf.cast(len(prefix_ids), lengths.dtype), 0)
    rows = tf.reduce_sum(tf.cast(missing > 0, tf.int32))
    prefixes = tf.tile(tf.constant(prefix_ids, tf.int32), [rows])
    prefixes = tf.RaggedTensor.from_row_lengths(prefixes, missing, validate=False)
    return tf.concat([prefixes, pieces], axis=1)


def ended(pieces, blank, tokenizer):
    """Pieces, then EOS, then pads, (B, S) int32; only pads in the rows that are `blank` (B,)."""
    ends = tf.where(blank, tokenizer.pad_id, tokenizer.eos_id)
    return tf.concat([pieces, ends[:, tf.newaxis]], axis=1).to_tensor(tokenizer.pad_id)


def as_many(values, text, name):
    """`values` (B,), once they are known to be as many as the texts (B,).

    An error, not a status: a server cannot split what it answers into the requests of a batch. It
    must be an op that nothing simplifies away: where sizes are unknown, TensorFlow takes a reshape
    to the text's shape for one that changes nothing, and broadcasts.

    Args:
        values: A tensor (B,).
        text: Strings (B,).
        name: What the error calls the values.
    """
    counts = tf.size(values), tf.size(text)
    check = tf.debugging.Assert(
        tf.equal(*counts),
        [f"`{name}` must have a value for each of `text`. Received: values and texts", *counts],
    )
    with tf.control_dependencies([check]):
        return tf.identity(values)


def rows_of_ids(ids, config, max_length):
    """Ids within their bounds.

    Args:
        ids: (B, S) int32.
        config: Anything with `pad_id` and `vocab_size`.
        max_length: Most tokens of a row; pads behind them do not count.

    Returns:
        (B, S') int32, with no more pads than the longest row needs, and the faults: the row is too
        long, (B,) boolean, and an id is outside of [0, vocab_size), (B,) boolean. Such a row is
        all pads.
    """
    ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=config.pad_id)  # at least one column
    places = tf.range(1, tf.shape(ids)[1] + 1)
    used = tf.reduce_max(tf.where(ids == config.pad_id, 0, places), axis=1)
    too_long = used > max_length
    outside = tf.reduce_any((ids < 0) | (ids >= config.vocab_size), axis=1)
    blank = too_long | outside
    width = tf.maximum(1, tf.reduce_max(tf.where(blank, 0, used)))  # of no rows: the least int32
    ids = tf.where(blank[:, tf.newaxis], config.pad_id, ids)
    return ids[:, :width], too_long, outside


def status_of(faults):
    """Strings (B,): the name of the first fault that a row has, or `OK`.

    Args:
        faults: Pairs of a name and (B,) boolean.
    """
    status = tf.fill(tf.shape(faults[0][1]), OK)
    for name, holds in reversed(faults):
        status = tf.where(holds, name, status)
    return status


def unended(pieces, pad_id):
    """Pieces, then pads, (B, S) int32, a column wide where there are none.

    No wider than the longest row: a model may have no position behind it.
    """
    ids = pieces.to_tensor(pad_id)
    missing = tf.maximum(0, 1 - tf.shape(ids)[1])
    return tf.pad(ids, [[0, 0], [0, missing]], constant_values=pad_id)


def has_content(ids, config):
    """(B,) boolean: the row of `ids` (B, S) holds more than EOS and pads."""
    return tf.reduce_any((ids != config.pad_id) & (ids != config.eos_id), axis=1)
