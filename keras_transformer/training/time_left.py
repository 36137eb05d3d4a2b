"""How much longer a run trains, as it says while it does."""

import statistics
import sys
from collections import deque

import keras

from keras_transformer_runner.streams import log

_FIRST_SECONDS = 30  # before anything is said within the first epoch
_FIRST_STEPS = 20
_SAY_SECONDS = 600  # between two lines within an epoch
_EPOCHS = 5  # the last ones, whose mean is an epoch's time
_STEPS = 200  # the last ones, whose median is a step's time


class TimeLeft(keras.callbacks.Callback):
    """Says how long training still takes and what ends it: between epochs, and within long ones.

    An epoch takes as long as the last few did, with all that belongs to it. The first, in which
    programs are compiled, counts only until there is another. Before there is any, an epoch takes
    the median time of a step for each of its steps.

    Args:
        clock: A `Clock`.
        steps: Steps of a whole epoch.
        max_epochs: Epochs after which training ends, or `None`.
        max_minutes: Minutes after which it ends, or `None`.
        patience: Whether it may end sooner, as no epoch gets better.
        say: Takes each line.
    """

    def __init__(self, clock, steps, *, max_epochs, max_minutes, patience=False, say=log):
        super().__init__()
        self._clock, self._steps, self._say = clock, steps, say
        self._max_epochs, self._max_minutes, self._patience = max_epochs, max_minutes, patience
        self._first_epoch, self._epochs = None, deque(maxlen=_EPOCHS)  # their seconds
        self._step_seconds = deque(maxlen=_STEPS)
        self._wait = _FIRST_SECONDS

    def on_train_begin(self, logs=None):
        self._epoch_start, self._said = None, self._clock.seconds()

    def on_epoch_begin(self, epoch, logs=None):
        now = self._clock.seconds()
        if self._epoch_start is not None and self._begun_at == 0:
            if self._first_epoch is None:
                self._first_epoch = now - self._epoch_start
            else:
                self._epochs.append(now - self._epoch_start)
        self._epoch, self._epoch_start, self._step_end = epoch, now, now
        self._begun_at = self._step = self._steps - self.params["steps"]
        if self._first_epoch is not None:
            self._tell(now)

    def on_train_batch_end(self, batch, logs=None):
        now = self._clock.seconds()
        self._step += 1
        self._step_seconds.append(now - self._step_end)
        self._step_end = now
        if now - self._said >= self._wait and len(self._step_seconds) >= _FIRST_STEPS:
            # On a terminal the line would stand in the middle of Keras' progress bar.
            self._tell(now, "\n" if sys.stderr.isatty() else "")

    def _an_epoch(self):
        """The seconds of an epoch."""
        if self._epochs:
            return statistics.fmean(self._epochs)
        if self._first_epoch is not None:
            return self._first_epoch
        return statistics.median(self._step_seconds) * self._steps

    def _tell(self, now, before=""):
        self._said, self._wait = now, _SAY_SECONDS
        ends = []
        if self._max_epochs is not None:
            epochs = self._max_epochs - self._epoch - self._step / self._steps
            ends.append((epochs * self._an_epoch(), f"{self._max_epochs:,} epochs are done"))
        if self._max_minutes is not None:
            ends.append((self._max_minutes * 60 - now, f"{self._max_minutes:g} minutes are up"))
        seconds, end = min(ends)
        if seconds > 0:
            most = "at most" if self._patience else "about"
            self._say(f"{before}{most} {in_words(seconds)} left, until {end}")


def in_words(seconds):
    """A time in the units and with the roundness that an estimate deserves, such as `"12 min"`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(round(minutes / 5) * 5, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} days {hours} h" if hours else f"{days} days"
