"""The learning rate of the paper: a linear warm-up, then decay with the root of the step."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class PaperSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Vaswani et al. 2017, equation 3.

    `scale * model_dim**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)`, computed in float32.
    Step 0 gives 0, step `warmup_steps` the peak. The step may have any integer or float dtype.

    Args:
        model_dim: Width of the model (D).
        warmup_steps: Steps of linear growth.
        scale: Factor on the whole curve; the paper has 1.

    Raises:
        ValueError: if an argument is not positive.
    """

    def __init__(self, model_dim, warmup_steps=4000, scale=1.0):
        super().__init__()
        for name, value in (
            ("model_dim", model_dim),
            ("warmup_steps", warmup_steps),
            ("scale", scale),
        ):
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
        self.model_dim = model_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        step = ops.cast(step, "float32")
        peak = self.scale * (self.model_dim * self.warmup_steps) ** -0.5
        warmup = float(self.warmup_steps)
        # max() keeps the unused branch finite at step 0.
        decay = ops.sqrt(warmup / ops.maximum(step, 1.0))
        return peak * ops.minimum(decay, step / warmup)

    def get_config(self):
        return {
            "model_dim": self.model_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
