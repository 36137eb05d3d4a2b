"""Weights from one model to another, by name, with an account of what matched."""

import collections
import os
from typing import NamedTuple

import keras

from keras_transformer.layers.base import layers_within


class Transfer(NamedTuple):
    """What `transfer_weights` did, as paths of weights (`encoder_0/feed_forward/output/kernel`).

    Example:
        >>> layers = [keras.Input((3,)), keras.layers.Dense(2, name="classes")]
        >>> model = keras.Sequential(layers, name="model")
        >>> kt.transfer_weights(model, model)
        Transfer(copied=('model/classes/kernel', 'model/classes/bias'), missing=(), unused=(), \
other_shapes=())
    """

    copied: tuple[str, ...]  # now equal to the source's
    missing: tuple[str, ...]  # in the target alone: left as they were
    unused: tuple[str, ...]  # in the source alone
    other_shapes: tuple[str, ...]  # in both, with different shapes: left as they were


def transfer_weights(source: keras.Model | os.PathLike | str, target: keras.Model) -> Transfer:
    """Copies every weight of `source` that `target` has too, blocks' inner weights included.

    For example the encoder of a trained `Transformer` into a `SequenceClassifier`, or all but the
    last layer of a model into one with other classes. Keras' `load_weights(by_name=...)` compares
    the names of the outermost layers only.

    Args:
        source: A built Keras model, or the path of a `.keras` file.
        target: A built Keras model. Nothing of it changes if no weight matches.

    Returns:
        A `Transfer`.

    Raises:
        ValueError: if no weight matches, or several of one of them have the path of a match.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> translator = kt.Transformer(config)
        >>> classifier = kt.SequenceClassifier(config, num_classes=5)
        >>> transfer = kt.transfer_weights(translator, classifier)
        >>> len(transfer.copied) == len(classifier.weights) - 2
        True
        >>> transfer.missing
        ('classes/kernel', 'classes/bias')
    """
    if not isinstance(source, keras.Model):
        source = keras.models.load_model(source, compile=False)
    _check_paths(source, target)
    theirs = {weight.path: weight for weight in source.weights}
    ours = {weight.path: weight for weight in target.weights}
    both = [path for path in ours if path in theirs]
    copied = [path for path in both if ours[path].shape == theirs[path].shape]
    if not copied:
        raise ValueError(
            "`source` and `target` must have a weight of the same path and shape. Received: "
            f"{len(theirs)} weights such as {next(iter(theirs), None)!r}, and {len(ours)} such as "
            f"{next(iter(ours), None)!r}"
        )
    for path in copied:
        ours[path].assign(theirs[path])
    return Transfer(
        copied=tuple(copied),
        missing=tuple(path for path in ours if path not in theirs),
        unused=tuple(path for path in theirs if path not in ours),
        other_shapes=tuple(path for path in both if path not in copied),
    )


def _check_paths(source, target):
    """Raises ValueError if a path does not tell which weight of one is which of the other."""
    theirs, ours = (
        collections.Counter(weight.path for weight in each.weights) for each in (source, target)
    )
    for path, count in ours.items():
        if theirs[path] and max(count, theirs[path]) > 1:
            raise ValueError(
                "weights that `source` and `target` share must have a path each: give layers "
                f"inside a layer names of their own. Received: {theirs[path]} and {count} weights "
                f"of path {path!r}"
            )


def in_float32(model):
    """The model if all of it computes in float32, else a copy of it that does.

    Low precision is for training. A search in it depends on the order of sums, which runtimes
    choose: near-ties between hypotheses fall differently on a server and on a device.

    Args:
        model: A model of this package.
    """
    if all(layer.compute_dtype == "float32" for layer in layers_within(model)):
        return model
    config = {**model.get_config(), "dtype": "float32"}
    for settings in config["sublayers"].values():
        settings.pop("dtype", None)
    copy = type(model).from_config(config)
    for weight, value in zip(copy.weights, model.weights, strict=True):
        weight.assign(keras.ops.cast(value, "float32"))
    return copy
