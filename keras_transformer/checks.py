"""Checks of any sequence-to-sequence model: do its masks leak, and where?

Both change inputs and compare outputs. So they need to know nothing of how the model works, and
they find a leak whatever its cause.
"""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import numpy as np

from keras_transformer.typing import Tensor

TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Leak:
    """One influence that should not be.

    Attributes:
        row: Row of the batch.
        changed: What was changed: a target position, or a number of pads added.
        position: The target position whose logits moved.
        difference: The largest absolute change of a logit there.
    """

    row: int
    changed: int
    position: int
    difference: float


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Attributes:
        name: Of the check.
        leaks: The `Leak`s, worst first; empty when the model passes.
        compared: How many (change, position) pairs were compared.
    """

    name: str
    leaks: tuple[Leak, ...]
    compared: int

    @property
    def passed(self) -> bool:
        """Whether nothing leaked."""
        return not self.leaks

    def __str__(self) -> str:
        if self.passed:
            return f"{self.name}: passed, {self.compared} comparisons"
        lines = [f"{self.name}: {len(self.leaks)} leaks in {self.compared} comparisons"]
        for leak in self.leaks[:5]:
            lines.append(
                f"  row {leak.row}: changing {leak.changed} moves the logits at position "
                f"{leak.position} by {leak.difference:.3g}"
            )
        return "\n".join(lines)


def check_causality(
    model: keras.Model | Callable[[Tensor, Tensor], Tensor],
    source_ids: Tensor,
    target_ids: Tensor,
    *,
    vocab_size: int | None = None,
    tolerance: float = TOLERANCE,
) -> CheckReport:
    """Whether a later target token moves an earlier logit.

    Every target position is changed in turn, to another id, and all logits before it are
    compared.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> print(kt.check_causality(model, [[5, 6, 3]], [[2, 7, 8, 9]]))
        causality: passed, 6 comparisons
        >>> def leaky(source_ids, target_ids):  # each position sees the next
        ...     return keras.ops.one_hot(np.roll(target_ids, -1, axis=1), 11)
        >>> kt.check_causality(leaky, [[5, 6, 3]], [[2, 7, 8, 9]]).passed
        False

    Args:
        model: A Keras model that takes `{"source_ids": (B, S), "target_ids": (B, T)}`, or any
            function `(source_ids, target_ids) -> (B, T, V)` logits.
        source_ids: (B, S) ids.
        target_ids: (B, T) ids.
        vocab_size: Number of ids V; the last size of the logits when `None`.
        tolerance: Largest difference that counts as none, relative to the largest logit where
            that is above 1.

    Returns:
        A `CheckReport`; `changed` of its leaks is the target position that was changed.
    """
    logits = _logits_function(model)
    source_ids, target_ids = _ids("source_ids", source_ids), _ids("target_ids", target_ids)
    reference = logits(source_ids, target_ids)
    tolerance *= max(1.0, float(np.abs(reference).max()))
    vocab_size = vocab_size or reference.shape[-1]
    leaks, length = [], target_ids.shape[1]
    for changed in range(1, length):
        other = target_ids.copy()
        other[:, changed] = (other[:, changed] + 1) % vocab_size
        moved = np.abs(logits(source_ids, other) - reference).max(axis=-1)[:, :changed]
        leaks += _leaks(moved, changed, tolerance)
    return _report("causality", leaks, len(target_ids) * length * (length - 1) // 2)


def check_padding_invariance(
    model: keras.Model | Callable[[Tensor, Tensor], Tensor],
    source_ids: Tensor,
    target_ids: Tensor,
    *,
    pad_id: int,
    extra: Sequence[int] = (1, 7),
    tolerance: float = TOLERANCE,
) -> CheckReport:
    """Whether pads behind the source, or behind the target, move the logits of real tokens.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> print(kt.check_padding_invariance(model, [[5, 6, 3]], [[2, 7, 8]], pad_id=0))
        padding invariance: passed, 12 comparisons

    Args:
        model: As for `check_causality`.
        source_ids: (B, S) ids, pads at the end of each row.
        target_ids: (B, T) ids, likewise.
        pad_id: The id of padding.
        extra: Numbers of pads to add, to each side in turn.
        tolerance: As for `check_causality`.

    Returns:
        A `CheckReport`; `changed` of its leaks is the number of pads added, negative for pads
        behind the target.
    """
    logits = _logits_function(model)
    source_ids, target_ids = _ids("source_ids", source_ids), _ids("target_ids", target_ids)
    reference = logits(source_ids, target_ids)
    tolerance *= max(1.0, float(np.abs(reference).max()))
    length, leaks = target_ids.shape[1], []
    is_real = target_ids != pad_id
    for count in extra:
        for sides in ((count, 0), (0, count)):
            source, target = (
                np.pad(ids, ((0, 0), (0, pads)), constant_values=pad_id)
                for ids, pads in zip((source_ids, target_ids), sides, strict=True)
            )
            moved = np.abs(logits(source, target)[:, :length] - reference).max(axis=-1)
            leaks += _leaks(np.where(is_real, moved, 0.0), count if sides[0] else -count, tolerance)
    return _report("padding invariance", leaks, 2 * len(extra) * int(is_real.sum()))


def _logits_function(model):
    def logits(source_ids, target_ids):
        if isinstance(model, keras.Model):
            outputs = model({"source_ids": source_ids, "target_ids": target_ids}, training=False)
        else:
            outputs = model(source_ids, target_ids)
        outputs = keras.ops.convert_to_numpy(outputs).astype("float32")
        if outputs.ndim != 3 or outputs.shape[:2] != target_ids.shape:
            raise ValueError(
                "`model` must give logits of shape (B, T, V) with B and T of `target_ids`. "
                f"Received: {outputs.shape} for target_ids {target_ids.shape}"
            )
        return outputs

    return logits


def _ids(name, ids):
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be (B, length) integers. Received: shape={ids.shape}, dtype={ids.dtype}"
        )
    return ids.astype("int32")


def _leaks(moved, changed, tolerance):
    """The leaks in (B, positions) differences; a NaN is a leak."""
    return [
        Leak(int(row), changed, int(position), float(moved[row, position]))
        for row, position in np.argwhere(~(moved <= tolerance))
    ]


def _report(name, leaks, compared):
    leaks = sorted(leaks, key=lambda leak: -leak.difference)
    return CheckReport(name, tuple(leaks), compared)
