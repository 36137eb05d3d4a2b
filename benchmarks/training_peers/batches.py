"""The batches that the systems are fed, made once by the parent."""

import numpy as np


def plain_batches(tokenized, ids, *, batch_tokens, multiple=1, seed=0):
    """Shuffled pairs, taken one after the other until the token budget is reached.

    Args:
        tokenized: A `TokenizedCorpus`.
        ids: What knows `pad_id` and `eos_id`.
        batch_tokens: The most positions of a batch, a side: rows times the longest side.
        multiple: 1 pads each side to its longest sentence. More rounds the longest side up to a
            multiple, pads both sides to it and the rows to those that the budget allows, so that
            a compiler sees few shapes.
        seed: Decides the order.

    Yields:
        (source ids, labels), int32, as long as there are pairs.
    """
    sides = [
        np.split(values, np.cumsum(lengths)[:-1])
        for values, lengths in (
            (tokenized.source_values, tokenized.source_lengths),
            (tokenized.target_values, tokenized.target_lengths),
        )
    ]
    for pairs, longest in _groups(tokenized.pair_lengths, batch_tokens, multiple, seed):
        rows, lengths = len(pairs), [None, None]
        if multiple > 1:
            rows, lengths = batch_tokens // longest, [longest, longest]
        yield tuple(
            _padded([side[pair] for pair in pairs], ids, rows, length)
            for side, length in zip(sides, lengths, strict=True)
        )


def _groups(pair_lengths, batch_tokens, multiple, seed):
    """Pairs of each batch and its longest side, rounded up."""
    rounded = -(-pair_lengths // multiple) * multiple
    pairs, longest = [], 0
    for pair in np.random.default_rng(seed).permutation(len(rounded)):
        longer = max(longest, int(rounded[pair]))
        if pairs and (len(pairs) + 1) * longer > batch_tokens:
            yield pairs, longest
            pairs, longer = [], int(rounded[pair])
        pairs.append(pair)
        longest = longer
    yield pairs, longest


def _padded(sentences, ids, rows, length):
    """(rows, length) ids with EOS behind each sentence; as long as the longest when `None`."""
    length = length or max(map(len, sentences)) + 1
    padded = np.full((rows, length), ids.pad_id, np.int32)
    for row, sentence in zip(padded, sentences, strict=False):
        row[: len(sentence)] = sentence
        row[len(sentence)] = ids.eos_id
    return padded


def write(path, batches):
    """Writes (source ids, labels) pairs to an .npz and returns what they are like."""
    batches = [(np.asarray(source), np.asarray(labels)) for source, labels in batches]
    shapes = [(*source.shape, labels.shape[1]) for source, labels in batches]
    labels = np.concatenate([labels.ravel() for _, labels in batches])
    np.savez(
        path,
        shapes=np.array(shapes, np.int64),
        sources=np.concatenate([source.ravel() for source, _ in batches]),
        labels=labels,
    )
    return {"batches": len(batches), "shapes": len(set(shapes)), "slots": labels.size}
