"""How weights are updated: AdamW that decays kernels, and the learning rate of each update."""

from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import check_size
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class AdamW(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` that decays kernels and embeddings only.

    Biases, the scales of norms and the vectors of additive attention stay as they are. This is a
    rule about the names of variables, so a saved optimizer keeps it; Keras' own list of excluded
    variables is not saved. The arguments are those of `keras.optimizers.AdamW`.

    Example:
        >>> from keras_transformer.training import AdamW
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.set_weights([np.ones((2, 1)), np.ones(1)])
        >>> model.compile(AdamW(0.1, weight_decay=0.5), "mse", run_eagerly=True)
        >>> loss = model.train_on_batch(np.zeros((1, 2)), np.ones((1, 1)))  # all gradients are 0
        >>> model.get_weights()  # the kernel has decayed by 0.1 * 0.5, the bias has not
        [array([[0.95],
               [0.95]], dtype=float32), array([1.], dtype=float32)]
    """

    def build(self, variables: list) -> None:
        if not self.built:
            spared = [v for v in variables if not v.name.endswith(("kernel", "embeddings"))]
            more, names = self._excluded()
            super().exclude_from_weight_decay([*spared, *more], names)
        super().build(variables)

    def exclude_from_weight_decay(
        self, var_list: list | None = None, var_names: list[str] | None = None
    ) -> None:
        """Excludes more variables, as in Keras: before `build`, and not kept in a file.

        Raises:
            ValueError: if the optimizer is built.
        """
        if self.built:
            raise ValueError(
                "`exclude_from_weight_decay` must be called before the optimizer is built. "
                f"Received: var_list={var_list}, var_names={var_names} afterwards"
            )
        super().exclude_from_weight_decay(var_list, var_names)
        # In a function: variables in an attribute would become the optimizer's own.
        self._excluded = lambda: (list(var_list or ()), var_names)

    def _excluded(self):
        return [], None


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

    Give it to an optimizer as `learning_rate`: it then sets the rate at every step, and Keras
    refuses callbacks that set it each epoch (`LearningRateScheduler`, `ReduceLROnPlateau`). Such
    a callback takes a function of the epoch that gives a float, for an optimizer whose rate is a
    number: `lambda epoch: float(schedule((epoch + 1) * steps_per_epoch))`.

    Args:
        model_dim: Width of the model (D).
        warmup_steps: Steps of linear growth.
        scale: Factor on the whole curve; the paper has 1.

    Raises:
        ValueError: if an argument is not positive.

    Example:
        >>> schedule = kt.PaperSchedule(model_dim=512, warmup_steps=4000)
        >>> [f"{float(schedule(step)):.6f}" for step in (0, 2000, 4000, 16000)]
        ['0.000000', '0.000349', '0.000699', '0.000349']
        >>> optimizer = keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    """

    def __init__(self, model_dim: int, warmup_steps: int = 4000, scale: float = 1.0):
        super().__init__()
        self._set(model_dim=model_dim, warmup_steps=warmup_steps, scale=scale)

    def __call__(self, step: Tensor) -> Tensor:
        return self._rate(self.scale * (self.model_dim * self.warmup_steps) ** -0.5, step)

    def get_config(self) -> dict[str, Any]:
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

    Example:
        >>> from keras_transformer.training import InverseSquareRootSchedule
        >>> schedule = InverseSquareRootSchedule(peak=0.5, warmup_steps=4)
        >>> [float(schedule(step)) for step in (0, 2, 4, 16)]
        [0.0, 0.25, 0.5, 0.25]
    """

    def __init__(self, peak: float, warmup_steps: int = 4000):
        super().__init__()
        self._set(peak=peak, warmup_steps=warmup_steps)

    def __call__(self, step: Tensor) -> Tensor:
        return self._rate(self.peak, step)

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="keras_transformer")
class PerUpdate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over updates, for an optimizer that counts batches.

    Keras hands a schedule the number of batches even where `gradient_accumulation_steps` of them
    make an update, so that a warm-up would end that many times too early.

    Args:
        schedule: A `LearningRateSchedule` over updates.
        batches: Batches an update.
    """

    def __init__(self, schedule, batches):
        super().__init__()
        check_size(batches=batches)
        self.schedule = schedule
        self.batches = batches

    def __call__(self, step):
        return self.schedule(ops.floor_divide(ops.cast(step, "int32"), self.batches))

    def get_config(self):
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "batches": self.batches}

    @classmethod
    def from_config(cls, config):
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(schedule, config["batches"])
