"""What `train` watches while Keras trains: the time, and the metrics of each epoch."""

import json
import time

import keras

from keras_transformer.experiment.length import NOW, wanted_end
from keras_transformer_runner.atomic import write_text

_LOOK_SECONDS = 1


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


class EarlyEnd(keras.callbacks.Callback):
    """Stops training where `stop_run` has asked for it, which it looks for once a second."""

    def __init__(self, run_dir):
        super().__init__()
        self._run_dir = run_dir
        self._looked = float("-inf")

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            if wanted_end(self._run_dir) == NOW:
                self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if wanted_end(self._run_dir):
            self.model.stop_training = True


class SwapAverages(keras.callbacks.SwapEMAWeights):
    """Keras' own, which validates the averages of the weights, without its rounding.

    On TensorFlow Keras exchanges two variables by sums and differences, so that each validation
    would change both.
    """

    def _tf_swap_variables(self, optimizer):
        averages = optimizer._model_variables_moving_average
        for weight, average in zip(optimizer._trainable_variables, averages, strict=True):
            pair = [getattr(each, "value", each) for each in (weight, average)]
            update = optimizer._distribution_strategy.extended.update
            update(pair[0], _exchange, args=(pair[1],))


def _exchange(weight, average):
    kept = weight.read_value()
    weight.assign(average)
    average.assign(kept)


class OpenEndedProgress(keras.callbacks.ProgbarLogger):
    """Keras' own progress bar, without a number of epochs: only the time limits the run."""

    def set_params(self, params):
        super().set_params({**params, "epochs": 1})  # of a single epoch Keras shows no number

    def on_epoch_begin(self, epoch, logs=None):
        if self.verbose:
            print(f"Epoch {epoch + 1}/(as time allows)", flush=True)
        super().on_epoch_begin(epoch, logs)


def updates_of(model):
    """How many updates the optimizer of a model has made."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


class MetricsFile(keras.callbacks.Callback):
    """Writes a JSON line for each epoch. An epoch that is repeated replaces its line."""

    def __init__(self, path, checkpoint):
        super().__init__()
        self._path = path
        self._checkpoint = checkpoint

    def on_epoch_end(self, epoch, logs=None):
        records = [record for record in read_metrics(self._path) if record["epoch"] <= epoch]
        record = {
            "epoch": epoch + 1,
            "step": updates_of(self.model),
            "seconds": round(self._checkpoint.progress.seconds, 1),
            "learning_rate": float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)),
            **{name: float(value) for name, value in (logs or {}).items()},
        }
        write_text(self._path, "".join(f"{json.dumps(each)}\n" for each in [*records, record]))


def read_metrics(path):
    """Reads the records of the epochs from a file of JSON lines; an empty list without a file.

    Raises:
        ValueError: if a line is no such record.
    """
    records = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or type(record.get("epoch")) is not int:
            raise ValueError(
                "every line must be a JSON object with an integer `epoch`; delete the line or the "
                f"file, which training does not need. Received: {path}, line {number}: "
                f"{line[:80]!r}"
            )
        records.append(record)
    return records
