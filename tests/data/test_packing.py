"""Packed rows: no pair is lost or cut, each keeps its BOS and EOS, and little is padded."""

import types

import numpy as np
import pytest

from keras_transformer.data import TokenizedCorpus, pack_corpus, training_batches

IDS = types.SimpleNamespace(pad_id=0, unk_id=1, bos_id=2, eos_id=3)


def corpus(lengths):
    """Pairs of distinct ids from 10 on, of the given (source, target) lengths."""
    columns, start = [], 10
    for side in zip(*lengths, strict=True):
        values = np.arange(start, start + sum(side), dtype="int32")
        start += len(values)
        columns += [values, np.array(side, "int32")]
    return TokenizedCorpus(*columns, {"empty": 0, "too_long": 0})


def pairs_of(inputs, labels):
    """The pairs in the rows of a batch, as `(source, target)` tuples of ids."""
    for source, target, label in zip(
        inputs["source_ids"].numpy(), inputs["target_ids"].numpy(), labels.numpy(), strict=True
    ):
        sources, targets, expected = split(source), split(label), split_inputs(target)
        assert targets == expected
        yield from zip(sources, targets, strict=True)


def split(row):
    found, last = [], []
    for token in row[row != IDS.pad_id]:
        if token == IDS.eos_id:
            found.append(tuple(last))
            last = []
        else:
            last.append(int(token))
    assert not last, "no EOS at the end"
    return found


def split_inputs(row):
    found = []
    for token in row[row != IDS.pad_id]:
        assert token != IDS.eos_id
        if token == IDS.bos_id:
            found.append([])
        else:
            found[-1].append(int(token))
    return [tuple(ids) for ids in found]


def test_every_pair_is_there_once_with_bos_and_eos():
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 10, (700, 2))
    tokenized = corpus(lengths)
    packed = pack_corpus(tokenized, IDS, length=16)
    batches = list(training_batches(packed, IDS, batch_tokens=64, buckets=(16,), epochs=1, seed=5))
    assert {tuple(labels.shape) for _, labels in batches} == {(4, 16)}
    found = sorted(pair for batch in batches for pair in pairs_of(*batch))
    sources = np.split(tokenized.source_values, np.cumsum(lengths[:, 0])[:-1])
    targets = np.split(tokenized.target_values, np.cumsum(lengths[:, 1])[:-1])
    assert found == sorted(
        (tuple(s.tolist()), tuple(t.tolist())) for s, t in zip(sources, targets, strict=True)
    )
    real = sum(int((labels.numpy() != 0).sum()) for _, labels in batches)
    slots = sum(labels.shape[0] * labels.shape[1] for _, labels in batches)
    assert real / slots > 0.85


def test_rows_hold_both_sides():
    packed = pack_corpus(corpus([(1, 6), (6, 1), (1, 1), (5, 5)]), IDS, length=9)
    assert len(packed) == 2
    assert max(packed.source_lengths.max(), packed.target_lengths.max()) + 1 <= 9
    assert (packed.source_lengths + 1).sum() == 1 + 6 + 1 + 5 + 4
    alone = pack_corpus(corpus([(1, 8)]), IDS, length=9)
    assert alone.target_values.tolist() == list(range(11, 19))


def test_the_longest_pair_must_fit():
    with pytest.raises(ValueError, match="must hold the longest pair.*length=8, longest=9"):
        pack_corpus(corpus([(1, 8)]), IDS, length=8)
