"""Checks of the ids and class weights that `fit` and `evaluate` get, before a step takes them."""

import inspect
import re
import types
from typing import Any

import keras
import numpy as np

from keras_transformer.models.inputs import as_known_array

_RULE = "`{name}` must hold ids in [0, {size}){extra}. Received: id "
_NUMBER = r"-?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf)"
_FOUND = re.compile(
    rf"(`\w+` must hold ids in \[0, \d+\)[^\]]*?Received: id )(?:\] \[)?({_NUMBER})"
)


class CheckedData:
    """Base of a `keras.Model` with `id_sizes`: an id outside the vocabulary stops `fit`.

    It would make loss and weights NaN. What is in memory is looked at as a whole before the first
    step; batches of a `tf.data.Dataset`, a generator or a `keras.utils.PyDataset` one by one, each
    before its step, where they are made: on the host, and beside the steps that a device does.
    Labels are looked at where the loss tells which it takes: `SmoothedCrossEntropy` by its
    `pad_id`, `keras.losses.SparseCategoricalCrossentropy` by its `ignore_class`.

    Not looked at are what `predict` and a bare call get (the row becomes NaN) and batches that
    are distributed already (`training.distribution.distributed` looks at them itself).
    """

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        given = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs).arguments
        self._check_class_weight(given.get("class_weight"))
        ids = self.ids()
        given["x"] = ids.checked(given.get("x"), given.get("y"))
        if (validation := given.get("validation_data")) is not None:
            given["validation_data"] = (
                (ids.checked(*validation[:2]), *validation[1:])
                if isinstance(validation, (tuple, list))
                else ids.checked(validation)
            )
        return _with_short_errors(super().fit, **_without_self(given))

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        if "_use_cached_eval_dataset" in kwargs:  # by `fit`, which has made its iterator
            return _with_short_errors(super().evaluate, *args, **kwargs)
        given = inspect.signature(keras.Model.evaluate).bind(self, *args, **kwargs).arguments
        given["x"] = self.ids().checked(given.get("x"), given.get("y"))
        return _with_short_errors(super().evaluate, **_without_self(given))

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: dict | None = None,
        return_dict: bool = False,
    ) -> Any:
        self._check_class_weight(class_weight)
        self.ids().checked(x, y)
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
    ) -> Any:
        self.ids().checked(x, y)
        return super().test_on_batch(x, y, sample_weight, return_dict)

    def ids(self) -> "Ids":
        """The `Ids` that the model and its compiled loss take."""
        loss = keras.tree.flatten(getattr(self, "loss", None))
        loss = loss[0] if len(loss) == 1 else None
        sizes = {tensor.name: self.id_sizes.get(tensor.name) for tensor in self.inputs}
        if hasattr(loss, "pad_id"):
            return Ids(sizes, self.output_shape[-1], loss.pad_id)
        if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
            return Ids(sizes, self.output_shape[-1], loss.ignore_class)
        return Ids(sizes)

    def _check_class_weight(self, class_weight):
        if class_weight is not None and len(self.output_shape) > 2:
            raise ValueError(
                "`class_weight` weighs rows that have one label each, but labels are (B, T) here: "
                "give each token its weight with `sample_weight` (B, T), for example "
                "`weights[labels]`. Received: class_weight of "
                f"{len(class_weight)} classes, logits {self.output_shape}"
            )


class Ids:
    """Which ids inputs and labels may hold.

    Args:
        sizes: V of each input, by its name, in the order of `Model.inputs`; `None` for any ids.
        classes: V of the labels; `None` if nothing is known of them.
        pad_id: A label that is none, where it may also lie outside [0, V).
    """

    def __init__(self, sizes, classes=None, pad_id=None):
        self.sizes, self.classes, self.pad_id = sizes, classes, pad_id

    def checked(self, x, y=None):
        """`x` itself, if it and `y` are arrays, or what gives the batches of `x` when checked.

        Raises:
            ValueError: if arrays hold another id. Batches raise it when they come.
        """
        if isinstance(x, types.GeneratorType):
            return (self._checked_batch(batch) for batch in x)
        if isinstance(x, keras.utils.PyDataset):
            return _CheckedPyDataset(x, self._checked_batch)
        if hasattr(x, "element_spec"):
            return self.checked_dataset(x) if hasattr(x, "map") else x
        for name, size, pad_id, array in self._parts(x, y):
            self._check_array(name, size, pad_id, array)
        return x

    def checked_dataset(self, dataset):
        """A `tf.data.Dataset` whose iteration ends in an InvalidArgumentError at another id."""
        import tensorflow as tf

        @tf.autograph.experimental.do_not_convert
        def checked(*batch):
            batch = batch if len(batch) > 1 else batch[0]
            x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
            for part in self._parts(x, y):
                self._assert(*part)
            return batch

        return dataset.map(checked).prefetch(1)  # the next one is looked at during a step

    def _checked_batch(self, batch):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        self.checked(x, y)
        return batch

    def _parts(self, x, y):
        """Name, size, pad and array of all that has a size and is numbers."""
        if isinstance(x, dict):
            parts = [(name, size, None, x.get(name)) for name, size in self.sizes.items()]
        else:
            sizes = self.sizes.items()
            arrays = x if isinstance(x, (list, tuple)) else [x]
            parts = [
                (name, size, None, array)
                for (name, size), array in zip(sizes, arrays, strict=False)
            ]
        if self.classes is not None:
            labels = keras.tree.flatten(y)
            parts.append(("labels", self.classes, self.pad_id, labels[0] if labels else None))
        for name, size, pad_id, array in parts:
            array = getattr(array, "flat_values", array)  # of a ragged tensor
            array = as_known_array(array)
            kind = str(getattr(array, "dtype", ""))
            if size is not None and ("int" in kind or "float" in kind):
                yield name, size, pad_id, array

    def _check_array(self, name, size, pad_id, array):
        ids = np.asarray(array)
        bad = np.asarray(False) if ids.dtype.kind in "iu" else ids != np.floor(ids)
        if not ids.size or (ids.min() >= 0 and ids.max() < size and not bad.any()):
            return
        bad = bad | ~((ids >= 0) & (ids < size))
        if pad_id is not None:
            bad &= ids != pad_id
        if bad.any():
            place = np.argwhere(bad)[0]
            rule = _rule(name, size, pad_id)
            raise ValueError(f"{rule}{ids[tuple(place)]}, at index {tuple(map(int, place))}")

    def _assert(self, name, size, pad_id, array):
        import tensorflow as tf

        ids = tf.cast(array, tf.int64) if array.dtype.is_integer else array
        ids = ids if pad_id is None else tf.where(ids == pad_id, tf.zeros_like(ids), ids)
        lowest, highest = tf.reduce_min(ids), tf.reduce_max(ids)
        nothing = tf.size(ids) == 0
        known = nothing | ((lowest >= 0) & (highest < tf.cast(size, ids.dtype)))
        wrong = tf.where(lowest < 0, lowest, highest)
        if not ids.dtype.is_integer:
            parts = tf.boolean_mask(ids, ids != tf.floor(ids))
            known &= tf.size(parts) == 0
            wrong = tf.concat([parts, [wrong]], axis=0)[0]
        tf.debugging.Assert(known, [_rule(name, size, pad_id), wrong])


class _CheckedPyDataset(keras.utils.PyDataset):
    """The batches of another one, each checked."""

    def __init__(self, dataset, check):
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self._dataset, self._check = dataset, check

    def __getitem__(self, index):
        return self._check(self._dataset[index])

    @property
    def num_batches(self):
        return self._dataset.num_batches

    def on_epoch_begin(self):
        self._dataset.on_epoch_begin()

    def on_epoch_end(self):
        self._dataset.on_epoch_end()


def _rule(name, size, pad_id):
    extra = "" if pad_id is None or 0 <= pad_id < size else f" or be {pad_id}"
    return _RULE.format(name=name, size=size, extra=extra)


def _without_self(arguments):
    return {name: value for name, value in arguments.items() if name != "self"}


def _with_short_errors(function, *args, **kwargs):
    """Calls a function; what an input pipeline says about an id becomes a ValueError."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        found = _FOUND.search(str(error))
        if found is None or isinstance(error, ValueError):
            raise
        raise ValueError(f"{found[1]}{found[2]}, in a batch that is not used") from None
