"""What tests of runs share: a toy experiment, and a run of it."""

import pytest
from toy_experiment import write_experiment

from keras_transformer.experiment import Experiment
from keras_transformer.training import train


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    return write_experiment(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def finished(toy, tmp_path_factory):
    """A run that was never interrupted."""
    return train(Experiment.load(toy), tmp_path_factory.mktemp("runs") / "straight")
