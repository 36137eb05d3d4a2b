"""The state of a training run, all of it, in one file."""

import dataclasses
import json

import keras
import numpy as np

from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.integrity import check_sealed_file, seal_file


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run stands; saved inside the state file, so that the two cannot disagree.

    Attributes:
        epoch: Epochs finished.
        step: Steps done in the epoch that follows.
        seconds: Wall time that training has taken so far, over all its parts.
        best_epoch: The epoch with the best validation figure, or `None`.
        best_value: That figure.
        fingerprint: Identifies the training data; a resumed run must see the same.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int | None = None
    best_value: float | None = None
    fingerprint: str = ""


def save_state(model, path, progress, *, run="", write=True):
    """Writes everything that decides the rest of a training run to one file, atomically.

    `model.save_weights` leaves out the states of `SeedGenerator`s (dropout would repeat its first
    masks) and the metrics of a half-done epoch, so the variables are written here: the model's
    (with seeds), the optimizer's (with its step counter) and the metrics'. The file ends with its
    own checksum.

    Args:
        model: A compiled model with a built optimizer.
        path: An `.npz` file.
        progress: A `Progress`.
        run: Identifies the run.
        write: `False` on all workers but one: reading the metrics takes all of them.
    """
    arrays = {
        f"{group}/{index}": _to_numpy(variable)
        for group, variables in _state_groups(model).items()
        for index, variable in enumerate(variables)
    }
    arrays["progress"] = np.array(json.dumps(dataclasses.asdict(progress)))

    def write_arrays(temporary):
        np.savez(temporary, **arrays)
        seal_file(temporary, run)

    if write:
        write_file(path, write_arrays)


def load_state(model, path, *, run=""):
    """Restores what `save_state` wrote.

    Args:
        model: A compiled model of the same architecture.
        path: The file.
        run: As given to `save_state`.

    Returns:
        The `Progress`, and a function that restores the metrics. `fit` resets them at the start
        of an epoch, so call it after that; it returns `False` and does nothing where Keras has
        not made the variables of compiled metrics yet (see `run.compile_model`).

    Raises:
        ValueError: if the file is damaged, or belongs to another run, model or optimizer.
    """
    advice = "delete it to train from the start, or put a copy of it back"
    check_sealed_file(path, advice, owner=run)
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
