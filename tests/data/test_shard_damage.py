"""A damaged folder of shards is one clear line that names the file, never other pairs."""

import gzip
import json
import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from shard_ids import load_shard
from toy_damage import change_a_value, damaged

from keras_transformer.data import training_batches
from keras_transformer.data.preparation import prepare
from keras_transformer.data.shard_index import shard_file
from keras_transformer.data.shards import PreparedCorpus
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import BytesTokenizer, VocabularyTokenizer

SHARDS = 2
PAIRS = [("abcdefg"[: 1 + n % 7], "gfedcba"[: 1 + n % 5]) for n in range(41)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Of each compression one: as it is written today, and as before files had checksums."""
    made = {}
    for compression in (None, "GZIP"):
        today = tmp_path_factory.mktemp("prepared") / "today"
        options = {"max_length": 11, "shards": SHARDS, "compression": compression}
        prepare(PAIRS, BytesTokenizer(), today, **options)
        before = shutil.copytree(today, today.with_name("before"))
        change_index(before, as_before)
        made |= {("today", compression): today, ("before", compression): before}
    return made


def change_index(folder, change):
    path = folder / "prepared.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(change(fields) or fields, sort_keys=True))


def as_before(fields):
    del fields["record_sha256"]
    for shard in fields["shards"]:
        del shard["bytes"], shard["file_sha256"]


def rows_of(folder):
    corpus = PreparedCorpus(folder)
    rows = []
    for shard in range(corpus.shards):
        one = load_shard(corpus, shard)
        rows += [one.source_values.tolist(), one.source_lengths.tolist()]
        rows += [one.target_values.tolist(), one.target_lengths.tolist()]
    return rows, corpus.length_counts.tolist(), corpus.target_tokenizer.fingerprint


def error_or_rows(folder):
    """The error of reading all of a folder, in one line, and `None`; or `None` and its rows."""
    try:
        return None, rows_of(folder)
    except (ValueError, FileNotFoundError) as error:
        assert "\n" not in str(error)
        return str(error), None


@pytest.mark.quick(1)
@pytest.mark.parametrize("when", ["today", "before"])
def test_a_changed_index_never_gives_other_pairs(folders, when, tmp_path):
    rng, copy = random.Random(5), shutil.copytree(folders[when, None], tmp_path / "copy")
    text, expected, refused = (copy / "prepared.json").read_text(), rows_of(copy), 0
    for _ in range(50):
        change_index(copy, lambda fields: change_a_value(fields, rng))
        error, rows = error_or_rows(copy)
        if error is None:  # what people read: the seed, the lines left out
            assert rows == expected
            changes = {"record_sha256": json.loads(text).get("record_sha256")}
            same = json.loads((copy / "prepared.json").read_text()) | changes == json.loads(text)
            assert when == "before" or same
        else:
            assert "prepared.json" in error
            refused += 1
        (copy / "prepared.json").write_text(text)
    assert refused > 35


@pytest.mark.quick(1)
@pytest.mark.parametrize("when", ["today", "before"])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_damaged_shard_never_gives_other_pairs(folders, when, compression, tmp_path):
    rng = random.Random(7)
    copy = shutil.copytree(folders[when, compression], tmp_path / "copy")
    path, expected = copy / shard_file(1, SHARDS), rows_of(copy)
    content, refused = path.read_bytes(), 0
    for _ in range(12):
        path.write_bytes(damaged(content, rng))
        error, rows = error_or_rows(copy)
        assert rows == expected if error is None else path.name in error
        refused += error is not None
    assert refused >= 10


# --- What each damage says -------------------------------------------------------------------


def drop_a_shard(fields):
    """The second of two shards, as if there had never been one."""
    (shard, _) = fields["shards"]
    fields["shards"] = [{**shard, "file": shard_file(0, 1)}]


@pytest.mark.parametrize(
    "change, message",
    [
        (drop_a_shard, "prepare` wrote it. Received: 41 pairs in all, and 15 in 1 shards"),
        (lambda f: drop_a_shard(f) or f.update(pairs=15), "it. Received: fingerprint .*, where"),
        (lambda f: f["shards"].reverse(), "'shard-00001-of-00002.tfrecord' as shard 0 of 2, exp"),
        (lambda f: f["shards"][1].update(sha256="0"), "Received: fingerprint "),
        (lambda f: f["shards"][1].update(pairs=-1), "an entry of shard-00001-of-.* that cannot"),
        (lambda f: f["shards"][1].update(length_counts=[[1, 2]]), "an entry of shard-00001"),
        (lambda f: f["tokenizer"].update(vocab_size=7), "Received: fingerprint "),
        (lambda f: f["tokenizer"].update(eos_id=1e308), "Received: tokenizer={"),
        (lambda f: f.update(compression="zip"), "Received: compression='zip'"),
        (lambda f: f.update(skipped={"empty": -1}), "Received: skipped={"),
        (lambda f: f.update(skipped_lines={"empty": 5}), "Received: skipped_lines={"),
        (lambda f: f.update(max_length=2**63), "Received: max_length=9223372036854775808"),
        (lambda f: f.update(seed=3), "must be as it was written: one of its fields was changed"),
        (lambda f: f.update(shards={}), "must have a field `shards` of type list. Received: {}"),
        (lambda f: f.pop("pairs") and None, "must have a field `pairs` of type int. Rec.*: None"),
        (lambda f: f.update(format=2), "must have format 1. Received: .* with format 2"),
    ],
)
def test_an_index_that_cannot_be(folders, change, message, tmp_path):
    copy = shutil.copytree(folders["today", None], tmp_path / "copy")
    os.link(copy / shard_file(0, SHARDS), copy / shard_file(0, 1))
    change_index(copy, change)
    with pytest.raises(ValueError, match=f"prepared.json.*{message}"):
        PreparedCorpus(copy)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00", "[" * 10_000])
def test_an_index_that_is_none(folders, content, tmp_path):
    copy = shutil.copytree(folders["today", None], tmp_path / "copy")
    (copy / "prepared.json").write_text(content)
    with pytest.raises(ValueError, match="prepared.json must (be|have)"):
        PreparedCorpus(copy)


def rewritten(path, change):
    """Writes a shard's records again with what `change` makes of the ids of the first source."""
    records = [bytes(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    example = tf.train.Example.FromString(records[0])
    values = example.features.feature["source"].int64_list.value
    values[:] = change(list(values))
    records[0] = example.SerializeToString(deterministic=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


@pytest.mark.parametrize("when", ["today", "before"])
def test_other_ids_of_the_same_lengths(folders, when, tmp_path):
    """What the checksums of TFRecord and the lengths in the index do not see."""
    copy = shutil.copytree(folders[when, None], tmp_path / "copy")
    path = copy / shard_file(1, SHARDS)
    rewritten(path, lambda ids: [ids[0] + 1, *ids[1:]])
    corpus = PreparedCorpus(copy)
    with pytest.raises(ValueError, match=f"says. Received: {path}: sha256 .*, expected "):
        load_shard(corpus, 1)
    with pytest.raises(ValueError, match=f"says. Received: {path}: sha256 .*, expected "):
        list(corpus.decoded())
    batches = training_batches(corpus, BytesTokenizer(), batch_tokens=64, epochs=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"says. Rec.*{path}: sha256"):
        list(batches)


def test_ids_outside_the_vocabulary(folders, tmp_path):
    """A folder that another program has made, with checksums to match."""
    copy = shutil.copytree(folders["before", None], tmp_path / "copy")
    size = BytesTokenizer().vocab_size
    path = copy / shard_file(1, SHARDS)
    rewritten(path, lambda ids: [size, *ids[1:]])
    corpus = PreparedCorpus(copy)
    corpus._checked[path.name] = (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino)
    with pytest.raises(ValueError, match=f"lengths and ids of a shard must be as .*{path.name}"):
        load_shard(corpus, 1)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda content: content[: len(content) // 2], "stream marker was reached"),
        (lambda content: b"GZ" + content[2:], "Not a gzipped file"),
        (lambda content: content[:20] + bytes(30) + content[50:], ""),
        (lambda content: gzip.compress(b"\xff" * 12), "a record that is not whole"),
        (lambda content: gzip.compress(gzip.decompress(content)[:-1]), "a record that is not whol"),
        (lambda content: b"", "sha256 .*, expected "),
    ],
)
def test_a_packed_shard_that_cannot_be_read(folders, change, message, tmp_path):
    copy = shutil.copytree(folders["before", "GZIP"], tmp_path / "copy")
    path = copy / shard_file(0, SHARDS)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f"says. Received: {path}: .*{message}"):
        load_shard(PreparedCorpus(copy), 0)


def test_a_shard_is_checked_once_and_again_when_it_has_changed(folders, tmp_path, monkeypatch):
    from keras_transformer.data import shards

    copy, read = shutil.copytree(folders["today", None], tmp_path / "copy"), []
    checksum = shards._file_checksum
    monkeypatch.setattr(
        shards, "_file_checksum", lambda path: read.append(path.name) or checksum(path)
    )
    corpus = PreparedCorpus(copy)
    assert not read  # a large corpus is not read to open it
    batches = training_batches(corpus, BytesTokenizer(), batch_tokens=64, epochs=3)
    assert len(list(batches)) > 6
    assert sorted(read) == [shard_file(shard, SHARDS) for shard in range(SHARDS)]
    path = copy / shard_file(1, SHARDS)
    os.utime(path)
    load_shard(corpus, 1)
    assert read[SHARDS:] == [path.name]
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"Received: {path}: sha256"):
        load_shard(corpus, 1)


def test_a_tokenizer_of_another_corpus(folders, tmp_path):
    copy = shutil.copytree(folders["today", None], tmp_path / "copy")
    VocabularyTokenizer.train(["a b c"]).save(copy / "tokenizer.json")
    with pytest.raises(ValueError, match="tokenizer.json must be the file that prepared.json was"):
        PreparedCorpus(copy)
    (copy / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="must hold tokenizer.model. Received: no such fil"):
        PreparedCorpus(copy)


def test_a_missing_tokenizer_of_the_targets(tmp_path):
    target = VocabularyTokenizer.train(["a b c"])
    prepare([("a", "b")], BytesTokenizer(), tmp_path / "p", max_length=8, target_tokenizer=target)
    assert PreparedCorpus(tmp_path / "p").target_tokenizer.fingerprint == target.fingerprint
    (tmp_path / "p" / "target_tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="must hold target_tokenizer.model"):
        PreparedCorpus(tmp_path / "p")


def test_white_space_and_order_are_no_change(folders, tmp_path):
    copy = shutil.copytree(folders["today", None], tmp_path / "copy")
    fields = json.loads((copy / "prepared.json").read_text())
    text = json.dumps(dict(reversed(fields.items())), indent=3)
    (copy / "prepared.json").write_text(text)
    assert len(PreparedCorpus(copy)) == 41
    assert sealed(fields) == fields
    assert np.sum(PreparedCorpus(copy).length_counts) == 41
