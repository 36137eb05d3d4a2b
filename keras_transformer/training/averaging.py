"""Averages of weights: over snapshots in files, and over steps in the optimizer."""

import contextlib
import shutil
from pathlib import Path

import h5py
import keras
import numpy as np

from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.integrity import check_sealed_file


def current_weights(model):
    """The arrays of a compiled model that are worth keeping, in the order of `get_weights`.

    Where the optimizer has an exponential moving average of the trainable weights, these are it.
    """
    averages = {}
    if model.optimizer is not None and model.optimizer.use_ema and model.optimizer.built:
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        # The attribute that Keras' own SwapEMAWeights reads; there is no public one.
        pairs = zip(
            model.trainable_variables, optimizer._model_variables_moving_average, strict=True
        )
        averages = {id(variable): average for variable, average in pairs}
    return [
        keras.ops.convert_to_numpy(averages.get(id(weight), weight)) for weight in model.weights
    ]


def average_weights(paths, output):
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
