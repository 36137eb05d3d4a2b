"""What `fit` and `evaluate` report as `loss`: the mean over all tokens, not over batches."""

from typing import Any

import keras
from keras import ops

from keras_transformer.typing import Tensor

_NAME = "loss_over_tokens"


class LossOverTokens:
    """Base of a `keras.Model` whose `loss` does not depend on how tokens fall into batches.

    Keras reports the mean of the batches' losses, each weighed by its rows. Where the compiled
    loss can tell its `values_and_weights`, as `SmoothedCrossEntropy` can, the `loss` is the
    weighted mean of all values of an epoch, plus what `add_loss` and regularizers add. What is
    minimised stays the same.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # Not in `compile`: Keras does not call one that a class overrides when it loads a model.
        self._loss_over_tokens = keras.metrics.Mean(_NAME, dtype="float32")

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if (counted := self.counted_loss) is not None:
            # The same ops as in the loss itself: compilers make them once.
            parts = (_only(part) for part in (y, y_pred, sample_weight))
            values, weights = counted.values_and_weights(*parts)
            added = sum((ops.sum(ops.cast(each, "float32")) for each in self.losses), 0.0)
            self._loss_over_tokens.update_state(self._loss_factor() * values + added, weights)
        return loss

    def get_metrics_result(self) -> dict[str, Tensor]:
        logs = super().get_metrics_result()
        mean = logs.pop(_NAME)
        return logs if self.counted_loss is None else {**logs, "loss": mean}

    @property
    def counted_loss(self) -> keras.losses.Loss | None:
        """The compiled loss, if it is the only one and tells its `values_and_weights`."""
        losses = keras.tree.flatten(getattr(self, "loss", None))
        is_counted = len(losses) == 1 and hasattr(losses[0], "values_and_weights")
        return losses[0] if is_counted else None

    def _loss_factor(self):
        """The only one of `loss_weights`; Keras has no public name for them."""
        options = getattr(getattr(self, "_compile_config", None), "config", {})
        factor = _only(options.get("loss_weights"))
        return 1.0 if factor is None else factor


def _only(part):
    """The only item of a structure, or `None`."""
    return (keras.tree.flatten(part) or [None])[0]
