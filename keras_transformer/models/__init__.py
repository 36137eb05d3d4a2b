"""Functional Keras models of the layers: encoder-decoder, decoder only, encoder only."""

from keras_transformer.models.attention_scores import AttentionScores, attention_scores
from keras_transformer.models.cache import Cache
from keras_transformer.models.classifiers import SequenceClassifier, TokenClassifier
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.transfer import Transfer, transfer_weights
from keras_transformer.models.transformer import Memory, Transformer

__all__ = [
    "AttentionScores",
    "Cache",
    "LanguageModel",
    "Memory",
    "SequenceClassifier",
    "TokenClassifier",
    "Transfer",
    "Transformer",
    "attention_scores",
    "transfer_weights",
]
