"""Runs what `keras_transformer` exports for devices, with NumPy, SentencePiece and LiteRT alone."""

from keras_transformer_runner.model import DeviceModel
from keras_transformer_runner.runner import Hypothesis, Runner
from keras_transformer_runner.tokenizers import load_tokenizer

__version__ = "0.1.0"

__all__ = ["DeviceModel", "Hypothesis", "Runner", "__version__", "load_tokenizer"]
