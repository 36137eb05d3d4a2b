"""Text to ids and back, the same in Python, in a TensorFlow graph and on a device."""

from keras_transformer_runner.tokenizers.base import Tokenizer
from keras_transformer_runner.tokenizers.files import find_tokenizer, load_tokenizer
from keras_transformer_runner.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_transformer_runner.tokenizers.tables import (
    BytesTokenizer,
    CharacterTokenizer,
    VocabularyTokenizer,
)

__all__ = [
    "BytesTokenizer",
    "CharacterTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "VocabularyTokenizer",
    "find_tokenizer",
    "load_tokenizer",
]
