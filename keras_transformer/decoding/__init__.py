"""Search over a step function: a loop, a frozen strategy and one state record."""

from keras_transformer.decoding.alignment import Alignment, align
from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.greedy import Greedy
from keras_transformer.decoding.hypotheses import Hypotheses
from keras_transformer.decoding.result import DecodingResult, decode, generate
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.scoring import PairScores, score
from keras_transformer.decoding.translation import Translation
from keras_transformer.decoding.translator import Translator

__all__ = [
    "Alignment",
    "BeamSearch",
    "DecodingResult",
    "Ensemble",
    "Greedy",
    "Hypotheses",
    "PairScores",
    "Sampling",
    "Translation",
    "Translator",
    "align",
    "decode",
    "generate",
    "score",
]
