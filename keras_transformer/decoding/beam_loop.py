"""The loop of beam search: from one state to the next.

On a device a step is a few hundred small ops, so this code saves ops: it gathers rows by products
(see `selection`), carries ids as float32, and leaves out what the caller did not ask for.
"""

import copy
from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.decoding.options import Hypotheses
from keras_transformer.decoding.selection import best_sums, gather_rows, log_total, one_hot_rows
from keras_transformer.layers.lowering.cache_slots import rows_of
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.projection import reshape
from keras_transformer.typing import Tensor

_LEAST_ATTENTION = 1e-6  # to a source token, in the coverage penalty


class BeamState(NamedTuple):
    """What the loop carries. R is B * K, the K beams of each row next to each other."""

    position: Tensor  # scalar int32, tokens decoded so far
    token_ids: Tensor  # (R, 1) int32, the last token of each beam
    alive: object  # `Beams` without EOS; their scores are summed log-probabilities
    finished: object  # `Beams` with EOS; their scores are penalised, IMPOSSIBLE where there is none
    done: Tensor  # (B,) boolean
    attention: Tensor  # (B, K, S) float32, summed, of `alive`; () without coverage penalty
    cache: object  # of the step function


class Beams(NamedTuple):
    """K hypotheses a row, best first; of equals, the one found first."""

    scores: Tensor  # (B, K) float32
    ids: Tensor  # (B, K, T) float32 whole numbers, pads behind the tokens
    log_probs: Tensor  # (B, K, T) float32, of each token, 0 behind them; () if not asked for


class Continuations(NamedTuple):
    """What the hypotheses of a row may become, each by one token."""

    scores: Tensor  # (B, K) float32 of the K best that go on, best first
    beams: Tensor  # (B, K) int32, whose continuation each is
    tokens: Tensor  # (B, K) int32
    log_probs: Tensor  # (B, K) float32 of the token alone; () if not asked for
    end_scores: Tensor  # (B, K) float32 of each hypothesis with EOS after it
    end_log_probs: Tensor  # (B, K) float32 of that EOS alone; () if not asked for


class BeamLoop:
    """One search, as its first state, the step from one state to the next, and the result.

    Args:
        search: A `BeamSearch`.
        constraints: `Constraints`.
        step: See `BeamSearch.search`.
        limits: (B,) int32, most tokens of each row; 0 for a row that is to stay empty.
        slots: T, an integer or a scalar int tensor.
        special_ids: Any object with `pad_id`, `bos_id` and `eos_id`.
        source_ids: (B, S) int32, or `None` without coverage penalty.
    """

    def __init__(self, search, constraints, step, limits, slots, special_ids, source_ids=None):
        self.search, self.constraints, self.step = search, constraints, step
        self.limits, self.slots = limits, slots
        self.limit_penalty = search.penalty(ops.maximum(limits, 1))
        self.places = arange(slots)  # once: see `cache_slots.next_slots`
        self.special_ids = special_ids
        self.size = search.beam_size
        self.is_source = None
        if search.coverage_penalty:
            is_source = ops.not_equal(source_ids, special_ids.pad_id)
            self.is_source = ops.expand_dims(ops.cast(is_source, "float32"), 1)  # (B, 1, S)

    def subset(self, sources):
        """The loop of some sources, (C,) int32 indices below B."""
        some = copy.copy(self)
        some.constraints = self.constraints.subset(rows_of(sources, self.size))
        some.limits = ops.take(self.limits, sources, axis=0)
        some.limit_penalty = ops.take(self.limit_penalty, sources, axis=0)
        if self.is_source is not None:
            some.is_source = ops.take(self.is_source, sources, axis=0)
        return some

    def start(self, cache):
        """The `BeamState` before the first token, with the cache that `step` needs there."""
        batch, size = ops.shape(self.limits)[0], self.size
        shape = (batch, size, self.slots)
        impossible = ops.cast(IMPOSSIBLE, "float32")  # of two Python floats Keras makes `floatx`
        first_only = ops.where(arange(size) > 0, impossible, 0.0)  # all beams are still equal
        none = Beams(
            scores=ops.full((batch, size), IMPOSSIBLE, "float32"),
            ids=ops.full(shape, float(self.special_ids.pad_id), "float32"),
            log_probs=ops.zeros(shape, "float32") if self.search.token_log_probs else (),
        )
        return BeamState(
            position=ops.zeros((), "int32"),
            token_ids=ops.full((batch * size, 1), self.special_ids.bos_id, "int32"),
            alive=none._replace(scores=ops.zeros((batch, size), "float32") + first_only),
            finished=none,
            done=self.limits <= 0,
            attention=self._nothing_seen(),
            cache=cache,
        )

    def done(self, state):
        """(B,) boolean."""
        return state.done

    def selected(self, state, sources):
        """The state of some sources, (C,) int32."""
        fields = state._replace(position=(), token_ids=(), cache=())
        fields = keras.tree.map_structure(lambda field: ops.take(field, sources, axis=0), fields)
        return fields._replace(
            position=state.position,
            token_ids=ops.take(state.token_ids, rows_of(sources, self.size), axis=0),
            cache=state.cache.selected(sources),
        )

    def outcome(self, state):
        """What of a `BeamState` the `result` is made from."""
        return state.alive, state.finished, state.attention

    def advance(self, state):
        """A `BeamState` -> the next one."""
        position, token_ids, alive, finished, done, attention, cache = state
        logits, cache, *seen = self.step(token_ids, cache, position)
        if self.is_source is not None:
            (seen,) = seen
            if done.shape[0] != 1:  # a row that waits for its mates reads no further
                seen = ops.where(ops.expand_dims(done, (1, 2)), 0.0, seen)
            attention = attention + seen
        found = self._continuations(ops.squeeze(logits, 1), position, alive)
        if self.search.forced_eos:
            found = self._ending_at_limit(found, alive, position)
        if done.shape[0] != 1:  # the loop ends when a single row is done
            found = self._standing_still(found, alive, ops.expand_dims(done, 1))
        is_slot = ops.equal(self.places, position)
        position = position + 1
        ended = self._scores_of_ended(found, position, attention)
        finished = self._with_ended(finished, alive, found, ended, is_slot)
        alive = self._going_on(alive, found, is_slot)
        done = ops.logical_or(done, self.limits <= position)
        settled = self._is_settled(alive, finished, position)
        if self.search.candidates == "joint":  # what is alive counts if only the limit ends it
            gone = ops.logical_and(settled, self.limits > position)
            scores = ops.where(ops.expand_dims(gone, 1), IMPOSSIBLE, alive.scores)
            alive = alive._replace(scores=scores)
        done = ops.logical_or(done, settled)
        first_rows = ops.expand_dims(arange(ops.shape(found.beams)[0]) * self.size, 1)
        cache = cache.reordered(ops.reshape(found.beams + first_rows, (-1,)))
        if self.is_source is not None:
            attention = gather_rows(one_hot_rows(found.beams, self.size), attention)
        token_ids = ops.reshape(found.tokens, (-1, 1))
        return BeamState(position, token_ids, alive, finished, done, attention, cache)

    def result(self, outcome):
        """The finished hypotheses, best first, then those that the limit has cut.

        With joint candidates all of them, best first.
        """
        (alive, finished, attention), search = outcome, self.search
        penalty = ops.expand_dims(self.limit_penalty, 1)
        lost = self._coverage(attention)
        if self.is_source is not None:  # an empty row has nothing to cover
            lost = ops.where(ops.expand_dims(self.limits > 0, 1), lost, 0.0)
        cut_scores = alive.scores / penalty + lost
        cut_scores = ops.where(_is_possible(alive.scores), cut_scores, IMPOSSIBLE)
        if self.is_source is not None:  # what coverage takes away may make another one the best
            cut_scores, order = ops.top_k(cut_scores, self.size)
            alive = self._chosen(alive, ops.cast(order, "int32"))
        all_scores = ops.concatenate([finished.scores, cut_scores], axis=1)
        if search.candidates == "joint":
            index = ops.cast(ops.top_k(all_scores, search.n_best)[1], "int32")
        else:
            possible = ops.cast(_is_possible(finished.scores), "int32")
            count = ops.sum(possible, axis=1, keepdims=True)
            rank = ops.expand_dims(arange(search.n_best), 0)
            index = ops.where(rank < count, rank, self.size + rank - count)
        chosen = one_hot_rows(index, 2 * self.size)
        scores = gather_rows(chosen, all_scores)
        is_one = ops.expand_dims(_is_possible(scores), 2)
        ids = gather_rows(chosen, ops.concatenate([finished.ids, alive.ids], axis=1))
        ids = ops.where(is_one, ops.cast(ids, "int32"), self.special_ids.pad_id)
        if not search.token_log_probs:
            return Hypotheses(ids, scores)
        both = ops.concatenate([finished.log_probs, alive.log_probs], axis=1)
        log_probs = gather_rows(chosen, both)
        return Hypotheses(ids, scores, ops.where(is_one, log_probs, 0.0))

    def _chosen(self, beams, order):
        """`Beams` in another order, (B, K) int32, with their scores as they were."""
        chosen = one_hot_rows(order, self.size)
        log_probs = self._if_asked(lambda: gather_rows(chosen, beams.log_probs))
        return beams._replace(ids=gather_rows(chosen, beams.ids), log_probs=log_probs)

    def _continuations(self, logits, position, alive):
        """The `Continuations` of the hypotheses that are alive."""
        constraints, eos_id = self.constraints, self.special_ids.eos_id
        logits, vocab_size = ops.cast(logits, "float32"), ops.shape(logits)[-1]
        if constraints.forbids_only_controls:
            own = guiding = logits
            of_own = self._by_beam(log_total(logits))  # log-probability = own - of_own
            offsets = alive.scores - of_own
            going_on, banned = logits, sorted({*constraints.control_ids, eos_id})
        else:
            own, guiding = self._guided(logits, position, alive)
            of_own, offsets = None, alive.scores  # own are log-probabilities
            going_on, banned = guiding, [eos_id]
        scores, beams, tokens = best_sums(self._by_beam(going_on), offsets, self.size, banned)
        end_scores = self._by_beam(guiding[:, eos_id]) + offsets
        found = Continuations(scores, beams, tokens, (), end_scores, ())
        if of_own is not None and constraints.prefix_ids is not None:
            found = self._with_forced(found, logits, of_own, alive, position)
        if not self.search.token_log_probs:
            return found
        log_probs = self._by_beam(own)
        log_probs = log_probs if of_own is None else log_probs - ops.expand_dims(of_own, 2)
        flat = ops.reshape(log_probs, (-1, self.size * vocab_size))
        chosen = ops.take_along_axis(flat, found.beams * vocab_size + found.tokens, axis=1)
        chosen = constraints.scored(chosen, position, self.size)
        return found._replace(log_probs=chosen, end_log_probs=log_probs[:, :, eos_id])

    def _with_forced(self, found, logits, of_own, alive, position):
        """`found`, but in rows whose prefix is not over each beam goes on with its next token.

        Args:
            found: `Continuations` without log-probabilities.
            logits: (R, V) float32 of the model.
            of_own: (B, K), what makes them log-probabilities.
            alive: The `Beams`.
            position: Scalar int32.
        """
        forced = ops.expand_dims(self.constraints.forced(None, position), 1)  # (R, 1)
        log_prob = ops.take_along_axis(logits, ops.maximum(forced, 0), axis=1)[:, 0]
        log_prob = self._by_beam(log_prob) - of_own
        log_prob = self.constraints.scored(log_prob, position, self.size)
        forced = self._by_beam(forced[:, 0])
        inside, ends = forced >= 0, ops.equal(forced, self.special_ids.eos_id)
        own = alive.scores + log_prob
        return found._replace(
            scores=ops.where(inside, ops.where(ends, IMPOSSIBLE, own), found.scores),
            beams=ops.where(inside, arange(self.size), found.beams),
            tokens=ops.where(inside, forced, found.tokens),
            end_scores=ops.where(inside, ops.where(ends, own, IMPOSSIBLE), found.end_scores),
        )

    def _guided(self, logits, position, alive):
        """(R, V) log-probabilities of the model, and those that guide the search.

        They differ only under a repetition penalty, and at tokens that may not come.
        """
        constraints, output_ids = self.constraints, None
        if constraints.reads_output:
            output_ids = ops.reshape(alive.ids, (-1, ops.shape(alive.ids)[2]))
            output_ids = ops.cast(output_ids, "int32")
        own = guiding = ops.log_softmax(logits, axis=-1)
        if constraints.changes_probabilities:
            guiding = constraints.guiding_logits(logits, position, output_ids)
            guiding = ops.log_softmax(guiding, axis=-1)
        banned = constraints.banned(ops.shape(logits)[-1], position, output_ids)
        return own, ops.where(banned, IMPOSSIBLE, constraints.scored(guiding, position))

    def _by_beam(self, rows):
        """(R, …) -> (B, K, …)."""
        return reshape(rows, (ops.shape(self.limits)[0], self.size, *ops.shape(rows)[1:]))

    def _standing_still(self, found, alive, done):
        """`found`, but in rows that are done each beam continues itself, with a pad."""
        return Continuations(
            scores=ops.where(done, alive.scores, found.scores),
            beams=ops.where(done, arange(self.size), found.beams),
            tokens=ops.where(done, self.special_ids.pad_id, found.tokens),
            log_probs=self._if_asked(lambda: ops.where(done, 0.0, found.log_probs)),
            end_scores=ops.where(done, IMPOSSIBLE, found.end_scores),
            end_log_probs=found.end_log_probs,
        )

    def _ending_at_limit(self, found, alive, position):
        """`found`, but in rows that this step takes to their limit all end, at no cost."""
        at_limit = ops.expand_dims(self.limits <= position + 1, 1)
        return found._replace(
            scores=ops.where(at_limit, IMPOSSIBLE, found.scores),
            end_scores=ops.where(at_limit, alive.scores, found.end_scores),
            end_log_probs=self._if_asked(lambda: ops.where(at_limit, 0.0, found.end_log_probs)),
        )

    def _going_on(self, alive, found, is_slot):
        """The hypotheses that go on, as `Beams`."""
        parents = one_hot_rows(found.beams, self.size)
        tokens = ops.expand_dims(ops.cast(found.tokens, "float32"), 2)

        def log_probs():
            grown = gather_rows(parents, alive.log_probs)
            return ops.where(is_slot, ops.expand_dims(found.log_probs, 2), grown)

        ids = ops.where(is_slot, tokens, gather_rows(parents, alive.ids))
        return Beams(found.scores, ids, self._if_asked(log_probs))

    def _scores_of_ended(self, found, length, attention):
        """(B, K) penalised scores of the hypotheses that end now, IMPOSSIBLE for the others.

        One ends if that is at least as likely as the last that goes on; with joint candidates, as
        the last of as many that end or go on.
        """
        last = found.scores[:, -1:]
        if self.search.candidates == "joint":
            both = ops.concatenate([found.scores, found.end_scores], axis=1)
            last = ops.top_k(both, self.size)[0][:, -1:]
        ends = found.end_scores >= last
        ends = ops.logical_and(ends, _is_possible(found.end_scores))
        scores = found.end_scores / self.search.penalty(length) + self._coverage(attention)
        return ops.where(ends, scores, IMPOSSIBLE)

    def _nothing_seen(self):
        if self.is_source is None:
            return ()
        return ops.repeat(0 * self.is_source, self.size, axis=1)

    def _coverage(self, attention):
        """What scores lose for source tokens that are not covered: (B, K), or 0.0."""
        if self.is_source is None:
            return 0.0
        log_seen = ops.log(ops.clip(attention, _LEAST_ATTENTION, 1.0))
        return self.search.coverage_penalty * ops.sum(log_seen * self.is_source, axis=-1)

    def _with_ended(self, finished, alive, found, ended, is_slot):
        """The best K of the finished hypotheses and of those that end now, as `Beams`."""
        scores, order = ops.top_k(ops.concatenate([finished.scores, ended], axis=1), self.size)
        order = ops.cast(order, "int32")
        chosen = one_hot_rows(order, 2 * self.size)
        is_new = ops.logical_and(ops.expand_dims(order >= self.size, 2), is_slot)
        ids = gather_rows(chosen, ops.concatenate([finished.ids, alive.ids], axis=1))

        def log_probs():
            both = ops.concatenate([finished.log_probs, alive.log_probs], axis=1)
            last = ops.concatenate([finished.scores, found.end_log_probs], axis=1)
            last = ops.expand_dims(gather_rows(chosen, last), 2)
            return ops.where(is_new, last, gather_rows(chosen, both))

        ids = ops.where(is_new, float(self.special_ids.eos_id), ids)
        return Beams(scores, ids, self._if_asked(log_probs))

    def _if_asked(self, log_probs):
        return log_probs() if self.search.token_log_probs else ()

    def _is_settled(self, alive, finished, length):
        """(B,) boolean: nothing that is still alive can matter."""
        search, worst_finished = self.search, finished.scores[:, -1]
        is_full = _is_possible(worst_finished)
        nothing_left = ops.logical_not(_is_possible(alive.scores[:, 0]))
        if search.stopping == "first_finished":
            return ops.logical_or(is_full, nothing_left)
        # Log-probabilities only fall, and coverage only takes away. The penalty that divides them
        # grows with the length, or shrinks with it: so at best a hypothesis loses no more and
        # ends at the limit, or at once.
        if search.stopping == "current_length":
            at_best = search.penalty(length)
        elif search.length_penalty > 0:
            at_best = self.limit_penalty
        else:
            at_best = search.penalty(length + 1)
        is_beaten = ops.logical_and(is_full, worst_finished >= alive.scores[:, 0] / at_best)
        return ops.logical_or(is_beaten, nothing_left)


def _is_possible(scores):
    return scores > IMPOSSIBLE / 2
