"""Runs that end earlier than their experiment says, and runs that go on after their end."""

import shutil

import keras
import numpy as np
import pytest
from toy_experiment import lines, state

from keras_transformer.experiment import Experiment, load_run, stop_run
from keras_transformer.experiment.length import NOW, Extension, wanted_end
from keras_transformer.training import run as run_module
from keras_transformer.training import train
from keras_transformer.training.callbacks import EarlyEnd
from keras_transformer.training.state import Progress

pytestmark = pytest.mark.slow


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_stopped_and_gone_on_is_the_run_that_never_stopped(finished, toy, tmp_path, monkeypatch):
    experiment, run_dir = Experiment.load(toy), tmp_path / "run"

    class Stopping(run_module.TrainingCheckpoint):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if batch == 1:
                assert stop_run(run_dir)  # this process trains it

    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)
    with monkeypatch.context() as context:
        context.setattr(run_module, "TrainingCheckpoint", Stopping)
        train(experiment, run_dir)
    assert [record["epoch"] for record in lines(run_dir)] == [1]
    assert load_run(run_dir).model is not None and not (run_dir / "stop").exists()

    with monkeypatch.context() as context:
        context.setattr(run_module._Fitting, "_fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(experiment, run_dir, more_epochs=2)
    assert not (run_dir / "model.keras").exists()
    assert Extension.read(run_dir) == (1, 3)
    with pytest.raises(FileNotFoundError, match="a run must be finished"):
        load_run(run_dir)
    train(experiment, run_dir, more_epochs=2)  # the same two epochs, not two more

    assert lines(run_dir) == lines(finished)
    assert state(run_dir).keys() == state(finished).keys()
    for name, value in state(run_dir).items():
        np.testing.assert_array_equal(value, state(finished)[name], err_msg=name)
    one, other = (load_run(folder).model.get_weights() for folder in (run_dir, finished))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(FileExistsError, match="let it go on with `more_epochs`"):
        train(experiment, run_dir)


def test_more_epochs_count_from_where_the_run_was_finished(tmp_path):
    assert Extension.read(tmp_path) is None
    (tmp_path / "model.keras").touch()
    (tmp_path / "experiment.toml").write_text("one")
    first = Extension.plan(tmp_path, 2, done=5)
    assert first == (5, 7)
    (tmp_path / "stop").touch()  # of a process that was killed when the model was written
    first.begin(tmp_path)
    assert not (tmp_path / "model.keras").exists() and wanted_end(tmp_path) is None
    (tmp_path / "stop").write_text("now")  # of the extension, which somebody has begun
    first.begin(tmp_path)
    assert wanted_end(tmp_path) == NOW
    (tmp_path / "stop").unlink()
    # Interrupted after an epoch: the same two; or another number from there.
    assert Extension.plan(tmp_path, 2, done=6) == (5, 7)
    assert Extension.plan(tmp_path, 4, done=6) == (5, 9)
    (tmp_path / "model.keras").touch()
    assert Extension.plan(tmp_path, 2, done=7) == (7, 9)
    text = (tmp_path / "more_epochs.json").read_text()
    (tmp_path / "experiment.toml").write_text("another")
    with pytest.raises(ValueError, match="experiment.toml must be the file that more_epochs.json"):
        Extension.read(tmp_path)
    (tmp_path / "more_epochs.json").write_text(text.replace("7", "8"))
    with pytest.raises(ValueError, match="one of its fields was changed"):
        Extension.read(tmp_path)
    (tmp_path / "more_epochs.json").write_text("{}")
    with pytest.raises(ValueError, match="must have a field `from_epoch`"):
        Extension.read(tmp_path)


def test_patience_counts_anew(tmp_path):
    checkpoint = run_module.TrainingCheckpoint(tmp_path, 1, patience=2, patient_from=5)
    for epoch, hopeless in ((5, False), (6, False), (7, True)):
        checkpoint.progress = Progress(epoch=epoch, best_epoch=3, best_value=1.0)
        assert checkpoint.is_hopeless() is hopeless


def test_runs_that_cannot_go_on(finished, toy, tmp_path):
    experiment = Experiment.load(toy)
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match="`more_epochs` is for a finished run"):
            train(experiment, folder, more_epochs=1)
    with pytest.raises(ValueError, match="`more_epochs` must be a positive integer"):
        train(experiment, finished, more_epochs=0)
    run_dir = shutil.copytree(finished, tmp_path / "run")
    (run_dir / "model.keras").rename(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="`more_epochs` is for a finished run: train this one"):
        train(experiment, run_dir, more_epochs=1)
    (tmp_path / "model.keras").rename(run_dir / "model.keras")
    (run_dir / "checkpoints" / "state.npz").unlink()
    with pytest.raises(FileNotFoundError, match="must hold checkpoints/state.npz.*start_from"):
        train(experiment, run_dir, more_epochs=1)


def test_workers_end_together(finished, toy, tmp_path):
    run_dir = shutil.copytree(finished, tmp_path / "run")
    text = (run_dir / "experiment.toml").read_text()
    text = text.replace('strategy = "none"', 'strategy = "multi_worker"')
    (run_dir / "experiment.toml").write_text(text)
    (run_dir / "run.json").unlink()
    experiment = Experiment.load(toy, {"training.strategy": "multi_worker"})
    with pytest.raises(ValueError, match="does not go with the strategy 'multi_worker'"):
        run_module.check_folder(run_dir, experiment, True, 1)
    (run_dir / "model.keras").unlink()
    with pytest.raises(ValueError, match="a run to stop must not have several workers"):
        stop_run(run_dir)


def test_a_stop_where_nobody_trains(finished, toy, tmp_path, capsys, monkeypatch):
    run_dir = shutil.copytree(finished, tmp_path / "run")
    with pytest.raises(FileExistsError, match="a run to stop must not be finished"):
        stop_run(run_dir)
    with pytest.raises(FileNotFoundError, match="a run folder must hold experiment.toml"):
        stop_run(tmp_path)
    assert wanted_end(run_dir) is None
    (run_dir / "model.keras").unlink()
    assert stop_run(run_dir) is False
    experiment = Experiment.load(toy)
    monkeypatch.setattr(run_module._Fitting, "_fit", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(run_module, "draw_run", lambda *_: None)
    # Killed in an extension, and stopped: the next `train` writes the model of what there is.
    Extension(2, 9).begin(run_dir)
    train(experiment, run_dir)
    assert (run_dir / "model.keras").exists() and wanted_end(run_dir) is None
    assert len(lines(run_dir)) == 3


@pytest.mark.parametrize("now", [False, True])
def test_the_end_that_is_asked_for(toy, tmp_path, now):
    (tmp_path / "experiment.toml").write_text(Experiment.load(toy).to_toml())
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    seen = []

    class Asking(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(batch)
            if len(seen) == 2:
                end._looked = float("-inf")  # as if a second had passed
                stop_run(tmp_path, now=now)

    end = EarlyEnd(tmp_path)
    model.fit(np.ones((3, 1)), np.ones((3, 1)), 1, 4, verbose=0, callbacks=[Asking(), end])
    assert seen == ([0, 1] if now else [0, 1, 2])
    assert (wanted_end(tmp_path) == NOW) is now
