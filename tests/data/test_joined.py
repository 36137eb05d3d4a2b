"""Several corpora as one: how often an epoch has each pair, and that its batches can be resumed."""

import collections
import math

import numpy as np
import pytest

from keras_transformer.data import (
    JoinedCorpus,
    MixedCorpus,
    ParallelCorpus,
    TaggedCorpus,
    batches_per_epoch,
    evaluation_batches,
    join_tokenized,
    tokenize_corpus,
    training_batches,
    weights_of_temperature,
)
from keras_transformer_runner.tokenizers import CharacterTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = CharacterTokenizer(LETTERS)


def corpus_of(letters, lengths):
    """Pairs that differ in the first letter, of given lengths."""
    pairs = [
        (letter + "z" * (length - 1), letter)
        for letter, length in zip(letters, lengths, strict=True)
    ]
    return tokenize_corpus(pairs, TOKENIZER, max_length=30)


def batches_of(corpus, **options):
    batches = training_batches(corpus, TOKENIZER, batch_tokens=12, seed=3, **options)
    return [(inputs["source_ids"].numpy(), labels.numpy()) for inputs, labels in batches]


def seen(batches):
    """How often each first letter is in batches."""
    first = np.concatenate([sources[:, 0] for sources, _ in batches])
    letters = (TOKENIZER.pieces[token] for token in first if token != TOKENIZER.pad_id)
    return collections.Counter(letters)


SMALL = corpus_of("ab", [2, 4])
LARGE = corpus_of("cdefghijkl", [2] * 4 + [3] * 4 + [9] * 2)


@pytest.mark.smoke
def test_pairs_come_as_often_as_their_weight_says():
    mixed = MixedCorpus([SMALL, LARGE], weights=[3, 0.5])
    assert len(mixed) == 6 + 5
    epochs = [batches_of(mixed, start_epoch=epoch, epochs=1) for epoch in range(4)]
    for batches in epochs:
        counts = seen(batches)
        assert counts["a"] == counts["b"] == 3
        assert sum(counts.values()) == len(mixed)
        assert len(batches) == batches_per_epoch(mixed, batch_tokens=12)
    for first in (0, 2):  # in two epochs all have had their turn
        counts = seen(epochs[first] + epochs[first + 1])
        assert {letter: counts[letter] for letter in "cdefghijkl"} == dict.fromkeys("cdefghijkl", 1)
    assert seen(epochs[0]) != seen(epochs[1])
    assert seen(epochs[0]) == seen(batches_of(mixed, epochs=1))


def test_lengths_that_are_rare_take_turns():
    lengths = [2, 3, 4, 5, 6, 7, 8, 20]
    mixed = MixedCorpus([corpus_of("abcdefgh", lengths)], weights=[0.25])
    assert len(mixed) == 2
    counts = sum((seen(batches_of(mixed, start_epoch=epoch, epochs=1)) for epoch in range(4)),
                 collections.Counter())  # fmt: skip
    assert counts == dict.fromkeys("abcdefgh", 1)
    # Planned for the longest of those that take turns.
    assert np.flatnonzero(mixed.length_counts[0]).tolist() == [6, 21]


def test_batches_are_resumed():
    mixed = MixedCorpus([SMALL, LARGE], weights=[1.5, 0.7])
    count = batches_per_epoch(mixed, batch_tokens=12)
    straight = batches_of(mixed, epochs=3)
    resumed = batches_of(mixed, start_epoch=1, skip_batches=2, epochs=2)
    assert len(straight) == 3 * count and len(resumed) == 2 * count - 2
    for one, other in zip(straight[count + 2 :], resumed, strict=True):
        for ids, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(ids, same)
    ordered = evaluation_batches(mixed, TOKENIZER, batch_tokens=12)
    assert sum(1 for _ in ordered) == count


def test_what_identifies_a_mixture():
    one, other = (MixedCorpus([SMALL, LARGE], weights=[1, weight]) for weight in (0.5, 0.6))
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == MixedCorpus([SMALL, LARGE], weights=[1, 0.5]).fingerprint
    assert one.skipped == {"empty": 0, "too_long": 0}


def test_joined_without_weights_is_one_corpus():
    both = join_tokenized([SMALL, LARGE])
    assert len(both) == 12
    lengths = [2, 4] + [2] * 4 + [3] * 4 + [9] * 2
    assert both.fingerprint == corpus_of("abcdefghijkl", lengths).fingerprint
    long = tokenize_corpus([("a", "b"), ("abc", "b")], TOKENIZER, max_length=3)
    assert join_tokenized([long, SMALL, long]).skipped == {"empty": 0, "too_long": 2}


def test_texts_are_joined_and_tagged(tmp_path):
    for name, lines in (("one", "a\tb\n \tc\n"), ("two", "d\te\n")):
        (tmp_path / name).write_text(lines)
    one, two = (ParallelCorpus(tmp_path / name) for name in ("one", "two"))
    joined = JoinedCorpus([TaggedCorpus(one, "<x>"), two])
    assert list(joined) == [("<x> a", "b"), ("", "c"), ("d", "e")]
    assert list(joined.in_turn()) == [("<x> a", "b"), ("d", "e"), ("", "c")]
    assert joined.check().usable == 2
    assert joined.files == [tmp_path / "one", tmp_path / "two"]
    assert TaggedCorpus(one, "<x>").text_bytes() == one.text_bytes()
    assert joined.name == f"{tmp_path / 'one'} with <x>, {tmp_path / 'two'}"


def test_lines_of_several_files_are_not_named(tmp_path):
    for name, lines in (("one", "a\tb\n\tb\nno tab\nc\td"), ("two", "a\tb\n\tb\nc\t\n")):
        (tmp_path / name).write_text(lines)
    one, two = (ParallelCorpus(tmp_path / name, invalid="skip") for name in ("one", "two"))
    joined = JoinedCorpus([one, two])
    assert str(joined.check()).endswith("left out: empty: 3; no_tab: 1")
    assert tokenize_corpus(joined, TOKENIZER, max_length=4).skipped_lines == {}
    assert str(one.check()).endswith("left out: empty: 1 (line 2); no_tab: 1 (line 3)")


@pytest.mark.parametrize("space", ["\u3000", "\u00a0 ", "\x1c"])
def test_a_source_of_any_white_space_stays_without_a_tag(tmp_path, space):
    """Of characters it would be text, and a pair without its tag."""
    (tmp_path / "pairs").write_text(f"a\tb\n{space}\tc\n", encoding="utf-8")
    tagged = TaggedCorpus(ParallelCorpus(tmp_path / "pairs"), "<x>")
    tokenizer = CharacterTokenizer.train([*tagged.sentences(), f"a{space}a"])
    trained = tokenize_corpus(tagged, tokenizer, max_length=9)
    assert (len(trained), trained.skipped) == (1, {"empty": 1, "too_long": 0})
    assert tagged.check().usable == 1


def test_weights_of_a_temperature():
    assert weights_of_temperature([10, 30], 1) == pytest.approx([1, 1])
    assert weights_of_temperature([10, 30], math.inf) == pytest.approx([2, 2 / 3])
    weights = np.array(weights_of_temperature([10, 1000], 5))
    shares = weights * [10, 1000] / 1010
    assert shares.sum() == pytest.approx(1)
    assert shares[1] / shares[0] == pytest.approx(100 ** (1 / 5))


def test_weights_that_are_none():
    with pytest.raises(ValueError, match="`weight` must be .* above 0. Received: weight=0"):
        MixedCorpus([SMALL], weights=[0])
    with pytest.raises(ValueError, match="leave a pair of each corpus.*weight=0.1 for 2 pairs"):
        MixedCorpus([SMALL], weights=[0.1])
    with pytest.raises(ValueError, match="`weights` must be as many as `parts`. Received: 1 wei"):
        MixedCorpus([SMALL, LARGE], weights=[1])
    with pytest.raises(ValueError, match="`temperature` must be a finite number above 0"):
        weights_of_temperature([1, 2], 0)
