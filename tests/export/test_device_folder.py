"""The folder of a device export: what is damaged is told, what is not an export is not replaced."""

import json
import random

import pytest
from toy_damage import change_a_value, damaged

from keras_transformer.export.litert import writer
from keras_transformer_runner import folder as device_folder
from keras_transformer_runner import packed_weights
from keras_transformer_runner.atomic import TargetInUseError, locked
from keras_transformer_runner.folder import open_folder
from keras_transformer_runner.integrity import SEAL, sealed
from keras_transformer_runner.tokenizers import BytesTokenizer

SEARCH = {"name": "BeamSearch", "beam_size": 3, "n_best": 2, "extra_length": 5, "max_length": 11}


@pytest.fixture
def folder(tmp_path):
    """As an export writes it, but for the model, which nobody opens here."""
    path, tokenizer = tmp_path / "export", BytesTokenizer()
    path.mkdir()
    (path / "model.tflite").write_bytes(b"model" * 20)
    tokenizer.save(path / "tokenizer.json")
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    size = tokenizer.vocab_size
    fields = {"format": 1, "mode": "float32", "signature": "translate", **ids}
    fields |= {"vocab_size": size, "target_vocab_size": size, "max_source_length": 7}
    fields |= {"max_positions": None, "search": SEARCH, "labels": ["a", "b"], "num_classes": 2}
    write(path, sealed({**fields, "adds_eos": True, "sha256": device_folder.checksums(path)}))
    return path


def write(folder, fields):
    (folder / "metadata.json").write_text(json.dumps(fields, indent=2))


def read(folder):
    return json.loads((folder / "metadata.json").read_text())


def error_of(folder):
    try:
        open_folder(folder)
    except (ValueError, FileNotFoundError) as error:
        assert "\n" not in str(error)
        return str(error)
    return None


def test_changed_metadata_are_told(folder):
    rng, fields = random.Random(3), read(folder)
    assert error_of(folder) is None
    for _ in range(300):
        changed = json.loads(json.dumps(fields))
        change_a_value(changed, rng)
        write(folder, changed)
        error = error_of(folder)
        same = json.dumps(changed | {SEAL: ""}) == json.dumps(fields | {SEAL: ""})
        assert same if error is None else "metadata.json" in error


def test_changed_metadata_of_an_earlier_version_raise_nothing_else(folder):
    """Without a checksum of themselves; nor do they ask for more memory than there is."""
    rng, fields = random.Random(4), read(folder)
    del fields[SEAL]
    for _ in range(300):
        changed = json.loads(json.dumps(fields))
        change_a_value(changed, rng)
        write(folder, changed)
        if error_of(folder) is None:
            try:
                largest = packed_weights._largest(changed, changed["max_source_length"])
            except ValueError as error:
                assert "with `weight_cache`" in str(error)
            else:
                assert max(largest.values()) < 2**31


@pytest.mark.parametrize("name", ["metadata.json", "model.tflite", "tokenizer.json"])
def test_damaged_files_are_told(folder, name):
    rng, content, fields = random.Random(5), (folder / name).read_bytes(), read(folder)
    for _ in range(100):
        (folder / name).write_bytes(damaged(content, rng))
        if (error := error_of(folder)) is None:  # white space
            assert name == "metadata.json" and {**read(folder), SEAL: ""} == {**fields, SEAL: ""}
        else:
            assert ".json" in error or name in error
    (folder / name).write_bytes(content)
    assert error_of(folder) is None


@pytest.mark.parametrize(
    "change, message",
    [
        ({"max_source_length": 8}, "must be as it was written: one of its fields was changed"),
        ({"labels": ["b", "a"]}, "must be as it was written"),
        ({"adds_eos": False}, "must be as it was written"),
        ({"labels": ["a"]}, "`labels` must name all of `num_classes`. Received: 1 labels, num_c"),
        ({"adds_eos": 1}, "`adds_eos` must be true or false. Received: 1"),
        (
            {"max_source_length": 2**63},
            r"`max_source_length` must be in \[0, 2\^31\). Received: 92",
        ),
        ({"max_source_length": 1e308}, "`max_source_length` of type int. Received: 1e.308"),
        ({"pad_id": -1}, r"`pad_id` must be in \[0, 2\^31\). Received: -1"),
        ({"vocab_size": float("nan")}, "`vocab_size` of type int. Received: nan"),
        ({SEAL: None}, "must be as it was written.* Received: record_sha256 None, expected '"),
    ],
)
def test_a_changed_field(folder, change, message):
    write(folder, {**read(folder), **change})
    with pytest.raises(ValueError, match=f"metadata.json.*{message}"):
        open_folder(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"extra_length": 2**63}, "at most 2147483647 numbers. Received: .*`target_ids` has up to"),
        (
            {"n_best": 2**40},
            "at most 2147483647 numbers. Received: .*`scores` has up to 10995",
        ),
        ({"extra_length": 2**30, "n_best": 2**30}, "at most 2147483647 numbers. Received: .*by wh"),
    ],
)
def test_outputs_of_any_size_are_refused(folder, change, message):
    search = {**SEARCH, "max_length": None, **change}
    with pytest.raises(ValueError, match=f"with `weight_cache` .*{message}"):
        packed_weights._largest({**read(folder), "search": search}, 7)


def test_an_export_replaces_an_export_only(folder):
    (folder / "parity.json").write_text("{}")
    with pytest.raises(
        FileExistsError, match="an export needs a new folder. Received: .*export, w"
    ):
        writer.new_export(folder, False).__enter__()
    with writer.new_export(folder, True) as made:
        (made / "model.tflite").touch()
    (folder / "parity.json").touch()
    (folder / "sub").mkdir()
    for name in ("thesis.tex", "sub/model.tflite"):
        (folder / name).write_text("precious")
        with pytest.raises(
            FileExistsError, match="what it has made itself. .* also holds (sub|th)"
        ):
            writer.new_export(folder, True).__enter__()
        (folder / name).unlink()
    (folder / "sub").rmdir()
    (folder / "parity.json").unlink()
    (folder / "tokenizer.json").touch()  # a tokenizer's folder, for one
    with pytest.raises(FileExistsError, match="which does not hold parity.json"):
        writer.new_export(folder, True).__enter__()
    assert sorted(path.name for path in folder.iterdir()) == ["model.tflite", "tokenizer.json"]


def test_of_two_exports_at_once_the_second_is_refused(tmp_path):
    with locked(tmp_path / "made"), pytest.raises(TargetInUseError, match="written by process"):
        writer.new_export(tmp_path / "made", False).__enter__()
