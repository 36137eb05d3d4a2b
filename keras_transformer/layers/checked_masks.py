"""What users give as masks and biases, checked against the scores that they are for."""

import keras
from keras import ops


def checked_mask(name, mask, sizes):
    """A boolean mask of (B, T, S) or (B, N, T, S) scores, or one that broadcasts to them.

    Args:
        name: Of the argument.
        mask: A tensor or nested lists: boolean, or numbers that are all 0 and 1; or `None`.
        sizes: B, N, T and S, `None` where unknown.

    Returns:
        The mask with the axes that it has, boolean, or `None`.

    Raises:
        ValueError: if its rank, a size or a number is another.
    """
    if mask is None:
        return None
    mask = _checked_shape(name, _as_tensor(name, mask), sizes)
    _check_zeros_and_ones(name, mask)
    return _cast(mask, "bool")


def checked_bias(name, bias, sizes):
    """An additive mask of the same shapes, in numbers, or `None`.

    Raises:
        ValueError: if its rank or a size is another, or it is boolean.
    """
    if bias is None:
        return None
    bias = _checked_shape(name, _as_tensor(name, bias), sizes)
    if _dtype(bias) == "bool":
        raise ValueError(
            f"`{name}` must hold numbers that are added to the scores; a boolean mask is given as "
            f"`attention_mask`. Received: dtype=bool"
        )
    return bias


def checked_position_bias(bias, sizes):
    """A bias by distance, (N, 2T - 1), for T queries and keys, or `None`.

    Raises:
        ValueError: if its shape is another.
    """
    if bias is None:
        return None
    bias, (_, heads, length, _) = _as_tensor("position_bias", bias), sizes
    expected = (heads, None if length is None else 2 * length - 1)
    if len(bias.shape) != 2 or not _fits(bias.shape, expected, ones=False):
        raise ValueError(
            f"`position_bias` must have shape (N, 2T - 1), here {expected}. "
            f"Received: shape={tuple(bias.shape)}"
        )
    return bias


def checked_padding(name, mask, inputs):
    """A boolean mask (B, T) of inputs (B, T, D), or `None`.

    Raises:
        ValueError: as `checked_mask`.
    """
    if mask is None:
        return None
    mask, expected = _as_tensor(name, mask), tuple(inputs.shape[:2])
    if len(mask.shape) != 2 or not _fits(mask.shape, expected, ones=False):
        raise ValueError(
            f"`{name}` must have shape (B, T), here {expected}. Received: shape={tuple(mask.shape)}"
        )
    _check_zeros_and_ones(name, mask)
    return _cast(mask, "bool")


def _as_tensor(name, values):
    if hasattr(values, "shape") and hasattr(values, "dtype"):
        return values
    try:
        return ops.convert_to_tensor(values)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"`{name}` must be a tensor, or lists that are all of one length. Received: {values!r}"
        ) from error


def _checked_shape(name, values, sizes):
    batch, heads, queries, keys = sizes
    shape = tuple(values.shape)
    if len(shape) not in (3, 4):
        # Two sizes could be (B, S) or (T, S), and a wrong guess would be silent.
        raise ValueError(
            f"`{name}` must have shape (B, T, S) or (B, N, T, S), here {_text(sizes)}; padding "
            f"(B, S) is given as `mask[:, None, :]`. Received: shape={shape}"
        )
    if not _fits(shape, sizes if len(shape) == 4 else (batch, queries, keys)):
        raise ValueError(
            f"`{name}` must have shape (B, T, S) or (B, N, T, S), here {_text(sizes)}, or sizes "
            f"of 1 in it. Received: shape={shape}"
        )
    return values


def _text(sizes):
    batch, heads, queries, keys = sizes
    return f"{(batch, queries, keys)} or {(batch, heads, queries, keys)}"


def _fits(shape, expected, ones=True):
    """Whether all sizes that are known are those expected, or 1."""
    pairs = zip(shape, expected, strict=True)
    return all(None in pair or pair[0] == pair[1] or (ones and pair[0] == 1) for pair in pairs)


def _check_zeros_and_ones(name, mask):
    dtype = _dtype(mask)
    if dtype == "bool":
        return
    rule = (
        f"`{name}` must be boolean, or 0 and 1, where 1 is to attend; what is added to the "
        "scores, such as 0 and -1e9, is given as `attention_bias`"
    )
    values = _known(mask)
    if values is None:
        if keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"{rule}. In a graph, where its values are not known, it must not be floating. "
                f"Received: dtype={dtype}"
            )
    elif not ((values == 0) | (values == 1)).all():
        wrong = values[(values != 0) & (values != 1)]
        raise ValueError(f"{rule}. Received: dtype={dtype}, with {wrong[0]} among its values")


def _known(values):
    """The values as an array, or `None` in a graph, which does not know them yet."""
    if isinstance(values, keras.KerasTensor):
        return None
    try:
        return ops.convert_to_numpy(values)
    except (NotImplementedError, TypeError):  # TensorFlow's and JAX's word for it
        return None


def _dtype(values):
    return keras.backend.standardize_dtype(values.dtype)


def _cast(values, dtype):
    if isinstance(values, keras.KerasTensor):
        return values
    return ops.cast(values, dtype)
