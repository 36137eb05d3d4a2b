"""What a run minimises, and how: loss, schedule, optimizer and metrics, compiled into a model."""

import keras
import numpy as np

from keras_transformer.training.distribution import has_replicas
from keras_transformer.training.loss import RDropCrossEntropy, SmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.optimizer import (
    AdamW,
    InverseSquareRootSchedule,
    PaperSchedule,
    PerUpdate,
)
from keras_transformer.training.replica_updates import ReplicaAdam, ReplicaAdamW
from keras_transformer.training.student import TeacherCrossEntropy


def check_accumulation(training):
    """Raises a `ValueError` if batches are to be accumulated under loss scaling."""
    if training.accumulate_batches > 1 and keras.config.dtype_policy().name == "mixed_float16":
        raise ValueError(
            "`training.accumulate_batches` does not go with mixed_float16, whose batches that "
            "overflow belong to no update: use mixed_bfloat16. "
            f"Received: accumulate_batches={training.accumulate_batches}"
        )


def compile_model(model, training):
    """Compiles a `Transformer` with the optimizer, schedule and loss of an experiment.

    Args:
        model: The `Transformer`.
        training: A `TrainingSection`.
    """
    pad_id = model.config.pad_id
    model.compile(
        optimizer=_optimizer(model, training),
        loss=_loss(training, pad_id),
        metrics=[TokenAccuracy(pad_id), Perplexity(pad_id)],
        jit_compile=training.jit_compile,
    )
    # Keras makes the metrics' variables in the first step, too late to restore a half-done epoch.
    logits = np.zeros((1, 1, model.config.target_size), "float32")
    model.compute_metrics(None, np.full((1, 1), pad_id, "int32"), logits)
    model.reset_metrics()


def _loss(training, pad_id):
    # With several batches an update, the divisor is in the weights of the batches.
    reduction = "mean" if training.accumulate_batches == 1 else "sum"
    options = (training.label_smoothing, pad_id, reduction)
    if training.teacher_weight:
        return TeacherCrossEntropy(training.teacher_weight, training.teacher_temperature, *options)
    if training.r_drop:
        return RDropCrossEntropy(training.r_drop, *options)
    return SmoothedCrossEntropy(*options)


def _schedule(model, training):
    if training.schedule == "paper":
        schedule = PaperSchedule(
            model.config.model_dim, training.warmup_steps, training.learning_rate_scale
        )
    else:
        schedule = InverseSquareRootSchedule(training.learning_rate, training.warmup_steps)
    batches = training.accumulate_batches
    return schedule if batches == 1 else PerUpdate(schedule, batches)


def _optimizer(model, training):
    """The paper's Adam (section 5.3), or AdamW."""
    batches = training.accumulate_batches
    options = {
        "learning_rate": _schedule(model, training),
        "beta_1": 0.9,
        "beta_2": 0.98,
        "epsilon": 1e-9,
        "global_clipnorm": training.clipnorm,
        "gradient_accumulation_steps": batches if batches > 1 else None,
    }
    if training.ema is not None:
        # Keras averages after every batch, also where the weights have not changed.
        options.update(use_ema=True, ema_momentum=training.ema ** (1 / batches))
    if training.optimizer == "adamw":
        options.update(weight_decay=training.weight_decay)
    return _optimizer_class(training.optimizer)(**options)


def _optimizer_class(name):
    if has_replicas():
        return {"adam": ReplicaAdam, "adamw": ReplicaAdamW}[name]
    return {"adam": keras.optimizers.Adam, "adamw": AdamW}[name]
