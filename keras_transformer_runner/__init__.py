"""Runs what `keras_transformer` exports for devices, with NumPy, SentencePiece and LiteRT alone."""

from keras_transformer_runner.model import DeviceModel
from keras_transformer_runner.runner import Runner
from keras_transformer_runner.sentences import SplitText, split_text
from keras_transformer_runner.tokenizers import load_tokenizer
from keras_transformer_runner.translation import Hypothesis, Translation

__version__ = "0.1.0"

__all__ = [
    "DeviceModel",
    "Hypothesis",
    "Runner",
    "SplitText",
    "Translation",
    "__version__",
    "load_tokenizer",
    "split_text",
]
