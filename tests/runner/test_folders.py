"""What a path holds instead of what was looked for, and whether something can be made there."""

import os
import pathlib
import stat

import pytest

from keras_transformer_runner.folders import check_new_folder, check_writable, received


@pytest.mark.parametrize(
    "files, expected",
    [
        (["experiment.toml"], "which is a run folder of `train`"),
        (
            ["metadata.json", "model.tflite"],
            "which is a LiteRT folder of `export`, which `keras-transformer-run`",
        ),
        (["saved_model.pb"], "which is a SavedModel of `export`, which TF Serving and"),
        (["10/saved_model.pb"], "which is a SavedModel of `export`, which TF Serving and"),
        (["prepared.json"], "which is a corpus of `prepare`, which"),
        (["metadata.json"], None),
        ([], None),
    ],
)
def test_what_a_folder_is(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    line = received(tmp_path)
    assert line == str(tmp_path) if expected is None else line.startswith(f"{tmp_path}, {expected}")


def test_no_folder(tmp_path):
    (tmp_path / "file").touch()
    assert received(tmp_path / "file") == f"{tmp_path / 'file'}, which is a file"
    assert received(tmp_path / "no") == f"{tmp_path / 'no'}, which does not exist"


def test_what_a_new_folder_cannot_replace(tmp_path):
    (tmp_path / "empty").mkdir()
    check_new_folder(tmp_path / "empty", "an x")
    check_new_folder(tmp_path / "no", "an x")
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(FileExistsError, match="an x needs a new folder. Received: .* exists"):
            check_new_folder(path, "an x")


def test_where_nothing_can_be_made(tmp_path, monkeypatch):
    check_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="must be in a folder. Received: .*file/a/b"):
        check_writable(tmp_path / "file" / "a" / "b")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr(os, "access", _as_no_administrator)
    with pytest.raises(PermissionError, match="in a writable folder. Received: .*new"):
        check_writable(tmp_path / "new")
    tmp_path.chmod(0o755)


def _as_no_administrator(path, mode):
    return os.stat(path).st_mode & mode << 6 == mode << 6


@pytest.mark.parametrize("path", ["gs://bucket/run", pathlib.Path("s3://bucket/run")])
def test_an_output_is_on_this_machine(path):
    with pytest.raises(OSError, match="a folder of this machine. Received: (gs|s3):/+bucket/run"):
        check_writable(path)
