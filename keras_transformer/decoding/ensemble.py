"""Several models that translate as one: their probabilities are averaged at every step."""

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple

from keras import ops

from keras_transformer.typing import Tensor
from keras_transformer_runner.tokenizers.base import SpecialIds

_SHARED = ("vocab_size", "target_size", *SpecialIds._fields)


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """The fields of a config that a search and a `Translator` read."""

    vocab_size: int
    target_size: int
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int
    max_positions: int | None  # the least of the members'


class EnsembleCache(NamedTuple):
    """The caches of all members, as one cache."""

    members: tuple

    def reordered(self, rows):
        """See `models.cache.Cache.reordered`."""
        return EnsembleCache(tuple(cache.reordered(rows) for cache in self.members))

    def grown(self, count):
        """See `models.cache.Cache.grown`."""
        return EnsembleCache(tuple(cache.grown(count) for cache in self.members))

    def selected(self, sources):
        """See `models.cache.Cache.selected`."""
        return EnsembleCache(tuple(cache.selected(sources) for cache in self.members))


class EnsembleOutput(NamedTuple):
    """The outputs for some candidates of all members, as one `CandidateOutput`."""

    members: tuple

    def selected(self, sources):
        """See `models.candidates.CandidateOutput.selected`."""
        return EnsembleOutput(tuple(output.selected(sources) for output in self.members))


class Ensemble:
    """Models as one, for `decode`, `score` and `Translator`.

    A token's probability is the mean of the members' (softmax of each, then the mean, in
    float32), so the order of the members changes nothing, and one member alone is that member.
    Time and memory are the sum of the members'. Members may differ in everything but their
    vocabularies and special ids.

    Args:
        models: `Transformer`s.

    Raises:
        ValueError: if there is no model, or vocabularies or special ids differ.
        TypeError: if a model is no encoder-decoder.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> ensemble = kt.Ensemble([kt.Transformer(config), kt.Transformer(config)])
        >>> found = kt.decoding.decode(ensemble, np.array([[5, 7, 3]]), kt.Greedy(extra_length=4))
        >>> tuple(found.ids.shape)
        (1, 7)
    """

    def __init__(self, models: Iterable):
        self.models = tuple(models)
        if not self.models:
            raise ValueError("`models` must hold a model. Received: 0 models")
        for model in self.models:
            if not all(hasattr(model, name) for name in ("config", "encode", "start", "step")):
                raise TypeError(
                    "`models` must be `Transformer`s, or have their `config`, `encode`, `start` "
                    f"and `step`. Received: {type(model).__name__}"
                )
        configs = [model.config for model in self.models]
        for name in _SHARED:
            values = [getattr(config, name) for config in configs]
            if len(set(values)) > 1:
                raise ValueError(f"`models` must have the same `{name}`. Received: {values}")
        limits = [c.max_positions for c in configs if c.max_positions is not None]
        shared = {name: getattr(configs[0], name) for name in _SHARED}
        self.config = EnsembleConfig(**shared, max_positions=min(limits, default=None))

    @property
    def weights(self) -> list:
        """The weights of all members, each once."""
        return list({id(weight): weight for m in self.models for weight in m.weights}.values())

    @property
    def layers(self) -> list:
        """The layers of all members."""
        return [layer for model in self.models for layer in model.layers]

    def __call__(self, inputs: dict, training: bool = False) -> Tensor:
        """The call of a `Transformer`, with log-probabilities (B, T, V) float32 for logits."""
        return _mean([model(inputs, training=training) for model in self.models])

    def encode(self, source_ids: Tensor) -> tuple:
        """(B, S) int32 source ids -> the memories of all members."""
        return tuple(model.encode(source_ids) for model in self.models)

    def start(self, memory: tuple, max_length: int | Tensor, beams: int = 1) -> EnsembleCache:
        """The empty caches of all members; for the arguments see `Transformer.start`."""
        pairs = zip(self.models, memory, strict=True)
        return EnsembleCache(tuple(model.start(own, max_length, beams) for model, own in pairs))

    def candidate_output(self, ids: Tensor, bias: Tensor) -> EnsembleOutput:
        """The `candidate_output` of all members; for the arguments see `Transformer`."""
        return EnsembleOutput(tuple(model.candidate_output(ids, bias) for model in self.models))

    def step(
        self,
        token_ids: Tensor,
        cache: EnsembleCache,
        position: Tensor,
        beams: int = 1,
        return_attention_scores: bool = False,
        vocab_first: bool = False,
        candidates: EnsembleOutput | None = None,
    ) -> tuple:
        """The `step` of a `Transformer`, with log-probabilities for logits.

        Attention is the mean of the members'.
        """
        options = (position, beams, return_attention_scores, vocab_first)
        outputs = [None] * len(self.models) if candidates is None else candidates.members
        triples = zip(self.models, cache.members, outputs, strict=True)
        found = [
            model.step(token_ids, own, *options, *([] if output is None else [output]))
            for model, own, output in triples
        ]
        logits, caches, *weights = zip(*found, strict=True)
        means = [sum(each) / len(each) for each in weights]
        return _mean(logits, 0 if vocab_first else -1), EnsembleCache(caches), *means


def _mean(logits, axis=-1):
    """The log of the mean of the members' probabilities; one member's logits as they are.

    Args:
        logits: Of each member.
        axis: That of the vocabulary.
    """
    if len(logits) == 1:
        return logits[0]
    log_probs = [ops.log_softmax(ops.cast(x, "float32"), axis=axis) for x in logits]
    return ops.logsumexp(ops.stack(log_probs), axis=0) - math.log(len(logits))
