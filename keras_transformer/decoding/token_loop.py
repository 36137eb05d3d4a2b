"""The loop of searches that choose one token a row and step, and never go back."""

import abc
import dataclasses
from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.decoding.constraints import Constraints
from keras_transformer.decoding.hypotheses import Hypotheses
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.sizing import search_loop
from keras_transformer.layers.lowering.cache_slots import rows_of


class TokenState(NamedTuple):
    """What the loop carries, R rows."""

    position: object  # scalar int32, tokens decoded so far
    token_ids: object  # (R, 1) int32, the last token of each row
    output_ids: object  # (R, T) int32, pads from `position` on
    log_probs: object  # (R, T) float32 of the model, 0 behind the tokens; () if nobody asks
    finished: object  # (R,) boolean
    cache: object  # of the step function


class TokenLoop:
    """One search, as its first state and the step from one state to the next.

    Args:
        options: A `TokenSearch`.
        constraints: `Constraints` of R = B * `beams` rows.
        keys: What `row_keys` of the options gives.
        step: `step(token_ids (R, 1), cache, position) -> logits (R, 1, V), cache`.
        limits: (R,) int32, most tokens of each row; 0 for a row that is to stay empty.
        slots: T, an integer or a scalar int tensor.
        vocab_first: Whether `step` gives logits (V, R) instead, which `options` have to take.
    """

    def __init__(self, options, constraints, keys, step, limits, slots, vocab_first=False):
        self.options, self.constraints, self.keys = options, constraints, keys
        self.vocab_first = vocab_first
        if vocab_first:
            self.choose = options.vocab_first_chooser(constraints)
        else:
            self.choose = options.chooser(constraints, keys)
        self.step, self.limits, self.slots = step, limits, slots
        self.places = ops.arange(slots)  # once: see `layers.lowering.cache_slots.next_slots`
        self.special_ids, self.scores = constraints.special_ids, options.keeps_scores

    def of(self, sources):
        """The loop of some sources, (C,) int32 places among the B."""
        rows = rows_of(sources, self.options.beams)
        keys = self.keys if self.keys is None else ops.take(self.keys, rows, axis=0)
        return TokenLoop(
            self.options,
            self.constraints.of(rows),
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
        beams = self.options.beams
        if beams == 1:
            return state.finished
        return ops.all(ops.reshape(state.finished, (-1, beams)), axis=1)

    def selected(self, state, sources, select):
        """The state of some sources, (C,) int32; `select` as of `Growth`."""
        rows = rows_of(sources, self.options.beams)
        fields = state._replace(position=(), cache=())
        fields = keras.tree.map_structure(lambda field: ops.take(field, rows, axis=0), fields)
        return fields._replace(position=state.position, cache=select(state.cache, sources))

    def outcome(self, state):
        """(B, N, T) ids and, or (), log-probabilities: what of a `TokenState` is its result."""
        fields = state.output_ids, state.log_probs
        if self.options.beams == 1:
            return keras.tree.map_structure(lambda rows: ops.expand_dims(rows, 1), fields)
        shape = (-1, self.options.beams, self.slots)
        return keras.tree.map_structure(lambda rows: ops.reshape(rows, shape), fields)

    def advance(self, state):
        """A `TokenState` -> the next one, with a token more in unfinished rows."""
        position, token_ids, output_ids, log_probs, finished, cache = state
        logits, cache = self.step(token_ids, cache, position)
        if not self.vocab_first:
            logits = ops.squeeze(logits, 1)  # not a slice, which LiteRT copies number by number
        chosen = self.choose(logits, position, output_ids)
        token_ids = ops.where(finished, self.special_ids.pad_id, chosen)
        is_slot = ops.equal(self.places, position)
        output_ids = ops.where(is_slot, ops.expand_dims(token_ids, 1), output_ids)
        if self.scores:
            own = self._log_probs(logits, chosen)
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
    """A search of which every row chooses a token a step: greedy search and sampling."""

    keeps_scores = True  # whether hypotheses have scores

    def row_keys(self, source_ids, pad_id):
        """(R,) what the choice depends on beside logits and rules, or `None` for nothing.

        Args:
            source_ids: (B, S) int32, what the rows are made from, then pads, or `None`.
            pad_id: What is no token.
        """
        return None

    def vocab_first_chooser(self, constraints):
        """As `chooser`, of logits (V, R): of a search that `takes_vocab_first`."""
        raise NotImplementedError(f"{type(self).__name__} takes logits (R, V)")

    @abc.abstractmethod
    def chooser(self, constraints, keys):
        """`choose(logits (R, V), position, output_ids (R, T)) -> (R,) int32` tokens.

        Args:
            constraints: `Constraints`.
            keys: What `row_keys` has given.
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
        vocab_first=False,
    ):
        """The `TokenLoop` of `search`, whose arguments these are."""
        constraints = Constraints(self, special_ids, prefix_ids, allowed_ids, limits=limits)
        if self.beams > 1:
            limits = ops.repeat(limits, self.beams, axis=0)
        keys = self.row_keys(source_ids, special_ids.pad_id)
        return TokenLoop(self, constraints, keys, step, limits, slots, vocab_first)

    def search(
        self, step, cache, limits, slots, special_ids, *, reorder=None, growth=None, **inputs
    ):
        """Decodes until every row has ended.

        Args:
            step: `step(token_ids (R, 1), cache, position) -> logits (R, 1, V), cache`, where
                R = B * `beams`.
            cache: What `step` needs before the first token, with `slots` slots; none with `growth`.
            limits: (B,) int32, most tokens of each row; 0 for a row that is to stay empty.
            slots: T, the largest limit that may occur; an integer or a scalar int tensor.
            special_ids: Anything with `pad_id`, `bos_id` and `eos_id`.
            reorder: Not needed: a row goes on from itself.
            growth: As of `search_loop`.
            **inputs: Each (B, …) int32 and `None` by default: `prefix_ids`, tokens that each
                row must begin with, which count towards the limits; `allowed_ids`, the only ids
                beside EOS that it may hold; `source_ids`, what it is made from. All end in pads.
                And `vocab_first`, as of `TokenLoop`.

        Returns:
            `Hypotheses`, N = `beams`: a row's tokens, then pads; one that reached its limit has
            no EOS.
        """
        loop = self.loop(step, limits, slots, special_ids, **inputs)
        ids, log_probs = search_loop(loop, cache, growth)
        if not self.keeps_scores:
            return Hypotheses(ids)
        return Hypotheses(ids, ops.sum(log_probs, axis=2), log_probs)
