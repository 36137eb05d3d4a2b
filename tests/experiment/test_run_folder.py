"""A run folder appears with all its first files at once, and its record tells what they are."""

import json
import os
import pathlib
import random
from types import SimpleNamespace

import pytest

from keras_transformer.experiment import Experiment
from keras_transformer.experiment.run_folder import create_folder
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.presets.record import check_record, write_record
from keras_transformer_runner.tokenizers import CharacterTokenizer

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


def test_a_run_folder_keeps_the_prefixes_of_its_tokenizers(tmp_path):
    letters = CharacterTokenizer("abc")
    Tokenizers(letters.with_prefix([4]), letters.with_prefix([5, 6])).save(tmp_path)
    loaded = Tokenizers.load(tmp_path)
    assert [side.prefix_ids for side in loaded] == [(4,), (5, 6)]
    Tokenizers(letters.with_prefix([4]), letters).save(tmp_path)
    assert [side.prefix_ids for side in Tokenizers.load(tmp_path)] == [(4,), ()]


@pytest.mark.parametrize("there", [False, True])
def test_a_new_folder_or_an_empty_one(tmp_path, there):
    folder = tmp_path / "runs" / "one"
    if there:
        folder.mkdir(parents=True)
    create_folder(folder, {"samples.txt": "\u00e9\n"}, TOKENIZERS)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert json.loads(files.pop("run.json"))["sha256"].keys() == files.keys()
    assert files == {"samples.txt": b"\xc3\xa9\n", "tokenizer.model": b""}
    assert os.listdir(tmp_path / "runs") == ["one"]


def test_a_folder_that_was_filled_meanwhile_stays(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match="a run needs a new folder. Received: .*one, which"):
        create_folder(tmp_path / "one", {"samples.txt": ""}, TOKENIZERS)
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == [
        "one",
        "one/thesis.txt",
    ]


def test_no_change_of_a_file_or_the_record_goes_unseen(tmp_path):
    """But one of the white space of the record."""
    texts, generator = {"a.json": "7" * 99, "b.txt": "text"}, random.Random(1)
    create_folder(tmp_path / "run", texts, TOKENIZERS)
    paths, refused = sorted((tmp_path / "run").iterdir()), 0
    assert check_record(tmp_path / "run", texts)
    for path in paths * 60:
        content = path.read_bytes()
        place, length = generator.randrange(len(content) + 1), generator.randint(0, 9)
        new = bytes(generator.choices(b'\0"{}:, a7\xff', k=generator.randint(0, 5)))
        path.write_bytes(content[:place] + new + content[place + length :])
        try:
            check_record(tmp_path / "run", ["a.json", "b.txt", "tokenizer.model"])
        except ValueError as error:
            assert path.name in str(error) or "run.json" in str(error)
            refused += 1
        except FileNotFoundError as error:  # by a name in the record
            assert path.name == "run.json" and "must hold" in str(error)
            refused += 1
        else:
            is_record = path.name == "run.json"
            assert path.read_bytes() == content or (
                is_record and json.loads(path.read_bytes()) == json.loads(content)
            )
        path.write_bytes(content)
    assert refused > 180


@pytest.mark.parametrize("name", ["b.txt", "../a", ".."])
@pytest.mark.parametrize("value", [None, 7, "0"])
def test_a_record_must_tell_of_files_in_its_folder(tmp_path, name, value):
    (tmp_path / "a").touch()
    write_record(tmp_path, {"a": tmp_path / "a"})
    record = json.loads((tmp_path / "run.json").read_text())
    record["sha256"][name] = value
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises((ValueError, FileNotFoundError), match="a checksum for each|must hold"):
        check_record(tmp_path, ["a"])


def test_a_folder_without_a_record(tmp_path):
    assert not check_record(tmp_path, ["a"])


def test_a_run_made_in_python_with_relative_paths_goes_on(tmp_path, monkeypatch):
    """The folder keeps its experiment somewhere else, so a path must not hang on where it lies."""
    monkeypatch.chdir(tmp_path)
    values = {"data": {"tsv": "pairs.tsv"}, "training": {"max_epochs": 1, "start_from": "earlier"}}
    experiment = Experiment.from_dict(values)
    assert values["data"]["tsv"] == "pairs.tsv"
    run = tmp_path / "runs" / "new"
    run.mkdir(parents=True)
    (run / "experiment.toml").write_text(experiment.to_toml())
    found = Experiment.load(run / "experiment.toml")
    assert found == experiment
    assert found.data.tsv == str(tmp_path / "pairs.tsv")
    assert found.training.start_from == str(tmp_path / "earlier")
    sources = {"sources": [{"source": "a", "target": "b"}, {"source": "tfds:c/d"}]}
    described = Experiment.from_dict({"data": sources, "training": {"max_epochs": 1}})
    assert described.data.sources[0].target == str(tmp_path / "b")
    assert described.data.sources[1].source == "tfds:c/d"
