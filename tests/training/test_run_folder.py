"""A run folder appears with all its first files at once, on every system."""

import os
import pathlib
from types import SimpleNamespace

import pytest

from keras_transformer.training.run_folder import create_folder

TOKENIZERS = SimpleNamespace(save=lambda folder: (folder / "tokenizer.model").touch())


@pytest.fixture(autouse=True)
def as_on_windows(monkeypatch):
    """No rename onto a folder."""
    replace = os.replace

    def strict(source, destination):
        if pathlib.Path(destination).is_dir():
            raise PermissionError(f"Access is denied: {destination}")
        replace(source, destination)

    monkeypatch.setattr(os, "replace", strict)


@pytest.mark.parametrize("there", [False, True])
def test_a_new_folder_or_an_empty_one(tmp_path, there):
    folder = tmp_path / "runs" / "one"
    if there:
        folder.mkdir(parents=True)
    create_folder(folder, {"samples.txt": "\u00e9\n"}, TOKENIZERS)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {"samples.txt": b"\xc3\xa9\n", "tokenizer.model": b""}
    assert os.listdir(tmp_path / "runs") == ["one"]


def test_a_folder_that_was_filled_meanwhile_stays(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "thesis.txt").touch()
    with pytest.raises(OSError, match="not empty"):
        create_folder(tmp_path / "one", {"samples.txt": ""}, TOKENIZERS)
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "one",
        "one/thesis.txt",
    ]
