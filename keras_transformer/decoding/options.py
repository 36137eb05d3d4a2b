"""What goes into every search and what comes out: its options, and the hypotheses found."""

import dataclasses
from typing import NamedTuple

from keras_transformer.arguments import check_count, check_flag, check_positive, check_size
from keras_transformer.typing import Tensor


class Hypotheses(NamedTuple):
    """N hypotheses a row, best first; samples in the order in which they were drawn."""

    ids: Tensor  # (B, N, T) int32: the tokens, EOS if there is one, then pads
    scores: Tensor | None = None  # (B, N) float32, penalised; `None` if the search keeps none
    log_probs: Tensor | None = None  # (B, N, T) float32 of each token, then 0; `None` likewise


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of every search. One that is off, as all are by default, adds no op to the graph.

    Pad and BOS are never chosen. The tokens of a given prefix are not checked: a search continues
    from them, whatever they are. If these rules leave a row nothing to choose, the row ends: it
    takes EOS even before `min_length`.

    No rule changes a probability: the search skips what it may not choose, and a token's
    log-probability stays that of the model. Only `repetition_penalty` makes a distribution of its
    own. It guides the search and makes the scores of hypotheses; their `log_probs` are still
    those of the model.

    Attributes:
        extra_length: A row may be this many tokens longer than its source, EOS included (the
            paper: 50).
        max_length: Most tokens of any row, EOS included; `None` for no further limit.
        forced_eos: Whether a row that reaches its limit ends there, with EOS as its last token. It
            has log-probability 0, as Hugging Face's `forced_eos_token_id` has.
        min_length: Fewest tokens of a row, EOS included.
        forbidden_ids: A tuple of ids that are never chosen.
        no_repeat_ngram: No n-gram of this many target tokens occurs twice in a row; 0 for no
            such rule. EOS is always allowed.
        repetition_penalty: Makes tokens that the row already holds less likely (Keskar et al.
            2019, arXiv 1909.05858, sec. 4.1: 1.2): their logits are divided by it, or multiplied
            if they are below 0, since a division would favour them. 1 for none; below 1 it makes
            them likelier.
    """

    extra_length: int = 50
    max_length: int | None = None
    min_length: int = 0
    forbidden_ids: tuple = ()
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    forced_eos: bool = False

    def __post_init__(self):
        check_flag(forced_eos=self.forced_eos)
        check_count(
            extra_length=self.extra_length,
            min_length=self.min_length,
            no_repeat_ngram=self.no_repeat_ngram,
        )
        check_size(optional=True, max_length=self.max_length)
        check_positive(repetition_penalty=self.repetition_penalty)
        ids = self.forbidden_ids
        if not isinstance(ids, tuple) or any(type(token) is not int or token < 0 for token in ids):
            raise ValueError(
                "`forbidden_ids` must be a tuple of integers of at least 0. Received: "
                f"forbidden_ids={ids!r}"
            )

    beams = 1  # rows of the step function for each row of the source
    step_options = {}  # what the step function returns beside logits
    takes_vocab_first = False  # whether it can choose from (V, R) logits, see `decoding.plan`

    @property
    def forbids_only_controls(self) -> bool:
        """Whether only pad and BOS are forbidden, and the logits are the model's own."""
        has_rules = self.min_length > 1 or self.forbidden_ids or self.no_repeat_ngram
        return not has_rules and self.repetition_penalty == 1

    def score_of(self, log_prob: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens, EOS included, with this log-probability."""
        return log_prob

    def check_ids(self, special_ids, vocab_size: int | None = None) -> None:
        """Raises ValueError if the `forbidden_ids` hold EOS or an id outside the vocabulary.

        Args:
            special_ids: Anything with `eos_id`.
            vocab_size: V, or `None` if it is not known yet.
        """
        if special_ids.eos_id in self.forbidden_ids:
            raise ValueError(
                "`forbidden_ids` must not hold EOS, which ends a row. Received: "
                f"forbidden_ids={self.forbidden_ids}, eos_id={special_ids.eos_id}"
            )
        if vocab_size is not None and max(self.forbidden_ids, default=0) >= vocab_size:
            raise ValueError(
                f"`forbidden_ids` must lie in [0, {vocab_size}). Received: {self.forbidden_ids}"
            )
