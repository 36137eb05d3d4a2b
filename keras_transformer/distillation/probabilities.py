"""The teachers' probabilities of the pairs that a student learns from, in shards."""

import contextlib
import functools

import keras
import numpy as np
from keras import ops

from keras_transformer.data.scored import probabilities_file
from keras_transformer.data.tokenized import tokenize_corpus
from keras_transformer.decoding.compiled import compiled
from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.integrity import check_sealed_file, checksum, seal_file

_PAIRS = 4096  # of a shard
_ROWS = 64  # of a batch


def write_probabilities(folder, translator, corpus, *, top_k, max_length):
    """Writes the most probable ids of each target position, by teachers that see what is before.

    A whole shard of these pairs and this K that is there is kept: an interrupted call goes on.

    Args:
        folder: The folder of `distil`.
        translator: The teachers' `Translator`.
        corpus: The pairs.
        top_k: Ids of a position (K), at most the target's vocabulary.
        max_length: Most ids of a side, EOS included, at most the teachers' positions; other pairs
            are left out.

    Returns:
        What the note says of them.
    """
    model = translator.model
    tokenizers = translator.tokenizer, translator.target_tokenizer
    pairs = tokenize_corpus(
        corpus, tokenizers[0], target_tokenizer=tokenizers[1], max_length=max_length
    )
    run = compiled(functools.partial(_most_probable, model, top_k), model, 2)
    files = []
    for number, first in enumerate(range(0, len(pairs), _PAIRS)):
        path = folder / probabilities_file(number)
        owner = f"{number} of {pairs.fingerprint}, top_k={top_k}"
        if not _is_whole(path, owner):
            arrays = _shard(pairs, range(first, min(first + _PAIRS, len(pairs))), run, model.config)
            write_file(path, functools.partial(_save, arrays, owner))
        files.append(checksum(path))
    return {
        "top_k": top_k,
        "max_length": max_length,
        "tokenizers": [each.fingerprint for each in tokenizers],
        "files": files,
    }


def _is_whole(path, owner):
    """Whether a shard is there, as it was written, and of this owner."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        check_sealed_file(path, "it is made again", owner=owner)
        return True
    return False


def _save(arrays, owner, path):
    np.savez(path, **arrays)
    seal_file(path, owner)


def _most_probable(model, top_k, source_ids, target_ids):
    """(B, S) sources and (B, T) targets with EOS -> (B, T, K) ids and log-probabilities."""
    begin = ops.full_like(target_ids[:, :1], model.config.bos_id)
    target_ids = ops.concatenate([begin, target_ids[:, :-1]], axis=1)
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    logits = ops.cast(model(inputs, training=False), "float32")
    log_probs, ids = ops.top_k(ops.log_softmax(logits, axis=-1), top_k)
    return ops.cast(ids, "int32"), ops.cast(log_probs, "float16")


def _shard(pairs, numbers, run, config):
    """The arrays of a shard: `lengths` (pairs, 2), `ids` and `log_probs` (positions, K)."""
    lengths = np.stack([pairs.source_lengths, pairs.target_lengths], axis=1)
    starts = np.cumsum(lengths, axis=0) - lengths
    values = pairs.source_values, pairs.target_values
    found = [None] * len(numbers)
    order = sorted(numbers, key=lambda number: lengths[number].max())
    for first in range(0, len(order), _ROWS):
        chosen = order[first : first + _ROWS]
        sides = []
        for side in (0, 1):
            rows = np.full((len(chosen), lengths[chosen, side].max() + 1), config.pad_id, "int32")
            for row, number in zip(rows, chosen, strict=True):
                start, length = starts[number, side], lengths[number, side]
                row[:length] = values[side][start : start + length]
                row[length] = config.eos_id
            sides.append(rows)
        outputs = [keras.ops.convert_to_numpy(each) for each in run(*sides)]
        for place, number in enumerate(chosen):
            length = lengths[number, 1] + 1
            found[number - numbers[0]] = [each[place, :length] for each in outputs]
    ids, log_probs = map(np.concatenate, zip(*found, strict=True))
    return {"lengths": lengths[numbers], "ids": ids, "log_probs": log_probs}
