"""From ids to ids: searches over a step function, each a frozen record of options."""

from keras_transformer.decoding.beam import BeamSearch
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.full_pass import Alignment, PairScores, align, score
from keras_transformer.decoding.generation import DecodingResult, decode, generate
from keras_transformer.decoding.options import Hypotheses
from keras_transformer.decoding.sampling import Sampling
from keras_transformer.decoding.token_search import Greedy

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
