"""The pipeline of Apache Beam writes the folder that `prepare` writes, byte for byte."""

import functools
import gzip
import importlib.util
import json
import sys
import threading

import numpy as np
import pytest

from keras_transformer.data import Corpus, JoinedCorpus, ParallelCorpus, apache_beam
from keras_transformer.data.apache_beam import _Write, prepare_with_beam
from keras_transformer.data.corpus_parts import corpus_parts
from keras_transformer.data.preparation import prepare
from keras_transformer_runner.atomic import TargetInUseError, locked
from keras_transformer_runner.tokenizers import BytesTokenizer

needs_beam = pytest.mark.skipif(
    not importlib.util.find_spec("apache_beam"),
    reason="needs apache-beam: pip install apache-beam",
)
# What the library itself warns of.
pytestmark = pytest.mark.filterwarnings("default")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.quick(1)
@needs_beam
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_the_folder_is_the_same(tmp_path, monkeypatch, compression):
    monkeypatch.setattr("keras_transformer.data.apache_beam.CHUNK", 7)
    lines = [b"abc"[: i % 4] + b"\t" + b"xyzxyzxyz"[: i % 11] for i in range(60)]
    lines[5:7] = b"\xff\ta", b"no tab"
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"\n".join(lines))
    corpus, tokenizer = ParallelCorpus(path, invalid="skip"), BytesTokenizer()
    options = {"max_length": 9, "shards": 3, "seed": 2, "compression": compression}
    prepare(corpus, tokenizer, tmp_path / "a", **options)
    prepared = prepare_with_beam(corpus, tokenizer, tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert set(prepared.skipped) == {"empty", "too_long", "invalid_utf8", "no_tab"}
    assert min(prepared.skipped.values()) > 0 and len(prepared) > 20


@needs_beam
@pytest.mark.parametrize("packed", [False, True])
def test_parts_are_read_by_themselves(tmp_path, monkeypatch, packed):
    """Or one after the other where the file is packed; the numbers are those of its lines."""
    cut = functools.partial(corpus_parts, pairs=11)
    monkeypatch.setattr("keras_transformer.data.apache_beam.corpus_parts", cut)
    path = tmp_path / "pairs.tsv"
    lines = [f"{'abc' * (i % 3)}\t{'xy' * (i % 7)}\n" for i in range(60)] + ["no tab"]
    content = "".join(lines).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    corpus = ParallelCorpus(path, invalid="skip")
    assert len(cut(corpus)) == (1 if packed else 6)
    options = {"max_length": 9, "shards": 3, "seed": 2}
    prepare(corpus, BytesTokenizer(), tmp_path / "a", **options)
    prepare_with_beam(corpus, BytesTokenizer(), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


class Countdown(Corpus):
    """Numbers that do not ascend, nor their texts."""

    name = "countdown"

    def numbered_pairs(self, faults):
        for number in (5, 3, 4, 1, 2, 5, 3):
            yield number, "abcde"[:number], "x"


@needs_beam
def test_pairs_whose_numbers_repeat_or_descend_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.data.apache_beam.CHUNK", 3)
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{'ba' * (i % 3)}\ty\n" for i in range(9)) + "no tab")
    corpus = JoinedCorpus([Countdown(), ParallelCorpus(path, invalid="skip"), Countdown()])
    options = {"max_length": 9, "shards": 2}
    prepare(corpus, BytesTokenizer(), tmp_path / "a", **options)
    prepared = prepare_with_beam(corpus, BytesTokenizer(), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert prepared.skipped == {"empty": 3, "too_long": 0, "no_tab": 1}
    assert prepared.skipped_lines == {}


@needs_beam
def test_two_tokenizers_and_shards_without_a_pair(tmp_path):
    pairs = [("a", "b"), ("c", "d")]
    options = {"target_tokenizer": BytesTokenizer(), "max_length": 8, "shards": 5}
    prepare(pairs, BytesTokenizer(), tmp_path / "a", **options)
    prepare_with_beam(pairs, BytesTokenizer(), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@needs_beam
def test_nothing_is_left_of_a_failure(tmp_path):
    with pytest.raises(ValueError, match="must hold a pair"):
        prepare_with_beam([("", "")], BytesTokenizer(), tmp_path / "p", max_length=8, shards=2)
    with pytest.raises(Exception, match="a text file must exist"):
        prepare_with_beam(
            ParallelCorpus(tmp_path / "none"), BytesTokenizer(), tmp_path / "p", max_length=8
        )
    assert not list(tmp_path.iterdir())


def test_workers_may_write_the_same_shard(tmp_path):
    """At once, or when another has been given up; what the slower one leaves is in nobody's way."""
    write = _Write(str(tmp_path), 2, None, 9)
    row = np.arange(5, 8, dtype=np.int32).tobytes()
    group = 1, [[(place, [(row, row)] * 50) for place in range(0, 500, 50)]]
    threads = [threading.Thread(target=write, args=(group,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (tmp_path / ".1f00ba47.writing.x").touch()
    assert json.loads((tmp_path / "entry-1.json").read_text())["pairs"] == 500
    names = {"entry-1.json", "shard-00001-of-00002.tfrecord", ".1f00ba47.writing.x"}
    assert {path.name for path in tmp_path.iterdir()} == names


@needs_beam
def test_what_workers_leave_stays_out_of_the_folder(tmp_path, monkeypatch):
    run = apache_beam._run

    def run_and_leave(*arguments):
        run(*arguments)
        (arguments[4] / ".1f00ba47.writing.entry-0.json").touch()

    monkeypatch.setattr(apache_beam, "_run", run_and_leave)
    options = {"max_length": 8, "shards": 2}
    prepare([("a", "b")], BytesTokenizer(), tmp_path / "a", **options)
    prepare_with_beam([("a", "b")], BytesTokenizer(), tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


@needs_beam
def test_of_two_at_once_the_second_is_refused(tmp_path):
    with locked(tmp_path / "p"), pytest.raises(TargetInUseError, match="written by process"):
        prepare_with_beam([("a", "b")], BytesTokenizer(), tmp_path / "p", max_length=8)


@needs_beam
@pytest.mark.parametrize("corpus", [ParallelCorpus("-"), iter([("a", "b")])])
def test_what_workers_cannot_read_is_refused(tmp_path, corpus):
    with pytest.raises(ValueError, match="`corpus` must be one that every worker can read"):
        prepare_with_beam(corpus, BytesTokenizer(), tmp_path / "p", max_length=8)


def test_a_missing_library_is_told_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match="pip install apache-beam"):
        prepare_with_beam([("a", "b")], BytesTokenizer(), tmp_path / "p", max_length=8)
