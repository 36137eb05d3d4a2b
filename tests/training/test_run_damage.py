"""Run folders that others use, that are damaged, and that a kill left before the last file."""

import functools
import os
import shutil

import numpy as np
import pytest

from keras_transformer.atomic import TargetInUseError, locked
from keras_transformer.training import Experiment, load_run, run_folder, train
from keras_transformer.training import run as run_module


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


@pytest.mark.parametrize("name", ["model.keras", "config.json", "tokenizer.model", "samples.txt"])
def test_a_damaged_run_is_not_loaded(finished, toy, tmp_path, name):
    run_dir = copied(finished, tmp_path / "run", interrupted=False)
    content = (run_dir / name).read_bytes()
    for damaged in (b"\0" * len(content), content[:-1], content[:9] + b"%" + content[10:]):
        (run_dir / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name} must be the file that run.json was written"):
            load_run(run_dir)
    if name != "model.keras":
        (run_dir / "model.keras").unlink()
        with pytest.raises(ValueError, match=f"{name} must be the file that run.json was written"):
            train(Experiment.load(toy), run_dir)
    (run_dir / name).unlink(missing_ok=True)
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


def test_a_kill_before_the_last_file_leaves_a_run_that_goes_on(
    finished, toy, tmp_path, monkeypatch
):
    """And a plot that fails costs no model."""
    run_dir = copied(finished, tmp_path / "run", interrupted=True)
    shutil.rmtree(run_dir / "plots")

    def fail(*arguments):
        raise RuntimeError("no font")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "draw_run", fail)
        patch.setattr("os.replace", functools.partial(_no_model, os.replace))
        with pytest.raises(OSError, match="disk full"):
            train(Experiment.load(toy), run_dir)
    assert not (run_dir / "model.keras").exists() and not list(run_dir.glob(".*"))
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "draw_run", fail)
        with pytest.raises(RuntimeError, match="no font"):
            train(Experiment.load(toy), run_dir)
    pairs = zip(*(load_run(path).model.get_weights() for path in (run_dir, finished)), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def _no_model(replace, source, target):
    if str(target).endswith("model.keras"):
        raise OSError("disk full")
    replace(source, target)
