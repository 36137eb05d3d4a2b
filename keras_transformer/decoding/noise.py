"""Random numbers as hashes: of who asks and of what for, and so the same on every backend."""

from keras import ops

from keras_transformer.layers.dropout import _mix, _uint32

_STRIDE = 0x9E3779B9  # 2^32 over the golden ratio: counters times it are far apart
_LARGEST = 1 - 2.0**-24  # the float32 below 1


def sample_keys(seed, source_ids, pad_id, count):
    """(B * count,) uint32, a key for each of `count` samples of each source.

    Args:
        seed: Integer in [0, 2^32).
        source_ids: (B, S) int32, then pads, which change no key.
        pad_id: What is no token.
        count: Samples of each source; they stand next to each other.
    """
    places = _mix(_uint32(ops.arange(1, ops.shape(source_ids)[1] + 1)) * _uint32(_STRIDE))
    tokens = _mix(_mix(_uint32(source_ids)) + places)
    tokens = ops.where(ops.equal(source_ids, pad_id), _uint32(0), tokens)
    rows = ops.sum(tokens, axis=1, keepdims=True)
    rows = _mix(rows + _mix(_uint32(seed) + _uint32(_STRIDE)))
    numbers = _mix(_uint32(ops.arange(1, count + 1)) * _uint32(_STRIDE))
    return ops.reshape(_mix(rows + numbers), (-1,))


def gumbel_noise(keys, position, size):
    """(R, size) float32 of the standard Gumbel distribution, for (R,) keys at one position.

    The highest of log-probabilities plus such noise is a draw from their distribution (Gumbel
    1954; Maddison et al. 2014, arXiv 1411.0030).
    """
    offset = _mix(keys + _mix(_uint32(position + 1) * _uint32(_STRIDE)))
    stride = ops.bitwise_or(_mix(ops.bitwise_xor(offset, _uint32(_STRIDE))), _uint32(1))
    index = ops.expand_dims(_uint32(ops.arange(size)), 0)
    bits = _mix(index * ops.expand_dims(stride, 1) + ops.expand_dims(offset, 1))
    # Exact near 0, where the highest of the noise comes from: rare tokens keep their share.
    uniform = (ops.cast(bits, "float32") + 0.5) * 2.0**-32
    exponential = -ops.log1p(-ops.minimum(uniform, _LARGEST))
    return -ops.log(exponential)
