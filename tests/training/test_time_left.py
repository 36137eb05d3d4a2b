"""How long training still takes, by a clock that the test turns."""

import pytest

from keras_transformer.experiment import Experiment
from keras_transformer.training import time_left, train
from keras_transformer.training.time_left import TimeLeft, in_words


class FakeClock:
    now = 0.0

    def seconds(self):
        return self.now


class Training:
    """Calls a `TimeLeft` as Keras would, with steps and ends of epochs that take what is asked."""

    def __init__(self, steps=100, **options):
        self.clock, self.said, self.steps = FakeClock(), [], steps
        limits = {"max_epochs": None, "max_minutes": None, **options}
        self.callback = TimeLeft(self.clock, steps, say=self.said.append, **limits)

    def begin(self, steps=None):
        self.callback.set_params({"steps": steps or self.steps})
        self.callback.on_train_begin()

    def step(self, count, seconds):
        for _ in range(count):
            self.clock.now += seconds
            self.callback.on_train_batch_end(0)

    def epoch(self, number, *, step=0.1, validation=0.0, count=None):
        self.callback.on_epoch_begin(number)
        self.step(count or self.steps, step)
        self.clock.now += validation
        self.callback.on_epoch_end(number)

    def take(self):
        said, self.said[:] = list(self.said), []
        return said


def test_epochs_are_as_long_as_the_last_ones_without_the_first():
    training = Training(max_epochs=10)
    training.begin()
    training.epoch(0, step=0.2, validation=4)  # programs are compiled
    assert training.take() == []
    training.epoch(1, step=0.1, validation=2)
    assert training.take() == ["about 4 min left, until 10 epochs are done"]  # 9 * 24 s
    training.epoch(2, step=0.1, validation=2)
    assert training.take() == ["about 2 min left, until 10 epochs are done"]  # 8 * 12 s


def test_what_ends_training_first_is_named():
    training = Training(max_epochs=10, max_minutes=1.5)
    training.begin()
    training.epoch(0)
    training.callback.on_epoch_begin(1)
    assert training.take() == ["about 80 s left, until 1.5 minutes are up"]  # 90 s for epochs
    training = Training(max_minutes=1.5)
    training.begin()
    training.epoch(0)
    training.callback.on_epoch_begin(1)
    assert training.take() == ["about 80 s left, until 1.5 minutes are up"]
    training.clock.now = 90.0
    training.callback.on_epoch_begin(2)
    assert training.take() == []  # nothing is left


def test_with_patience_it_is_at_most():
    training = Training(max_epochs=3, patience=True)
    training.begin()
    training.epoch(0)
    training.callback.on_epoch_begin(1)
    assert training.take() == ["at most 20 s left, until 3 epochs are done"]


def test_a_long_first_epoch_goes_by_the_median_step_and_is_told_of_rarely():
    training = Training(steps=10_000, max_epochs=2)
    training.begin()
    training.callback.on_epoch_begin(0)
    training.step(1, 100.0)  # compiles
    training.step(18, 0.5)
    assert training.take() == []
    training.step(1, 0.5)
    (line,) = training.take()
    assert line.strip() == "about 2 h 45 min left, until 2 epochs are done"  # 19,980 * 0.5 s
    training.step(1199, 0.5)
    assert training.take() == []
    training.step(1, 0.5)
    (line,) = training.take()
    assert line.strip() == "about 2 h 35 min left, until 2 epochs are done"


def test_the_rest_of_an_epoch_counts_as_what_it_is():
    training = Training(steps=1000, max_epochs=2)
    training.begin(steps=100)  # 900 are done
    training.callback.on_epoch_begin(0)
    training.step(60, 0.5)
    (line,) = training.take()
    assert line.strip() == "about 9 min left, until 2 epochs are done"  # 40 + 1000 steps
    training.step(40, 0.5)
    training.begin()
    training.callback.on_epoch_begin(1)
    assert training.take() == []  # the rest is no measure of an epoch


@pytest.mark.parametrize(
    ("is_terminal", "before"), [(True, "\n"), (False, "")], ids=["terminal", "file"]
)
def test_no_line_stands_in_a_progress_bar(monkeypatch, is_terminal, before):
    monkeypatch.setattr(time_left.sys.stderr, "isatty", lambda: is_terminal, raising=False)
    training = Training(max_epochs=2)
    training.begin()
    training.callback.on_epoch_begin(0)
    training.step(30, 1.0)
    assert training.take() == [f"{before}about 3 min left, until 2 epochs are done"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.2, "1 s"), (89, "89 s"), (90, "2 min"), (89 * 60, "89 min"), (5400, "1 h 30 min")),
        *((7199, "2 h"), (36 * 3600, "36 h"), (48 * 3600, "2 days"), (61 * 3600, "2 days 13 h")),
    ],
)
def test_words(seconds, text):
    assert in_words(seconds) == text


@pytest.mark.slow
def test_a_run_says_it_between_its_epochs(toy, tmp_path, capsys):
    overrides = {"training.max_epochs": "2", "training.save_every_steps": "1000"}
    train(Experiment.load(toy, overrides), tmp_path / "run")
    lines = capsys.readouterr().err.splitlines()
    (place,) = (number for number, line in enumerate(lines) if "left, until" in line)
    assert lines[place].endswith(" left, until 2 epochs are done")
    assert lines[place + 1] == "Epoch 2/2"
    (facts,) = (line for line in lines if line.startswith("training on"))
    # Without XLA there are no programs of it, and of a clean corpus nothing is left out.
    assert facts.endswith("in lengths [16]")
