"""Prepared corpora where `tf.io.gfile` reaches them: TensorFlow's file system in memory."""

import importlib.util
import uuid

import pytest
import tensorflow as tf

from keras_transformer.data import (
    PreparedCorpus,
    evaluation_batches,
    open_corpus,
    places,
    prepare,
    prepare_with_beam,
    training_batches,
)
from keras_transformer_runner.tokenizers import BytesTokenizer

PAIRS = [("abcdefgh"[i % 8 :], "hgfedcba"[: i % 5]) for i in range(97)]
OPTIONS = {"max_length": 8, "shards": 3, "seed": 2}
warned_by_beam = pytest.mark.filterwarnings("default")


@pytest.fixture
def folder():
    return f"ram://bucket-{uuid.uuid4().hex}/prepared"


@pytest.fixture
def local(tmp_path):
    return prepare(PAIRS, BytesTokenizer(), tmp_path / "local", **OPTIONS)


def contents(folder):
    read = {}
    for path in tf.io.gfile.glob(f"{folder}/*"):
        with tf.io.gfile.GFile(path, "rb") as file:
            read[path.rpartition("/")[2]] = file.read()
    return read


def overwrite(path, content):
    tf.io.gfile.remove(path)  # the file system in memory appends to what is there
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)


def arrays(batches):
    return [[x.numpy().tolist() for x in (*inputs.values(), labels)] for inputs, labels in batches]


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_prepare_writes_the_same_bytes(folder, tmp_path, compression):
    options = OPTIONS | {"compression": compression, "target_tokenizer": BytesTokenizer()}
    prepare(PAIRS, BytesTokenizer(), tmp_path / "local", **options)
    remote = prepare(PAIRS, BytesTokenizer(), folder, **options)
    assert contents(folder) == contents(tmp_path / "local")
    assert remote.folder == remote.name == folder
    assert list(remote.decoded()) == list(PreparedCorpus(tmp_path / "local").decoded())


@warned_by_beam
@pytest.mark.skipif(not importlib.util.find_spec("apache_beam"), reason="needs apache-beam")
def test_beam_writes_the_same_bytes(folder, local):
    prepare_with_beam(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    assert contents(folder) == contents(local.folder)


@pytest.mark.slow
def test_batches_are_the_same(folder, local):
    prepare(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    remote = open_corpus(folder + "/")
    assert remote.source_tokenizer.fingerprint == local.source_tokenizer.fingerprint
    for batches in (evaluation_batches, lambda *a, **k: training_batches(*a, **k, epochs=1)):
        ours, theirs = (
            arrays(batches(corpus, BytesTokenizer(), batch_tokens=64)) for corpus in (remote, local)
        )
        assert ours == theirs and len(ours) > 3


def test_a_shard_that_has_changed_is_refused(folder):
    remote = prepare(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    path = next(path for path in tf.io.gfile.glob(f"{folder}/shard-00001*"))
    with tf.io.gfile.GFile(path, "rb") as file:
        content = bytearray(file.read())
    content[20] ^= 1
    overwrite(path, bytes(content))
    with pytest.raises(ValueError, match=f"a shard must be as prepared.json says.*{path}: sha256"):
        list(remote.decoded())
    overwrite(path, b"short")
    with pytest.raises(ValueError, match="with 5 bytes, expected"):
        PreparedCorpus(folder)
    tf.io.gfile.remove(path)
    with pytest.raises(FileNotFoundError, match="every shard must be in the folder.*shard-00001"):
        PreparedCorpus(folder)


def test_the_index_is_written_last(folder, monkeypatch):
    """So a folder that was not finished is none."""
    copied = []
    copy = places._copy
    monkeypatch.setattr(places, "_copy", lambda *paths: [copied.append(paths[1]), copy(*paths)])
    prepare(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    assert copied[-1] == f"{folder}/prepared.json" and len(copied) == 5


@warned_by_beam
@pytest.mark.parametrize("write", [prepare, prepare_with_beam])
def test_nothing_is_left_of_a_failure(folder, write):
    if write is prepare_with_beam:
        pytest.importorskip("apache_beam")
    with pytest.raises(ValueError, match="must hold a pair"):
        write([("", "")], BytesTokenizer(), folder, **OPTIONS)
    assert not contents(folder)


def test_what_a_failed_copy_has_written_is_removed_and_nothing_else(folder, monkeypatch):
    copy = places._copy

    def fail(local, path):
        copy(local, path)
        if "tokenizer" in path:
            with tf.io.gfile.GFile(f"{folder}/of others", "w") as file:
                file.write("x")
            raise OSError("the network is gone")

    monkeypatch.setattr(places, "_copy", fail)
    with pytest.raises(OSError, match="the network is gone"):
        prepare(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    assert set(contents(folder)) == {"of others"}


def test_what_cannot_be_removed_keeps_nothing_else(folder, monkeypatch):
    copy, remove = places._copy, tf.io.gfile.remove

    def fail(local, path):
        copy(local, path)
        if path.endswith("prepared.json"):
            raise OSError("the network is gone")

    def refuse(path):
        if "shard-00000" in path:
            raise tf.errors.PermissionDeniedError(None, None, "no")
        remove(path)

    monkeypatch.setattr(places, "_copy", fail)
    monkeypatch.setattr(tf.io.gfile, "remove", refuse)
    with pytest.raises(OSError, match="the network is gone"):
        prepare(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    assert [name[:11] for name in contents(folder)] == ["shard-00000"]


def test_a_folder_with_something_in_it_is_refused(folder):
    tf.io.gfile.makedirs(folder)
    with tf.io.gfile.GFile(f"{folder}/shard-00000-of-00003.tfrecord", "w") as file:
        file.write("x")
    with pytest.raises(FileExistsError, match="needs a new folder; .* which holds shard"):
        prepare(PAIRS, BytesTokenizer(), folder, **OPTIONS)
    assert set(contents(folder)) == {"shard-00000-of-00003.tfrecord"}


def test_what_is_not_there_or_cannot_be_reached_is_told(folder):
    with pytest.raises(FileNotFoundError, match="with prepared.json. Received: ram://"):
        PreparedCorpus(folder)
    with pytest.raises(FileNotFoundError, match="a file must exist. Received: ram://"):
        places.status(f"{folder}/none")
    for do in (PreparedCorpus, lambda path: prepare(PAIRS, BytesTokenizer(), path, **OPTIONS)):
        with pytest.raises(OSError, match="tf.io.gfile.. Received: none://bucket.*'none' not impl"):
            do("none://bucket/prepared")
