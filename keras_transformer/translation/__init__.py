"""Text to text: a model, its tokenizers and a search, for lists, streams and whole files."""

from keras_transformer.translation.translator import Translator
from keras_transformer_runner.translation import Translation

__all__ = ["Translation", "Translator"]
