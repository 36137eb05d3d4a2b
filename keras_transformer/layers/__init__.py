"""The Transformer as Keras layers, in the order of the paper.

Dimension key, used in docstrings, in einsum strings and as the suffix of local variables:

    B batch    T target (query) length    S source (key) length    D model width    N heads
    H key width per head (d_k)    U value width per head (d_v)    F feed-forward width
    V vocabulary    K beams

Masks are boolean and True means "attend". Read `masks`, `attention`, `feed_forward`,
`embedding`, `positions`, `blocks`, in that order.
"""

from keras_transformer import registration
from keras_transformer.layers.attention import CrossAttention, MultiHeadSelfAttention
from keras_transformer.layers.blocks import DecoderBlock, EncoderBlock
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.layers.feed_forward import PositionwiseFFN
from keras_transformer.layers.positions import SinusoidalPositions
from keras_transformer.layers.projection import Projection

__all__ = [
    "CrossAttention",
    "DecoderBlock",
    "Dropout",
    "EncoderBlock",
    "MultiHeadSelfAttention",
    "PositionwiseFFN",
    "Projection",
    "SinusoidalPositions",
    "TokenEmbedding",
]

registration.register_with_keras()
