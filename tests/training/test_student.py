"""Word-level distillation: the loss against NumPy, and a model whose batches have teachers."""

import keras
import numpy as np
import pytest
from backend import gradients
from toy_model import toy_config

from keras_transformer.models import Transformer
from keras_transformer.training.loss import SmoothedCrossEntropy
from keras_transformer.training.student import Student, TeacherCrossEntropy

B, T, V, K = 2, 4, 11, 3
PAD = 0


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@pytest.fixture
def batch():
    rng = np.random.default_rng(5)
    labels = rng.integers(1, V, (B, T)).astype("int32")
    labels[0, 3] = labels[1, 2] = labels[1, 3] = PAD
    logits = rng.normal(size=(B, T, V)).astype("float32")
    ids = np.stack([rng.permutation(V)[:K] for _ in range(B * T)]).reshape(B, T, K).astype("int32")
    theirs = log_softmax(rng.normal(size=(B, T, V)))[..., :K].astype("float32")
    return labels, logits, ids, theirs


def expected(batch, weight, temperature, smoothing):
    """The docstring's equation, in float64, and its gradient by the logits."""
    labels, logits, ids, theirs = batch
    real, logits = labels != PAD, logits.astype("float64")
    plain, taught = log_softmax(logits), log_softmax(logits / temperature)
    size = logits.shape[-1]
    target = np.full(logits.shape, smoothing / size) + (1 - smoothing) * np.eye(size)[labels]
    teacher = np.zeros(logits.shape)
    np.put_along_axis(teacher, ids, np.exp(log_softmax(theirs / temperature)), axis=-1)
    losses = -(1 - weight) * (target * plain).sum(-1)
    losses -= weight * temperature**2 * (teacher * taught).sum(-1)
    gradient = (1 - weight) * (np.exp(plain) - target)
    gradient += weight * temperature * (np.exp(taught) - teacher)
    return losses[real].sum() / real.sum(), gradient * real[..., None] / real.sum()


@pytest.mark.smoke
@pytest.mark.parametrize(
    "weight, temperature, smoothing", [(1, 1, 0), (0.3, 2.5, 0.1), (0, 1, 0.1)]
)
def test_loss_and_gradient_equal_the_reference(batch, weight, temperature, smoothing):
    loss = TeacherCrossEntropy(weight, temperature, smoothing, PAD)
    labels, logits, *teacher = batch

    def function(logits):
        with loss.taught(*teacher):
            return loss(labels, logits)

    value, gradient = expected(batch, weight, temperature, smoothing)
    assert float(function(logits)) == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(gradients(function, logits)[0], gradient, atol=1e-6)


def test_pads_and_batches_without_teachers(batch):
    labels, logits, ids, theirs = batch
    loss, plain = TeacherCrossEntropy(0.5, 2.0), SmoothedCrossEntropy()
    assert float(loss(labels, logits)) == float(plain(labels, logits))
    with loss.taught(ids, theirs):
        value = float(loss(labels, logits))
    logits[labels == PAD] = np.nan
    theirs[labels == PAD] = np.nan
    with loss.taught(ids, theirs):
        assert float(loss(labels, logits)) == value
    assert float(loss(np.full((B, T), PAD), logits)) == 0
    again = TeacherCrossEntropy.from_config(loss.get_config())
    assert (again.teacher_weight, again.temperature, again.label_smoothing) == (0.5, 2.0, 0.1)


def test_values_are_checked():
    with pytest.raises(ValueError, match=r"`teacher_weight` must be in \[0, 1\]. Received: .*=1.5"):
        TeacherCrossEntropy(1.5)
    with pytest.raises(ValueError, match="`temperature` must be a finite number above 0"):
        TeacherCrossEntropy(0.5, 0.0)


def test_a_student_trains_on_what_teachers_say_and_answers_like_a_transformer(batch):
    config = toy_config(dropout=0.0, pad_id=PAD)
    student = Student(config)
    assert type(student).from_config(student.get_config()).config == config
    plain = Transformer.from_config(student.get_config())
    plain.set_weights(student.get_weights())
    rng = np.random.default_rng(3)
    inputs = {
        name: rng.integers(1, 9, (B, T)).astype("int32") for name in ("source_ids", "target_ids")
    }
    labels, _, ids, theirs = batch
    taught = {**inputs, "teacher_ids": ids, "teacher_log_probs": theirs}
    np.testing.assert_array_equal(np.asarray(student(taught)), np.asarray(plain(inputs)))
    student.compile("sgd", TeacherCrossEntropy(1.0, 2.0))
    logits = np.asarray(plain(inputs))
    value, _ = expected((labels, logits, ids, theirs), 1.0, 2.0, 0.1)
    history = student.fit(taught, labels, epochs=1, batch_size=B, verbose=0)
    assert history.history["loss"][0] == pytest.approx(value, rel=1e-4)
    assert not np.allclose(student.get_weights()[0], plain.get_weights()[0])
    with pytest.raises(ValueError, match="the inputs of a Student must be"):
        student({**taught, "other": ids})
    assert keras.utils.get_registered_name(Student) == "keras_transformer>Student"
