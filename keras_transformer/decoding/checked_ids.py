"""The rows of ids that callers give, checked as far as their values are known.

In a graph they are not: there a source with an id outside the vocabulary becomes NaN in the model,
and so does a target in `score`.
"""

import numpy as np
from keras import ops

from keras_transformer.layers.base import check_dense
from keras_transformer.layers.masks import dtype_name, known_values


def checked_rows(name, ids, size, pad_id=None, *, rows=None):
    """Rows of ids, (B, T) int32, or `None`.

    Args:
        name: Of the argument.
        ids: A tensor, an array or lists; or `None`.
        size: The ids are in [0, `size`).
        pad_id: What may stand behind the ids of a row, and not before or between them; `None`
            where pads may stand anywhere.
        rows: B, where it is known.

    Raises:
        ValueError: if they have another rank or number of rows, are no integers, or, where their
            values are known, an id is outside or a pad stands before one.
    """
    if ids is None:
        return None
    check_dense(f"`{name}`", ids)
    ids = ids if hasattr(ids, "dtype") else _as_array(name, ids)
    shape = ids.shape
    if getattr(shape, "rank", 0) is None:  # a graph for any rank
        return ops.convert_to_tensor(ids, "int32")
    if len(shape) != 2:
        raise ValueError(f"`{name}` must have shape (B, T). Received: shape={tuple(shape)}")
    if isinstance(rows, int) and isinstance(shape[0], int) and shape[0] != rows:
        raise ValueError(
            f"`{name}` must have a row for each of the {rows} sources. Received: {shape[0]} rows"
        )
    if "int" not in dtype_name(ids):
        raise ValueError(f"`{name}` must hold integers. Received: dtype={dtype_name(ids)}")
    values = known_values(ids)
    if values is None:
        return ops.convert_to_tensor(ids, "int32")
    _check_range(name, values, size)
    if pad_id is not None:
        is_pad = values == pad_id
        is_wrong = is_pad[:, :-1] & ~is_pad[:, 1:]
        _refuse(name, "have pads only behind the ids of a row", values, is_wrong)
    return ops.convert_to_tensor(values.astype("int32"))


def check_told(name, ids, config):
    """Raises ValueError if a row that a search goes on with is known to end before its last id.

    What stands behind EOS would be dropped.

    Args:
        name: Of the argument.
        ids: What `checked_rows` gave, or `None`.
        config: The model's.
    """
    values = None if ids is None else known_values(ids)
    if values is not None and config.eos_id != config.pad_id:
        goes_on = values[:, 1:] != config.pad_id
        is_wrong = (values[:, :-1] == config.eos_id) & goes_on
        _refuse(name, "have EOS only as the last id of a row", values, is_wrong)


def check_one_source(source_ids, config):
    """Raises ValueError if a row of a packed model, for which EOS ends a source, holds several."""
    if getattr(config, "packed", False):
        check_told("source_ids", source_ids, config)


def check_no_bos(name, ids, config):
    """Raises ValueError if a row is known to begin with BOS, which the search puts before it."""
    values = known_values(ids)
    if values is not None and config.bos_id != config.pad_id:
        is_wrong = values[:, :1] == config.bos_id
        if config.bos_id == config.eos_id:  # which may stand alone
            is_wrong = is_wrong & (values[:, 1:2] != config.pad_id).any(axis=1, keepdims=True)
        _refuse(name, "begin without BOS, which is added", values, is_wrong)


def _as_array(name, ids):
    try:
        array = np.asarray(ids)
        return array if array.size else array.astype("int32")  # rows of nothing have no dtype
    except ValueError as error:
        raise ValueError(f"`{name}` must have rows of one length: fill them with pads") from error


def _check_range(name, values, size):
    outside = np.argwhere((values < 0) | (values >= size))
    if len(outside):
        place = tuple(map(int, outside[0]))
        raise ValueError(
            f"`{name}` must hold ids in [0, {size}). Received: id {values[place]}, at index {place}"
        )


def _refuse(name, rule, values, is_wrong):
    rows = np.flatnonzero(is_wrong.any(axis=1))
    if len(rows):
        ids = values[rows[0]].tolist()
        raise ValueError(f"`{name}` must {rule}. Received: row {rows[0]}, {str(ids):.100}")
