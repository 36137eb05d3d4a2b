"""The Transformer of "Attention Is All You Need", from a parallel corpus to a phone.

Names load on first use, so that importing the package is cheap and the device runner never pulls
in TensorFlow or Keras.
"""

import importlib

from keras_transformer import registration

__version__ = "0.1.0"

_EXPORTS = {
    "TransformerConfig": "config",
    "MultiHeadSelfAttention": "layers",
    "CrossAttention": "layers",
    "PositionwiseFFN": "layers",
    "EncoderBlock": "layers",
    "DecoderBlock": "layers",
    "TokenEmbedding": "layers",
    "SinusoidalPositions": "layers",
    "LearnedPositions": "layers",
    "RelativePositionBias": "layers",
    "AlibiBias": "layers",
    "Transformer": "models",
    "LanguageModel": "models",
    "SequenceClassifier": "models",
    "TokenClassifier": "models",
    "attention_scores": "models",
    "transfer_weights": "models",
    "plot_attention": "plots",
    "check_causality": "checks",
    "check_padding_invariance": "checks",
    "BeamSearch": "decoding",
    "Greedy": "decoding",
    "Sampling": "decoding",
    "Ensemble": "decoding",
    "align": "decoding",
    "generate": "decoding",
    "Translator": "decoding",
    "SentencePieceTokenizer": "text",
    "ParallelCorpus": "text",
    "PaperSchedule": "training",
    "SmoothedCrossEntropy": "training",
    "TokenAccuracy": "training",
    "Perplexity": "training",
    "Experiment": "training",
    "train": "training",
    "load_run": "training",
    "export_saved_model": "export",
    "export_litert": "export",
    "Runner": "export",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name):
    if name in _EXPORTS:
        module = importlib.import_module(f"keras_transformer.{_EXPORTS[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'keras_transformer' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_EXPORTS})


registration.register_with_keras()
