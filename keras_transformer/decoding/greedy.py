"""Greedy search: the likeliest token at every step."""

import dataclasses
from typing import NamedTuple

from keras import ops

from keras_transformer.arguments import check_count, check_size
from keras_transformer.decoding.hypotheses import Hypotheses


class GreedyState(NamedTuple):
    """What the loop carries."""

    position: object  # scalar int32, tokens decoded so far
    token_ids: object  # (B, 1) int32, the last token of each row
    output_ids: object  # (B, T) int32, pads from `position` on
    finished: object  # (B,) boolean
    cache: object  # of the step function


def likeliest_tokens(logits, special_ids):
    """(B, V) logits -> (B,) int32, the likeliest token that is neither pad nor BOS.

    Training never scores those two, so their logits mean nothing. At most two of the three best
    can be among them. (Not `ops.argmax`: it has no LiteRT form.)
    """
    best = ops.top_k(logits, min(3, logits.shape[-1]))[1]
    chosen = best[:, -1]
    for rank in reversed(range(best.shape[-1] - 1)):
        token = best[:, rank]
        is_text = ops.logical_and(token != special_ids.pad_id, token != special_ids.bos_id)
        chosen = ops.where(is_text, token, chosen)
    return chosen


def forced_tokens(tokens, prefix_ids, position, pad_id):
    """(B,) tokens, replaced by those of the (B, P) prefixes where these are not over yet."""
    is_slot = ops.equal(ops.arange(ops.shape(prefix_ids)[1]), position)
    forced = ops.sum(ops.where(is_slot, prefix_ids, 0), axis=1)
    inside = ops.any(ops.logical_and(is_slot, ops.not_equal(prefix_ids, pad_id)), axis=1)
    return ops.where(inside, forced, tokens)


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Takes the likeliest token at each step, never pad or BOS; of equals, the lowest id.

    A row ends at its EOS, or at its own limit, so it depends neither on batch mates nor on
    padding.

    Attributes:
        extra_length: A row may be this many tokens longer than its source, EOS included (the
            paper: 50).
        max_length: Most tokens of any row, EOS included; `None` for no further limit.
    """

    extra_length: int = 50
    max_length: int | None = None

    def __post_init__(self):
        check_count(extra_length=self.extra_length)
        check_size(optional=True, max_length=self.max_length)

    beams = 1  # rows of the step function for each row of the source

    def search(self, step, cache, limits, slots, special_ids, *, reorder=None, prefix_ids=None):
        """Decodes until every row has ended.

        Args:
            step: `step(token_ids (B, 1), cache, position) -> logits (B, 1, V), cache`.
            cache: What `step` needs before the first token, with at least `slots` slots.
            limits: (B,) int32, most tokens of each row; 0 for a row that is to stay empty.
            slots: T, the largest limit that may occur; an integer or a scalar int tensor.
            special_ids: Anything with `pad_id`, `bos_id` and `eos_id`.
            reorder: Not needed: a row goes on from itself.
            prefix_ids: (B, P) int32, tokens that each row must begin with, then pads; `None` for
                none. They count towards the limits.

        Returns:
            `Hypotheses`, one a row and without scores: (B, 1, T) ids, each row its tokens, then
            pads; a row that reached its limit has no EOS.
        """
        batch = ops.shape(limits)[0]
        start = GreedyState(
            position=ops.zeros((), "int32"),
            token_ids=ops.full((batch, 1), special_ids.bos_id, "int32"),
            output_ids=ops.full((batch, slots), special_ids.pad_id, "int32"),
            finished=limits <= 0,
            cache=cache,
        )

        def unfinished(position, token_ids, output_ids, finished, cache):
            return ops.logical_not(ops.all(finished))

        def advance(position, token_ids, output_ids, finished, cache):
            logits, cache = step(token_ids, cache, position)
            likeliest = likeliest_tokens(logits[:, -1], special_ids)
            if prefix_ids is not None:
                likeliest = forced_tokens(likeliest, prefix_ids, position, special_ids.pad_id)
            token_ids = ops.where(finished, special_ids.pad_id, likeliest)
            is_slot = ops.equal(ops.arange(slots), position)
            output_ids = ops.where(is_slot, ops.expand_dims(token_ids, 1), output_ids)
            position = position + 1
            ended = ops.logical_or(ops.equal(token_ids, special_ids.eos_id), limits <= position)
            finished = ops.logical_or(finished, ended)
            return GreedyState(position, ops.expand_dims(token_ids, 1), output_ids, finished, cache)

        end = GreedyState(*ops.while_loop(unfinished, advance, start))
        return Hypotheses(ops.expand_dims(end.output_ids, 1))
