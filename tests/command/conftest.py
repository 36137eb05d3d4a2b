"""What all tests of the command share: a toy experiment, its run, and how a command fails."""

import pytest
from toy_experiment import write_experiment

from keras_transformer.command import cli


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    return write_experiment(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def run_dir(toy, tmp_path_factory):
    """A run made by the command."""
    path = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", str(toy), str(path), "--set", "training.max_epochs=1"]) == 0
    return path


@pytest.fixture
def fails(capfd):
    """Runs the command, expects exit code 1 and one line on standard error, and returns it."""

    def run(*argv):
        capfd.readouterr()
        assert cli.main([str(argument) for argument in argv]) == 1
        captured = capfd.readouterr()
        assert captured.out == ""
        *before, last = captured.err.splitlines()
        assert last.startswith("keras-transformer: error: ")
        assert not any("error" in line or "Traceback" in line for line in before)
        return last

    return run
