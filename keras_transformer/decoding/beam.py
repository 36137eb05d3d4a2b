"""Beam search: the likeliest whole hypotheses, not the likeliest next token."""

import dataclasses
from typing import NamedTuple

from keras import ops

from keras_transformer.arguments import check_choice, check_finite, check_size
from keras_transformer.decoding.constraints import IMPOSSIBLE, Constraints
from keras_transformer.decoding.hypotheses import Hypotheses
from keras_transformer.decoding.options import SearchOptions

STOPPING = ("exact", "first_finished")


class BeamState(NamedTuple):
    """What the loop carries. R is B * K, the K beams of each row next to each other."""

    position: object  # scalar int32, tokens decoded so far
    token_ids: object  # (R, 1) int32, the last token of each beam
    alive: object  # Beams without EOS; their scores are summed log-probabilities
    finished: object  # Beams with EOS; their scores are penalised, IMPOSSIBLE where there is none
    done: object  # (B,) boolean
    cache: object  # of the step function


class Beams(NamedTuple):
    """K hypotheses a row, best first; of equals, the one found first."""

    scores: object  # (B, K) float32
    ids: object  # (B, K, T) int32, pads behind the tokens
    log_probs: object  # (B, K, T) float32, of each token; 0 behind them


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(SearchOptions):
    """Keeps the `beam_size` likeliest hypotheses at every step.

    A hypothesis' score is its own summed log-probability, EOS included, over
    ((5 + length) / 6)^length_penalty, where length counts EOS (Wu et al. 2016, arXiv 1609.08144,
    eq. 14). Each step looks at the 2 * `beam_size` likeliest continuations of all alive
    hypotheses; those that end are finished and never change, the best of the others stay alive.
    A row's result depends on its own source alone. Under a `repetition_penalty` the score is the
    penalised distribution's.

    Attributes:
        beam_size: Hypotheses K that stay alive.
        length_penalty: Exponent; 0 for none.
        n_best: Hypotheses that are returned, at most `beam_size`.
        stopping: `"exact"`: a row ends when no alive hypothesis can still beat its `beam_size`
            finished ones; `"first_finished"`: when it has `beam_size` finished ones.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    stopping: str = "exact"

    def __post_init__(self):
        super().__post_init__()
        check_size(beam_size=self.beam_size, n_best=self.n_best)
        check_choice(STOPPING, stopping=self.stopping)
        check_finite(length_penalty=self.length_penalty)
        if self.n_best > self.beam_size:
            raise ValueError(
                "`n_best` must be at most `beam_size`. Received: "
                f"n_best={self.n_best}, beam_size={self.beam_size}"
            )

    @property
    def beams(self):
        """Rows of the step function for each row of the source."""
        return self.beam_size

    def score_of(self, log_prob, length):
        """The score of a hypothesis of `length` tokens, EOS included, with this log-probability."""
        return log_prob / ((5 + length) / 6) ** self.length_penalty

    def search(
        self,
        step,
        cache,
        limits,
        slots,
        special_ids,
        *,
        reorder,
        prefix_ids=None,
        allowed_ids=None,
        source_ids=None,
    ):
        """Decodes until every row has ended.

        Args:
            step: `step(token_ids (R, 1), cache, position) -> logits (R, 1, V), cache`, where
                R = B * `beam_size`.
            cache: What `step` needs before the first token, with at least `slots` slots.
            limits: (B,) int32, most tokens of each row; 0 for a row that is to stay empty.
            slots: T, the largest limit that may occur; an integer or a scalar int tensor.
            special_ids: Anything with `pad_id`, `bos_id` and `eos_id`.
            reorder: `reorder(cache, rows (R,)) -> cache` whose row r is row `rows[r]` of before.
            prefix_ids: (B, P) int32, tokens that each row must begin with, then pads.
            allowed_ids: (B, A) int32, the only ids beside EOS that each row may hold, then pads.
            source_ids: Not needed.

        Returns:
            `Hypotheses`, N = `n_best`. Where fewer are finished, those follow that have reached
            the limit, without EOS.
        """

        constraints = Constraints(self, special_ids, prefix_ids, allowed_ids)

        def unfinished(position, token_ids, alive, finished, done, cache):
            return ops.logical_not(ops.all(done))

        def advance(position, token_ids, alive, finished, done, cache):
            logits, cache = step(token_ids, cache, position)
            log_probs = self._log_probs(ops.squeeze(logits, 1), constraints, position, alive.ids)
            beams, tokens, grown = _best_continuations(alive, *log_probs, self.beam_size, position)
            ends = ops.equal(tokens, special_ids.eos_id)
            ended_scores = self._penalised(
                ops.where(ends, grown.scores, IMPOSSIBLE), self._penalty(position + 1)
            )
            new_finished = _best_of(finished, grown._replace(scores=ended_scores), self.beam_size)
            order, alive_scores = _order(ops.where(ends, IMPOSSIBLE, grown.scores), self.beam_size)
            new_alive = _take(grown._replace(scores=alive_scores), order)
            alive, finished = _kept(done, alive, new_alive), _kept(done, finished, new_finished)
            rows = _rows(ops.take_along_axis(beams, order, axis=1), self.beam_size)
            token_ids = ops.reshape(ops.take_along_axis(tokens, order, axis=1), (-1, 1))
            position = position + 1
            done = ops.logical_or(done, limits <= position)
            done = ops.logical_or(done, self._is_settled(alive, finished, position, limits))
            cache = reorder(cache, rows)
            return BeamState(position, token_ids, alive, finished, done, cache)

        start = self._start(limits, slots, special_ids, cache)
        end = BeamState(*ops.while_loop(unfinished, advance, start))
        return self._result(end, limits, special_ids)

    def _start(self, limits, slots, special_ids, cache):
        batch, size = ops.shape(limits)[0], self.beam_size
        first_only = ops.where(ops.arange(size) > 0, IMPOSSIBLE, 0.0)  # all beams are equal yet
        none = Beams(
            scores=ops.full((batch, size), IMPOSSIBLE, "float32"),
            ids=ops.full((batch, size, slots), special_ids.pad_id, "int32"),
            log_probs=ops.zeros((batch, size, slots), "float32"),
        )
        return BeamState(
            position=ops.zeros((), "int32"),
            token_ids=ops.full((batch * size, 1), special_ids.bos_id, "int32"),
            alive=none._replace(scores=ops.zeros((batch, size), "float32") + first_only),
            finished=none,
            done=limits <= 0,
            cache=cache,
        )

    def _log_probs(self, logits, constraints, position, alive_ids):
        """(R, V) float32 log-probabilities: those of the model, and those that guide the search.

        In the latter, what may not be chosen is IMPOSSIBLE.
        """
        output_ids = None
        if constraints.reads_output:
            output_ids = ops.reshape(alive_ids, (-1, ops.shape(alive_ids)[2]))
        own = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        guiding = own
        if constraints.changes_probabilities:
            guiding = constraints.guiding_logits(logits, position, output_ids)
            guiding = ops.log_softmax(guiding, axis=-1)
        banned = constraints.banned(logits.shape[-1], position, output_ids)
        return own, ops.where(banned, IMPOSSIBLE, guiding)

    def _penalised(self, scores, penalty):
        return ops.where(_is_possible(scores), scores / penalty, IMPOSSIBLE)

    def _penalty(self, length):
        """((5 + length) / 6)^length_penalty, float32; `length` counts EOS."""
        return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, self.length_penalty)

    def _is_settled(self, alive, finished, position, limits):
        """(B,) boolean: nothing that is still alive can matter."""
        worst_finished = finished.scores[:, -1]
        is_full = _is_possible(worst_finished)
        nothing_left = ops.logical_not(_is_possible(alive.scores[:, 0]))
        if self.stopping == "first_finished":
            return ops.logical_or(is_full, nothing_left)
        # Log-probabilities only fall. What divides them grows with the length, or shrinks with
        # it: so at best a hypothesis stays as it is and ends at the limit, or at once.
        length = limits if self.length_penalty > 0 else position + 1
        bound = alive.scores[:, 0] / self._penalty(length)
        is_beaten = ops.logical_and(is_full, worst_finished >= bound)
        return ops.logical_or(is_beaten, nothing_left)

    def _result(self, end, limits, special_ids):
        """The finished hypotheses, best first, then those that the limit has cut."""
        alive, finished = end.alive, end.finished
        penalty = ops.expand_dims(self._penalty(ops.maximum(limits, 1)), 1)
        cut_scores = self._penalised(alive.scores, penalty)
        count = ops.sum(ops.cast(_is_possible(finished.scores), "int32"), axis=1, keepdims=True)
        rank = ops.expand_dims(ops.arange(self.n_best), 0)
        order = ops.where(rank < count, rank, self.beam_size + rank - count)
        both = _joined(finished, alive._replace(scores=cut_scores))
        chosen = Beams(*(_along(field, order) for field in both))
        is_one = ops.expand_dims(_is_possible(chosen.scores), 2)
        return Hypotheses(
            ids=ops.where(is_one, chosen.ids, special_ids.pad_id),
            scores=chosen.scores,
            log_probs=ops.where(is_one, chosen.log_probs, 0.0),
        )


def _is_possible(scores):
    return scores > IMPOSSIBLE / 2


def _best_continuations(alive, own, guiding, size, position):
    """The 2K likeliest tokens of all beams: beams (B, 2K), tokens (B, 2K), the grown `Beams`."""
    vocab_size = own.shape[-1]
    totals = ops.reshape(guiding, (-1, size, vocab_size))
    totals = ops.expand_dims(alive.scores, -1) + totals
    count = min(2 * size, size * vocab_size)
    scores, index = ops.top_k(ops.reshape(totals, (-1, size * vocab_size)), count)
    index = ops.cast(index, "int32")
    beams, tokens = index // vocab_size, index % vocab_size
    chosen = ops.take_along_axis(ops.reshape(own, (-1, size * vocab_size)), index, axis=1)
    here = ops.equal(ops.arange(ops.shape(alive.ids)[2]), position)
    ids = ops.where(here, ops.expand_dims(tokens, 2), _along(alive.ids, beams))
    log_probs = ops.where(here, ops.expand_dims(chosen, 2), _along(alive.log_probs, beams))
    return beams, tokens, Beams(scores, ids, log_probs)


def _order(scores, size):
    """The places of the `size` best scores, of equals the first, and these scores."""
    best, order = ops.top_k(scores, size)
    return ops.cast(order, "int32"), best


def _take(beams, order):
    """`beams`, whose scores are in order already, with the other fields brought into it."""
    return Beams(beams.scores, _along(beams.ids, order), _along(beams.log_probs, order))


def _best_of(one, other, size):
    both = _joined(one, other)
    order, scores = _order(both.scores, size)
    return _take(both._replace(scores=scores), order)


def _joined(one, other):
    return Beams(*(ops.concatenate(pair, axis=1) for pair in zip(one, other, strict=True)))


def _kept(done, old, new):
    """Rows that are done stay as they are."""

    def select(old, new):
        return ops.where(ops.reshape(done, (-1, *[1] * (len(old.shape) - 1))), old, new)

    return Beams(*map(select, old, new))


def _along(field, order):
    """(B, K, ...) by (B, N) places -> (B, N, ...)."""
    missing = tuple(range(2, len(field.shape)))
    return ops.take_along_axis(field, ops.expand_dims(order, missing) if missing else order, axis=1)


def _rows(beams, size):
    """(B, K) beams within a row -> (R,) rows."""
    first = ops.expand_dims(ops.arange(ops.shape(beams)[0]) * size, 1)
    return ops.reshape(beams + first, (-1,))
