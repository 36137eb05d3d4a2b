"""Prepared shards: every pair once, the same bytes again, and nothing half-written."""

import gzip
import json
import os
from collections import Counter

import numpy as np
import pytest
from shard_ids import load_shard

from keras_transformer.data import ParallelCorpus, tokenize_corpus
from keras_transformer.data.preparation import prepare
from keras_transformer.data.shard_index import shard_file
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer_runner.atomic import TargetInUseError, locked
from keras_transformer_runner.tokenizers import (
    BytesTokenizer,
    SentencePieceTokenizer,
    VocabularyTokenizer,
)

PAIRS = [("abcdefgh"[i % 8 :], "hgfedcba"[: i % 5]) for i in range(97)]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(["a b c d e f g h"] * 3, 16, model_type="char")


def rows_of(tokenized):
    columns = []
    for side in ("source", "target"):
        values = getattr(tokenized, f"{side}_values")
        ends = getattr(tokenized, f"{side}_lengths").cumsum()[:-1]
        columns.append([tuple(row.tolist()) for row in np.split(values, ends)])
    return list(zip(*columns, strict=True))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_the_shards_hold_what_tokenizing_in_memory_keeps(tokenizer, tmp_path, compression):
    whole = tokenize_corpus(PAIRS, tokenizer, max_length=8)
    corpus = prepare(
        PAIRS, tokenizer, tmp_path / "p", max_length=8, shards=3, compression=compression
    )
    shards = [load_shard(corpus, shard) for shard in range(3)]
    rows = [rows_of(shard) for shard in shards]
    assert Counter(sum(rows, [])) == Counter(rows_of(whole))
    assert len(corpus) == len(whole) == sum(map(len, shards))
    assert all(len(shard) > 10 for shard in shards)
    assert corpus.skipped == whole.skipped and corpus.skipped_lines == whole.skipped_lines
    assert corpus.skipped["empty"] == 20 and corpus.skipped_lines["empty"][:2] == [1, 6]
    too_long = [i + 1 for i in range(97) if i % 8 < 2 and i % 5]  # 7 letters, a space and EOS
    assert corpus.skipped["too_long"] == len(too_long)
    assert corpus.skipped_lines["too_long"] == too_long[:10]
    assert (corpus.length_counts.sum(axis=0) == whole.length_counts[0]).all()
    assert corpus.length_counts.shape[0] == corpus.shards == 3
    assert shards[0].source_values.dtype == shards[0].target_lengths.dtype == np.int32
    report = corpus.check()
    assert (report.pairs, report.usable) == (97, len(whole))
    expected = Counter((s, t) for s, t in PAIRS if t and len(s) < 7)
    assert Counter(corpus.decoded()) == expected


def test_pairs_keep_their_order_within_a_shard(tokenizer, tmp_path):
    letters = [("abcdefgh"[i % 8] + "abcdefgh"[i // 8], "a") for i in range(64)]
    corpus = prepare(letters, tokenizer, tmp_path / "p", max_length=8, shards=2)
    sources = [source for source, _ in corpus.decoded()]
    first = [source for source, _ in letters].index(sources[0])
    assert first < 10
    order = [next(i for i, pair in enumerate(letters) if pair[0] == s) for s in sources]
    assert sum(a > b for a, b in zip(order, order[1:], strict=False)) == 1  # at the second shard


def test_the_same_input_gives_the_same_bytes(tokenizer, tmp_path, monkeypatch):
    def written(name, **options):
        prepare(PAIRS, tokenizer, tmp_path / name, max_length=8, shards=3, **options)
        return contents(tmp_path / name)

    first = written("a")
    monkeypatch.setattr("keras_transformer.data.tokenized.CHUNK", 7)
    assert written("b") == first
    assert set(first) == {"prepared.json", "tokenizer.model", *(shard_file(i, 3) for i in range(3))}
    other = written("c", seed=1)
    assert other.keys() == first.keys() and other != first
    fingerprints = {PreparedCorpus(tmp_path / name).fingerprint: name for name in ("a", "b", "c")}
    assert len(fingerprints) == 2


def test_every_side_has_its_own_tokenizer(tokenizer, tmp_path):
    other = SentencePieceTokenizer.train(["a b c d e f g h x y"] * 3, 18, model_type="char")
    corpus = prepare(
        PAIRS, tokenizer, tmp_path / "p", max_length=8, target_tokenizer=other, shards=1
    )
    assert corpus.source_tokenizer.fingerprint == tokenizer.fingerprint
    assert corpus.target_tokenizer.fingerprint == other.fingerprint
    corpus.check_tokenizers(tokenizer, other)
    with pytest.raises(ValueError, match="`target_tokenizer` must be the one .*Received: finger"):
        corpus.check_tokenizers(tokenizer)
    with pytest.raises(ValueError, match="`tokenizer` must be the one that"):
        corpus.check_tokenizers(other, other)
    one = prepare(PAIRS, tokenizer, tmp_path / "one", max_length=8, shards=1)
    assert one.target_tokenizer.fingerprint == tokenizer.fingerprint
    one.check_tokenizers(tokenizer)


def test_faulty_lines_are_in_the_index(tokenizer, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"a\tb\n\xff\tb\nno tab\nabcdefghabcdefgh\tb\n\tb\n")
    with pytest.raises(ValueError, match="must be UTF-8. Received: .*pairs.tsv, line 2"):
        prepare(ParallelCorpus(path), tokenizer, tmp_path / "p", max_length=8)
    assert [each.name for each in tmp_path.iterdir()] == ["pairs.tsv"]
    corpus = prepare(ParallelCorpus(path, invalid="skip"), tokenizer, tmp_path / "p", max_length=8)
    assert corpus.shards == 1  # a small file
    lines = {"invalid_utf8": [2], "no_tab": [3], "too_long": [4], "empty": [5]}
    assert corpus.skipped_lines == lines
    assert corpus.skipped == dict.fromkeys(lines, 1)
    assert corpus.check().faults.lines == lines


def test_nothing_is_left_of_a_failure(tokenizer, tmp_path):
    def broken():
        yield from PAIRS
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        prepare(broken(), tokenizer, tmp_path / "p", max_length=8, shards=2)
    with pytest.raises(
        ValueError, match=r"must hold a pair.*: list, max_length=2, skipped pairs: \{"
    ):
        prepare([("a", "bcd"), ("", "")], tokenizer, tmp_path / "p", max_length=2)
    assert not list(tmp_path.iterdir())


def test_the_default_number_of_shards(tokenizer, tmp_path, monkeypatch):
    assert prepare(PAIRS, tokenizer, tmp_path / "a", max_length=8).shards == 16
    for name in ("left", "right"):
        (tmp_path / name).write_text("abc\n" * 50)
    monkeypatch.setattr("keras_transformer.data.preparation._SHARD_TEXT", 150)
    files = ParallelCorpus(tmp_path / "left", tmp_path / "right")
    assert prepare(files, tokenizer, tmp_path / "b", max_length=8).shards == 3
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(b"abc\tabc\n" * 50))
    assert ParallelCorpus(packed).text_bytes() == 3 * packed.stat().st_size
    assert (
        ParallelCorpus("-").text_bytes() is ParallelCorpus(tmp_path / "none").text_bytes() is None
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 1}, "`max_length` must be an integer >= 2. Received: 1"),
        ({"shards": 0}, "`shards` must be an integer >= 1. Received: 0"),
        ({"shards": 1001}, "`shards` must be at most 1000. Received: 1001"),
        ({"seed": -1}, "`seed` must be an integer >= 0. Received: -1"),
        ({"seed": 1 << 63}, "`seed` must be below 2.63. Received: 9223372036854775808"),
        ({"compression": "zip"}, "`compression` must be 'GZIP' or None. Received: 'zip'"),
    ],
)
def test_options_are_checked(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        prepare(PAIRS, None, tmp_path / "p", **{"max_length": 8, **options})


def test_a_folder_is_never_overwritten(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="a prepared corpus needs a new folder. Received: "):
        prepare(PAIRS, None, tmp_path, max_length=8)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_of_two_at_once_the_second_is_refused(tmp_path):
    with locked(tmp_path / "p"), pytest.raises(TargetInUseError, match="written by process"):
        prepare(PAIRS, None, tmp_path / "p", max_length=8)


def test_killed_and_run_again(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in containers, of which each begins with 1

    def killed():
        yield from PAIRS
        os._exit(9)

    child = os.fork()
    if not child:
        prepare(killed(), tokenizer, tmp_path / "p", max_length=8, shards=2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(list(tmp_path.iterdir())) == 2  # what is half-written, and the lock
    assert prepare(PAIRS, tokenizer, tmp_path / "p", max_length=8, shards=2).shards == 2
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("number", [500, 5000])  # of pairs: it is noticed at the end, or before
def test_a_full_disk_is_told(full_disk, tmp_path, number):
    options = {"max_length": 31, "shards": 1}
    with pytest.raises(OSError, match="a shard must be written whole. Rec.*: shard-00000") as told:
        prepare([("abc def", "ghi jkl")] * number, BytesTokenizer(), tmp_path / "p", **options)
    assert "\n" not in str(told.value) and not list(tmp_path.iterdir())


def test_the_index_by_hand(tokenizer, tmp_path):
    prepare([("a", "bc")], tokenizer, tmp_path / "p", max_length=8, shards=1, seed=5)
    index = json.loads((tmp_path / "p" / "prepared.json").read_text())
    assert index["format"] == 1 and index["pairs"] == 1 and index["seed"] == 5
    assert index["shards"][0]["length_counts"] == [[4, 1]]  # the space, b, c and EOS
    assert index["tokenizer"]["vocab_size"] == tokenizer.vocab_size


def test_tokenizers_of_other_special_ids_are_refused_before_any_work(tokenizer, tmp_path):
    other = SentencePieceTokenizer.train(["a b c d e f g h"] * 3, 16, model_type="char")
    other.eos_id = 5

    def no_pairs():
        raise AssertionError("nothing is to be read")
        yield

    with pytest.raises(ValueError, match="both tokenizers must have the same special ids"):
        prepare(no_pairs(), tokenizer, tmp_path / "p", max_length=8, target_tokenizer=other)
    assert list(tmp_path.iterdir()) == []


def test_split_text_stays_split(tmp_path):
    tokenizer = VocabularyTokenizer(["ca@@", "ts", "a"])
    corpus = prepare([("a ca@@ ts", "ca@@ ts never")], tokenizer, tmp_path / "p", max_length=8)
    ((source, target),) = corpus.decoded()
    assert source == "a ca@@ ts" and target == "ca@@ ts <unk>"
    ids = tokenizer.encode("ca@@ ts never")
    assert tokenizer.encode(target) == ids and tokenizer.decode(ids) != target
