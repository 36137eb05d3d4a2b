"""What `train` watches while Keras trains: the time, and the figures of each epoch."""

import json
import time

import keras

from keras_transformer.training.state import write_atomically


class Clock:
    """Training time: what earlier parts of the run took, and this one so far."""

    def __init__(self):
        self.before = 0.0
        self.start = time.monotonic()

    def seconds(self):
        return self.before + time.monotonic() - self.start


class TimeBudget(keras.callbacks.Callback):
    """Stops training at the first step that ends after `max_minutes`."""

    def __init__(self, clock, max_minutes):
        super().__init__()
        self._clock = clock
        self._limit = max_minutes * 60 if max_minutes else float("inf")

    def used_up(self):
        return self._clock.seconds() >= self._limit

    def on_train_batch_end(self, batch, logs=None):
        if self.used_up():
            self.model.stop_training = True


def updates_of(model):
    """How many updates the optimizer of a model has made."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


class MetricsFile(keras.callbacks.Callback):
    """Writes a JSON line an epoch; an epoch that is done again replaces its line."""

    def __init__(self, path, checkpoint):
        super().__init__()
        self._path = path
        self._checkpoint = checkpoint

    def on_epoch_end(self, epoch, logs=None):
        lines = []
        if self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines()
        lines = [line for line in lines if json.loads(line)["epoch"] <= epoch]
        record = {
            "epoch": epoch + 1,
            "step": updates_of(self.model),
            "seconds": round(self._checkpoint.progress.seconds, 1),
            "learning_rate": float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)),
            **{name: float(value) for name, value in (logs or {}).items()},
        }
        text = "\n".join([*lines, json.dumps(record)]) + "\n"
        write_atomically(self._path, lambda path: path.write_text(text, encoding="utf-8"))
