"""Cross-entropy over the real target tokens, with label smoothing."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import check_rate
from keras_transformer.training.distribution import sum_over_replicas
from keras_transformer.typing import Tensor

REDUCTIONS = ("mean", "sum")


def label_logits(labels, logits, real=None):
    """The logit of each label, and all logits.

    The loss and every metric call this one function, so that XLA computes it once per step.

    Args:
        labels: `(B, T)` integer ids; one outside `[0, V)` has the logit 0.
        logits: `(B, T, V)`, any float dtype.
        real: `(B, T)` boolean; the logits of slots that are `False` become 0.

    Returns:
        Float32 tensors `(B, T)` and `(B, T, V)`.
    """
    logits = ops.cast(logits, "float32")
    if real is not None:
        logits = ops.where(ops.expand_dims(real, -1), logits, ops.zeros_like(logits))
    # A comparison that XLA fuses into the sum: no one-hot array, and faster than a gather, whose
    # gradient is a scatter.
    is_label = ops.expand_dims(labels, -1) == ops.arange(ops.shape(logits)[-1], dtype="int32")
    return ops.sum(ops.where(is_label, logits, ops.zeros_like(logits)), axis=-1), logits


def ids_of(labels, logits):
    """Labels as int32, and where they are whole numbers in `[0, V)`."""
    ids = ops.cast(labels, "int32")
    valid = ops.logical_and(ids >= 0, ids < ops.shape(logits)[-1])
    if keras.backend.standardize_dtype(labels.dtype) != "int32":  # parts and higher bits count
        valid = ops.logical_and(valid, ops.equal(ops.cast(ids, labels.dtype), labels))
    return ids, valid


def token_log_likelihood(labels, logits, real=None):
    """Log-probability of each label, and the mean log-probability of the whole vocabulary.

    Args:
        labels: `(B, T)` ids. One that is no whole number in `[0, V)` gives NaN, so that it cannot
            train a wrong row in silence.
        logits: `(B, T, V)`, any float dtype; computed in float32.
        real: `(B, T)` boolean; slots that are `False` give finite values whatever their logits.

    Returns:
        Two float32 tensors `(B, T)`: `log p(label)` and `mean_v log p(v)`.
    """
    ids, valid = ids_of(labels, logits)
    chosen, logits = label_logits(ids, logits, real)
    normalizer = ops.logsumexp(logits, axis=-1)
    log_likelihood = ops.where(valid, chosen - normalizer, float("nan"))
    return log_likelihood, ops.mean(logits, axis=-1) - normalizer


def token_losses(labels, logits, *, label_smoothing, pad_id):
    """Smoothed cross-entropy of each slot, and which slots are real.

    Returns:
        `(B, T)` float32 losses, 0 at pads, and the `(B, T)` boolean mask of real tokens.
    """
    labels = check_labels(labels, logits)
    real = ops.not_equal(labels, pad_id)
    log_likelihood, mean_log_probability = token_log_likelihood(labels, logits, real)
    smoothed = log_likelihood
    if label_smoothing:
        smoothed = (1.0 - label_smoothing) * smoothed + label_smoothing * mean_log_probability
    return ops.where(real, -smoothed, ops.zeros_like(smoothed)), real


def token_weights(real, sample_weight):
    """Float32 weights `(B, T)` of the slots: 0 at pads, else 1 or the `(B,)`/`(B, T)` weight.

    Raises:
        ValueError: if `sample_weight` has another shape, or is ragged.
    """
    weights = ops.cast(real, "float32")
    if sample_weight is None:
        return weights
    shape = None if is_ragged(sample_weight) else static_shape(sample_weight)
    if shape is UNKNOWN:
        # A function that has seen (B,) and (B, T) is traced for any rank.
        sample_weight = ops.reshape(sample_weight, (ops.shape(real)[0], -1))
    else:
        rows, *_ = expected = static_shape(real)
        fits = shape is not None and (
            shape == () or _fit(shape, (rows,)) or _fit(shape, expected, ones=True)
        )
        if not fits:
            raise ValueError(
                "`sample_weight` must have the shape (B,), a weight for each row, or (B, T), one "
                f"for each label. Received: {_described(sample_weight)} for labels of shape "
                f"{_written(expected)}"
            )
        if 0 < len(shape) < len(expected):
            sample_weight = ops.expand_dims(sample_weight, tuple(range(1, len(expected))))
    return weights * ops.cast(sample_weight, "float32")


def check_labels(labels, logits):
    """Gives labels as a tensor whose shape is the logits' without the last axis.

    Raises:
        ValueError: if they are text, ragged, of another shape (such as `(B, T, 1)` or one-hot).
    """
    labels = labels if hasattr(labels, "dtype") else np.asarray(labels)
    dtype = labels.dtype  # looked at first, since JAX makes no tensor of text
    if "string" in str(dtype) or getattr(dtype, "kind", "") in ("U", "S", "O"):
        raise ValueError(
            "labels must be token ids, since XLA cannot compile string operations: tokenize in "
            "tf.data, for example `dataset.map(tokenize)` before `fit`. Received: dtype=string"
        )
    shape = None if is_ragged(labels) else static_shape(labels)
    expected = static_shape(logits)[:-1]
    if len(expected) == 1:  # a class for each row: no label of it is a pad
        raise ValueError(
            "logits must be (B, T, V), of tokens; for one class a row there is "
            "`keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. Received: logits of "
            f"shape {_written(static_shape(logits))}"
        )
    if shape is None or shape is UNKNOWN or not _fit(shape, expected):
        raise ValueError(
            "labels must be token ids of shape (B, T) for logits (B, T, V), not ragged and not "
            f"one-hot. Received: {_described(labels)} for logits of shape "
            f"{_written(static_shape(logits))}"
        )
    return ops.convert_to_tensor(labels)


UNKNOWN = ("of unknown rank",)


def static_shape(array):
    """The shape as a tuple, `None` where a size is not known yet; `UNKNOWN` where the rank is."""
    shape = np.shape(array) if not hasattr(array, "shape") else array.shape
    return UNKNOWN if getattr(shape, "rank", 0) is None else tuple(shape)


def is_ragged(array):
    """Whether an array is one of TensorFlow's ragged tensors."""
    return hasattr(array, "row_splits") or hasattr(array, "nested_row_splits")


def _fit(shape, expected, ones=False):
    """Whether a static shape can be the expected one; with `ones`, or be broadcast to it."""
    return len(shape) == len(expected) and all(
        None in (size, wanted) or size == wanted or (ones and size == 1)
        for size, wanted in zip(shape, expected, strict=True)
    )


def _described(array):
    if is_ragged(array):
        return "a ragged tensor (`to_tensor` fills it up)"
    return f"the shape {_written(static_shape(array))}"


def _written(shape):
    return "of unknown rank" if shape is UNKNOWN else str(tuple(shape))


@keras.saving.register_keras_serializable(package="keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Mean cross-entropy of the real target tokens, with label smoothing (section 5.4).

    The smoothed target gives `1 - eps + eps / V` to the label and `eps / V` to every other id, as
    Keras and PyTorch do (Tensor2Tensor spreads eps over the V - 1 others, and subtracts a
    constant; its values differ). The sum is divided by the number of real tokens, never by slots,
    so padding changes neither the loss nor its gradients. A batch of pads alone gives 0 with zero
    gradients. Logits may have any float dtype; the computation is float32.

    Under a `tf.distribute` strategy the tokens of all replicas are counted, so that the gradients
    of all together are those of the whole batch on one device.

    A model of this package reports as `loss` the mean over all tokens of an epoch. Any other
    `keras.Model` reports Keras' mean of batch means, each weighed by its rows: compile
    `TokenMeanLoss` into its `metrics` there, whose mean takes that place.

    Args:
        label_smoothing: eps in `[0, 1)`.
        pad_id: The label that marks a slot without a token.
        reduction: `"mean"` over the weights of real tokens; or `"sum"`, for sample weights that
            hold the divisor already (see `weighted_for_accumulation`).
        name: Name of the loss.

    Raises:
        ValueError: if `label_smoothing` is outside `[0, 1)`, `reduction` is unknown, or, in a
            call, labels or weights are text, ragged or of a wrong shape.

    Example:
        >>> loss = kt.SmoothedCrossEntropy(label_smoothing=0.1, pad_id=0)
        >>> labels, logits = np.array([[3, 1, 0]]), np.zeros((1, 3, 5))
        >>> f"{float(loss(labels, logits)):.3f}"  # log(5), whatever the pad's logits are
        '1.609'
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        pad_id: int = 0,
        reduction: str = "mean",
        name: str = "smoothed_cross_entropy",
    ):
        if reduction not in REDUCTIONS:
            raise ValueError(f"`reduction` must be one of {REDUCTIONS}. Received: {reduction!r}")
        super().__init__(name=name, reduction="sum", dtype="float32")
        check_rate(label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing
        self.pad_id = pad_id
        self.reduction = reduction

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Scalar loss of ids `(B, T)` under logits `(B, T, V)`; weights are `(B,)` or `(B, T)`."""
        losses, real = self._losses(y_true, y_pred)
        weights = token_weights(real, sample_weight)
        loss = ops.sum(weights * losses)
        if self.reduction == "sum":
            return loss
        total = sum_over_replicas(ops.sum(weights))
        return loss / ops.where(total > 0, total, ops.ones_like(total))

    def values_and_weights(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gives what a mean over the tokens of several batches is made from.

        Args:
            y_true, y_pred, sample_weight: As for a call. Under `reduction="sum"` the weights hold
                a divisor, and are not counted.

        Returns:
            Float32 losses and weights of the slots, both `(B, T)` and 0 at pads.
        """
        losses, real = self._losses(y_true, y_pred)
        return losses, token_weights(real, None if self.reduction == "sum" else sample_weight)

    def _losses(self, labels, logits):
        """`(B, T)` losses, 0 at pads, and which slots are real."""
        return token_losses(
            labels, logits, label_smoothing=self.label_smoothing, pad_id=self.pad_id
        )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """`(B, T)` losses, 0 at pads."""
        return self._losses(y_true, y_pred)[0]

    def get_config(self) -> dict[str, Any]:
        return {
            "label_smoothing": self.label_smoothing,
            "pad_id": self.pad_id,
            "reduction": self.reduction,
            "name": self.name,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class RDropCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy` of a batch given twice, plus the distance between its two passes.

    R-Drop (Liang et al. 2021, arXiv 2106.14448, eq. 4): the rows of the first half of a batch
    come again in the second half, where dropout gives predictions P2 that differ from P1. The loss
    is half the paper's, so that it compares with the plain one: the mean cross-entropy of both
    halves plus `alpha / 4 * (KL(P1 || P2) + KL(P2 || P1))`, a mean over real tokens. A batch whose
    halves have other labels, such as one of `evaluate`, is given once: its loss is the plain one.

    Args:
        alpha: Weight of the divergence; the paper has 5 for translation.
        label_smoothing: eps in `[0, 1)`.
        pad_id: The label that marks a slot without a token.
        reduction: As for `SmoothedCrossEntropy`.
        name: Name of the loss.

    Raises:
        ValueError: if `alpha` is negative, and where `SmoothedCrossEntropy` raises it.

    Example:
        >>> from keras_transformer.training import RDropCrossEntropy
        >>> loss = RDropCrossEntropy(alpha=5, label_smoothing=0.0)
        >>> labels, logits = np.array([[3], [3]]), np.zeros((2, 1, 5))
        >>> f"{float(loss(labels, logits)):.3f}"  # both passes predict the same: log(5)
        '1.609'
        >>> logits[1, 0, 3] = 2
        >>> f"{float(loss(labels, logits)):.3f}"
        '2.143'
    """

    def __init__(
        self,
        alpha: float,
        label_smoothing: float = 0.1,
        pad_id: int = 0,
        reduction: str = "mean",
        name: str = "r_drop_cross_entropy",
    ):
        super().__init__(label_smoothing, pad_id, reduction, name)
        if not alpha >= 0:
            raise ValueError(f"`alpha` must not be negative. Received: alpha={alpha}")
        self.alpha = alpha

    def _losses(self, labels, logits):
        """`(B, T)` losses, 0 at pads, and which slots are real."""
        losses, real = super()._losses(labels, logits)
        labels = check_labels(labels, logits)
        rows = ops.shape(labels)[0]
        even, is_even = rows // 2 * 2, rows % 2 == 0
        if is_even is not True:  # odd, or not known yet
            labels, logits = labels[:even], logits[:even]
        # No `split`: TensorFlow has no GPU kernel for one of int32.
        half = even // 2
        is_twice = ops.logical_and(ops.all(ops.equal(labels[:half], labels[half:])), is_even)
        divergence = _symmetric_divergence(logits, real[:even])
        divergence = ops.concatenate([divergence, divergence, ops.zeros_like(losses[even:])])
        return losses + ops.where(is_twice, self.alpha / 4 * divergence, 0.0), real

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha}


def _symmetric_divergence(logits, real):
    """KL(P1 || P2) + KL(P2 || P1) of the two halves of a batch, `(B, T)` float32, 0 at pads."""
    logits = ops.cast(logits, "float32")
    logits = ops.where(ops.expand_dims(real, -1), logits, ops.zeros_like(logits))
    one, two = ops.split(ops.log_softmax(logits, axis=-1), 2)
    return ops.sum((ops.exp(one) - ops.exp(two)) * (one - two), axis=-1)
