"""Beam search: the likeliest whole hypotheses, not the likeliest next token."""

import dataclasses

from keras import ops

from keras_transformer.arguments import check_choice, check_finite, check_flag, check_size
from keras_transformer.decoding.beam_loop import BeamLoop
from keras_transformer.decoding.constraints import Constraints
from keras_transformer.decoding.options import Hypotheses, SearchOptions
from keras_transformer.decoding.sizing import search_loop
from keras_transformer.typing import Tensor

LENGTH_NORMALIZATIONS = ("gnmt", "power")
STOPPING = ("exact", "current_length", "first_finished")
CANDIDATES = ("separate", "joint")
_LARGEST_PENALTY = 5  # scores of thousands of tokens stay far within float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch(SearchOptions):
    """Keeps the `beam_size` likeliest hypotheses at every step.

    A hypothesis' score is its own summed log-probability, EOS included, over
    ((5 + length) / 6)^length_penalty, where length counts EOS (Wu et al. 2016, arXiv 1609.08144,
    eq. 14), or over length^length_penalty. At each step the `beam_size` likeliest continuations of
    all alive hypotheses stay alive. A hypothesis ends if that is at least as likely as the last of
    these; then it is finished and never changes. A row's result depends on its own source alone.
    Under a `repetition_penalty` the score is the penalised distribution's.

    Of equal sums, the one of the lower beam comes first, then that of the lower id, and of equal
    finished hypotheses the one found first: in eager code, graphs, XLA, SavedModels and LiteRT.
    This holds for equal float32 numbers. Sums that are equal on paper only, such as those of the
    same factors in another order, differ in their last bit (some 1e-7 of them), and the rounding
    of each compiler's exp and log decides which is larger. If the last place of the beam falls
    between two such sums, modes may keep different ones, and different texts grow from them.

    The beam search of Hugging Face's `generate` is `length_normalization="power"` with
    `candidates="joint"`, and by its `early_stopping`: True is `stopping="first_finished"`, False
    (its default) `"current_length"`, `"never"` `"exact"`. Its `max_length` counts the start token
    and is the same for all rows: `max_length=200` there is `max_length=199, extra_length=199` here
    (`max_new_tokens=200`: 200); its `forced_eos_token_id` is `forced_eos=True`,
    `forced_bos_token_id` a prefix of the target's tokenizer, and `bad_words_ids` of one token
    `forbidden_ids`. The same hypotheses have the same scores then. What differs: with a negative
    `length_penalty` its `"never"` takes a bound by one token too short; its `repetition_penalty`
    multiplies log-probabilities, not logits, and also counts the start token; and it never skips
    pad, unless `bad_words_ids` names it, so an untrained model may choose one.

    It has all attributes of `SearchOptions` (see `Greedy`), and these:

    Attributes:
        beam_size: Hypotheses K that stay alive.
        length_penalty: Exponent, from -5 to 5; 0 for none.
        length_normalization: What has this exponent: `"gnmt"`, (5 + length) / 6; or `"power"`,
            the length itself, as Hugging Face, Marian and CTranslate2 have it.
        n_best: Number of hypotheses that are returned, at most `beam_size`.
        stopping: `"exact"`: a row ends when no alive hypothesis can still beat its `beam_size`
            finished ones; `"current_length"`: when none would if it ended with the tokens that it
            has, which is sooner where longer ones are favoured; `"first_finished"`: when it has
            `beam_size` finished ones.
        candidates: `"separate"`: those that end are compared with the last that goes on, and at
            the limit those without EOS come after all that are finished. `"joint"`: one ends if it
            is among the `beam_size` likeliest of those that end and those that go on, and at the
            limit those without EOS are ranked by their scores too.
        coverage_penalty: Factor beta of what a hypothesis' score loses for source tokens that it
            has attended to too little: the sum over the source of log(min(attention, 1)), where
            attention is summed over the target's tokens and at least 1e-6 (Wu et al. 2016, eq.
            15). It ranks finished hypotheses. 0 for none.
        token_log_probs: Whether the hypotheses have log-probabilities of each token, beside their
            scores. If it is off, no op computes them.

    Example:
        >>> search = kt.BeamSearch(beam_size=3, n_best=2, extra_length=4)
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> found = kt.decoding.decode(model, np.array([[5, 7, 3], [8, 3, 0]]), search)
        >>> tuple(found.hypotheses.ids.shape), tuple(found.hypotheses.scores.shape)
        ((2, 2, 7), (2, 2))
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    stopping: str = "exact"
    length_normalization: str = "gnmt"
    candidates: str = "separate"
    coverage_penalty: float = 0.0
    token_log_probs: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_size(beam_size=self.beam_size, n_best=self.n_best)
        check_choice(STOPPING, stopping=self.stopping)
        check_choice(LENGTH_NORMALIZATIONS, length_normalization=self.length_normalization)
        check_choice(CANDIDATES, candidates=self.candidates)
        check_flag(token_log_probs=self.token_log_probs)
        check_finite(length_penalty=self.length_penalty, coverage_penalty=self.coverage_penalty)
        if self.coverage_penalty < 0:
            raise ValueError(
                "`coverage_penalty` must be at least 0. Received: "
                f"coverage_penalty={self.coverage_penalty}"
            )
        if abs(self.length_penalty) > _LARGEST_PENALTY:
            raise ValueError(
                f"`length_penalty` must be from -{_LARGEST_PENALTY} to {_LARGEST_PENALTY}: powers "
                f"beyond leave float32. Received: length_penalty={self.length_penalty}"
            )
        if self.n_best > self.beam_size:
            raise ValueError(
                "`n_best` must be at most `beam_size`. Received: "
                f"n_best={self.n_best}, beam_size={self.beam_size}"
            )

    @property
    def beams(self) -> int:
        """Rows of the step function for each row of the source."""
        return self.beam_size

    @property
    def step_options(self) -> dict:
        """What the step function returns beside logits."""
        return {"return_attention_scores": True} if self.coverage_penalty else {}

    def penalty(self, length: Tensor) -> Tensor:
        """What divides log-probabilities, by a tensor of lengths that count EOS; float32."""
        if self.length_normalization == "power":
            return ops.power(ops.cast(length, "float32"), self.length_penalty)
        return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, self.length_penalty)

    def score_of(self, log_prob: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens, EOS included, with this log-probability."""
        if self.length_normalization == "power":  # of no tokens too, whose log-probability is 0
            return log_prob / self.penalty(ops.maximum(length, 1))
        return log_prob / ((5 + length) / 6) ** self.length_penalty

    def search(
        self,
        step,
        cache,
        limits: Tensor,
        slots,
        special_ids,
        *,
        sizing=None,
        prefix_ids: Tensor | None = None,
        allowed_ids: Tensor | None = None,
        source_ids: Tensor | None = None,
        unscored_prefix: int = 0,
    ) -> Hypotheses:
        """Decodes until every row has ended.

        Args:
            step: `step(token_ids (R, 1), cache, position) -> logits (R, 1, V), cache`, where
                R = B * `beam_size`.
            cache: What `step` needs before the first token, with `slots` slots; without any under
                `sizing`. Its `reordered`, `grown` and `selected` are those of `models.cache.Cache`.
            limits: (B,) int32, most tokens of each row; 0 for a row that is to stay empty.
            slots: T, the largest limit that may occur; an integer or a scalar int tensor.
            special_ids: Any object with `pad_id`, `bos_id` and `eos_id`.
            sizing: A `Sizing` or `Stages`, or `None` for sizes that never change.
            prefix_ids: (B, P) int32, tokens that each row must begin with, then pads.
            allowed_ids: (B, A) int32, the only ids beside EOS that each row may hold, then pads.
            source_ids: (B, S) int32, what the rows are made from, then pads. Needed under a
                coverage penalty: `step` then returns (B, K, S) attention too.
            unscored_prefix: How many tokens of each prefix have log-probability 0.

        Returns:
            `Hypotheses`, N = `n_best`. If fewer are finished, those follow that have reached the
            limit, without EOS; with joint candidates they stand among them.
        """
        rules = dict(unscored_prefix=unscored_prefix)
        constraints = Constraints(self, special_ids, prefix_ids, allowed_ids, **rules)
        if self.coverage_penalty and source_ids is None:
            raise ValueError("`source_ids` must be given under a coverage penalty. Received: None")
        loop = BeamLoop(self, constraints, step, limits, slots, special_ids, source_ids)
        return loop.result(search_loop(loop, cache, sizing))
