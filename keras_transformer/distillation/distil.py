"""`distil`: teachers write a corpus, and a student is trained on it."""

import dataclasses
import os
from pathlib import Path

from keras_transformer.distillation.options import DistillationOptions
from keras_transformer.distillation.teachers import Teachers
from keras_transformer.distillation.written_corpus import check_probabilities, write_corpus
from keras_transformer.experiment.experiment import Experiment
from keras_transformer.experiment.run_folder import EXPERIMENT_FILE
from keras_transformer.experiment.tokenizers import Tokenizers
from keras_transformer.experiment.unused_keys import check_keys


def distil(
    teachers: Teachers,
    student: Experiment,
    run_dir: os.PathLike | str,
    *,
    corpus: os.PathLike | str | None = None,
    original_weight: float | None = None,
    options: DistillationOptions | None = None,
    workers: int = 1,
    beam_options=None,
    jit_compile: bool = False,
) -> Path:
    """Trains a student on what teachers write (Kim & Rush 2016, arXiv 1606.07947).

    Killed at any moment, the same call goes on: translations are kept, and training goes on from
    its last checkpoint.

    Args:
        teachers: The `Teachers`.
        student: The experiment, whose `[data]` names the corpus. Its validation stays as it is.
        run_dir: The folder of the student's run.
        corpus: The folder for what teachers write, which several students may share; `run_dir`
            and `.distilled` when `None`.
        original_weight: See `[data]`: to train on the original pairs as well.
        options: `DistillationOptions`.
        workers, beam_options, jit_compile: See `write_corpus`.

    Returns:
        `run_dir` as a `Path`.

    Raises:
        FileExistsError, FileNotFoundError, TargetInUseError, ValueError: as `write_corpus` and
            `train`, or if the student's `[data]` has `distilled` already.

    Example (the run that the example of `train` makes is the teacher):
        >>> from keras_transformer.distillation import Teachers, distil
        >>> distil(Teachers.open(["run"]), experiment, "student")  # doctest: +SKIP
        PosixPath('student')
    """
    student.check_files()
    check_student(student, teachers, options or DistillationOptions())
    trained = distilled_experiment(student, run_dir, corpus, original_weight)
    if not (Path(run_dir) / EXPERIMENT_FILE).exists():
        check_keys(trained)
    write_corpus(
        teachers,
        student.data,
        trained.data.distilled,
        options=options,
        workers=workers,
        beam_options=beam_options,
        jit_compile=jit_compile,
    )
    from keras_transformer.training import train

    return train(trained, run_dir)


def check_student(student: Experiment, teachers: Teachers, options: DistillationOptions) -> None:
    """Looks, without Keras, at whether a student can learn what its teachers are to write.

    Raises:
        ValueError: if probabilities are written and not used, or used and not written, the student
            has another tokenizer than the teachers, or they cannot write what it asks for.

    Example:
        >>> from keras_transformer.distillation import DistillationOptions, check_student
        >>> check_student(experiment, teachers, DistillationOptions())  # doctest: +SKIP
    """
    weight = student.training.teacher_weight
    if (options.top_k is not None) != bool(weight):
        raise ValueError(
            "the teachers' probabilities (`top_k`, --probabilities) must go with "
            "`training.teacher_weight` above 0, and it with them. "
            f"Received: top_k={options.top_k}, teacher_weight={weight}"
        )
    if options.top_k is None:
        return
    section, theirs = student.tokenizer, teachers.fingerprints[0][1:]
    ours = [each.fingerprint for each in Tokenizers.make(section, ())] if section.file else None
    if ours != list(theirs):
        raise ValueError(
            "a student that learns probabilities must have its teachers' tokenizers: name them in "
            f"`tokenizer.file`. Received: file={section.file}, teacher={teachers.folders[0]}"
        )
    check_probabilities(student.data, teachers, options)


def distilled_experiment(student, run_dir, corpus=None, original_weight=None):
    """The experiment that is trained: the student's, with `data.distilled`.

    Args:
        student, run_dir, corpus, original_weight: As for `distil`.

    Raises:
        ValueError: if that is there, or `original_weight` is not positive.
    """
    if student.data.distilled is not None or student.data.original_weight is not None:
        raise ValueError(
            "`data.distilled` and `data.original_weight` must be left out of a student's "
            f"experiment: `distil` writes them. Received: distilled={student.data.distilled}, "
            f"original_weight={student.data.original_weight}"
        )
    run_dir = os.path.abspath(run_dir)
    corpus = f"{run_dir}.distilled" if corpus is None else os.path.abspath(corpus)
    data = dataclasses.replace(student.data, distilled=corpus, original_weight=original_weight)
    return dataclasses.replace(student, data=data)
