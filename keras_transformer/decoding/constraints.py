"""Which tokens a row may go on with: the one place that masks logits, for every search."""

import copy
import functools

import numpy as np
from keras import ops

from keras_transformer.layers.lowering.places import arange

IMPOSSIBLE = -1e30  # a log-probability; finite, so that sums and products of it are no NaN


class Constraints:
    """The rules of one search, for R rows: `beams` next to each other for each source.

    Args:
        options: `SearchOptions`.
        special_ids: Any object with `pad_id`, `bos_id` and `eos_id`.
        prefix_ids: (B, P) int32, tokens that each row must begin with, then pads, or `None`.
        allowed_ids: (B, A) int32, the only ids that each row may hold beside EOS, then pads, or
            `None`. They must lie in [0, V).
        unscored_prefix: How many of a row's first tokens are given to the model, not its own
            choice: their log-probability is 0.
        limits: (B,) int32, most tokens of each row. With it and a `target_size` of `special_ids`
            the bias of `without_controls` is made once, before the search.

    Raises:
        ValueError: if EOS is forbidden.
    """

    def __init__(
        self,
        options,
        special_ids,
        prefix_ids=None,
        allowed_ids=None,
        *,
        unscored_prefix=0,
        limits=None,
    ):
        # Of slots that stand for ids, see `shortlisted.Slots`, whoever made them has looked.
        self.slot_ids = getattr(special_ids, "ids", None)
        if self.slot_ids is None:
            options.check_ids(special_ids)
        self.options, self.special_ids = options, special_ids
        self.unscored_prefix = unscored_prefix
        self.prefix_ids = _repeated(prefix_ids, options.beams)
        self.allowed_ids = _repeated(allowed_ids, options.beams)
        self._control_bias = None
        vocab_size = getattr(special_ids, "target_size", None)
        if vocab_size is not None and limits is not None:
            self._control_bias = self._bias_of_controls(vocab_size, _runtime_zero(limits))

    def subset(self, rows):
        """These rules for some rows, (C,) int32 indices below R."""
        some = copy.copy(self)
        some.prefix_ids = _take_rows(self.prefix_ids, rows)
        some.allowed_ids = _take_rows(self.allowed_ids, rows)
        return some

    @property
    def forbids_only_controls(self):
        """Whether only the `control_ids` are forbidden, and the logits are the model's own."""
        return self.options.forbids_only_controls and self.allowed_ids is None

    @property
    def control_ids(self):
        """Pad and BOS, in order: training never scores them, and no row goes on with them.

        A BOS that is EOS too is none of them.
        """
        ids = self.special_ids
        return sorted({ids.pad_id, ids.bos_id} - {ids.eos_id})

    def without_controls(self, logits):
        """(R, V) logits as float32, IMPOSSIBLE at the `control_ids`."""
        bias = self._control_bias
        if bias is None:
            bias = self._bias_of_controls(ops.shape(logits)[-1], ops.zeros((), "float32"))
        return ops.cast(logits, "float32") + bias

    def _bias_of_controls(self, vocab_size, zero):
        is_control = self._are_controls(arange(vocab_size))
        return ops.where(is_control, ops.cast(IMPOSSIBLE, "float32"), zero)

    def _are_controls(self, ids):
        return functools.reduce(ops.logical_or, [ids == each for each in self.control_ids])

    @property
    def changes_probabilities(self):
        """Whether other probabilities than the model's guide the search."""
        return self.options.repetition_penalty != 1

    @property
    def reads_output(self):
        """Whether rules depend on what a row holds; `output_ids` may be `None` otherwise."""
        return bool(self.changes_probabilities or self.options.no_repeat_ngram)

    def guiding_logits(self, logits, position, output_ids):
        """(R, V) logits of the model -> float32 logits that guide the search.

        Args:
            logits: (R, V).
            position: Scalar int, tokens that the rows already hold.
            output_ids: (R, T) int32, these tokens, then pads.
        """
        logits = ops.cast(logits, "float32")
        if not self.changes_probabilities:
            return logits
        penalty = self.options.repetition_penalty
        seen = arange(ops.shape(output_ids)[1]) < position
        seen = holds(output_ids, ops.expand_dims(seen, 0), ops.shape(logits)[-1])
        return ops.where(seen, ops.where(logits > 0, logits / penalty, logits * penalty), logits)

    def banned(self, vocab_size, position, output_ids):
        """Boolean (R, V), or (1, V) if it is the same for all rows: what may not be chosen.

        Args: those of `guiding_logits`, and V.
        """
        options, special_ids = self.options, self.special_ids
        ids = arange(vocab_size)
        banned = self._are_controls(ids)
        if options.min_length > 1:
            too_short = position + 1 < options.min_length
            too_short = ops.logical_and(ids == special_ids.eos_id, too_short)
            banned = ops.logical_or(banned, too_short)
        banned = ops.expand_dims(banned, 0)
        if options.forbidden_ids:
            banned = ops.logical_or(banned, self._forbidden(vocab_size))
        if self.allowed_ids is not None:
            is_eos = ops.expand_dims(ids == special_ids.eos_id, 0)
            everything = ops.ones_like(self.allowed_ids, "bool")
            allowed = ops.logical_or(holds(self.allowed_ids, everything, vocab_size), is_eos)
            banned = ops.logical_or(banned, ops.logical_not(allowed))
        if options.no_repeat_ngram:
            repeats = self._repeats(vocab_size, position, output_ids)
            banned = ops.logical_or(banned, repeats)
        if options.min_length > 1 and self._can_leave_nothing:
            nothing = ops.all(banned, axis=-1, keepdims=True)
            banned = ops.where(nothing, ops.not_equal(ids, special_ids.eos_id), banned)
        if self.prefix_ids is not None:
            forced = ops.expand_dims(self.forced(None, position), 1)
            banned = ops.where(forced >= 0, ops.not_equal(ids, forced), banned)
        return banned

    def forced(self, tokens, position):
        """(R,) tokens, replaced by those of the prefixes that are not over yet.

        If `tokens` is `None`, -1 stands for them.
        """
        if self.prefix_ids is None:
            return tokens
        if tokens is None:
            tokens = ops.full(ops.shape(self.prefix_ids)[:1], -1, "int32")
        is_slot = ops.equal(arange(ops.shape(self.prefix_ids)[1]), position)
        forced = ops.sum(ops.where(is_slot, self.prefix_ids, 0), axis=1)
        is_token = ops.not_equal(self.prefix_ids, self.special_ids.pad_id)
        inside = ops.any(ops.logical_and(is_slot, is_token), axis=1)
        return ops.where(inside, forced, tokens)

    def scored(self, log_probs, position, beams=1):
        """Log-probabilities of tokens that the rows may take at `position`, 0 if it is unscored.

        They are (R, …), or (B, K) with `beams`. Behind a prefix that is shorter all are scored.
        """
        if not self.unscored_prefix or self.prefix_ids is None:
            return log_probs
        inside = self.forced(None, position) >= 0
        if len(log_probs.shape) > 1:
            inside = ops.reshape(inside, (-1, beams))
        told = ops.logical_and(inside, position < self.unscored_prefix)
        return ops.where(told, 0.0, log_probs)

    def _forbidden(self, vocab_size):
        """Boolean (1, V): the `forbidden_ids`."""
        if self.slot_ids is None:
            forbidden = np.isin(np.arange(vocab_size), self.options.forbidden_ids)
            return ops.convert_to_tensor(forbidden[None], "bool")
        known = np.arange(max(self.options.forbidden_ids) + 2)  # the last is none of them
        forbidden = ops.convert_to_tensor(np.isin(known, self.options.forbidden_ids), "bool")
        ids = ops.minimum(self.slot_ids, len(known) - 1)
        return ops.expand_dims(ops.take(forbidden, ids, axis=0), 0)

    @property
    def _can_leave_nothing(self):
        options = self.options
        has_list = options.forbidden_ids or self.allowed_ids is not None
        return bool(has_list or options.no_repeat_ngram)

    def _repeats(self, vocab_size, position, output_ids):
        """(R, V), True at the last token of an n-gram that would come a second time."""
        size = self.options.no_repeat_ngram
        slots = arange(ops.shape(output_ids)[1])
        is_last = ops.logical_and(slots >= size - 1, slots < position)  # of an n-gram of the past
        is_last = ops.logical_and(ops.expand_dims(is_last, 0), ops.ones_like(output_ids, "bool"))
        for back in range(1, size):  # the tokens before it are those that the row ends with
            before = ops.take(output_ids, ops.maximum(slots - back, 0), axis=1)
            now = ops.take(output_ids, ops.maximum(position - back, 0), axis=1)
            is_last = ops.logical_and(is_last, ops.equal(before, ops.expand_dims(now, 1)))
        repeats = holds(output_ids, is_last, vocab_size)
        is_eos = ops.equal(arange(vocab_size), self.special_ids.eos_id)
        return ops.logical_and(repeats, ops.logical_not(is_eos))


def _runtime_zero(limits):
    """0.0 that no graph optimizer knows: a constant bias would be V floats more in a file.

    Args:
        limits: (B,) int32 of at least 0.
    """
    return ops.cast(ops.any(limits < 0), "float32")


def holds(ids, counts, vocab_size):
    """Boolean (R, V): whether (R, T) ids hold an id, at a place where (R | 1, T) `counts`."""
    rows, columns = ops.shape(ids)
    places = arange(rows * columns) // ops.maximum(columns, ops.cast(1, "int32"))
    index = ops.stack([places, ops.reshape(ids, (-1,))], axis=1)
    counts = ops.logical_and(counts, ops.ones_like(ids, "bool"))
    values = ops.reshape(ops.cast(counts, "float32"), (-1,))
    return ops.scatter(index, values, (rows, vocab_size)) > 0


def _take_rows(ids, rows):
    return ids if ids is None else ops.take(ids, rows, axis=0)


def _repeated(ids, beams):
    if ids is None:
        return None
    ids = ops.cast(ids, "int32")  # NumPy's are longer
    return ids if beams == 1 else ops.repeat(ids, beams, axis=0)
