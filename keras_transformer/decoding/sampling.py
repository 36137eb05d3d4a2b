"""Sampling: tokens drawn from the model's distribution, the same ones for the same seed."""

import dataclasses

from keras import ops

from keras_transformer.arguments import check_count, check_finite, check_size
from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.decoding.selection import argmax
from keras_transformer.decoding.token_search import TokenSearch
from keras_transformer.layers.dropout import as_uint32, mix_bits
from keras_transformer.layers.lowering.places import arange
from keras_transformer.typing import Tensor

_LOWEST_TEMPERATURE = 1e-6  # logits over less might leave float32
_STRIDE = 0x9E3779B9  # 2^32 over the golden ratio: counters times it are far apart
_LARGEST = 1 - 2.0**-24  # the float32 below 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(TokenSearch):
    """Draws each token from the model's distribution.

    A draw depends on `seed`, the row's own source ids, the number of the sample and the position,
    and on nothing else: not on batch mates, padding, order or backend. A sentence that comes
    twice gets the same samples; sample 0 is the same for every `n_best`.

    The logits are divided by `temperature`, tokens that may not be chosen are removed, and then
    `top_k`, `top_p` and `min_p` apply, each to the rest that the one before leaves. A token that
    is as likely as the last that stays, stays too.

    The hypotheses come in the order in which they are drawn, not by score, and may be equal.
    Their log-probabilities are the model's, at temperature 1 and unfiltered; a score is their sum.

    It has all attributes of `SearchOptions` (see `Greedy`), and these:

    Attributes:
        temperature: Above 1 flattens the distribution, below 1 sharpens it; 0 is greedy search.
        top_k: Only the k likeliest tokens (Fan et al. 2018, arXiv 1805.04833); 0 for all.
        top_p: Only the likeliest tokens that together have this probability (nucleus sampling,
            Holtzman et al. 2019, arXiv 1904.09751); 1 for all.
        min_p: Only tokens at least this many times as likely as the likeliest (Nguyen et al.
            2024, arXiv 2407.01082); 0 for all.
        seed: Integer in [0, 2^32).
        n_best: Samples N of each source.

    Example:
        >>> search = kt.Sampling(extra_length=3, n_best=2, seed=1)
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.LanguageModel(config)
        >>> found = kt.generate(model, np.array([[5, 7]]), search)
        >>> tuple(found.hypotheses.ids.shape)
        (1, 2, 5)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    n_best: int = 1

    def __post_init__(self):
        super().__post_init__()
        check_finite(temperature=self.temperature, top_p=self.top_p, min_p=self.min_p)
        check_count(top_k=self.top_k, seed=self.seed)
        check_size(n_best=self.n_best)
        if self.temperature != 0 and self.temperature < _LOWEST_TEMPERATURE:
            raise ValueError(
                f"`temperature` must be 0 or at least {_LOWEST_TEMPERATURE}. Received: "
                f"{self.temperature}"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be in (0, 1]. Received: {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"`min_p` must be in [0, 1]. Received: {self.min_p}")
        if self.seed >= 2**32:
            raise ValueError(f"`seed` must be below 2^32. Received: {self.seed}")

    @property
    def beams(self) -> int:
        """Rows of the step function for each row of the source."""
        return self.n_best

    def row_keys(self, source_ids, pad_id):
        if source_ids is None:
            raise ValueError("`source_ids` must be given: samples depend on them. Received: None")
        return sample_keys(self.seed, source_ids, pad_id, self.n_best)

    def chooser(self, constraints, keys=None):
        def choose(logits, position, output_ids):
            guide = constraints.guiding_logits(logits, position, output_ids)
            vocab_size = ops.shape(logits)[-1]
            banned = constraints.banned(vocab_size, position, output_ids)
            if self.temperature == 0:
                return argmax(ops.where(banned, IMPOSSIBLE, guide))
            guide = ops.where(banned, IMPOSSIBLE, guide / self.temperature)
            guide = ops.log_softmax(guide, axis=-1)
            guide = ops.where(ops.logical_or(banned, self.filtered(guide)), IMPOSSIBLE, guide)
            noise = gumbel_noise(keys, position, vocab_size, constraints.slot_ids)
            return argmax(guide + noise)

        return choose

    def filtered(self, log_probs: Tensor) -> Tensor:
        """Boolean (R, V): what `top_k`, `top_p` and `min_p` remove from (R, V) log-probabilities.

        The log-probabilities are normalised, at the temperature, and IMPOSSIBLE where a token may
        not be chosen.
        """
        limit = ops.shape(log_probs)[-1]
        lowest = ops.full((1, 1), 2 * IMPOSSIBLE, "float32")
        if self.top_k:
            limit = (
                min(self.top_k, limit) if isinstance(limit, int) else ops.minimum(self.top_k, limit)
            )
        if self.top_k or self.top_p < 1:
            best = ops.top_k(log_probs, limit)[0]  # (R, limit), sorted
            lowest = best[:, -1:] if self.top_k else lowest
            if self.top_p < 1:
                stays = ops.where(log_probs >= lowest, log_probs, IMPOSSIBLE)
                total = ops.sum(ops.exp(stays), axis=1, keepdims=True)
                probabilities = ops.exp(best) / total
                before = ops.cumsum(probabilities, axis=1) - probabilities
                inside = ops.where(before < self.top_p, best, 0.0)
                lowest = ops.maximum(lowest, ops.min(inside, axis=1, keepdims=True))
        if self.min_p > 0:
            highest = ops.max(log_probs, axis=1, keepdims=True)
            lowest = ops.maximum(lowest, highest + ops.log(ops.cast(self.min_p, "float32")))
        return log_probs < lowest


def sample_keys(seed, source_ids, pad_id, count):
    """(B * count,) uint32, a key for each of `count` samples of each source.

    Random numbers are hashes, of who asks and of what for, and so the same on every backend.

    Args:
        seed: Integer in [0, 2^32).
        source_ids: (B, S) int32, then pads, which change no key.
        pad_id: The id that is no token.
        count: Samples of each source; they stand next to each other.
    """
    places = mix_bits(as_uint32(arange(1, ops.shape(source_ids)[1] + 1)) * as_uint32(_STRIDE))
    tokens = mix_bits(mix_bits(as_uint32(source_ids)) + places)
    tokens = ops.where(ops.equal(source_ids, pad_id), as_uint32(0), tokens)
    rows = ops.sum(tokens, axis=1, keepdims=True)
    rows = mix_bits(rows + mix_bits(as_uint32(seed) + as_uint32(_STRIDE)))
    numbers = mix_bits(as_uint32(arange(1, count + 1)) * as_uint32(_STRIDE))
    return ops.reshape(mix_bits(rows + numbers), (-1,))


def gumbel_noise(keys, position, size, ids=None):
    """(R, size) float32 of the standard Gumbel distribution, for (R,) keys at one position.

    Each id has its own noise, whatever others there are: `ids` (size,) int32, or 0 to size - 1.

    The highest of log-probabilities plus such noise is a draw from their distribution (Gumbel
    1954; Maddison et al. 2014, arXiv 1411.0030).
    """
    offset = mix_bits(keys + mix_bits(as_uint32(position + 1) * as_uint32(_STRIDE)))
    stride = ops.bitwise_or(mix_bits(ops.bitwise_xor(offset, as_uint32(_STRIDE))), as_uint32(1))
    index = ops.expand_dims(as_uint32(arange(size) if ids is None else ids), 0)
    bits = mix_bits(index * ops.expand_dims(stride, 1) + ops.expand_dims(offset, 1))
    # Exact near 0, where the highest of the noise comes from: rare tokens keep their share.
    uniform = (ops.cast(bits, "float32") + 0.5) * 2.0**-32
    exponential = -ops.log1p(-ops.minimum(uniform, _LARGEST))
    return -ops.log(exponential)
