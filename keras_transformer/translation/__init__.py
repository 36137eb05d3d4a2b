"""Text to text: a model, its tokenizers and a search, for lists, streams and whole files."""

from keras_transformer.translation.translation import Translation
from keras_transformer.translation.translator import Translator

__all__ = ["Translation", "Translator"]
