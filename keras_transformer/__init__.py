"""The Transformer of "Attention Is All You Need", from a parallel corpus to a phone."""

import sys

from keras_transformer_runner import __version__

# Keras takes seconds to load. The command looks at what it was given before it needs Keras; this
# is how it says so. For everyone else the package is whole once it is imported.
if "keras_transformer_command" not in sys.modules:
    from keras_transformer.checks import check_causality, check_padding_invariance
    from keras_transformer.config import TransformerConfig
    from keras_transformer.data import ParallelCorpus
    from keras_transformer.decoding import (
        BeamSearch,
        Ensemble,
        Greedy,
        Sampling,
        align,
        generate,
    )
    from keras_transformer.experiment import Experiment, load_run
    from keras_transformer.export import (
        export_classifier,
        export_language_model,
        export_litert,
        export_saved_model,
    )
    from keras_transformer.layers import (
        SSRU,
        AlibiBias,
        CrossAttention,
        DecoderBlock,
        EncoderBlock,
        LearnedPositions,
        MultiHeadSelfAttention,
        PositionwiseFFN,
        RelativePositionBias,
        SinusoidalPositions,
        TokenEmbedding,
    )
    from keras_transformer.models import (
        LanguageModel,
        SequenceClassifier,
        TokenClassifier,
        Transformer,
        attention_scores,
        transfer_weights,
    )
    from keras_transformer.plots import plot_attention
    from keras_transformer.training import (
        PaperSchedule,
        Perplexity,
        SmoothedCrossEntropy,
        TokenAccuracy,
        train,
    )
    from keras_transformer.translation import Translator
    from keras_transformer_runner import Runner
    from keras_transformer_runner.tokenizers import (
        BytesTokenizer,
        CharacterTokenizer,
        SentencePieceTokenizer,
        VocabularyTokenizer,
        load_tokenizer,
    )

__all__ = [
    "SSRU",
    "AlibiBias",
    "BeamSearch",
    "BytesTokenizer",
    "CharacterTokenizer",
    "CrossAttention",
    "DecoderBlock",
    "EncoderBlock",
    "Ensemble",
    "Experiment",
    "Greedy",
    "LanguageModel",
    "LearnedPositions",
    "MultiHeadSelfAttention",
    "PaperSchedule",
    "ParallelCorpus",
    "Perplexity",
    "PositionwiseFFN",
    "RelativePositionBias",
    "Runner",
    "Sampling",
    "SentencePieceTokenizer",
    "SequenceClassifier",
    "SinusoidalPositions",
    "SmoothedCrossEntropy",
    "TokenAccuracy",
    "TokenClassifier",
    "TokenEmbedding",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "VocabularyTokenizer",
    "__version__",
    "align",
    "attention_scores",
    "check_causality",
    "check_padding_invariance",
    "export_classifier",
    "export_language_model",
    "export_litert",
    "export_saved_model",
    "generate",
    "load_run",
    "load_tokenizer",
    "plot_attention",
    "train",
    "transfer_weights",
]
