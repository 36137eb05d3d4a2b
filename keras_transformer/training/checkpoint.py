"""Saving a training run so that it goes on exactly as if it had never stopped."""

import dataclasses
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_transformer.arguments import check_least
from keras_transformer.experiment.run_folder import STATE_FILE
from keras_transformer.training.state import Progress, current_weights, load_state, save_state
from keras_transformer_runner.atomic import check_space, write_file
from keras_transformer_runner.integrity import check_sealed_file, seal_file
from keras_transformer_runner.streams import log

_HDF5_BYTES = 4096  # of an array, for names and places; 3,000 were seen
BEST_FILE = "best.weights.h5"
SNAPSHOT = re.compile(r"epoch-(\d+)\.weights\.h5")

# What `best_by` may be: the metric in the logs of an epoch, and whether more of it is better.
METRICS = {
    "loss": ("val_loss", False),
    "bleu": ("val_bleu", True),
    "chrf": ("val_chrf", True),
}


class TrainingCheckpoint(keras.callbacks.Callback):
    """Saves the state of training every epoch and every few steps, and snapshots for averaging.

    In `folder` it keeps `state.npz` (see `save_state`), `epoch-0007.weights.h5` for each of the
    last epochs (weights only, for `average_weights`; Keras loads such a file into a model that is
    not compiled) and `best.weights.h5`, the weights with the best validation metric. Where the
    optimizer averages the weights (`use_ema`), snapshots hold the averages. A state whose loss is
    NaN is never saved.

    To go on after a kill, make and compile the model again, call `restore(model)`, and `fit` with
    the batches that follow `progress.epoch` and `progress.step`; the weights then equal those of
    a run that was never killed.

    Args:
        folder: Where the files go; created when needed.
        steps_per_epoch: Steps in a whole epoch.
        save_every_steps: Steps between two saves inside an epoch.
        keep_snapshots: Number of epoch snapshots to keep.
        fingerprint: Identifies the training data.
        valid_fingerprint: Identifies the validation data.
        run: Identifies the run: states and snapshots of another are refused.
        seconds: Function that gives the training time so far.
        best_by: Which validation metric chooses the best weights: `"loss"`, `"bleu"` or `"chrf"`.
        patience: Stop training after this many epochs without a better metric, in one that has
            the metric; `None` for never.
        patient_from: The epoch after which these are counted at the earliest.
        write: Whether files are written: of several workers, one does.

    Attributes:
        progress: The `Progress` so far.

    Raises:
        ValueError: if a number is below 1.

    Example:
        >>> from keras_transformer.training import TrainingCheckpoint
        >>> def compiled_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        ...     model.compile("adam", "mse", run_eagerly=True)
        ...     return model
        >>> x, y = np.ones((4, 2)), np.ones((4, 1))
        >>> checkpoint = TrainingCheckpoint("checkpoints", steps_per_epoch=2)
        >>> history = compiled_model().fit(x, y, batch_size=2, callbacks=[checkpoint], verbose=0)
        >>> model = compiled_model()  # in another process, after a kill
        >>> progress = TrainingCheckpoint("checkpoints", steps_per_epoch=2).restore(model)
        >>> progress.epoch, progress.step, int(model.optimizer.iterations)
        (1, 0, 2)
    """

    def __init__(
        self,
        folder: os.PathLike | str,
        steps_per_epoch: int,
        *,
        save_every_steps: int = 500,
        keep_snapshots: int = 5,
        fingerprint: str = "",
        valid_fingerprint: str = "",
        run: str = "",
        seconds: Callable[[], float] = lambda: 0.0,
        best_by: str = "loss",
        patience: int | None = None,
        patient_from: int = 0,
        write: bool = True,
    ):
        super().__init__()
        check_least(
            1,
            steps_per_epoch=steps_per_epoch,
            save_every_steps=save_every_steps,
            keep_snapshots=keep_snapshots,
        )
        check_least(1, optional=True, patience=patience)
        self.folder = Path(folder)
        self.steps_per_epoch = steps_per_epoch
        self.save_every_steps = save_every_steps
        self.keep_snapshots = keep_snapshots
        self.progress = Progress(fingerprint=fingerprint, valid_fingerprint=valid_fingerprint)
        self.run = run
        self.patience = patience
        self._patient_from = patient_from
        self._metric, self._more_is_better = METRICS[best_by]
        self._write = write
        self._seconds = seconds
        self._restore_metrics = None
        self._first_step = 0
        self._weights_only = None

    def restore(self, model: keras.Model) -> Progress:
        """Loads the saved state, if there is one, into a compiled model.

        Returns:
            The `Progress` to go on from.

        Raises:
            ValueError: if the state or a snapshot is damaged, or the state belongs to another
                model or to other data.
        """
        path = self.folder / STATE_FILE
        if path.exists():
            progress, self._restore_metrics = load_state(model, path, run=self.run)
            self._check_same("corpus", self.progress.fingerprint, progress.fingerprint)
            valid = self.progress.valid_fingerprint
            if progress.valid_fingerprint:
                self._check_same("validation corpus", valid, progress.valid_fingerprint)
            self.progress = dataclasses.replace(progress, valid_fingerprint=valid)
            for weights in (*self.snapshots(), *self.best_snapshot()):
                self.check_snapshot(weights)
        return self.progress

    def _check_same(self, what, given, saved):
        if given != saved:
            raise ValueError(
                f"a run must go on with the data it started with, but the {what} has changed. "
                f"Received: fingerprint={given}, where {self.folder / STATE_FILE} has {saved}"
            )

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._first_step = self.progress.step
        if self._restore_metrics and self._first_step:
            self._restore_metrics()
        self._restore_metrics = None
        self._last_save = self._first_step

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        step = self._first_step + batch + 1
        self.progress = self._now(step=step)
        due = step - self._last_save >= self.save_every_steps
        if due and step < self.steps_per_epoch:
            self._check_loss(logs)
            self._save()
            self._last_save = step

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._check_loss(logs)
        self._snapshot(self.folder / f"epoch-{epoch + 1:04d}.weights.h5")
        self._prune(epoch + 1)
        self._keep_best(epoch + 1, (logs or {}).get(self._metric))
        if self.progress.step >= self.steps_per_epoch:
            self.progress = self._now(epoch=epoch + 1, step=0)
        self._save()
        if self.is_hopeless():
            log(f"no better {self._metric} since epoch {self.progress.best_epoch}: training ends")
            self.model.stop_training = True

    def is_hopeless(self) -> bool:
        """Whether `patience` epochs have passed without a better metric."""
        best, patience = self.progress.best_epoch, self.patience
        if best is None or patience is None:
            return False
        judged = self.progress.judged_epoch or self.progress.epoch
        return judged - max(best, self._patient_from) >= patience

    def snapshot_model(self) -> keras.Model:
        """Gives the model without optimizer, always the same object, with the current weights."""
        # A compiled model would write the optimizer too, three times the size.
        if self._weights_only is None:
            self._weights_only = self.model.__class__.from_config(self.model.get_config())
        self._weights_only.set_weights(current_weights(self.model))
        return self._weights_only

    def snapshots(self) -> list[Path]:
        """Paths of the epoch snapshots, oldest first."""
        found = [path for path in self.folder.glob("epoch-*") if SNAPSHOT.fullmatch(path.name)]
        return sorted(found, key=_epoch_of)

    def best_snapshot(self) -> list[Path]:
        """A list of the path of the best weights, if there are any."""
        return [path for path in [self.folder / BEST_FILE] if path.exists()]

    def check_snapshot(self, path: Path) -> None:
        """Raises ValueError if a snapshot is damaged, or of another run."""
        advice = "delete it to go on without it, or put a copy of it back"
        check_sealed_file(path, advice, owner=self.run)

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
        if hasattr(self.model, "jax_state_sync"):  # on JAX, `fit` holds the values elsewhere
            self.model.jax_state_sync()
        path = self.folder / STATE_FILE
        save_state(self.model, path, self._now(), run=self.run, write=self._write)

    def _snapshot(self, path):
        model = self.snapshot_model()

        def write(temporary):
            check_space(temporary, sum(map(_bytes_of, model.weights)))
            model.save_weights(temporary)
            seal_file(temporary, self.run)

        if self._write:
            write_file(path, write)

    def _prune(self, epoch):
        for path in self.snapshots() if self._write else ():
            if not epoch - self.keep_snapshots < _epoch_of(path) <= epoch:
                path.unlink()

    def _keep_best(self, epoch, value):
        best = self.progress.best_value
        if value is None:
            return
        self.progress = self._now(judged_epoch=epoch)
        if value != value:  # a NaN is never the best
            return
        if best is None or (value > best if self._more_is_better else value < best):
            self._snapshot(self.folder / BEST_FILE)
            self.progress = self._now(best_epoch=epoch, best_value=float(value))


def _epoch_of(path):
    return int(SNAPSHOT.fullmatch(path.name).group(1))


def _bytes_of(weight):
    """What an array takes in an HDF5 file at most."""
    return math.prod(weight.shape) * np.dtype(weight.dtype).itemsize + _HDF5_BYTES
