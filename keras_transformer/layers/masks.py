"""Which query may see which key: every mask is made, checked and combined here, once.

Masks are boolean, True = attend. The additive mask M of the paper (`attention_bias`) and the
biases of relative positions are added to the scores in float32, where both meet the masks.
"""

import dataclasses

import keras
from keras import ops

# A finite fill: `exp` of it is exactly 0 next to any key that may be seen, and never NaN.
MASK_FILL = -1e9


def padding_mask(ids, pad_id):
    """(B, S) ids -> (B, S) boolean, True at real tokens."""
    return ops.not_equal(ids, pad_id)


def position_mask(query_positions, key_positions, *, causal, window):
    """(T, S) boolean from (T,) and (S,) positions, or `None` where every query sees every key.

    Args:
        query_positions: (T,) integers.
        key_positions: (S,) integers.
        causal: Whether a query sees only keys up to itself.
        window: Only keys nearer than this are seen; all when `None`.
    """
    offsets_TS = offsets(query_positions, key_positions)
    causal_TS = offsets_TS <= 0 if causal else None
    return merge(causal_TS, None if window is None else ops.abs(offsets_TS) < window)


def offsets(query_positions, key_positions):
    """(T, S) integers: how far each key stands behind each query; negative before it."""
    return ops.expand_dims(key_positions, 0) - ops.expand_dims(query_positions, 1)


def merge(*masks):
    """The logical and of the masks that are not `None`, or `None`; shapes broadcast."""
    merged = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            merged = mask if merged is None else ops.logical_and(merged, mask)
    return merged


def additive(mask):
    """A boolean mask, True = attend, as a float32 bias of scores: 0 or MASK_FILL."""
    return ops.where(mask, ops.cast(0.0, "float32"), ops.cast(MASK_FILL, "float32"))


def with_heads(mask):
    """(B, T, S) as (B, 1, T, S); (B, N, T, S) and `None` as they are."""
    return mask if mask is None or len(mask.shape) == 4 else ops.expand_dims(mask, 1)


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """What the queries of one attention may see, for all of them or for some.

    Attributes:
        mask: Boolean, (B, T, S) or (B, N, T, S), or broadcastable to it; `None` for no mask.
        bias: Additive mask of the same shapes, or `None`; -1e9 and below forbids.
        position_bias: (N, 2T - 1) bias of a key that stands -(T - 1) to T - 1 behind the query,
            or `None`.
        causal: Whether a query sees only keys up to itself.
        window: Only keys nearer than this are seen; all when `None`.
    """

    mask: object = None
    bias: object = None
    position_bias: object = None
    causal: bool = False
    window: int | None = None

    @classmethod
    def checked(cls, sizes, mask, bias, position_bias=None, causal=False, window=None):
        """What the arguments of a call say, for scores of these sizes.

        Args:
            sizes: B, N, T and S, `None` where unknown.
            mask, bias, position_bias: The call's arguments, as a user gives them.
            causal, window: See the class.

        Raises:
            ValueError: if one does not fit the sizes, or holds what it must not.
        """
        position_bias = _checked_position_bias(position_bias, sizes)
        mask = checked_mask("attention_mask", mask, sizes)
        bias = checked_bias("attention_bias", bias, sizes)
        return cls(mask, bias, position_bias, causal, window)

    @property
    def same_for_all_queries(self):
        """Whether the masks that were given only say which keys are real."""
        if self.bias is not None or self.mask is None:
            return self.bias is None
        return self.mask.shape[-2] == 1 and self.mask.shape[1:-2] in ((), (1,))

    def of_length(self, length):
        """The same, whose masks have a row for each of T queries, or one for all.

        A mask with another number of rows, where sizes are known only at run time, is an error
        there: a single row would be taken in silence.
        """

        def rows(values, combine, neutral):
            known = values is not None and isinstance(values.shape[-2], int)
            if values is None or (known and (values.shape[-2] == 1 or isinstance(length, int))):
                return values
            return combine(values, ops.full((length, 1), neutral, values.dtype))

        return dataclasses.replace(
            self,
            mask=rows(self.mask, ops.logical_and, True),
            bias=rows(self.bias, ops.add, 0),
        )

    def mask_and_bias(self, query_positions, key_positions, rows=None):
        """The boolean mask and the float bias, each (B, N, T, S), broadcastable, or `None`.

        Args:
            query_positions: (T,) integers.
            key_positions: (S,) integers.
            rows: (T,) indices of these queries in the masks; `None` when the masks are for them.
        """
        visible = position_mask(
            query_positions, key_positions, causal=self.causal, window=self.window
        )
        if visible is not None:
            visible = ops.expand_dims(visible, (0, 1))
        bias = _rows(with_heads(self.bias), rows)
        if self.position_bias is not None and self.position_bias.shape[1] != 0:
            shift = (ops.shape(self.position_bias)[1] - 1) // 2  # T - 1
            index = ops.clip(offsets(query_positions, key_positions) + shift, 0, 2 * shift)
            bias_1NTS = ops.expand_dims(ops.take(self.position_bias, index, axis=1), 0)
            bias = bias_1NTS if bias is None else ops.cast(bias, bias_1NTS.dtype) + bias_1NTS
        return merge(_rows(with_heads(self.mask), rows), visible), bias


def _rows(mask, rows):
    """The rows of a mask that has one for each query."""
    if mask is None or rows is None or mask.shape[-2] == 1:
        return mask
    return ops.take(mask, rows, axis=-2)


# --- Checks of what users give -------------------------------------------------------------


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


def _checked_position_bias(bias, sizes):
    """A bias by distance, (N, 2T - 1), for T queries and keys, or `None`.

    Raises:
        ValueError: if its shape is another.
    """
    if bias is None:
        return None
    bias, (_, heads, length, _) = _as_tensor("position_bias", bias), sizes
    expected = (heads, None if length is None else max(2 * length - 1, 0))
    if len(bias.shape) != 2 or not fits(bias.shape, expected, ones=False):
        raise ValueError(
            f"`position_bias` must have shape (N, 2T - 1), here {expected}. "
            f"Received: shape={tuple(bias.shape)}"
        )
    return bias


def merged_padding(inputs, **masks):
    """The masks (B, T) of inputs (B, T, D) by name, merged: True where all are; or `None`.

    Raises:
        ValueError: see `checked_mask`.
    """
    given = [name for name, mask in masks.items() if mask is not None]
    checked = [checked_padding(name, masks[name], inputs) for name in given]
    return checked[0] if len(checked) == 1 else merge(*checked)


def with_padding(attention_mask, sizes, states, **paddings):
    """The attention mask of a call, where keys that are padding are not seen, or `None`.

    Args:
        attention_mask: The call's argument.
        sizes: B, N, T and S of the scores, `None` where unknown.
        states: (B, S, D), the keys.
        **paddings: Masks (B, S) of these by name, each a tensor or `None`.

    Raises:
        ValueError: if one has another shape, as far as sizes are known, or holds other numbers.
    """
    padding = merged_padding(states, **paddings)
    if padding is None:
        return attention_mask
    given = with_heads(checked_mask("attention_mask", attention_mask, sizes))
    return merge(given, ops.expand_dims(padding, (1, 2)))


def checked_padding(name, mask, inputs):
    """A boolean mask (B, T) of inputs (B, T, D), or `None`.

    Raises:
        ValueError: see `checked_mask`.
    """
    if mask is None:
        return None
    mask, expected = _as_tensor(name, mask), tuple(inputs.shape[:2])
    if len(mask.shape) != 2 or not fits(mask.shape, expected, ones=False):
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
    if not fits(shape, sizes if len(shape) == 4 else (batch, queries, keys)):
        raise ValueError(
            f"`{name}` must have shape (B, T, S) or (B, N, T, S), here {_text(sizes)}, or sizes "
            f"of 1 in it. Received: shape={shape}"
        )
    return values


def _text(sizes):
    batch, heads, queries, keys = sizes
    return f"{(batch, queries, keys)} or {(batch, heads, queries, keys)}"


def fits(shape, expected, ones=True):
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
    values = known_values(mask)
    if values is None:
        if keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"{rule}. In a graph, where its values are not known, it must not be floating. "
                f"Received: dtype={dtype}"
            )
    elif not ((values == 0) | (values == 1)).all():
        wrong = values[(values != 0) & (values != 1)]
        raise ValueError(f"{rule}. Received: dtype={dtype}, with {wrong[0]} among its values")


def known_values(values):
    """The values as an array, or `None` in a graph, which does not know them yet."""
    is_array = ops.is_tensor(values) or hasattr(values, "__array__")
    is_symbolic = getattr(values, "graph", None) is not None  # of TensorFlow
    if isinstance(values, keras.KerasTensor) or is_symbolic or not is_array:  # such as a spec
        return None
    try:
        return ops.convert_to_numpy(values)
    except (NotImplementedError, TypeError):  # TensorFlow's and JAX's word for it
        return None


def dtype_name(values):
    """The dtype of any array, tensor or spec, text too, as a word."""
    return str(getattr(values.dtype, "name", values.dtype))


def _dtype(values):
    return keras.backend.standardize_dtype(values.dtype)


def _cast(values, dtype):
    if isinstance(values, keras.KerasTensor):
        return values
    return ops.cast(values, dtype)
