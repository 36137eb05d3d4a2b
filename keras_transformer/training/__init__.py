"""Schedule, loss, metrics, checkpoints, and `train`: from an experiment file to a run folder."""

import importlib

# These hold the classes that Keras must know before it can load a saved model.
from keras_transformer.training.loss import RDropCrossEntropy, SmoothedCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy, TokenMeanLoss
from keras_transformer.training.optimizer import AdamW
from keras_transformer.training.schedule import InverseSquareRootSchedule, PaperSchedule

_EXPORTS = {
    "TrainingCheckpoint": "checkpoint",
    "average_weights": "averaging",
    "Experiment": "experiment",
    "Run": "run_folder",
    "load_run": "run_folder",
    "train": "run",
    "learn_tokenizer": "tokenizers",
}

__all__ = [
    "AdamW",
    "InverseSquareRootSchedule",
    "PaperSchedule",
    "Perplexity",
    "RDropCrossEntropy",
    "SmoothedCrossEntropy",
    "TokenAccuracy",
    "TokenMeanLoss",
    *_EXPORTS,
]


def __getattr__(name):
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
