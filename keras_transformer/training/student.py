"""Word-level distillation: a loss that looks at teachers' probabilities, and a model for it."""

import contextlib
import threading
from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import check_positive
from keras_transformer.data.scored import TEACHER_IDS, TEACHER_LOG_PROBS
from keras_transformer.models import Transformer
from keras_transformer.training.loss import SmoothedCrossEntropy
from keras_transformer.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class TeacherCrossEntropy(SmoothedCrossEntropy):
    """`SmoothedCrossEntropy`, and the cross-entropy with what teachers say of each position.

    Hinton et al. 2015 (arXiv 1503.02531, sec. 2) for each token, as in Kim & Rush 2016 (arXiv
    1606.07947, sec. 3.1). With the student's logits z, the teachers' K most probable ids and their
    log-probabilities l, and the temperature t the loss of a token is

        (1 - w) * smoothed cross-entropy - w * t^2 * sum_k softmax(l / t)_k * log softmax(z / t)_k

    The teachers' softmax is over the K ids alone: what they give to all others is left out, and
    the rest sums to 1. The student's is over the whole vocabulary. t^2 keeps the size of gradients.

    A batch without teachers, such as one of the validation, has the first part alone, unweighted.

    Args:
        teacher_weight: w in `[0, 1]`.
        temperature: t above 0.
        label_smoothing, pad_id, reduction, name: As for `SmoothedCrossEntropy`.

    Raises:
        ValueError: if a value is out of range, and where `SmoothedCrossEntropy` raises it.

    Example:
        >>> from keras_transformer.training.student import TeacherCrossEntropy
        >>> loss = TeacherCrossEntropy(1.0, label_smoothing=0.0)
        >>> labels, logits = np.array([[3, 0]]), np.zeros((1, 2, 5), "float32")
        >>> ids, log_probs = np.array([[[3, 4]] * 2]), np.log([[[0.9, 0.1]] * 2])
        >>> with loss.taught(ids, log_probs):
        ...     print(f"{float(loss(labels, logits)):.3f}")  # log(5): all are equal to the student
        1.609
    """

    def __init__(
        self,
        teacher_weight: float,
        temperature: float = 1.0,
        label_smoothing: float = 0.1,
        pad_id: int = 0,
        reduction: str = "mean",
        name: str = "teacher_cross_entropy",
    ):
        super().__init__(label_smoothing, pad_id, reduction, name)
        if not 0 <= teacher_weight <= 1:
            raise ValueError(
                f"`teacher_weight` must be in [0, 1]. Received: teacher_weight={teacher_weight}"
            )
        check_positive(temperature=temperature)
        self.teacher_weight, self.temperature = teacher_weight, temperature
        self._said = threading.local()  # replicas of a strategy are traced in threads

    @contextlib.contextmanager
    def taught(self, teacher_ids: Tensor, teacher_log_probs: Tensor):
        """Inside the block the loss knows what teachers say of a batch: both (B, T, K)."""
        self._said.batch = teacher_ids, teacher_log_probs
        try:
            yield
        finally:
            del self._said.batch

    def _losses(self, labels, logits):
        losses, real = super()._losses(labels, logits)
        if (said := getattr(self._said, "batch", None)) is None:
            return losses, real
        ids, log_probs = said
        logits = ops.cast(logits, "float32")
        logits = ops.where(ops.expand_dims(real, -1), logits, ops.zeros_like(logits))
        ours = ops.log_softmax(logits / self.temperature, axis=-1)
        ours = ops.take_along_axis(ours, ops.cast(ids, "int32"), axis=-1)
        theirs = ops.softmax(ops.cast(log_probs, "float32") / self.temperature, axis=-1)
        of_teachers = -(self.temperature**2) * ops.sum(theirs * ours, axis=-1)
        of_teachers = ops.where(real, of_teachers, ops.zeros_like(of_teachers))
        return (1 - self.teacher_weight) * losses + self.teacher_weight * of_teachers, real

    def get_config(self) -> dict[str, Any]:
        own = {"teacher_weight": self.teacher_weight, "temperature": self.temperature}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Student(Transformer):
    """A `Transformer` whose batches may have `teacher_ids` and `teacher_log_probs`.

    They are for a `TeacherCrossEntropy` that is compiled into it; the model's own inputs, weights
    and answers are those of a `Transformer`, as which a run saves it.

    Example:
        >>> from keras_transformer.training.student import Student, TeacherCrossEntropy
        >>> student = Student(kt.TransformerConfig.preset("tiny", vocab_size=11))
        >>> student.compile("adam", TeacherCrossEntropy(0.5), run_eagerly=True)
        >>> inputs = {"source_ids": np.array([[5, 3]]), "target_ids": np.array([[2, 6]])}
        >>> inputs["teacher_ids"] = np.array([[[6, 7], [3, 8]]])
        >>> inputs["teacher_log_probs"] = np.full((1, 2, 2), -0.7, "float32")
        >>> history = student.fit(inputs, np.array([[6, 3]]), verbose=0)
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().__call__(_without_teacher(inputs), *args, **kwargs)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().call(_without_teacher(inputs), *args, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        taught = contextlib.nullcontext()
        if isinstance(x, dict) and TEACHER_IDS in x:
            taught = self.loss.taught(x[TEACHER_IDS], x[TEACHER_LOG_PROBS])
        with taught:
            return super().compute_loss(x, y, y_pred, sample_weight, training)

    def _check_inputs(self, inputs):
        super()._check_inputs(_without_teacher(inputs))


def _without_teacher(inputs):
    if not isinstance(inputs, dict):
        return inputs
    names = (TEACHER_IDS, TEACHER_LOG_PROBS)
    return {name: value for name, value in inputs.items() if name not in names}
