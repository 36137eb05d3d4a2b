"""From source ids to target ids: encode, plan, search."""

import functools
from typing import NamedTuple

from keras import ops

from keras_transformer.decoding.checked_ids import (
    check_no_bos,
    check_one_source,
    check_told,
    checked_rows,
)
from keras_transformer.decoding.compiled import xla
from keras_transformer.decoding.options import Hypotheses, SearchOptions
from keras_transformer.decoding.plan import plan_of
from keras_transformer.decoding.shortlisted import Shortlisted, candidates_of
from keras_transformer.typing import Tensor


class DecodingResult(NamedTuple):
    """What a search found, a row a sentence."""

    ids: Tensor  # (B, T) int32: the best tokens, EOS if there is one, then pads
    truncated: Tensor  # (B,) boolean: the row reached its limit without an EOS
    hypotheses: Hypotheses  # all that the search found


def decode(
    model,
    source_ids: Tensor,
    strategy: SearchOptions,
    *,
    prefix_ids: Tensor | None = None,
    allowed_ids: Tensor | None = None,
    candidate_ids: Tensor | None = None,
    unscored_prefix: int = 0,
    jit_compile: bool = False,
    for_this_cpu: bool = False,
) -> DecodingResult:
    """Decodes a batch of source ids.

    A row without any token but EOS and pads gives an empty row. Each row's limit is the number
    of its own tokens plus `strategy.extra_length`, so padding and batch mates change nothing.

    Args:
        model: A `Transformer`, or any object with its `config`, `encode`, `start` and `step`, such
            as an `Ensemble`. The cache that `start` returns has the methods of
            `models.cache.Cache`.
        source_ids: (B, S) int32, pieces and EOS, then pads.
        strategy: A search, such as `Greedy()` or `BeamSearch()`.
        prefix_ids: (B, P) int32, tokens that each row must begin with, then pads; or `None`. They
            count towards the limit.
        allowed_ids: (B, A) int32 in [0, V), the only ids beside EOS that each row may go on with,
            then pads; or `None`. They change no probability.
        candidate_ids: (B, A) int32 in [0, V), a lexical shortlist: the only ids beside EOS, and
            those of its prefix, that the output is computed for, then pads; or `None`. A step
            costs less the fewer they are. Probabilities are among them: a row's own sum to 1.
        unscored_prefix: How many of the first tokens of each row's prefix are told to the model,
            as a language is, and no part of its answer: their log-probability is 0, as Hugging
            Face has it for tokens that it forces. They still count as tokens, also in a length
            penalty. All other tokens of a prefix have the model's log-probability.
        jit_compile: Whether XLA compiles the model and the loop if this is a TensorFlow graph for
            all sizes, once for each size that comes. B must then be a power of two.
        for_this_cpu: Whether such a graph runs on this machine only, and may be made for its
            processor.

    Returns:
        A `DecodingResult`.

    Raises:
        ValueError: if the strategy forbids EOS, or an id outside the vocabulary; if ids are no
            integers or have other rows; or, where their values are known, as in eager code, one
            is outside the vocabulary, or stands behind a pad, or behind EOS in a prefix or in the
            source of a packed model.
        TypeError: if there are `candidate_ids`, and the model has no `candidate_output`.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.Transformer(config)
        >>> source_ids = np.array([[5, 7, 3], [8, 3, 0]])  # EOS is 3, the pad 0
        >>> found = kt.decoding.decode(model, source_ids, kt.Greedy(extra_length=4))
        >>> tuple(found.ids.shape)
        (2, 7)
    """
    search, config = strategy, model.config
    search.check_ids(config, config.target_size)
    source_ids = checked_rows("source_ids", source_ids, config.vocab_size, config.pad_id)
    check_one_source(source_ids, config)
    rows, size = source_ids.shape[0], config.target_size
    prefix_ids = checked_rows("prefix_ids", prefix_ids, size, config.pad_id, rows=rows)
    check_told("prefix_ids", prefix_ids, config)
    allowed_ids = checked_rows("allowed_ids", allowed_ids, size, rows=rows)
    candidate_ids = checked_rows("candidate_ids", candidate_ids, size, rows=rows)
    limits, slots = source_limits(source_ids, search, config)
    plan = plan_of(
        search,
        slots,
        ops.shape(source_ids),
        jit_compile=jit_compile,
        for_this_cpu=for_this_cpu,
        shortlist=allowed_ids is not None or candidate_ids is not None,
    )

    def start(source_ids):
        return model.start(model.encode(source_ids), plan.first_slots, search.beams)

    cache = (xla(start) if plan.jit_compile else start)(source_ids)
    inputs = dict(prefix_ids=prefix_ids, allowed_ids=allowed_ids, source_ids=source_ids)
    inputs["unscored_prefix"] = unscored_prefix
    if candidate_ids is None:
        return _searched(model, search, cache, limits, slots, plan, **inputs)
    found = candidates_of(candidate_ids, config, prefix_ids, few_sizes=plan.jit_compile)
    model = Shortlisted(model, found)
    inputs = model.inputs(search, **inputs)
    found = _searched(model, search, cache, limits, slots, plan, **inputs)
    return found._replace(ids=model.ids_of(found.ids), hypotheses=model.result(found.hypotheses))


def told_prefix(token_ids, source_ids):
    """The inputs of `decode` for rows that all begin with tokens that are told to the model.

    Args:
        token_ids: A tuple of int; none for no inputs.
        source_ids: (B, S).
    """
    if not token_ids:
        return {}
    zeros = ops.zeros((ops.shape(source_ids)[0], 1), "int32")
    prefix_ids = zeros + ops.convert_to_tensor([token_ids], "int32")
    return {"prefix_ids": prefix_ids, "unscored_prefix": len(token_ids)}


def source_limits(source_ids, search, config):
    """The most tokens of each row of `decode`, (B,) int32, and the largest that may occur."""
    is_real = ops.not_equal(source_ids, config.pad_id)
    is_content = ops.logical_and(is_real, ops.not_equal(source_ids, config.eos_id))
    lengths = ops.sum(ops.cast(is_real, "int32"), axis=1)
    limits = ops.where(ops.any(is_content, axis=1), lengths + search.extra_length, 0)
    slots = ops.shape(source_ids)[1] + search.extra_length
    return _limited(limits, slots, search, config)


def generate(
    model, prompt_ids: Tensor, strategy: SearchOptions, *, for_this_cpu: bool = False
) -> DecodingResult:
    """Continues a batch of prompts.

    Each row's limit is the number of its own tokens plus `strategy.extra_length`; an empty prompt
    starts from nothing.

    Args:
        model: A `LanguageModel`, or any object with its `config`, `start` and `step`.
        prompt_ids: (B, P) int32 tokens without BOS, then pads.
        strategy: A search, such as `Greedy()` or `BeamSearch()`.
        for_this_cpu: See `decode`.

    Returns:
        A `DecodingResult`; its rows begin with the prompts.

    Raises:
        ValueError: as `decode`; if a prompt is known to begin with BOS, or to have EOS before its
            end; or if the strategy has a coverage penalty.

    Example:
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=11)
        >>> model = kt.LanguageModel(config)
        >>> found = kt.generate(model, np.array([[5, 7], [8, 0]]), kt.Greedy(extra_length=3))
        >>> np.array(found.ids)[:, 0].tolist(), tuple(found.ids.shape)
        ([5, 8], (2, 5))
    """
    search, config = strategy, model.config
    search.check_ids(config, config.target_size)
    if search.step_options:
        raise ValueError(
            f"a prompt has no source that could be covered. Received: strategy={search}"
        )
    prompt_ids = checked_rows("prompt_ids", prompt_ids, config.vocab_size, config.pad_id)
    check_no_bos("prompt_ids", prompt_ids, config)
    check_told("prompt_ids", prompt_ids, config)
    batch, width = ops.shape(prompt_ids)
    is_real = ops.not_equal(prompt_ids, config.pad_id)
    limits = ops.sum(ops.cast(is_real, "int32"), axis=1) + search.extra_length
    limits, slots = _limited(limits, width + search.extra_length, search, config)
    plan = plan_of(search, slots, (batch, width), for_this_cpu=for_this_cpu)
    cache = model.start(batch, plan.first_slots, search.beams)
    inputs = dict(prefix_ids=prompt_ids, source_ids=prompt_ids)
    return _searched(model, search, cache, limits, slots, plan, **inputs)


def _searched(model, search, cache, limits, slots, plan, **inputs):
    """The `DecodingResult` of a search that starts with this cache.

    Args:
        model, search: See `decode`.
        cache, limits, slots, **inputs: See `TokenSearch.search`.
        plan: The `Plan`.
    """
    step = functools.partial(model.step, beams=search.beams, **search.step_options)
    if plan.vocab_first:
        step = functools.partial(step, vocab_first=True)
        inputs["vocab_first"] = True
    with plan.tracing(model):
        if isinstance(model, Shortlisted):
            cache = model.started(cache)
        found = search.search(
            step, cache, limits, slots, model.config, sizing=plan.sizing, **inputs
        )
    ids = found.ids[:, 0]
    ends = ops.any(ops.equal(ids, model.config.eos_id), axis=1)
    truncated = ops.logical_and(limits > 0, ops.logical_not(ends))
    return DecodingResult(ids, truncated, found)


def _limited(limits, slots, search, config):
    """Row limits and cache size, at most those of the search and of learned positions."""
    for longest in (search.max_length, config.max_positions):
        if longest is not None:
            limits = ops.minimum(limits, longest)
            # A known size stays an integer: JAX makes no arrays of traced sizes.
            is_known = isinstance(slots, int)
            slots = min(slots, longest) if is_known else ops.minimum(slots, longest)
    return limits, slots
