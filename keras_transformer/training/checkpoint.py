"""Saving a training run so that it goes on exactly as if it had never stopped."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import h5py
import keras
import numpy as np

STATE_FILE = "state.npz"
BEST_FILE = "best.weights.h5"
SNAPSHOT = re.compile(r"epoch-(\d+)\.weights\.h5")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run stands; saved inside the state file, so that the two cannot disagree.

    Attributes:
        epoch: Epochs finished.
        step: Steps done in the epoch that follows.
        seconds: Wall time that training has taken so far, over all its parts.
        best_epoch: The epoch with the lowest validation loss, or `None`.
        best_loss: That loss.
        fingerprint: Identifies the training data; a resumed run must see the same.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int | None = None
    best_loss: float | None = None
    fingerprint: str = ""


def write_atomically(path, write):
    """Calls `write(temporary_path)` and renames the result to `path`.

    A kill at any moment leaves the old file or the new one. The temporary name keeps the suffix,
    since Keras and NumPy choose the format by it.
    """
    path = Path(path)
    temporary = path.with_name(f".writing-{path.name}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_state(model, path, progress):
    """Writes everything that decides the rest of a training run to one file, atomically.

    `model.save_weights` leaves out the states of `SeedGenerator`s (dropout would repeat its first
    masks) and the metrics of a half-done epoch, so the variables are written here: the model's
    (with seeds), the optimizer's (with its step counter) and the metrics'.

    Args:
        model: A compiled model with a built optimizer.
        path: An `.npz` file.
        progress: A `Progress`.
    """
    arrays = {
        f"{group}/{index}": _to_numpy(variable)
        for group, variables in _state_groups(model).items()
        for index, variable in enumerate(variables)
    }
    arrays["progress"] = np.array(json.dumps(dataclasses.asdict(progress)))

    def write(temporary):
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())

    write_atomically(path, write)


def load_state(model, path):
    """Restores what `save_state` wrote.

    Args:
        model: A compiled model of the same architecture.
        path: The file.

    Returns:
        The `Progress`, and a function that restores the metrics. `fit` resets them at the start
        of an epoch, so call it after that; it returns `False` and does nothing where Keras has
        not made the variables of compiled metrics yet (see `run.compile_model`).

    Raises:
        ValueError: if the file belongs to another model or optimizer.
    """
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    with np.load(path) as file:
        arrays = dict(file)
    progress = Progress(**json.loads(str(arrays.pop("progress"))))
    for group in ("model", "optimizer"):
        _assign(_state_groups(model)[group], arrays, group, path)

    def restore_metrics():
        variables = _state_groups(model)["metrics"]
        if variables_made := len(variables) == sum(name.startswith("metrics/") for name in arrays):
            _assign(variables, arrays, "metrics", path)
        return variables_made

    return progress, restore_metrics


def _state_groups(model):
    return {
        "model": model.variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }


def _to_numpy(variable):
    value = keras.ops.convert_to_numpy(variable)
    # NumPy files cannot hold bfloat16; float32 holds each of its values exactly.
    return value.astype("float32") if value.dtype.name == "bfloat16" else value


def _assign(variables, arrays, group, path):
    saved = [arrays[f"{group}/{i}"] for i in range(sum(k.startswith(f"{group}/") for k in arrays))]
    expected = [tuple(variable.shape) for variable in variables]
    if [value.shape for value in saved] != expected:
        raise ValueError(
            f"a training state must fit the {group} it is loaded into. Received: path={path} "
            f"with {len(saved)} arrays, for {len(expected)} variables of the {group}"
        )
    for variable, value in zip(variables, saved, strict=True):
        variable.assign(value)


class TrainingCheckpoint(keras.callbacks.Callback):
    """Saves the state of training every epoch and every few steps, and snapshots for averaging.

    In `folder` it keeps `state.npz` (see `save_state`), `epoch-0007.weights.h5` for each of the
    last epochs (weights only, for `average_weights`; Keras loads such a file into a model that is
    not compiled) and `best.weights.h5`, the weights with the lowest `val_loss`. A state whose loss
    is NaN is never saved.

    To go on after a kill, compile the model anew, call `restore(model)`, and `fit` with the
    batches that follow `progress.epoch` and `progress.step`; the weights then equal those of a
    run that was never killed.

    Args:
        folder: Where the files go; created when needed.
        steps_per_epoch: Steps in a whole epoch.
        save_every_steps: Steps between two saves inside an epoch.
        keep_snapshots: Number of epoch snapshots to keep.
        fingerprint: Identifies the training data.
        seconds: Function that gives the training time so far.
    """

    def __init__(
        self,
        folder,
        steps_per_epoch,
        *,
        save_every_steps=500,
        keep_snapshots=5,
        fingerprint="",
        seconds=lambda: 0.0,
    ):
        super().__init__()
        for name, value in (
            ("steps_per_epoch", steps_per_epoch),
            ("save_every_steps", save_every_steps),
            ("keep_snapshots", keep_snapshots),
        ):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")
        self.folder = Path(folder)
        self.steps_per_epoch = steps_per_epoch
        self.save_every_steps = save_every_steps
        self.keep_snapshots = keep_snapshots
        self.progress = Progress(fingerprint=fingerprint)
        self._seconds = seconds
        self._restore_metrics = None
        self._first_step = 0
        self._weights_only = None

    def restore(self, model):
        """Loads the saved state, if there is one, into a compiled model.

        Returns:
            The `Progress` to go on from.

        Raises:
            ValueError: if the state belongs to another model or to other data.
        """
        path = self.folder / STATE_FILE
        if path.exists():
            progress, self._restore_metrics = load_state(model, path)
            if progress.fingerprint != self.progress.fingerprint:
                raise ValueError(
                    "a run must go on with the data it started with, but the corpus has changed. "
                    f"Received: fingerprint={self.progress.fingerprint}, where {path} has "
                    f"{progress.fingerprint}"
                )
            self.progress = progress
        return self.progress

    def on_epoch_begin(self, epoch, logs=None):
        self._first_step = self.progress.step
        if self._restore_metrics and self._first_step:
            self._restore_metrics()
        self._restore_metrics = None
        self._last_save = self._first_step

    def on_train_batch_end(self, batch, logs=None):
        step = self._first_step + batch + 1
        self.progress = self._now(step=step)
        due = step - self._last_save >= self.save_every_steps
        if due and step < self.steps_per_epoch:
            self._check_loss(logs)
            self._save()
            self._last_save = step

    def on_epoch_end(self, epoch, logs=None):
        self._check_loss(logs)
        self._snapshot(self.folder / f"epoch-{epoch + 1:04d}.weights.h5")
        self._prune(epoch + 1)
        self._keep_best(epoch + 1, (logs or {}).get("val_loss"))
        if self.progress.step >= self.steps_per_epoch:
            self.progress = self._now(epoch=epoch + 1, step=0)
        self._save()

    def snapshots(self):
        """Paths of the epoch snapshots, oldest first."""
        found = [path for path in self.folder.glob("epoch-*") if SNAPSHOT.fullmatch(path.name)]
        return sorted(found, key=_epoch_of)

    def _check_loss(self, logs):
        loss = (logs or {}).get("loss", 0.0)
        if loss != loss:
            raise ValueError(
                "training has diverged; nothing after the last checkpoint is kept. Lower the "
                f"learning rate or clip gradients. Received: loss={float(loss)} in step "
                f"{self.progress.step} after {self.progress.epoch} epochs"
            )

    def _now(self, **changes):
        return dataclasses.replace(self.progress, seconds=self._seconds(), **changes)

    def _save(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        save_state(self.model, self.folder / STATE_FILE, self._now())

    def _snapshot(self, path):
        # A compiled model would write the optimizer too, three times the size.
        if self._weights_only is None:
            self._weights_only = self.model.__class__.from_config(self.model.get_config())
        self._weights_only.set_weights(self.model.get_weights())
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self._weights_only.save_weights)

    def _prune(self, epoch):
        for path in self.snapshots():
            if not epoch - self.keep_snapshots < _epoch_of(path) <= epoch:
                path.unlink()

    def _keep_best(self, epoch, loss):
        best = self.progress.best_loss
        # A NaN loss is never the best.
        if loss is not None and (loss < best if best is not None else loss == loss):
            self._snapshot(self.folder / BEST_FILE)
            self.progress = self._now(best_epoch=epoch, best_loss=float(loss))


def _epoch_of(path):
    return int(SNAPSHOT.fullmatch(path.name).group(1))


def average_weights(paths, output):
    """Averages weight files into a new one, for `model.load_weights`.

    Sums in float64 and stores each array in the dtype that it had, so that float16 weights cannot
    overflow. Arrays that are not floating point come from the last file.

    Args:
        paths: `.weights.h5` files of one architecture.
        output: The file to write, atomically.

    Returns:
        `output` as a `Path`.

    Raises:
        ValueError: if there is no file, or the files hold different arrays.
    """
    paths = [Path(path) for path in paths]
    if not paths:
        raise ValueError(f"`paths` must name at least one file. Received: paths={paths}")

    def write(temporary):
        shutil.copyfile(paths[-1], temporary)
        with h5py.File(temporary, "r+") as target:
            expected = _float_arrays(target)
            total = {name: np.zeros(shape, "float64") for name, shape in expected.items()}
            for path in paths:
                with h5py.File(path, "r") as source:
                    if _float_arrays(source) != expected:
                        raise ValueError(
                            "`paths` must hold the same arrays. "
                            f"Received: {path} differs from {paths[-1]}"
                        )
                    for name in total:
                        total[name] += source[name][()]
            for name, value in total.items():
                target[name][...] = value / len(paths)

    write_atomically(output, write)
    return Path(output)


def _float_arrays(file):
    shapes = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and np.issubdtype(item.dtype, np.floating):
            shapes[name] = item.shape

    file.visititems(visit)
    return shapes
