"""Searches that choose one token a row and step, and never go back; greedy search among them."""

import abc
import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.arguments import check_flag
from keras_transformer.decoding.constraints import IMPOSSIBLE, Constraints
from keras_transformer.decoding.options import Hypotheses, SearchOptions
from keras_transformer.decoding.selection import argmax, argmax_vocab_first
from keras_transformer.decoding.sizing import search_loop
from keras_transformer.layers.lowering.cache_slots import rows_of
from keras_transformer.layers.lowering.places import arange
from keras_transformer.typing import Tensor


class TokenState(NamedTuple):
    """What the loop carries, R rows."""

    position: Tensor  # scalar int32, tokens decoded so far
    token_ids: Tensor  # (R, 1) int32, the last token of each row
    output_ids: Tensor  # (R, T) int32, pads from `position` on
    log_probs: Tensor  # (R, T) float32 of the model, 0 behind the tokens; () if they are not kept
    finished: Tensor  # (R,) boolean
    cache: object  # of the step function


class TokenLoop:
    """One search, as its first state and the step from one state to the next.

    Args:
        search: A `TokenSearch`.
        constraints: `Constraints` of R = B * `beams` rows.
        keys: The result of `row_keys` of the search.
        step: `step(token_ids (R, 1), cache, position) -> logits (R, 1, V), cache`.
        limits: (R,) int32, most tokens of each row; 0 for a row that is to stay empty.
        slots: T, an integer or a scalar int tensor.
        vocab_first: Whether `step` gives logits (V, R) instead.
    """

    def __init__(self, search, constraints, keys, step, limits, slots, vocab_first=False):
        self.search, self.constraints, self.keys = search, constraints, keys
        self.vocab_first = vocab_first
        if vocab_first:
            self.choose = search.vocab_first_chooser(constraints)
        else:
            self.choose = search.chooser(constraints, keys)
        self.step, self.limits, self.slots = step, limits, slots
        self.places = arange(slots)  # once: see `cache_slots.next_slots`
        self.special_ids, self.scores = constraints.special_ids, search.keeps_scores

    def subset(self, sources):
        """The loop of some sources, (C,) int32 indices below B."""
        rows = rows_of(sources, self.search.beams)
        keys = self.keys if self.keys is None else ops.take(self.keys, rows, axis=0)
        return TokenLoop(
            self.search,
            self.constraints.subset(rows),
            keys,
            self.step,
            ops.take(self.limits, rows, axis=0),
            self.slots,
            self.vocab_first,
        )

    def start(self, cache):
        """The `TokenState` before the first token, with the cache that `step` needs there."""
        rows = ops.shape(self.limits)[0]
        return TokenState(
            position=ops.zeros((), "int32"),
            token_ids=ops.full((rows, 1), self.special_ids.bos_id, "int32"),
            output_ids=ops.full((rows, self.slots), self.special_ids.pad_id, "int32"),
            log_probs=ops.zeros((rows, self.slots), "float32") if self.scores else (),
            finished=self.limits <= 0,
            cache=cache,
        )

    def done(self, state):
        """(B,) boolean: all rows of a source are finished."""
        beams = self.search.beams
        if beams == 1:
            return state.finished
        return ops.all(ops.reshape(state.finished, (-1, beams)), axis=1)

    def selected(self, state, sources):
        """The state of some sources, (C,) int32."""
        rows = rows_of(sources, self.search.beams)
        fields = state._replace(position=(), cache=())
        fields = keras.tree.map_structure(lambda field: ops.take(field, rows, axis=0), fields)
        return fields._replace(position=state.position, cache=state.cache.selected(sources))

    def outcome(self, state):
        """What of a `TokenState` is the result: (B, N, T) ids and log-probabilities, or ()."""
        fields = state.output_ids, state.log_probs
        if self.search.beams == 1:
            return keras.tree.map_structure(lambda rows: ops.expand_dims(rows, 1), fields)
        shape = (-1, self.search.beams, self.slots)
        return keras.tree.map_structure(lambda rows: ops.reshape(rows, shape), fields)

    def advance(self, state):
        """A `TokenState` -> the next one, with one more token in unfinished rows."""
        position, token_ids, output_ids, log_probs, finished, cache = state
        logits, cache = self.step(token_ids, cache, position)
        if not self.vocab_first:
            logits = ops.squeeze(logits, 1)  # not a slice, which LiteRT copies number by number
        chosen = self.choose(logits, position, output_ids)
        at_limit = self.limits <= position + 1 if self.search.forced_eos else None
        if at_limit is not None:
            chosen = ops.where(at_limit, self.special_ids.eos_id, chosen)
        token_ids = ops.where(finished, self.special_ids.pad_id, chosen)
        is_slot = ops.equal(self.places, position)
        output_ids = ops.where(is_slot, ops.expand_dims(token_ids, 1), output_ids)
        if self.scores:
            own = self._log_probs(logits, chosen)
            own = self.constraints.scored(own, position)
            if at_limit is not None:
                own = ops.where(ops.expand_dims(at_limit, 1), 0.0, own)
            own = ops.where(ops.expand_dims(finished, 1), 0.0, own)
            log_probs = ops.where(is_slot, own, log_probs)
        position = position + 1
        ended = ops.logical_or(
            ops.equal(token_ids, self.special_ids.eos_id), self.limits <= position
        )
        finished = ops.logical_or(finished, ended)
        token_ids = ops.expand_dims(token_ids, 1)
        return TokenState(position, token_ids, output_ids, log_probs, finished, cache)

    def _log_probs(self, logits, chosen):
        """(R, 1) float32, of the chosen tokens (R,)."""
        axis = 0 if self.vocab_first else 1
        log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=axis)
        own = ops.take_along_axis(log_probs, ops.expand_dims(chosen, axis), axis=axis)
        return ops.transpose(own) if self.vocab_first else own


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenSearch(SearchOptions, abc.ABC):
    """A search in which every row chooses one token a step: greedy search and sampling."""

    keeps_scores = True  # whether hypotheses have scores

    def row_keys(self, source_ids, pad_id):
        """(R,) what the choice depends on beside logits and rules, or `None` for nothing.

        Args:
            source_ids: (B, S) int32, what the rows are made from, then pads, or `None`.
            pad_id: The id that is no token.
        """
        return None

    def vocab_first_chooser(self, constraints):
        """A `chooser` for logits (V, R), if the search `takes_vocab_first`."""
        raise NotImplementedError(f"{type(self).__name__} takes logits (R, V)")

    @abc.abstractmethod
    def chooser(self, constraints, keys):
        """`choose(logits (R, V), position, output_ids (R, T)) -> (R,) int32` tokens.

        Args:
            constraints: `Constraints`.
            keys: The result of `row_keys`.
        """

    def loop(
        self,
        step,
        limits,
        slots,
        special_ids,
        *,
        prefix_ids=None,
        allowed_ids=None,
        source_ids=None,
        unscored_prefix=0,
        vocab_first=False,
    ):
        """The `TokenLoop` of `search`, with the same arguments."""
        rules = dict(unscored_prefix=unscored_prefix, limits=limits)
        constraints = Constraints(self, special_ids, prefix_ids, allowed_ids, **rules)
        if self.beams > 1:
            limits = ops.repeat(limits, self.beams, axis=0)
        keys = self.row_keys(source_ids, special_ids.pad_id)
        return TokenLoop(self, constraints, keys, step, limits, slots, vocab_first)

    def search(
        self, step, cache, limits: Tensor, slots, special_ids, *, sizing=None, **inputs
    ) -> Hypotheses:
        """Decodes until every row has ended.

        Args:
            step: `step(token_ids (R, 1), cache, position) -> logits (R, 1, V), cache`, where
                R = B * `beams`.
            cache: What `step` needs before the first token, with `slots` slots; without any under
                `sizing`, which calls its `grown` and `selected` (see `models.cache.Cache`).
            limits: (B,) int32, most tokens of each row; 0 for a row that is to stay empty.
            slots: T, the largest limit that may occur; an integer or a scalar int tensor.
            special_ids: Any object with `pad_id`, `bos_id` and `eos_id`.
            sizing: A `Sizing` or `Stages`, or `None` for sizes that never change.
            **inputs: Each (B, …) int32 and `None` by default: `prefix_ids`, tokens that each
                row must begin with, which count towards the limits; `allowed_ids`, the only ids
                beside EOS that it may hold; `source_ids`, what it is made from. All end in pads.
                And `unscored_prefix`, see `decode`, and `vocab_first`, see `TokenLoop`.

        Returns:
            `Hypotheses`, N = `beams`: a row's tokens, then pads; one that reached its limit has
            no EOS.
        """
        loop = self.loop(step, limits, slots, special_ids, **inputs)
        ids, log_probs = search_loop(loop, cache, sizing)
        if not self.keeps_scores:
            return Hypotheses(ids)
        return Hypotheses(ids, ops.sum(log_probs, axis=2), log_probs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(TokenSearch):
    """Takes the likeliest token at each step, never pad or BOS; of equals, the lowest id.

    A row ends at its EOS, or at its own limit, so it depends neither on batch mates nor on
    padding. The first two options may be given without their names, as in `Greedy(7)`.

    Attributes:
        extra_length: A row may be this many tokens longer than its source, EOS included (the
            paper: 50).
        max_length: Most tokens of any row, EOS included; `None` for no further limit.
        forced_eos: Whether a row that reaches its limit has EOS as its last token, at no cost.
        min_length: Fewest tokens of a row, EOS included.
        forbidden_ids: A tuple of ids that are never chosen.
        no_repeat_ngram: No n-gram of this many target tokens occurs twice in a row; 0 for no
            such rule.
        repetition_penalty: Makes tokens that the row already holds less likely if it is above 1;
            see `SearchOptions`.
        scores: Whether the hypotheses have log-probabilities: of each token, and summed. If it is
            off, no op computes them.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.LanguageModel(config)
        >>> found = kt.generate(model, np.array([[5, 7]]), kt.Greedy(extra_length=3, scores=True))
        >>> tuple(found.ids.shape), tuple(found.hypotheses.log_probs.shape)
        ((1, 5), (1, 1, 5))
    """

    extra_length: int = dataclasses.field(default=50, kw_only=False)
    max_length: int | None = dataclasses.field(default=None, kw_only=False)
    scores: bool = False

    takes_vocab_first = True

    def __post_init__(self):
        super().__post_init__()
        check_flag(scores=self.scores)

    @property
    def keeps_scores(self) -> bool:
        """Whether hypotheses have scores."""
        return self.scores

    def vocab_first_chooser(self, constraints):
        def choose(logits, position, output_ids):
            chosen = argmax_vocab_first(logits, constraints.control_ids)
            return constraints.forced(chosen, position)

        return choose

    def chooser(self, constraints, keys=None):
        def choose(logits, position, output_ids):
            if constraints.forbids_only_controls:
                chosen = argmax(constraints.without_controls(logits))
                return constraints.forced(chosen, position)
            guide = constraints.guiding_logits(logits, position, output_ids)
            banned = constraints.banned(ops.shape(logits)[-1], position, output_ids)
            return argmax(ops.where(banned, IMPOSSIBLE, guide))

        return choose
