"""Schedule, loss, metrics, checkpoints, and `train`: from an experiment file to a run folder."""

import importlib

# Lazily, so that an experiment or a tokenizer is read without Keras. `registration` knows which of
# these hold classes that Keras must know before it can load a saved model.
_EXPORTS = {
    "AdamW": "optimizer",
    "InverseSquareRootSchedule": "schedule",
    "PaperSchedule": "schedule",
    "Perplexity": "metrics",
    "TokenAccuracy": "metrics",
    "TokenMeanLoss": "metrics",
    "RDropCrossEntropy": "loss",
    "SmoothedCrossEntropy": "loss",
    "TrainingCheckpoint": "checkpoint",
    "average_weights": "averaging",
    "Experiment": "experiment",
    "Run": "run_folder",
    "load_run": "run_folder",
    "train": "run",
    "learn_tokenizer": "tokenizers",
}

__all__ = list(_EXPORTS)


def __getattr__(name):
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
