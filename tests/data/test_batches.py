"""Batches: every pair once an epoch, few shapes, and an order that a resumed run continues."""

import dataclasses
import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data import (
    ParallelCorpus,
    TokenizedCorpus,
    batches_per_epoch,
    choose_buckets,
    evaluation_batches,
    prepare,
    tokenize_corpus,
    training_batches,
)
from keras_transformer_runner.tokenizers import CharacterTokenizer, SentencePieceTokenizer

IDS = SimpleNamespace(pad_id=0, bos_id=2, eos_id=3)


def corpus_of(source_lengths, target_lengths=None):
    """A corpus whose pairs are all different: pair i has the id 10 + i on both sides."""
    target_lengths = source_lengths if target_lengths is None else target_lengths
    numbers = np.arange(10, 10 + len(source_lengths), dtype=np.int32)
    return TokenizedCorpus(
        np.repeat(numbers, source_lengths),
        np.array(source_lengths, np.int32),
        np.repeat(numbers, target_lengths),
        np.array(target_lengths, np.int32),
        {},
    )


def test_a_prefix_of_the_tokenizer_stands_behind_bos_and_before_the_source():
    letters = CharacterTokenizer("abc")
    pairs = [("ab", "c"), ("", "a"), ("abc", "ba")]
    sides = letters.with_prefix([6]), letters.with_prefix([5, 6])
    corpus = tokenize_corpus(pairs, sides[0], max_length=5, target_tokenizer=sides[1])
    assert corpus.skipped == {"empty": 1, "too_long": 0}
    ((inputs, labels),) = listed(evaluation_batches(corpus, letters, batch_tokens=20, buckets=[5]))
    assert inputs["source_ids"].tolist() == [[6, 4, 5, 3, 0], [6, 4, 5, 6, 3]]
    assert inputs["target_ids"].tolist() == [[2, 5, 6, 6, 0], [2, 5, 6, 5, 4]]
    assert labels.tolist() == [[5, 6, 6, 3, 0], [5, 6, 5, 4, 3]]
    with pytest.raises(ValueError, match="at most `max_length` ids"):
        tokenize_corpus(pairs[2:], sides[0], max_length=4, target_tokenizer=sides[1])


def random_corpus(count=97, longest=19, seed=0):
    rng = np.random.default_rng(seed)
    return corpus_of(*rng.integers(1, longest, (2, count)))


def listed(dataset):
    return list(dataset.as_numpy_iterator())


def pairs_in(batches, ids=IDS):
    """The (source, target) ids of all rows that are not pads, checked against each other."""
    pairs = []
    for inputs, labels in batches:
        assert inputs["source_ids"].shape == inputs["target_ids"].shape == labels.shape
        assert inputs["source_ids"].dtype == inputs["target_ids"].dtype == labels.dtype == np.int32
        for source, target, label in zip(*inputs.values(), labels, strict=True):
            source, label = source[source != ids.pad_id], label[label != ids.pad_id]
            if not len(label):
                assert not len(source) and (target == ids.pad_id).all()
                continue
            assert source[-1] == label[-1] == ids.eos_id
            assert target[: len(label)].tolist() == [ids.bos_id, *label[:-1]]
            assert (target[len(label) :] == ids.pad_id).all()
            pairs.append((tuple(source[:-1].tolist()), tuple(label[:-1].tolist())))
    return pairs


def pairs_of(corpus):
    rows = zip(corpus.source_lengths.tolist(), corpus.target_lengths.tolist(), strict=True)
    return Counter(((10 + i,) * s, (10 + i,) * t) for i, (s, t) in enumerate(rows))


def same(left, right):
    return all(
        np.array_equal(a, b)
        for a, b in itertools.zip_longest(tf.nest.flatten(left), tf.nest.flatten(right))
    )


@pytest.mark.smoke
def test_a_batch_by_hand():
    corpus = corpus_of([2, 1], [1, 3])
    ((inputs, labels),) = listed(evaluation_batches(corpus, IDS, batch_tokens=8, buckets=(4,)))
    assert inputs["source_ids"].tolist() == [[10, 10, 3, 0], [11, 3, 0, 0]]
    assert inputs["target_ids"].tolist() == [[2, 10, 0, 0], [2, 11, 11, 11]]
    assert labels.tolist() == [[10, 3, 0, 0], [11, 11, 11, 3]]


def test_every_pair_is_seen_exactly_once_an_epoch():
    assert_every_pair_is_seen_once(random_corpus(40, 30), batch_tokens=100, seed=3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40),
    batch_tokens=st.integers(1, 200),
    seed=st.integers(0, 3),
)
def test_every_pair_of_any_corpus_is_seen_exactly_once_an_epoch(lengths, batch_tokens, seed):
    assert_every_pair_is_seen_once(corpus_of(*zip(*lengths, strict=True)), batch_tokens, seed)


def assert_every_pair_is_seen_once(corpus, batch_tokens, seed):
    epochs = training_batches(corpus, IDS, batch_tokens=batch_tokens, seed=seed, epochs=2)
    batches = listed(epochs)
    count = batches_per_epoch(corpus, batch_tokens=batch_tokens)
    assert len(batches) == epochs.cardinality() == 2 * count
    for epoch in (batches[:count], batches[count:]):
        assert Counter(pairs_in(epoch)) == pairs_of(corpus)
    evaluation = evaluation_batches(corpus, IDS, batch_tokens=batch_tokens)
    assert evaluation.cardinality() == count
    assert Counter(pairs_in(listed(evaluation))) == pairs_of(corpus)


def test_shapes_are_a_closed_set_within_the_budget():
    corpus = random_corpus(count=500)
    buckets = (4, 8, 12, 20)
    batches = listed(training_batches(corpus, IDS, batch_tokens=64, buckets=buckets, epochs=3))
    shapes = {labels.shape for _, labels in batches}
    assert sorted(length for _, length in shapes) == [4, 8, 12, 20]
    assert all(rows * length <= 64 for rows, length in shapes)
    # Rows of pads: fewer than batches, in the last batch of each bucket only.
    rows = np.concatenate([labels[:, 0] for _, labels in batches])
    assert (rows == 0).sum() < len(batches)


def test_a_pair_goes_to_the_first_bucket_that_holds_it_with_eos():
    lengths = [1, 3, 4, 7, 8, 20]
    batches = listed(
        evaluation_batches(corpus_of(lengths), IDS, batch_tokens=1, buckets=(4, 8, 21))
    )
    assert [labels.shape for _, labels in batches] == [(1, 4)] * 2 + [(1, 8)] * 2 + [(1, 21)] * 2
    longer_target = corpus_of([1, 7], [7, 1])
    batches = listed(evaluation_batches(longer_target, IDS, batch_tokens=16, buckets=(4, 8)))
    assert [labels.shape for _, labels in batches] == [(2, 8)]


def test_the_last_batch_is_filled_with_pads_not_dropped():
    corpus = corpus_of([3] * 10)
    batches = listed(training_batches(corpus, IDS, batch_tokens=16, buckets=(4,), epochs=1))
    assert [labels.shape for _, labels in batches] == [(4, 4)] * 3
    assert len(pairs_in(batches)) == 10


@pytest.mark.parametrize("make", [training_batches, evaluation_batches])
def test_no_thread_tunes_batches(make):
    """TensorFlow's notice that it ends can be missed, and who drops the iterator then waits."""
    batches = make(corpus_of([3] * 10), IDS, batch_tokens=16, buckets=(4,))
    assert batches.options().autotune.enabled is False
    assert batches.map(lambda *batch: batch).skip(1).options().autotune.enabled is False


@pytest.mark.slow
def test_the_order_depends_on_seed_and_epoch_alone():
    corpus = random_corpus()

    def epoch(seed, number):
        return listed(
            training_batches(corpus, IDS, batch_tokens=64, seed=seed, start_epoch=number, epochs=1)
        )

    assert same(epoch(5, 1), epoch(5, 1))
    assert not same(epoch(5, 1), epoch(5, 2))
    assert not same(epoch(5, 1), epoch(6, 1))
    both = listed(training_batches(corpus, IDS, batch_tokens=64, seed=5, start_epoch=1, epochs=2))
    assert same(both, epoch(5, 1) + epoch(5, 2))
    # Both the pairs of a bucket and the buckets of an epoch are mixed.
    assert sorted(pairs_in(epoch(5, 1))) != pairs_in(epoch(5, 1))
    lengths = [labels.shape[1] for _, labels in epoch(5, 1)]
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))


def test_a_resumed_run_sees_the_very_same_batches():
    corpus = random_corpus()
    count = batches_per_epoch(corpus, batch_tokens=64)
    whole = listed(training_batches(corpus, IDS, batch_tokens=64, seed=7, epochs=3))
    for step in (1, count - 1, count, 2 * count + 3):
        epoch, skip = divmod(step, count)
        rest = training_batches(
            corpus,
            IDS,
            batch_tokens=64,
            seed=7,
            start_epoch=epoch,
            skip_batches=skip,
            epochs=3 - epoch,
        )
        assert rest.cardinality() == len(whole) - step
        assert same(listed(rest), whole[step:])
    at_the_end = training_batches(
        corpus, IDS, batch_tokens=64, seed=7, skip_batches=count, epochs=3
    )
    assert same(listed(at_the_end), whole[count:])


def test_training_batches_have_no_end_unless_asked():
    corpus = random_corpus(count=7)
    count = batches_per_epoch(corpus, batch_tokens=64)
    endless = training_batches(corpus, IDS, batch_tokens=64)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert len(pairs_in(listed(endless.take(5 * count)))) == 5 * 7


def test_special_ids_may_be_any():
    ids = SimpleNamespace(pad_id=99, bos_id=0, eos_id=7)
    corpus = random_corpus(count=31)
    batches = listed(training_batches(corpus, ids, batch_tokens=64, epochs=1))
    assert Counter(pairs_in(batches, ids)) == pairs_of(corpus)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    count=st.integers(1, 4),
)
def test_chosen_buckets_are_the_best_there_are(lengths, count):
    def padded(buckets):
        return np.asarray(buckets)[np.searchsorted(buckets, lengths)].sum()

    buckets = choose_buckets(lengths, count)
    last = -(-max(lengths) // 4) * 4
    assert 1 <= len(buckets) <= count
    assert buckets == tuple(sorted(set(buckets))) and buckets[-1] == last
    assert all(isinstance(bound, int) and bound % 4 == 0 for bound in buckets)
    others = itertools.combinations(range(4, last, 4), min(count - 1, last // 4 - 1))
    assert padded(buckets) == min(padded((*chosen, last)) for chosen in others)


@pytest.mark.parametrize(
    ("lengths", "count", "message"),
    [
        ([], 5, "`lengths` must not be empty"),
        ([3], 0, "`count` must be an integer >= 1. Received: 0"),
        ([3], True, "`count` must be an integer >= 1. Received: True"),
    ],
)
def test_bucket_choice_is_checked(lengths, count, message):
    with pytest.raises(ValueError, match=message):
        choose_buckets(lengths, count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_tokens": 0}, "`batch_tokens` must be an integer >= 1. Received: 0"),
        ({"seed": -1}, "`seed` must be an integer >= 0. Received: -1"),
        ({"start_epoch": -1}, "`start_epoch` must be an integer >= 0. Received: -1"),
        ({"skip_batches": -1}, "`skip_batches` must be an integer >= 0. Received: -1"),
        ({"skip_batches": 3}, "`skip_batches` must be at most.*skip_batches=3, .*epoch=2"),
        ({"epochs": 0}, "`epochs` must be an integer >= 1. Received: 0"),
        ({"buckets": ()}, r"`buckets` must be ascending integers >= 1. Received: \(\)"),
        ({"buckets": (0, 8)}, "`buckets` must be ascending integers >= 1"),
        ({"buckets": (8, 4)}, "`buckets` must be ascending integers >= 1"),
        ({"buckets": (4.5, 8)}, "`buckets` must be ascending integers >= 1"),
        ({"buckets": (4, 7)}, r"must hold the longest pair.*buckets=\(4, 7\), longest=8"),
    ],
)
def test_batch_options_are_checked(options, message):
    corpus = corpus_of([3, 7])
    with pytest.raises(ValueError, match=message):
        training_batches(corpus, IDS, **{"batch_tokens": 8, **options})


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(["a b c d e f g h"] * 3, 16, model_type="char")


def test_tokenizing_drops_and_counts_what_cannot_be_trained_on(tokenizer):
    pairs = [
        ("a", "b c"),
        ("", "a"),
        ("a", "\u3000"),
        ("\n", ""),
        ("abcdefg", "a"),  # 8 pieces with the leading space, and EOS
        ("a", "abcdefgh"),  # one too many
        ("abcdefgh", ""),  # empty, whatever the other side is
        ("g", "h"),
    ]
    corpus = tokenize_corpus(iter(pairs), tokenizer, max_length=9)
    assert corpus.skipped == {"empty": 4, "too_long": 1}
    kept = [pairs[0], pairs[4], pairs[7]]
    assert len(corpus) == 3
    for side, values, lengths in (
        (0, corpus.source_values, corpus.source_lengths),
        (1, corpus.target_values, corpus.target_lengths),
    ):
        rows = [tokenizer.encode(pair[side]) for pair in kept]
        assert values.tolist() == [piece for row in rows for piece in row]
        assert lengths.tolist() == [len(row) for row in rows]
        assert values.dtype == lengths.dtype == np.int32
    assert corpus.pair_lengths.tolist() == [5, 9, 3]


def test_no_target_loses_its_eos(tokenizer):
    texts = ["abcdefgh"[:length] for length in range(1, 9)]
    corpus = tokenize_corpus(zip(texts, texts, strict=True), tokenizer, max_length=6)
    batches = listed(training_batches(corpus, tokenizer, batch_tokens=32, epochs=1))
    assert len(pairs_in(batches)) == 4  # pairs_in checks the last label of every row


def test_tokenizing_in_chunks_changes_nothing(tokenizer, monkeypatch):
    pairs = [("abcdefgh"[i % 8 :], "hgfedcba"[: i % 5]) for i in range(50)]
    whole = tokenize_corpus(pairs, tokenizer, max_length=8)
    monkeypatch.setattr("keras_transformer.data.tokenized.CHUNK", 7)
    chunked = tokenize_corpus(pairs, tokenizer, max_length=8)
    assert same(dataclasses.astuple(whole), dataclasses.astuple(chunked))


@pytest.mark.parametrize("pairs", [[], [("", "a")], [("a", "abcdefgh")]])
def test_a_corpus_of_which_nothing_is_left_is_an_error(tokenizer, pairs):
    with pytest.raises(ValueError, match=r"must hold a pair.*max_length=4, skipped pairs: \{"):
        tokenize_corpus(pairs, tokenizer, max_length=4)


@pytest.mark.parametrize(
    "pair, message",
    [
        ((None, "a"), "the source of a pair must be a string .* Received: pair 2 with None"),
        (("a", b"a"), "the target of a pair must be a string .* Received: pair 2 with b'a'"),
        (("a", "\ud800 a"), r"target .* lone surrogates. Received: pair 2 with '\\ud800 a'"),
    ],
)
def test_a_side_that_is_no_text_is_named(tokenizer, tmp_path, pair, message):
    pairs = [("a", "b"), pair]
    with pytest.raises(ValueError, match=message):
        tokenize_corpus(pairs, tokenizer, max_length=8)
    with pytest.raises(ValueError, match=message):
        prepare(pairs, tokenizer, tmp_path / "p", max_length=8)


def test_max_length_is_checked(tokenizer):
    with pytest.raises(ValueError, match="`max_length` must be an integer >= 2. Received: 1"):
        tokenize_corpus([("a", "b")], tokenizer, max_length=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*plain text has a tab")  # a line of the German side
def test_few_of_the_target_positions_of_a_real_corpus_are_pads(shared_data):
    """What padding costs with the default buckets, measured where the paper's users would."""
    folder = shared_data / "multi30k"
    pairs = ParallelCorpus(folder / "train.en.gz", folder / "train.de.gz")
    tokenizer = SentencePieceTokenizer.train(pairs.sentences(), 6000)
    corpus = tokenize_corpus(pairs, tokenizer, max_length=128)
    assert len(corpus) > 28_000
    batches = training_batches(corpus, tokenizer, batch_tokens=4096, epochs=1)
    labels = [labels for _, labels in batches.as_numpy_iterator()]
    pads = sum(int((ids == tokenizer.pad_id).sum()) for ids in labels)
    share = pads / sum(ids.size for ids in labels)
    assert share < 0.15
    assert len({ids.shape for ids in labels}) <= 7
