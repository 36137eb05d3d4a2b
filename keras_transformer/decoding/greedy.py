"""Greedy search: the likeliest token at every step."""

import dataclasses

from keras import ops

from keras_transformer.arguments import check_flag
from keras_transformer.decoding.constraints import IMPOSSIBLE
from keras_transformer.decoding.selection import likeliest, likeliest_vocab_first
from keras_transformer.decoding.token_loop import TokenSearch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(TokenSearch):
    """Takes the likeliest token at each step, never pad or BOS; of equals, the lowest id.

    A row ends at its EOS, or at its own limit, so it depends neither on batch mates nor on
    padding.

    Attributes:
        extra_length, max_length: First and second where names are left out, as in `Greedy(7)`.
        scores: Whether the hypotheses have log-probabilities: of each token, and summed. Off, no
            op is spent on them.
    """

    extra_length: int = dataclasses.field(default=50, kw_only=False)
    max_length: int | None = dataclasses.field(default=None, kw_only=False)
    scores: bool = False

    takes_vocab_first = True

    def __post_init__(self):
        super().__post_init__()
        check_flag(scores=self.scores)

    @property
    def keeps_scores(self):
        return self.scores

    def vocab_first_chooser(self, constraints):
        def choose(logits, position, output_ids):
            chosen = likeliest_vocab_first(logits, constraints.control_ids)
            return constraints.forced(chosen, position)

        return choose

    def chooser(self, constraints, keys=None):
        def choose(logits, position, output_ids):
            if constraints.forbids_only_controls:
                chosen = likeliest(constraints.without_controls(logits))
                return constraints.forced(chosen, position)
            guide = constraints.guiding_logits(logits, position, output_ids)
            banned = constraints.banned(logits.shape[-1], position, output_ids)
            return likeliest(ops.where(banned, IMPOSSIBLE, guide))

        return choose
