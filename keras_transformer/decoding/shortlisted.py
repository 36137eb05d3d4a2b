"""A search among the candidates of a lexical shortlist, as a search of a smaller vocabulary.

The output matrix is the largest of a small model, and a step of few rows is the time that it takes
to read it. So its rows for the candidates of the batch are gathered once, and the search runs in
their places: slot c stands for the id `ids[c]`. What a row may not take, which is a candidate of
another, has no probability there: no batch mate changes anything.
"""

import functools
from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.constraints import IMPOSSIBLE, holds
from keras_transformer.layers.lowering.places import arange, places_where
from keras_transformer.typing import Tensor

_LEAST_PADDED = 256  # candidates that XLA compiles for; then twice as many, and so on


class Candidates(NamedTuple):
    """The candidates of a batch.

    Attributes:
        ids: (C,) int32: pad, BOS and EOS in ascending order, then the others, each once; pads may
            fill them up.
        allowed: (B, C) boolean: it is a candidate of the row, as pad, BOS and EOS are of all. No
            search goes on with the first two, but they have their share of probability.
        slots: (V,) int32, the slot of each id; that of EOS for what is no candidate.
    """

    ids: Tensor
    allowed: Tensor
    slots: Tensor


class Slots(NamedTuple):
    """The special ids of a search among candidates, which are slots, for `Constraints`."""

    pad_id: int
    bos_id: int
    eos_id: int
    ids: Tensor  # (C,) int32 of the candidates

    @property
    def target_size(self):
        """C."""
        return ops.shape(self.ids)[0]


class CandidateCache(NamedTuple):
    """The cache of a model, and its output for the candidates."""

    inner: Any
    output: Any  # a `CandidateOutput`, or several
    ids: Tensor  # (C,) int32

    def reordered(self, rows):
        """See `models.cache.Cache.reordered`."""
        return self._replace(inner=self.inner.reordered(rows))

    def grown(self, count):
        """See `models.cache.Cache.grown`."""
        return self._replace(inner=self.inner.grown(count))

    def selected(self, sources):
        """See `models.cache.Cache.selected`."""
        inner, output = (each.selected(sources) for each in (self.inner, self.output))
        return self._replace(inner=inner, output=output)


class Shortlisted:
    """A model whose vocabulary are the candidates, for a search.

    Args:
        model: A `Transformer`, or an `Ensemble` of these.
        candidates: `Candidates`.

    Raises:
        TypeError: if the model cannot compute the logits of a few ids alone.
    """

    def __init__(self, model, candidates):
        if not hasattr(model, "candidate_output"):
            raise TypeError(
                "`model` must be a `Transformer` or an `Ensemble` to go with a shortlist, or have "
                f"their `candidate_output`. Received: {type(model).__name__}"
            )
        self.model, self.candidates = model, candidates
        special = special_ids_of(model.config)
        places = [special.index(getattr(model.config, name)) for name in Slots._fields[:3]]
        self.config = Slots(*places, candidates.ids)
        self.layers = getattr(model, "layers", ())

    def started(self, cache):
        """The cache of a search, from the one that the model's `start` gave."""
        bias = ops.where(self.candidates.allowed, 0.0, ops.cast(IMPOSSIBLE, "float32"))
        ids = self.candidates.ids
        return CandidateCache(cache, self.model.candidate_output(ids, bias), ids)

    def step(self, token_ids, cache, position, beams=1, **options):
        """The model's `step`, of slots and with logits (R, 1, C)."""
        token_ids = self.ids_of(token_ids)
        options = dict(beams=beams, candidates=cache.output, **options)
        logits, inner, *more = self.model.step(token_ids, cache.inner, position, **options)
        return logits, cache._replace(inner=inner), *more

    def ids_of(self, slots):
        """The ids that slots stand for."""
        return ops.take(self.candidates.ids, slots, axis=0)

    def inputs(self, search, source_ids, prefix_ids=None, allowed_ids=None, **others):
        """The inputs of a search, with slots for ids.

        `source_ids` are only looked at for their pads, and for what makes two of them differ. A
        search that may ban EOS is told what a row may take: where that is all forbidden, EOS comes.
        """
        pad_id, first = self.model.config.pad_id, len(special_ids_of(self.model.config))
        is_pad = ops.equal(source_ids, pad_id)
        others["source_ids"] = ops.where(is_pad, self.config.pad_id, source_ids + first)
        for name, ids in (("prefix_ids", prefix_ids), ("allowed_ids", allowed_ids)):
            if ids is not None:
                ids = ops.cast(ids, "int32")
                slots = ops.take(self.candidates.slots, ids, axis=0)
                others[name] = ops.where(ops.equal(ids, pad_id), self.config.pad_id, slots)
        if search.min_length > 1:
            others["allowed_ids"] = self._own(others.get("allowed_ids"))
        return others

    def _own(self, slots):
        """(B, A) slots, or all, with pads for those that are no candidates of their row."""
        allowed = self.candidates.allowed
        if slots is None:
            own, slots = allowed, arange(ops.shape(allowed)[1])
        else:
            own = ops.take_along_axis(allowed, slots, axis=1)
        return ops.where(own, slots, self.config.pad_id)

    def result(self, found):
        """`Hypotheses` of slots -> of ids."""
        return found._replace(ids=self.ids_of(found.ids))


def candidates_of(candidate_ids, config, prefix_ids=None, *, few_sizes=False):
    """The `Candidates` of a batch.

    Args:
        candidate_ids: (B, A) int32 in [0, V), those of each row, then pads; any of them may come
            twice.
        config: Anything with `target_size`, `pad_id`, `bos_id` and `eos_id`.
        prefix_ids: (B, P) int32, then pads: what each row begins with, which it may take.
        few_sizes: Whether C is to be a power of two, as XLA compiles for each.
    """
    vocab_size, special = config.target_size, special_ids_of(config)
    places = arange(vocab_size)
    member = _members(candidate_ids, vocab_size)
    if prefix_ids is not None:
        member = ops.logical_or(member, _members(prefix_ids, vocab_size))
    is_special = functools.reduce(ops.logical_or, [ops.equal(places, each) for each in special])
    member = ops.logical_or(member, is_special)
    chosen = ops.logical_and(ops.any(member, axis=0), ops.logical_not(is_special))
    ids = places_where(chosen, _most(candidate_ids, prefix_ids, vocab_size))
    ids = ops.concatenate([ops.convert_to_tensor(special, "int32"), ids])
    if few_sizes:
        fill = ops.full((_up_to_power_of_two(ops.shape(ids)[0]),), config.pad_id, "int32")
        ids = ops.concatenate([ids, fill])
    slots = ops.cast(ops.cumsum(ops.cast(chosen, "int32")), "int32") + (len(special) - 1)
    slots = ops.where(chosen, slots, special.index(config.eos_id))
    for slot, each in enumerate(special):
        slots = ops.where(ops.equal(places, each), slot, slots)
    # An id that fills up is one of the others again, or one that nobody may take.
    is_first = ops.equal(ops.take(slots, ids, axis=0), arange(ops.shape(ids)[0]))
    return Candidates(ids, ops.logical_and(ops.take(member, ids, axis=1), is_first), slots)


def special_ids_of(config):
    """Pad, BOS and EOS, each once, ascending: the ids of the first slots."""
    return sorted({config.pad_id, config.bos_id, config.eos_id})


def _members(ids, vocab_size):
    ids = ops.cast(ids, "int32")
    return holds(ids, ops.ones_like(ids, "bool"), vocab_size)


def _most(candidate_ids, prefix_ids, vocab_size):
    """How many candidates there can be, where all sizes are known; else a scalar tensor."""
    size = 0
    for ids in (candidate_ids, prefix_ids):
        if ids is not None:
            rows, columns = ops.shape(ids)
            size = size + rows * columns
    return min(size, vocab_size) if isinstance(size, int) else size


def _up_to_power_of_two(count):
    """How many are missing to the next power of two."""
    least = ops.cast(_LEAST_PADDED, "int32")
    doublings = ops.ceil(ops.log2(ops.cast(ops.maximum(count, least), "float32")))
    return ops.cast(ops.power(2.0, doublings), "int32") - count
