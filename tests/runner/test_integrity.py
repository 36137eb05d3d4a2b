"""A damaged or strange file is one clear line."""

import hashlib

import pytest

from keras_transformer_runner.integrity import (
    check_file,
    check_sealed_file,
    checksum,
    read_json,
    seal_file,
)

WHAT = "the index of shards"


def test_checksum_is_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert checksum(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()


def test_a_file_must_be_what_was_written(tmp_path):
    path = tmp_path / "a.bin"
    with pytest.raises(FileNotFoundError, match=r"must hold a.bin. Received: no such file"):
        check_file(path, "", "b.json")
    path.write_bytes(b"abc")
    expected = checksum(path)
    check_file(path, expected, "b.json")
    path.write_bytes(b"abd")
    with pytest.raises(ValueError, match=r"a.bin must be the file that b.json was written for.*"):
        check_file(path, expected, "b.json")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "must be the index of shards, in JSON. Received: Expecting value"),
        ("[" * 100_000, "must be the index of shards, in JSON. Received: "),
        ("[]", "must be the index of shards, an object. Received: list"),
        ('{"a": true}', "must have a field `a` of type int. Received: True"),
        ("{}", "must have a field `a` of type int. Received: None"),
    ],
)
def test_a_record_must_be_an_object_with_its_fields(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"a.json {message}"):
        read_json(path, WHAT, {"a": int})


def test_a_record_is_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be the index of shards. Received: no such"):
        read_json(tmp_path / "a.json", WHAT)
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="must be the index of shards, in JSON"):
        read_json(tmp_path / "a.json", WHAT)
    (tmp_path / "a.json").write_text('{"a": 1, "b": []}')
    assert read_json(tmp_path / "a.json", WHAT, {"a": int}) == {"a": 1, "b": []}


@pytest.mark.parametrize("content", [b"", b"abc", b"a" * 71, b"a" * (1 << 20)])
def test_a_sealed_file_tells_of_any_change(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.npz must be as it was.*: mend it. Received: no check"):
        check_sealed_file(path, "mend it")
    check_sealed_file(path, "mend it", required=False)  # a file of others
    seal_file(path)
    sealed = path.read_bytes()
    check_sealed_file(path, "mend it")
    assert sealed.startswith(content) and len(sealed) == len(content) + 140
    for other in (sealed[:-1], sealed[1:], sealed + b"0", b"b" + sealed, sealed[:-1] + b"x"):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="a.npz must be as it was written"):
            check_sealed_file(path, "mend it")
    path.write_bytes(sealed)
    check_sealed_file(path, "mend it", owner="")
    with pytest.raises(ValueError, match="mend it. Received: a file of another run"):
        check_sealed_file(path, "mend it", owner="b")
    path.write_bytes(b"b" + sealed)
    with pytest.raises(ValueError, match="Received: other content than its checksum says"):
        check_sealed_file(path, "mend it", required=False)
