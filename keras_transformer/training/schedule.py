"""Learning rates: a linear warm-up, then decay with the root of the step."""

import keras
from keras import ops


class _WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear growth to a peak at step `warmup_steps`, then decay with the root of the step."""

    def _set(self, **positive):
        for name, value in positive.items():
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
            setattr(self, name, value)

    def _rate(self, peak, step):
        step = ops.cast(step, "float32")
        warmup = float(self.warmup_steps)
        # max() keeps the unused branch finite at step 0.
        decay = ops.sqrt(warmup / ops.maximum(step, 1.0))
        return peak * ops.minimum(decay, step / warmup)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PaperSchedule(_WarmupSchedule):
    """Vaswani et al. 2017, equation 3.

    `scale * model_dim**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)`, computed in float32.
    Step 0 gives 0, step `warmup_steps` the peak. The step may have any integer or float dtype.

    It is for an optimizer's `learning_rate`, which then belongs to it at every step: callbacks
    that set the rate each epoch (`LearningRateScheduler`, `ReduceLROnPlateau`) are refused by
    Keras beside it, and it is none of their functions: those give a float of an epoch, such as
    `lambda epoch: float(schedule((epoch + 1) * steps_per_epoch))` for an optimizer with a number.

    Args:
        model_dim: Width of the model (D).
        warmup_steps: Steps of linear growth.
        scale: Factor on the whole curve; the paper has 1.

    Raises:
        ValueError: if an argument is not positive.
    """

    def __init__(self, model_dim, warmup_steps=4000, scale=1.0):
        super().__init__()
        self._set(model_dim=model_dim, warmup_steps=warmup_steps, scale=scale)

    def __call__(self, step):
        return self._rate(self.scale * (self.model_dim * self.warmup_steps) ** -0.5, step)

    def get_config(self):
        return {
            "model_dim": self.model_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_transformer")
class InverseSquareRootSchedule(_WarmupSchedule):
    """`peak * min(step / warmup_steps, sqrt(warmup_steps / step))`, computed in float32.

    The curve of `PaperSchedule`, named by its peak and not by the model's width.

    Args:
        peak: The rate at step `warmup_steps`.
        warmup_steps: Steps of linear growth.

    Raises:
        ValueError: if an argument is not positive.
    """

    def __init__(self, peak, warmup_steps=4000):
        super().__init__()
        self._set(peak=peak, warmup_steps=warmup_steps)

    def __call__(self, step):
        return self._rate(self.peak, step)

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}
