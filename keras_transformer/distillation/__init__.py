"""Distillation: students that learn from what teachers write. Needs no Keras to import."""

from keras_transformer.distillation.distil import check_student, distil
from keras_transformer.distillation.options import DistillationOptions
from keras_transformer.distillation.teachers import Teachers
from keras_transformer.distillation.written_corpus import check_job, write_corpus

__all__ = [
    "DistillationOptions",
    "Teachers",
    "check_job",
    "check_student",
    "distil",
    "write_corpus",
]
