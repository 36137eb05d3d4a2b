"""Averages of weights: over snapshots in files, and over steps in the optimizer."""

import shutil
from pathlib import Path

import h5py
import keras
import numpy as np

from keras_transformer.training.state import write_atomically


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

    Sums in float64 and stores each array in the dtype that it had, so that float16 weights cannot
    overflow. Arrays that are not floating point come from the last file.

    Args:
        paths: `.weights.h5` files of one architecture.
        output: The file to write, atomically.

    Returns:
        `output` as a `Path`.

    Raises:
        ValueError: if there is no file, or the files hold different arrays.
    """
    paths = [Path(path) for path in paths]
    if not paths:
        raise ValueError(f"`paths` must name at least one file. Received: paths={paths}")

    def write(temporary):
        shutil.copyfile(paths[-1], temporary)
        with h5py.File(temporary, "r+") as target:
            expected = _float_arrays(target)
            total = {name: np.zeros(shape, "float64") for name, shape in expected.items()}
            for path in paths:
                with h5py.File(path, "r") as source:
                    if _float_arrays(source) != expected:
                        raise ValueError(
                            "`paths` must hold the same arrays. "
                            f"Received: {path} differs from {paths[-1]}"
                        )
                    for name in total:
                        total[name] += source[name][()]
            for name, value in total.items():
                target[name][...] = value / len(paths)

    write_atomically(output, write)
    return Path(output)


def _float_arrays(file):
    shapes = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and np.issubdtype(item.dtype, np.floating):
            shapes[name] = item.shape

    file.visititems(visit)
    return shapes
