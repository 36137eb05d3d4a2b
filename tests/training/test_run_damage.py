"""Run folders that others use, that are damaged, and that a kill left before the last file."""

import functools
import os
import shutil
from types import SimpleNamespace

import pytest

from keras_transformer.experiment import Experiment, load_run, run_folder
from keras_transformer.presets.record import check_record
from keras_transformer.training import run as run_module
from keras_transformer.training import train
from keras_transformer_runner.atomic import TargetInUseError, locked


def copied(finished, path, *, interrupted):
    shutil.copytree(finished, path)
    if interrupted:
        (path / "model.keras").unlink()
    return path


def test_of_two_that_train_in_a_folder_the_second_is_refused(
    finished, toy, tmp_path, monkeypatch, repo_root
):
    """Before anything is learnt, whether the first has made the folder already or not."""
    monkeypatch.setattr(run_module, "open_corpora", functools.partial(pytest.fail, "too late"))
    experiment, run_dir = Experiment.load(toy), copied(finished, tmp_path / "a", interrupted=True)
    held = f"written by process {os.getpid()}"
    for target in (run_dir / "training", run_dir, tmp_path / "new"):
        with locked(target), pytest.raises(TargetInUseError, match=held):
            train(experiment, target if target.name == "new" else run_dir)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    with locked(run_dir / "training"), pytest.raises(FileNotFoundError, match="must be finished"):
        load_run(run_dir)  # reading waits for nobody


def test_a_folder_that_two_see_by_different_paths(finished, toy, tmp_path, monkeypatch):
    """As two containers that mount it: nothing beside it is shared, or can be written at all."""
    run_dir = copied(finished, tmp_path / "run", interrupted=True)

    def beside_is_read_only(target, **options):
        if target == run_dir:
            raise PermissionError("read-only")
        return locked(target, **options)

    monkeypatch.setattr(run_folder, "locked", beside_is_read_only)
    with locked(run_dir / "training"), pytest.raises(TargetInUseError, match="run/training"):
        train(Experiment.load(toy), run_dir)
    with pytest.raises(PermissionError, match="read-only"):
        run_dir.rename(tmp_path / "other")
        train(Experiment.load(toy), run_dir)


def test_a_new_run_where_a_volume_is_mounted(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("os.path.ismount", lambda path: True)
    (tmp_path / "run").mkdir()
    with pytest.raises(FileExistsError, match="a folder within a volume, .* Received: .*run"):
        train(Experiment.load(toy), tmp_path / "run")


@pytest.mark.parametrize("name", ["model.keras", "config.json", "tokenizer.model", "samples.txt"])
def test_a_damaged_run_is_not_loaded(finished, toy, tmp_path, name):
    run_dir = copied(finished, tmp_path / "run", interrupted=False)
    content = (run_dir / name).read_bytes()
    for damaged in (b"\0" * len(content), content[:-1], content[:9] + b"%" + content[10:]):
        (run_dir / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name} must be the file that run.json was written"):
            load_run(run_dir)
    if name != "model.keras":
        (run_dir / "model.keras").rename(tmp_path / "model.keras")
        with pytest.raises(ValueError, match=f"{name} must be the file that run.json was written"):
            train(Experiment.load(toy), run_dir)
        (tmp_path / "model.keras").rename(run_dir / "model.keras")
    (run_dir / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_run(run_dir)


def test_a_tokenizer_that_nobody_has_written(finished, tmp_path):
    run_dir = copied(finished, tmp_path / "run", interrupted=False)
    shutil.copy(run_dir / "tokenizer.model", run_dir / "target_tokenizer.model")
    with pytest.raises(ValueError, match="a checksum for each .* None for 'target_tok"):
        load_run(run_dir)


def test_a_run_without_a_record_is_loaded_with_a_warning(finished, tmp_path):
    run_dir = copied(finished, tmp_path / "run", interrupted=False)
    (run_dir / "run.json").unlink()
    with pytest.warns(UserWarning, match="run has no run.json.*damaged is not known"):
        load_run(run_dir)


def test_damaged_metrics_are_told_before_training(finished, toy, tmp_path):
    run_dir = copied(finished, tmp_path / "run", interrupted=True)
    with open(run_dir / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "lo')
    with pytest.raises(ValueError, match="integer `epoch`; delete .*metrics.jsonl, line 4: b'{"):
        train(Experiment.load(toy), run_dir)


def test_the_model_comes_last_and_no_plot_costs_it(tmp_path, monkeypatch):
    """So that a kill at any moment of the end leaves a run that goes on."""
    fitting, there = object.__new__(run_module._Fitting), []
    model = SimpleNamespace(save=lambda path: path.write_text("weights"))
    fitting.run_dir, fitting._choose = tmp_path, lambda: (model, "the best snapshot")
    fitting.samples, fitting.data = [], SimpleNamespace(tokenizers=None)
    fitting.experiment = None  # of which no card can be written, which costs no model either
    replace = os.replace

    def draw(*_):
        there.append((tmp_path / "model.keras").exists())
        raise RuntimeError("no font")

    def no_model(source, target):
        if str(target).endswith("model.keras"):
            raise OSError("disk full")
        replace(source, target)

    monkeypatch.setattr(run_module, "draw_run", draw)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(os, "replace", no_model)
        fitting.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"] and there == [False]
    assert check_record(tmp_path, [], unread={"model.keras"})
    with pytest.raises(RuntimeError, match="no font"):
        fitting.finish()
    assert there == [False, False] and check_record(tmp_path, ["model.keras"])
