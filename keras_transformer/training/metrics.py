"""Metrics that sum over tokens, so that no batch size or order of batches changes them."""

from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import check_rate
from keras_transformer.training.loss import (
    check_labels,
    ids_of,
    label_logits,
    token_log_likelihood,
    token_losses,
    token_weights,
)
from keras_transformer.typing import Tensor


class _TokenMetric(keras.metrics.Metric):
    """A weighted sum over real tokens, and the sum of their weights."""

    # What Keras' `EarlyStopping`, `ModelCheckpoint` and `ReduceLROnPlateau` read in mode "auto".
    _direction = "down"

    def __init__(self, pad_id: int, name: str):
        super().__init__(name=name, dtype="float32")
        self.pad_id = pad_id
        self.total = self.add_weight(name="total", initializer="zeros", dtype=self.dtype)
        self.count = self.add_weight(name="count", initializer="zeros", dtype=self.dtype)

    def values(self, labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """`(B, T)` float32 values and the `(B, T)` boolean mask of the real tokens."""
        raise NotImplementedError

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds ids `(B, T)` scored by logits `(B, T, V)`."""
        values, real = self.values(check_labels(y_true, y_pred), y_pred)
        weights = token_weights(real, sample_weight)
        # A pad's value may be anything, so it is dropped and not multiplied by zero.
        self.total.assign_add(ops.sum(ops.where(real, values, 0.0) * weights))
        self.count.assign_add(ops.sum(weights))

    def mean(self) -> Tensor:
        return ops.divide_no_nan(self.total, self.count)

    def result(self) -> Tensor:
        return self.mean()

    def get_config(self) -> dict[str, Any]:
        return {"pad_id": self.pad_id, "name": self.name}


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(_TokenMetric):
    """Share of real target tokens whose most likely id is the label (also where it shares that).

    A label that is no whole number in `[0, V)` is never right.

    Args:
        pad_id: The label that marks a slot without a token.
        name: Name in the logs.

    Example:
        >>> metric = kt.TokenAccuracy(pad_id=0)
        >>> logits = keras.ops.one_hot(np.array([[3, 2, 4]]), 5)
        >>> metric.update_state(np.array([[3, 1, 0]]), logits)  # right, wrong, a pad
        >>> float(metric.result())
        0.5
    """

    _direction = "up"

    def __init__(self, pad_id: int = 0, name: str = "token_accuracy"):
        super().__init__(pad_id, name)

    def values(self, labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        real = ops.not_equal(labels, self.pad_id)
        ids, is_id = ids_of(labels, logits)
        # Not by argmax, which costs XLA a pass of its own: the label's logit against the largest
        # comes out of the arrays that the loss has already.
        chosen, logits = label_logits(ids, logits, real)
        right = ops.logical_and(is_id, chosen >= ops.max(logits, axis=-1))
        return ops.cast(right, "float32"), real


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(_TokenMetric):
    """`exp` of the mean negative log-likelihood of a real target token, without smoothing.

    Args:
        pad_id: The label that marks a slot without a token.
        name: Name in the logs.

    Example:
        >>> metric = kt.Perplexity(pad_id=0)
        >>> metric.update_state(np.array([[3, 1, 0]]), np.zeros((1, 3, 5)))
        >>> round(float(metric.result()), 4)  # all 5 ids are as likely
        5.0
    """

    def __init__(self, pad_id: int = 0, name: str = "perplexity"):
        super().__init__(pad_id, name)

    def values(self, labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        real = ops.not_equal(labels, self.pad_id)
        log_likelihood, _ = token_log_likelihood(labels, logits, real)
        return -log_likelihood, real

    def result(self) -> Tensor:
        return ops.exp(self.mean())


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenMeanLoss(_TokenMetric):
    """`SmoothedCrossEntropy` averaged over all tokens seen so far.

    For a `keras.Model` that is not of this package, where Keras reports as `loss` a mean of batch
    means, which weighs each batch by its rows and so depends on the batch size. This metric has
    the name `loss` too, and Keras lets a metric of the same name replace its own mean in the
    logs, in `History` and in `evaluate(..., return_dict=True)`. The gradients are untouched. The
    models of this package need no such metric.

    Args:
        label_smoothing: As given to `SmoothedCrossEntropy`.
        pad_id: The label that marks a slot without a token.
        name: Name in the logs.

    Raises:
        ValueError: if `label_smoothing` is outside `[0, 1)`.

    Example:
        >>> from keras_transformer.training import TokenMeanLoss
        >>> metric = TokenMeanLoss(label_smoothing=0.0)
        >>> metric.update_state(np.array([[3, 3, 3]]), np.zeros((1, 3, 5)))
        >>> metric.update_state(np.array([[3, 0, 0]]), np.zeros((1, 3, 50)))
        >>> round(float(metric.result()), 3), round(float(3 * np.log(5) + np.log(50)) / 4, 3)
        (2.185, 2.185)
    """

    def __init__(self, label_smoothing: float = 0.1, pad_id: int = 0, name: str = "loss"):
        super().__init__(pad_id, name)
        check_rate(label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def values(self, labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        return token_losses(
            labels, logits, label_smoothing=self.label_smoothing, pad_id=self.pad_id
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
