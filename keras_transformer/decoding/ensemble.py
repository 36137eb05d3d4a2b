"""Several models that translate as one: their probabilities are averaged at every step."""

import dataclasses
import math

from keras import ops

_SHARED = ("vocab_size", "target_size", "pad_id", "unk_id", "bos_id", "eos_id")


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """What a search and a `Translator` ask of a config."""

    vocab_size: int
    target_size: int
    pad_id: int
    unk_id: int
    bos_id: int
    eos_id: int
    max_positions: int | None  # the least of the members'


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
    """

    def __init__(self, models):
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
    def weights(self):
        """The weights of all members, each once."""
        return list({id(weight): weight for m in self.models for weight in m.weights}.values())

    def __call__(self, inputs, training=False):
        """As a `Transformer`: (B, T, V) float32, log-probabilities in the place of logits."""
        return _mean([model(inputs, training=training) for model in self.models])

    def encode(self, source_ids):
        """(B, S) int32 source ids -> the memories of all members."""
        return tuple(model.encode(source_ids) for model in self.models)

    def start(self, memory, max_length, beams=1):
        """The empty caches of all members; arguments as of `Transformer.start`."""
        pairs = zip(self.models, memory, strict=True)
        return tuple(model.start(own, max_length, beams) for model, own in pairs)

    def step_layers(self):
        """Those of all members."""
        return [layer for model in self.models for layer in model.step_layers()]

    def step(
        self,
        token_ids,
        cache,
        position,
        beams=1,
        return_attention_scores=False,
        vocab_first=False,
    ):
        """As `Transformer.step`, with log-probabilities in the place of logits.

        Attention is the mean of the members'.
        """
        options = (position, beams, return_attention_scores, vocab_first)
        pairs = zip(self.models, cache, strict=True)
        found = [model.step(token_ids, own, *options) for model, own in pairs]
        logits, caches, *weights = zip(*found, strict=True)
        means = [sum(each) / len(each) for each in weights]
        return _mean(logits, 0 if vocab_first else -1), tuple(caches), *means

    def reorder(self, cache, rows):
        """The caches whose row r continues what row `rows[r]` has decoded."""
        pairs = zip(self.models, cache, strict=True)
        return tuple(model.reorder(own, rows) for model, own in pairs)

    def grow(self, cache, count):
        """The caches with room for `count` more target tokens."""
        pairs = zip(self.models, cache, strict=True)
        return tuple(model.grow(own, count) for model, own in pairs)

    def select(self, cache, sources):
        """The caches of some of their sources."""
        pairs = zip(self.models, cache, strict=True)
        return tuple(model.select(own, sources) for model, own in pairs)


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
