"""Search over a step function: a loop, a frozen strategy and one state record."""

from keras_transformer.decoding.alignment import Alignment, align
from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.generation import DecodingResult, decode, generate
from keras_transformer.decoding.greedy import Greedy
from keras_transformer.decoding.hypotheses import Hypotheses
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.scoring import PairScores, score

__all__ = [
    "Alignment",
    "BeamSearch",
    "DecodingResult",
    "Ensemble",
    "Greedy",
    "Hypotheses",
    "PairScores",
    "Sampling",
    "align",
    "decode",
    "generate",
    "score",
]
