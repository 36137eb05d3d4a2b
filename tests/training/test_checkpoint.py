import errno
import random

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.training import PaperSchedule, TrainingCheckpoint, average_weights
from keras_transformer.training import state as state_module
from keras_transformer.training.state import Progress, load_state, save_state

STEPS, EPOCHS = 5, 3


class Killed(Exception):
    """Stands for a kill."""


class KillAfter(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise Killed


def make_network(units=7):
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(2),
        ]
    )


def make_model(units=7):
    keras.utils.set_random_seed(11)
    model = make_network(units)
    model.compile(
        keras.optimizers.Adam(PaperSchedule(5, warmup_steps=4)),
        "mse",
        metrics=["mae"],
        jit_compile=False,
    )
    model.compute_metrics(None, np.zeros((1, 2)), np.zeros((1, 2)))  # makes their variables
    return model


def test_a_full_disk_is_told_before_hdf5_writes(full_disk, tmp_path):
    """HDF5 ends the process with a segmentation fault."""
    model = make_model(units=3000)
    checkpoint = TrainingCheckpoint(tmp_path, steps_per_epoch=STEPS)
    checkpoint.set_model(model)
    path = tmp_path / "epoch-0001.weights.h5"
    with pytest.raises(OSError) as error:
        checkpoint._snapshot(path)
    assert error.value.filename == str(path) and error.value.errno == errno.EFBIG
    assert not [each for each in tmp_path.iterdir() if each.suffix == ".h5"]


def batches(epoch, step):
    """The batches of all epochs from a point on; each differs from every other."""
    numbers = range(epoch * STEPS + step, EPOCHS * STEPS)
    inputs = np.stack([np.random.default_rng(n).normal(size=(4, 3)) for n in numbers])
    return tf.data.Dataset.from_tensor_slices((inputs, inputs[..., :2] * 2))


def fit(model, folder, *callbacks, save_every_steps=2, **options):
    """Trains as `train` does: the rest of a half-done epoch, then whole ones."""
    checkpoint = TrainingCheckpoint(folder, STEPS, save_every_steps=save_every_steps, **options)
    progress = checkpoint.restore(model)
    history = {}
    parts = [(progress.epoch, EPOCHS, 0)]
    if progress.step:
        parts = [
            (progress.epoch, progress.epoch + 1, progress.step),
            (progress.epoch + 1, EPOCHS, 0),
        ]
    for first, end, step in parts:
        if first == EPOCHS:
            continue
        logs = model.fit(
            batches(first, step),
            initial_epoch=first,
            epochs=end,
            steps_per_epoch=STEPS - step,
            shuffle=False,
            verbose=0,
            callbacks=[checkpoint, *callbacks],
        )
        history |= dict(zip(logs.epoch, logs.history["mae"], strict=True))
    return checkpoint, history


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def straight(tmp_path):
    model = make_model()
    _, history = fit(model, tmp_path / "straight")
    return state(model), history


@pytest.mark.quick(1)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 9, 14])
def test_resumed_equals_never_killed(tmp_path, straight, steps):
    with pytest.raises(Killed):
        fit(make_model(), tmp_path / "run", KillAfter(steps))

    model = make_model()
    _, history = fit(model, tmp_path / "run")

    assert equal(state(model), straight[0])
    assert int(model.optimizer.iterations) == STEPS * EPOCHS
    # An epoch that was killed half-way reports the metrics of all of its steps.
    assert history == {epoch: straight[1][epoch] for epoch in history}


def test_resumed_would_differ_without_the_seeds_of_dropout(tmp_path, straight, monkeypatch):
    def without_seeds(model):
        return {"model": model.weights, "optimizer": model.optimizer.variables, "metrics": []}

    monkeypatch.setattr(state_module, "_state_groups", without_seeds)
    with pytest.raises(Killed):
        fit(make_model(), tmp_path / "run", KillAfter(7))
    model = make_model()
    fit(model, tmp_path / "run")
    assert not equal(state(model), straight[0])


@pytest.mark.slow
def test_learning_rate_goes_on(tmp_path):
    with pytest.raises(Killed):
        fit(make_model(), tmp_path, KillAfter(7))
    model = make_model()
    progress = TrainingCheckpoint(tmp_path, STEPS).restore(model)
    assert (progress.epoch, progress.step) == (1, 2)
    assert int(model.optimizer.iterations) == 7
    rate = float(PaperSchedule(5, warmup_steps=4)(7))
    assert float(model.optimizer.learning_rate) == pytest.approx(rate)


def test_keeps_the_last_snapshots_weights_only(tmp_path):
    model = make_model()
    checkpoint, _ = fit(model, tmp_path, keep_snapshots=2)
    assert [path.name for path in checkpoint.snapshots()] == [
        "epoch-0002.weights.h5",
        "epoch-0003.weights.h5",
    ]
    fresh = make_network()
    fresh.load_weights(checkpoint.snapshots()[-1])
    assert equal(fresh.get_weights(), model.get_weights())
    with h5py.File(checkpoint.snapshots()[-1]) as file:
        assert "optimizer" not in file


def test_the_last_epochs_snapshots_follow_the_clock(tmp_path):
    checkpoint, _ = fit(make_model(), tmp_path, seconds=iter(range(1000)).__next__)
    again = TrainingCheckpoint(tmp_path, STEPS).restore(make_model())
    assert again.seconds == checkpoint.progress.seconds + 1 > STEPS * EPOCHS
    assert (again.epoch, again.step) == (EPOCHS, 0)


def test_best_weights_are_those_of_the_lowest_validation_loss(tmp_path):
    model = make_model()
    checkpoint = TrainingCheckpoint(tmp_path, STEPS)
    checkpoint.set_model(model)
    model.optimizer.build(model.trainable_variables)
    seen = []
    for epoch, loss in enumerate([3.0, 1.0, 2.0, float("nan")]):
        model.set_weights([weight + 1 for weight in model.get_weights()])
        seen.append(model.get_weights())
        checkpoint.on_epoch_begin(epoch)
        checkpoint.on_train_batch_end(STEPS - 1)
        checkpoint.on_epoch_end(epoch, {"val_loss": loss})
    assert (checkpoint.progress.best_epoch, checkpoint.progress.best_value) == (2, 1.0)
    fresh = make_network()
    fresh.load_weights(tmp_path / "best.weights.h5")
    assert equal(fresh.get_weights(), seen[1])


def test_a_diverged_state_is_never_saved(tmp_path):
    class Diverge(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == 7:
                self.model.set_weights([w * np.nan for w in self.model.get_weights()])

    with pytest.raises(ValueError, match="training has diverged.*Received: loss=nan in step"):
        fit(make_model(), tmp_path, Diverge())

    model = make_model()
    progress = TrainingCheckpoint(tmp_path, STEPS).restore(model)
    assert (progress.epoch, progress.step) == (1, 2)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_other_data_are_refused(tmp_path):
    fit(make_model(), tmp_path, fingerprint="one")
    with pytest.raises(ValueError, match="the corpus has changed. Received: fingerprint=two"):
        fit(make_model(), tmp_path, fingerprint="two")
    # An earlier version's state does not say which validation data there were.
    fit(make_model(), tmp_path, fingerprint="one", valid_fingerprint="three")
    fit(make_model(), tmp_path / "new", fingerprint="one", valid_fingerprint="three")
    with pytest.raises(ValueError, match="the validation corpus has changed. Received: .*=four"):
        fit(make_model(), tmp_path / "new", fingerprint="one", valid_fingerprint="four")


def test_another_model_is_refused(tmp_path):
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    save_state(model, tmp_path / "state.npz", Progress(epoch=1))
    with pytest.raises(ValueError, match="a training state must fit the model.*state.npz"):
        load_state(make_model(units=5), tmp_path / "state.npz")


def test_files_of_another_run_are_refused(tmp_path):
    """They are whole, and of the same model and data."""
    fit(make_model(), tmp_path / "one", run="one")
    for name in ("state.npz", "epoch-0003.weights.h5"):
        folder = tmp_path / name
        fit(make_model(), folder, run="two")
        (folder / name).write_bytes((tmp_path / "one" / name).read_bytes())
        with pytest.raises(ValueError, match=f"{name} must be.*Received: a file of another run"):
            TrainingCheckpoint(folder, STEPS, run="two").restore(make_model())
    assert TrainingCheckpoint(tmp_path / "one", STEPS, run="one").restore(make_model()).epoch == 3


def test_bfloat16_weights_come_back_exactly(tmp_path):
    def make():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5, dtype="bfloat16")])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    model, other = make(), make()
    save_state(model, tmp_path / "state.npz", Progress(step=3))
    progress, restore_metrics = load_state(other, tmp_path / "state.npz")
    restore_metrics()
    assert progress.step == 3
    assert equal(state(other), state(model))


@pytest.mark.parametrize("name", ["steps_per_epoch", "save_every_steps", "keep_snapshots"])
def test_counts_must_be_positive(tmp_path, name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1. Received: {name}=0"):
        TrainingCheckpoint(tmp_path, **{"steps_per_epoch": 3, name: 0})


def damaged(content, generator):
    """Some bytes as a disk, a copy or a hand may leave them."""
    size = len(content)
    place, length = generator.randrange(1, size), generator.randint(1, 99)
    return generator.choice(
        [
            content[:place],
            content[place:],
            content[:place] + content[place + length :],
            content[:place]
            + bytes([content[place] ^ 1 << generator.randrange(8)])
            + content[place + 1 :],
            content[:place] + b"\xaa" * length + content[place + length :],
            content[:place] + b"\xaa" * length + content[place:],
            b"\0" * size,
            content + content,
            b"",
        ]
    )


def test_a_damaged_state_is_one_clear_line(tmp_path):
    path, generator = tmp_path / "state.npz", random.Random(1)
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    save_state(model, path, Progress(epoch=1))
    content = path.read_bytes()
    for _ in range(200):
        path.write_bytes(damaged(content, generator))
        with pytest.raises(ValueError, match="state.npz must be as it was written.*from the start"):
            load_state(None, path)  # before the model is touched
    path.write_bytes(content)
    assert load_state(make_model(), path)[0].epoch == 1
    with np.load(path) as file:
        arrays = {name: file[name] for name in file}
    arrays["model/0"] = np.full_like(arrays["model/0"], np.nan)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="Received: no checksum at its end"):
        load_state(None, path)


def test_a_damaged_snapshot_is_one_clear_line(tmp_path):
    checkpoint, model = TrainingCheckpoint(tmp_path, STEPS), make_model()
    checkpoint.set_model(model)
    model.optimizer.build(model.trainable_variables)
    checkpoint.on_epoch_begin(0)
    checkpoint.on_epoch_end(0, {"val_loss": 1.0})
    for path in (tmp_path / "best.weights.h5", tmp_path / "epoch-0001.weights.h5"):
        content = path.read_bytes()
        path.write_bytes(content[:-80] + b"\0" * 80)
        with pytest.raises(ValueError, match=f"{path.name} must be .*: delete it to go on without"):
            TrainingCheckpoint(tmp_path, STEPS).restore(model)
        path.write_bytes(content[:2000] + b"\0" * 9 + content[2009:])
        with pytest.raises(ValueError, match=f"{path.name} must be .*: leave it out"):
            average_weights([path], tmp_path / "average.weights.h5")
        path.write_bytes(content)
    assert not (tmp_path / "average.weights.h5").exists()


def test_patience_ends_in_an_epoch_that_has_the_metric(tmp_path, capsys):
    scores = {2: 5.0, 4: 7.0, 6: 1.0}

    class Score(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch + 1 in scores:
                logs["val_bleu"] = scores[epoch + 1]

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    checkpoint = TrainingCheckpoint(tmp_path, 2, best_by="bleu", patience=1)
    model.fit(
        np.ones((4, 2)), np.ones((4, 1)), batch_size=2, epochs=9, verbose=0,
        callbacks=[Score(), checkpoint],
    )  # fmt: skip
    progress = checkpoint.progress
    assert (progress.epoch, progress.best_epoch, progress.judged_epoch) == (6, 4, 6)
    assert "no better val_bleu since epoch 4: training ends" in capsys.readouterr().err
