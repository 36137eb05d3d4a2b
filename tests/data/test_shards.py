"""Training from shards: the guarantees of `training_batches`, and a broken folder is told."""

import dataclasses
import itertools
import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from shard_ids import load_shard

from keras_transformer.data import (
    batches_per_epoch,
    choose_buckets,
    evaluation_batches,
    training_batches,
)
from keras_transformer.data.preparation import prepare
from keras_transformer.data.shard_index import shard_file
from keras_transformer.data.shards import PreparedCorpus, shard_of
from keras_transformer_runner.tokenizers import SentencePieceTokenizer

LETTERS = "abcdefgh"
SHARDS = 5


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(["a b c d e f g h"] * 3, 16, model_type="char")


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(3)
    return [
        tuple("".join(rng.choice(list(LETTERS), n)) for n in rng.integers(1, 14, 2))
        for _ in range(211)
    ]


@pytest.fixture(scope="module")
def folder(tokenizer, pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "corpus"
    prepare(pairs, tokenizer, folder, max_length=16, shards=SHARDS)
    return folder


@pytest.fixture
def corpus(folder):
    return PreparedCorpus(folder)


@pytest.fixture
def copy(folder, tmp_path):
    """The folder's files, to break."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def listed(dataset):
    return list(dataset.as_numpy_iterator())


def texts(batches, tokenizer):
    for inputs, labels in batches:
        for source, label in zip(inputs["source_ids"], labels, strict=True):
            if (label != tokenizer.pad_id).any():
                assert tokenizer.eos_id in source and tokenizer.eos_id in label
                yield tokenizer.decode(source), tokenizer.decode(label)


def same(left, right):
    return all(
        np.array_equal(a, b)
        for a, b in itertools.zip_longest(tf.nest.flatten(left), tf.nest.flatten(right))
    )


def test_every_pair_is_seen_exactly_once_an_epoch(corpus, tokenizer, pairs):
    count = batches_per_epoch(corpus, batch_tokens=64)
    epochs = training_batches(corpus, tokenizer, batch_tokens=64, epochs=2)
    batches = listed(epochs)
    assert len(batches) == epochs.cardinality() == 2 * count
    for epoch in (batches[:count], batches[count:]):
        assert Counter(texts(epoch, tokenizer)) == Counter(pairs)
    assert not same(batches[:count], batches[count:])
    evaluation = evaluation_batches(corpus, tokenizer, batch_tokens=64)
    assert evaluation.cardinality() == count
    assert Counter(texts(listed(evaluation), tokenizer)) == Counter(pairs)


def test_shapes_are_one_closed_set_for_all_shards(corpus, tokenizer):
    buckets = choose_buckets(corpus)
    counts = corpus.length_counts.sum(axis=0)
    assert buckets == choose_buckets(np.repeat(range(len(counts)), counts))
    batches = listed(training_batches(corpus, tokenizer, batch_tokens=64, epochs=1))
    shapes = {labels.shape for _, labels in batches}
    assert sorted(length for _, length in shapes) == list(buckets)
    assert all(rows * length <= 64 for rows, length in shapes)


@pytest.mark.slow
def test_a_resumed_run_sees_the_very_same_batches(corpus, tokenizer):
    count = batches_per_epoch(corpus, batch_tokens=64)
    options = {"batch_tokens": 64, "seed": 7}
    whole = listed(training_batches(corpus, tokenizer, epochs=2, **options))
    for step in (1, count // 2, count - 1, count, count + 9):
        epoch, skip = divmod(step, count)
        rest = training_batches(
            corpus, tokenizer, start_epoch=epoch, skip_batches=skip, epochs=2 - epoch, **options
        )
        assert rest.cardinality() == len(whole) - step
        assert same(listed(rest), whole[step:])
    end = training_batches(corpus, tokenizer, skip_batches=count, epochs=2, **options)
    assert same(listed(end), whole[count:])
    other = training_batches(corpus, tokenizer, batch_tokens=64, seed=8, epochs=2)
    assert not same(listed(other), whole)


@pytest.mark.slow
def test_the_order_of_shards_changes_with_the_epoch(corpus, pairs, tokenizer):
    number = {pair: i for i, pair in enumerate(pairs, start=1)}
    orders = set()
    for epoch in range(4):
        batches = training_batches(corpus, tokenizer, batch_tokens=64, start_epoch=epoch, epochs=1)
        numbers = [number[pair] for pair in texts(listed(batches), tokenizer)]
        shards = [shard for shard, _ in itertools.groupby(shard_of(numbers, SHARDS, 0).tolist())]
        assert sorted(shards) == list(range(SHARDS))  # one after the other
        orders.add(tuple(shards))
    assert len(orders) > 1


def test_shards_that_are_done_are_not_read(copy, tokenizer):
    corpus = PreparedCorpus(copy)
    count = batches_per_epoch(corpus, batch_tokens=64)
    for shard in range(SHARDS):
        (copy / shard_file(shard, SHARDS)).write_bytes(b"broken")
    options = {"batch_tokens": 64, "epochs": 1}
    assert not listed(training_batches(corpus, tokenizer, skip_batches=count, **options))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be as prepared.json says"):
        listed(training_batches(corpus, tokenizer, skip_batches=count - 1, **options))


def test_one_shard_is_what_is_in_memory(tokenizer, pairs, tmp_path):
    one = prepare(pairs, tokenizer, tmp_path / "one", max_length=16, shards=1)
    options = {"batch_tokens": 64, "seed": 3, "epochs": 2}
    batches = listed(training_batches(one, tokenizer, **options))
    assert same(batches, listed(training_batches(load_shard(one, 0), tokenizer, **options)))


def test_a_fingerprint_is_of_all_that_batches_depend_on(tokenizer, pairs, tmp_path):
    def prepared(name, pairs, **options):
        return prepare(pairs, tokenizer, tmp_path / name, max_length=16, **options)

    one, again = (prepared(name, pairs, shards=1) for name in "ab")
    others = prepared("c", pairs, shards=2), prepared("d", pairs[:-1], shards=1)
    assert one.fingerprint == again.fingerprint
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 3
    in_memory = [load_shard(corpus, 0) for corpus in (one, again, others[1])]
    assert in_memory[0].fingerprint == in_memory[1].fingerprint != in_memory[2].fingerprint
    lengths = dataclasses.replace(in_memory[0], source_lengths=in_memory[0].source_lengths[::-1])
    assert lengths.fingerprint != in_memory[0].fingerprint


def test_shards_without_a_pair(tokenizer, tmp_path):
    few = prepare([("a", "b"), ("c", "d")], tokenizer, tmp_path / "p", max_length=8, shards=7)
    empty = np.flatnonzero(few.length_counts.sum(axis=1) == 0)
    assert len(empty) >= 5
    for shard in empty:  # nobody reads them
        (few.folder / shard_file(shard, 7)).write_bytes(b"broken" * 10)
    for batches in (
        training_batches(few, tokenizer, batch_tokens=8, epochs=1),
        evaluation_batches(few, tokenizer, batch_tokens=8),
    ):
        assert Counter(texts(listed(batches), tokenizer)) == {("a", "b"): 1, ("c", "d"): 1}


def test_special_ids_are_the_models(corpus, tokenizer):
    ids = SimpleNamespace(pad_id=99, bos_id=98, eos_id=97)
    batches = listed(training_batches(corpus, ids, batch_tokens=64, epochs=1))
    rows = np.concatenate([labels[:, 0] for _, labels in batches])
    for inputs, labels in batches:
        is_pair = labels[:, 0] != 99
        assert ((labels == 97).sum(axis=1) == is_pair).all()
        assert (inputs["target_ids"][:, 0] == np.where(is_pair, 98, 99)).all()
        assert (inputs["target_ids"] != 97).all()
    assert (rows != 99).sum() == len(corpus)


def test_the_hash_spreads_evenly_and_is_what_it_was():
    shards = shard_of(np.arange(1, 40_001), 8, 0)
    assert np.bincount(shards, minlength=8).std() < 100
    assert (shard_of(np.arange(1, 40_001), 8, 1) == shards).mean() < 0.15
    # From the formula in plain integers: a folder and a pipeline elsewhere must agree for ever.
    assert shards[:5].tolist() == [mixed(n ^ mixed(0)) % 8 for n in range(1, 6)]
    assert mixed(0) == 0xE220A8397B1DCDAF  # SplitMix64's first number from seed 0


def mixed(value):
    word = (1 << 64) - 1
    value = (value + 0x9E3779B97F4A7C15) & word
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & word
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & word
    return value ^ (value >> 31)


def test_a_shard_of_another_folder_is_told(copy, tokenizer):
    corpus = PreparedCorpus(copy)
    one, other = (copy / shard_file(shard, SHARDS) for shard in (1, 2))
    one.write_bytes(other.read_bytes())
    batches = training_batches(corpus, tokenizer, batch_tokens=64, epochs=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shard must be as prepared.json says"):
        listed(batches)
    with pytest.raises(ValueError, match="must be as prepared.json says. Received: .*d-00001"):
        load_shard(corpus, 1)
    with pytest.raises(ValueError, match="says. Received: .*d-00001.* bytes, expected "):
        PreparedCorpus(copy)


def test_a_missing_shard_is_named(copy):
    (copy / shard_file(3, SHARDS)).unlink()
    with pytest.raises(FileNotFoundError, match="every shard .*without shard-00003-of-00005"):
        PreparedCorpus(copy)


def test_another_format_is_told(copy):
    index = json.loads((copy / "prepared.json").read_text()) | {"format": 2}
    (copy / "prepared.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="must have format 1. Received: .* with format 2"):
        PreparedCorpus(copy)


def test_a_folder_without_an_index_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="one that `prepare` wrote, with prepared.json"):
        PreparedCorpus(tmp_path)


def test_a_budget_is_checked(corpus, tokenizer):
    with pytest.raises(ValueError, match="must hold the longest pair"):
        training_batches(corpus, tokenizer, batch_tokens=64, buckets=(4, 8))
    with pytest.raises(ValueError, match="`skip_batches` must be at most"):
        training_batches(corpus, tokenizer, batch_tokens=64, skip_batches=1000)


def test_a_corpus_up_to_a_length_gives_the_pairs_that_fit(tokenizer, tmp_path):
    pairs = [("a" * (n % 7 + 1), "b" * (n % 5 + 1)) for n in range(59)]
    whole = prepare(pairs, tokenizer, tmp_path / "p", max_length=20, shards=3)
    short = whole.up_to(6)
    fits = [pair for pair in pairs if max(len(tokenizer.encode(side)) for side in pair) < 6]
    assert 0 < len(short) == len(fits) < len(whole) == 59
    assert short.skipped == {"empty": 0, "too_long": 59 - len(fits)}
    assert "too_long" in str(short.check()) and short.length_counts.shape[1] <= 7
    options = dict(batch_tokens=30, buckets=(4, 6))
    for batches in (
        training_batches(short, tokenizer, epochs=1, **options),
        evaluation_batches(short, tokenizer, **options),
    ):
        rows = [row for inputs, _ in batches for row in inputs["source_ids"].numpy() if row.any()]
        assert Counter(tokenizer.decode(row) for row in rows) == Counter(s for s, _ in fits)
    assert whole.up_to(20).skipped == whole.skipped
    with pytest.raises(ValueError, match="a pair of at most 2 ids a side, EOS included. Received"):
        whole.up_to(2)
