"""What a run keeps of its model: all of its state in one file, and averages of weights."""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import h5py
import keras
import numpy as np

from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.integrity import check_sealed_file, seal_file

_ADVICE = "delete it to train from the start, or put a copy of it back"


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is. It is saved inside the state file, so that the two cannot disagree.

    Attributes:
        epoch: Epochs finished.
        step: Steps done in the epoch that follows.
        seconds: Wall time that training has taken so far, over all its parts.
        best_epoch: The epoch with the best validation metric, or `None`.
        best_value: Its value.
        judged_epoch: The last epoch with that metric, or `None` where it is not known.
        fingerprint: Identifies the training data; a resumed run must see the same.
        valid_fingerprint: Identifies the validation data, likewise; `""` where it is not known.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int | None = None
    best_value: float | None = None
    judged_epoch: int | None = None
    fingerprint: str = ""
    valid_fingerprint: str = ""


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
    """Restores the state that `save_state` wrote.

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
    check_sealed_file(path, _ADVICE, owner=run)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    with np.load(path) as file:
        arrays = dict(file)
    progress = Progress(**json.loads(str(arrays.pop("progress"))))
    for group in ("model", "optimizer"):
        _assign(_state_groups(model)[group], arrays, group, path)

    def restore_metrics():
        variables = _state_groups(model)["metrics"]
        saved = sum(name.startswith("metrics/") for name in arrays)
        if len(variables) != saved:
            return False
        _assign(variables, arrays, "metrics", path)
        return True

    return progress, restore_metrics


def saved_progress(path, *, run=""):
    """The `Progress` in a file that `save_state` wrote.

    Raises:
        ValueError: if the file is damaged, or belongs to another run.
    """
    check_sealed_file(path, _ADVICE, owner=run)
    with np.load(path) as file:
        return Progress(**json.loads(str(file["progress"])))


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


def current_weights(model):
    """Gives the arrays of a compiled model that a snapshot keeps, in the order of `get_weights`.

    If the optimizer has exponential moving averages of the trainable weights, it gives those.
    """
    averages = {}
    # Inside one that scales the loss, which has no averages of its own.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if optimizer is not None and optimizer.use_ema and optimizer.built:
        # The attribute that Keras' own SwapEMAWeights reads; there is no public one.
        pairs = zip(
            model.trainable_variables, optimizer._model_variables_moving_average, strict=True
        )
        averages = {id(variable): average for variable, average in pairs}
    return [
        keras.ops.convert_to_numpy(averages.get(id(weight), weight)) for weight in model.weights
    ]


def average_weights(paths: Iterable[os.PathLike | str], output: os.PathLike | str) -> Path:
    """Averages weight files into a new one, for `model.load_weights`.

    The mean is float32 or, of float64 arrays, float64, and each array is stored in the dtype that
    it had, bfloat16 too. Sums are float64, so that float16 weights cannot overflow. Arrays of
    integers, such as the states of seeds, come from the last file.

    Args:
        paths: `.weights.h5` files of one architecture.
        output: The file to write, atomically.

    Returns:
        `output` as a `Path`.

    Raises:
        ValueError: if there is no file, a file is damaged or holds values that are not finite, the
            files hold different arrays, or one of them is of a quantized model, whose integers are
            worth something else in each file.

    Example:
        >>> from keras_transformer.training import average_weights
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")])
        >>> for number in (1.0, 3.0):
        ...     model.set_weights([np.full((2, 1), number), np.full((1,), number)])
        ...     model.save_weights(f"{number}.weights.h5")
        >>> model.load_weights(
        ...     average_weights(["1.0.weights.h5", "3.0.weights.h5"], "average.weights.h5")
        ... )
        >>> model.get_weights()[0].ravel()
        array([2., 2.], dtype=float32)
    """
    paths = [Path(path) for path in paths]
    if not paths:
        raise ValueError(f"`paths` must name at least one file. Received: paths={paths}")
    for path in paths:
        check_sealed_file(path, "leave it out, or put a copy of it back", required=False)

    def write(temporary):
        shutil.copyfile(paths[-1], temporary)
        with _open_weights(temporary, "r+", shown=paths[-1]) as target:
            expected = _float_arrays(target, paths[-1])
            total = {name: np.zeros(shape, "float64") for name, (shape, _) in expected.items()}
            for path in paths:
                with _open_weights(path) as source:
                    if _float_arrays(source, path) != expected:
                        raise ValueError(
                            "`paths` must hold the same arrays. "
                            f"Received: {path} differs from {paths[-1]}"
                        )
                    for name, (_, dtype) in expected.items():
                        value = np.array(source[name], dtype).astype("float64")
                        if not np.isfinite(value).all():
                            raise ValueError(f"weights must be finite. Received: {path}: {name}")
                        total[name] += value
            for name, (_, dtype) in expected.items():
                mean = (total[name] / len(paths)).astype(np.promote_types(dtype, "float32"))
                target[name][...] = mean.astype(dtype).view(target[name].dtype)

    write_file(output, write)
    return Path(output)


@contextlib.contextmanager
def _open_weights(path, mode="r", shown=None):
    try:
        with h5py.File(path, mode) as file:
            yield file
    except (KeyError, OSError, RuntimeError) as error:  # h5py's for damaged files
        raise ValueError(
            f"weights must be in a whole HDF5 file. Received: {shown or path}: {error}"
        ) from error


def _float_arrays(file, path):
    """Shape and dtype of each array of floating point, by its name."""
    found = {}

    def visit(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        # HDF5 has no bfloat16: Keras stores its bytes and names it beside them.
        dtype = np.dtype(item.attrs.get("dtype", item.dtype))
        if dtype.name == "bfloat16" or np.issubdtype(dtype, np.floating):
            found[name] = item.shape, dtype
        elif dtype in (np.int8, np.uint8):
            raise ValueError(
                "`paths` must be weights of floating point, since the integers of a quantized "
                f"model have no mean: average before `quantize`. Received: {path} with {name} of "
                f"{dtype.name}"
            )

    file.visititems(visit)
    return found
