"""Schedule, loss, metrics, checkpoints, and `train`: from an experiment file to a run folder."""

from keras_transformer.experiment import Experiment, Run, learn_tokenizer, load_run
from keras_transformer.training.checkpoint import TrainingCheckpoint
from keras_transformer.training.distribution import with_rows_filled
from keras_transformer.training.fused_attention import fuse_attention
from keras_transformer.training.layouts import check_layouts, layout_map
from keras_transformer.training.loss import RDropCrossEntropy, SmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenMeanLoss
from keras_transformer.training.optimizer import AdamW, InverseSquareRootSchedule, PaperSchedule
from keras_transformer.training.rematerialization import rematerialize
from keras_transformer.training.run import train
from keras_transformer.training.state import average_weights
from keras_transformer.training.student import Student, TeacherCrossEntropy

__all__ = [
    "AdamW",
    "Experiment",
    "InverseSquareRootSchedule",
    "PaperSchedule",
    "Perplexity",
    "RDropCrossEntropy",
    "Run",
    "SmoothedCrossEntropy",
    "Student",
    "TeacherCrossEntropy",
    "TokenAccuracy",
    "TokenMeanLoss",
    "TrainingCheckpoint",
    "average_weights",
    "check_layouts",
    "fuse_attention",
    "layout_map",
    "learn_tokenizer",
    "load_run",
    "rematerialize",
    "train",
    "with_rows_filled",
]
