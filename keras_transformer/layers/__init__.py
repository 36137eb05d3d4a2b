"""The Transformer as Keras layers, in the order of the paper.

Dimension key, used in docstrings, in einsum strings and as the suffix of local variables:

    B batch    T target (query) length    S source (key) length    D model width    N heads
    H key width per head (d_k)    U value width per head (d_v)    F feed-forward width
    V vocabulary    K beams

Masks are boolean and True means "attend". Read `attention`, `masks`, `multi_head`,
`feed_forward`, `embedding`, `positions`, `blocks` and `decoder_block`, in that order;
`chunked_attention` has the ways to attend in less memory, `recurrence` what may stand in the place
of self-attention, and `lowering` what the machine wants.
"""

from keras_transformer.layers.blocks import EncoderBlock
from keras_transformer.layers.cross_attention import CrossAttention
from keras_transformer.layers.decoder_block import DecoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.layers.feed_forward import PositionwiseFFN
from keras_transformer.layers.multi_head import MultiHeadSelfAttention
from keras_transformer.layers.normalization import BatchNormalization
from keras_transformer.layers.positions import (
    AlibiBias,
    LearnedPositions,
    RelativePositionBias,
    SinusoidalPositions,
)
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.recurrence import SSRU

__all__ = [
    "SSRU",
    "AlibiBias",
    "BatchNormalization",
    "CrossAttention",
    "DecoderBlock",
    "Dropout",
    "EncoderBlock",
    "LearnedPositions",
    "MultiHeadSelfAttention",
    "PositionwiseFFN",
    "Projection",
    "RelativePositionBias",
    "SinusoidalPositions",
    "TokenEmbedding",
]
