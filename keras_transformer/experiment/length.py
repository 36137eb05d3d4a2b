"""How long a run trains, beside its experiment: more epochs of a finished one, an earlier end."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.run_folder import (
    EXPERIMENT_FILE,
    EXTENSION_FILE,
    TRAINING,
    check_run,
)
from keras_transformer.presets.record import MODEL_FILE
from keras_transformer_runner.atomic import TargetInUseError, check_unheld, write_text
from keras_transformer_runner.integrity import (
    check_file,
    check_seal,
    checksum,
    read_json,
    sealed,
)

STOP_FILE = "stop"
AFTER_EPOCH, NOW = "after this epoch", "now"


class Extension(NamedTuple):
    """More epochs of a run that was finished: from which on, and up to which."""

    from_epoch: int
    max_epochs: int

    @classmethod
    def read(cls, run_dir):
        """The extension of the run in a folder, or `None`.

        Raises:
            FileNotFoundError: if the run has no experiment.
            ValueError: if its file is damaged, or of another run.
        """
        path = Path(run_dir) / EXTENSION_FILE
        if not path.exists():
            return None
        kinds = dict.fromkeys(cls._fields, int)
        record = read_json(path, "the extension of a run", kinds)
        check_seal(path, record)
        if "experiment" in record:  # the first extensions did not say of which run they are
            check_file(path.with_name(EXPERIMENT_FILE), record["experiment"], EXTENSION_FILE)
        return cls(*(record[name] for name in kinds))

    @classmethod
    def plan(cls, run_dir, more_epochs, done):
        """That of `more_epochs` beyond those that were `done` when the run was finished."""
        begun = None if (Path(run_dir) / MODEL_FILE).exists() else cls.read(run_dir)
        first = begun.from_epoch if begun else done
        return cls(first, first + more_epochs)

    def begin(self, run_dir):
        """Makes a finished run an unfinished one, which goes on however often it is killed."""
        if (Path(run_dir) / MODEL_FILE).exists():  # an end that was asked of what is finished
            (Path(run_dir) / STOP_FILE).unlink(missing_ok=True)
        of_run = {"experiment": checksum(Path(run_dir) / EXPERIMENT_FILE)}
        text = json.dumps(sealed({**self._asdict(), **of_run}), indent=2) + "\n"
        write_text(Path(run_dir) / EXTENSION_FILE, text)
        (Path(run_dir) / MODEL_FILE).unlink(missing_ok=True)


def stop_run(run_dir: os.PathLike | str, *, now: bool = False) -> bool:
    """Ends the training of a run before its time: it is then finished, and may go on later.

    Whoever trains the run sees it within a second. Where nobody does, the next `train` of it
    writes the model of what there is.

    Args:
        run_dir: The folder of the run.
        now: Whether to stop after the step, and not after the epoch.

    Returns:
        Whether a process trains the run now.

    Raises:
        FileNotFoundError: if the folder is no run.
        FileExistsError: if the run is finished.
        ValueError: if several workers train it.

    Example (a run that trains in another process):
        >>> from keras_transformer.experiment import stop_run
        >>> stop_run("run")  # doctest: +SKIP
        True
    """
    run_dir = Path(run_dir)
    check_run(run_dir)
    if (run_dir / MODEL_FILE).exists():
        raise FileExistsError(f"a run to stop must not be finished. Received: {run_dir}")
    if Experiment.load(run_dir / EXPERIMENT_FILE).training.strategy == "multi_worker":
        raise ValueError(
            "a run to stop must not have several workers, which have to end at the same step. "
            f"Received: {run_dir}"
        )
    write_text(run_dir / STOP_FILE, f"{NOW if now else AFTER_EPOCH}\n")
    try:
        check_unheld(run_dir / TRAINING)
    except TargetInUseError:
        return True
    return False


def wanted_end(run_dir):
    """`AFTER_EPOCH`, `NOW` or `None`: what `stop_run` has asked for."""
    try:
        text = (Path(run_dir) / STOP_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    return NOW if text == NOW else AFTER_EPOCH
