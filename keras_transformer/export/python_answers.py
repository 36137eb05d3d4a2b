"""What Python's language models and classifiers answer: what their exports are compared with."""

import functools

import keras
import numpy as np

from keras_transformer.decoding import generate
from keras_transformer.decoding.compiled import compiled
from keras_transformer.export.parity import ParityError
from keras_transformer.translation.translator import pad_rows
from keras_transformer_runner.tokenizers.base import without_surrogates

_BATCH = 64  # prompts that Python continues at a time
# Float32 probabilities differ in how sums are ordered, over all layers, and in nothing else.
_MOST_DIFFERENCE = 1e-3


def check_kind(model, kinds):
    """Raises TypeError unless a model is of one of these classes."""
    if not isinstance(model, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"`model` must be a {names}. Received: {type(model).__name__}")


def checked_labels(labels, num_classes):
    """The names of classes as a list, or `None`.

    Raises:
        TypeError: if they are one string, or hold anything but strings.
        ValueError: if there are not as many as classes.
    """
    if labels is None:
        return None
    is_text = isinstance(labels, (str, bytes))
    labels = [labels] if is_text else list(labels)
    if is_text or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"`labels` must be a list of strings. Received: {labels!r}")
    if len(labels) != num_classes:
        raise ValueError(
            "`labels` must name every class of the model. Received: "
            f"{len(labels)} labels, num_classes={num_classes}"
        )
    if odd := [label for label in labels if label != without_surrogates(label)]:
        raise ValueError(f"`labels` must be without lone surrogates. Received: {odd[0]!r}")
    return labels


def class_pair(probabilities, labels):
    """The classes of one text as `(text, ids)`, as `parity.compare` takes them."""
    ids = likeliest(probabilities)
    return " ".join(labels[index] if labels else str(index) for index in ids), ids


def likeliest(probabilities):
    """The likeliest class of each row."""
    return probabilities.reshape(-1, probabilities.shape[-1]).argmax(axis=-1).tolist()


def check_probabilities(expected, received):
    """Raises ParityError if two lists of arrays of float32 probabilities differ by more than sums.

    Args:
        expected: Python's.
        received: The artefact's.
    """
    largest = max(float(np.abs(a - b).max()) for a, b in zip(expected, received, strict=True))
    if not largest <= _MOST_DIFFERENCE:
        raise ParityError(
            f"a float32 classifier must give Python's probabilities within {_MOST_DIFFERENCE}. "
            f"Received: a difference of {largest:.3g}. Nothing was written."
        )


def python_probabilities(model, row):
    """Python's probabilities for the ids of one text."""
    logits = model(np.array([row], "int32"), training=False)[0]
    return keras.ops.convert_to_numpy(keras.ops.softmax(logits, axis=-1))


def python_continuations(model, rows, strategy):
    """Python's ids for each prompt, without EOS and pads."""
    config = model.config
    run = compiled(functools.partial(generate, model, strategy=strategy), model)
    answers = []
    for start in range(0, len(rows), _BATCH):
        prompts = pad_rows(rows[start : start + _BATCH], config.pad_id)
        for ids in keras.ops.convert_to_numpy(run(prompts).ids):
            answers.append([int(x) for x in ids if x not in (config.pad_id, config.eos_id)])
    return answers
