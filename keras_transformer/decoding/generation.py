"""From source ids to target ids: encode, search, and what came of it."""

import contextlib
import functools
from typing import NamedTuple

from keras import ops

from keras_transformer.decoding.compiled import xla
from keras_transformer.decoding.sizing import Growth
from keras_transformer.layers.lowering import prepacked
from keras_transformer.layers.lowering.tracing import TENSORFLOW_CPU, XLA, compiled_for, traced

_LONGER = 8  # tokens that most outputs are at most longer than their inputs
_BLOCK = 16  # slots that come at a time: fewer are not looked at in vain, more are copied less
_LEAST_ROWS = 8  # that XLA compiles a loop for, where a batch shrinks


class DecodingResult(NamedTuple):
    """What a search found, a row a sentence."""

    ids: object  # (B, T) int32: the best tokens, EOS if there is one, then pads
    truncated: object  # (B,) boolean: the row reached its limit without an EOS
    hypotheses: object  # `Hypotheses`, all that the search gives


def decode(
    model,
    source_ids,
    strategy,
    *,
    prefix_ids=None,
    allowed_ids=None,
    jit_compile=False,
    stays_here=False,
):
    """Decodes a batch of source ids.

    A row without any token but EOS and pads gives an empty row. Each row's limit is the number
    of its own tokens plus `strategy.extra_length`, so padding and batch mates change nothing.

    Args:
        model: A `Transformer`, or anything with its `config`, `encode`, `start`, `step`, `reorder`,
            `grow`, `select` and `step_layers`, such as an `Ensemble`.
        source_ids: (B, S) int32, pieces and EOS, then pads.
        strategy: A search strategy, such as `Greedy()` or `BeamSearch()`.
        prefix_ids: (B, P) int32, tokens that each row must begin with, then pads; or `None`. They
            count towards the limit.
        allowed_ids: (B, A) int32 in [0, V), a lexical shortlist: the only ids beside EOS that
            each row may go on with, then pads; or `None`.
        jit_compile: Whether XLA compiles the model and the loop where this is a TensorFlow graph
            for all sizes, once for each size that comes. B must be a power of two then.
        stays_here: Whether such a graph runs on this machine alone, and may be made for its
            processor.

    Returns:
        A `DecodingResult`.

    Raises:
        ValueError: if the strategy forbids EOS, or an id that the vocabulary lacks.
    """
    config = model.config
    strategy.check_ids(config, config.target_size)
    limits, slots = source_limits(source_ids, strategy, config)
    first, growth = _growth(model, slots, ops.shape(source_ids), jit_compile)

    def start(source_ids):
        return model.start(model.encode(source_ids), first, strategy.beams)

    cache = (xla(start) if jit_compile else start)(source_ids)
    inputs = dict(prefix_ids=prefix_ids, allowed_ids=allowed_ids, source_ids=source_ids)
    found = _search(model, strategy, cache, limits, slots, growth, stays_here, **inputs)
    return _result(found, limits, config)


def source_limits(source_ids, strategy, config):
    """(B,) int32 most tokens of each row of `decode`, and the largest that may occur."""
    is_real = ops.not_equal(source_ids, config.pad_id)
    is_content = ops.logical_and(is_real, ops.not_equal(source_ids, config.eos_id))
    lengths = ops.sum(ops.cast(is_real, "int32"), axis=1)
    limits = ops.where(ops.any(is_content, axis=1), lengths + strategy.extra_length, 0)
    slots = ops.shape(source_ids)[1] + strategy.extra_length
    return _limited(limits, slots, strategy, config)


def generate(model, prompt_ids, strategy, *, stays_here=False):
    """Continues a batch of prompts.

    Each row's limit is the number of its own tokens plus `strategy.extra_length`; an empty prompt
    starts from nothing.

    Args:
        model: A `LanguageModel`, or anything with its `config`, `start`, `step`, `reorder`, `grow`,
            `select` and `step_layers`.
        prompt_ids: (B, P) int32 tokens without BOS, then pads.
        strategy: A search strategy, such as `Greedy()` or `BeamSearch()`.
        stays_here: As of `decode`.

    Returns:
        A `DecodingResult`; its rows begin with the prompts.

    Raises:
        ValueError: as `decode`, or if the strategy has a coverage penalty.
    """
    config = model.config
    strategy.check_ids(config, config.target_size)
    if strategy.step_options:
        raise ValueError(
            f"a prompt has no source that could be covered. Received: strategy={strategy}"
        )
    batch, width = ops.shape(prompt_ids)
    is_real = ops.not_equal(prompt_ids, config.pad_id)
    limits = ops.sum(ops.cast(is_real, "int32"), axis=1) + strategy.extra_length
    limits, slots = _limited(limits, width + strategy.extra_length, strategy, config)
    first, growth = _growth(model, slots, (batch, width))
    cache = model.start(batch, first, strategy.beams)
    inputs = dict(prefix_ids=prompt_ids, source_ids=prompt_ids)
    found = _search(model, strategy, cache, limits, slots, growth, stays_here, **inputs)
    return _result(found, limits, config)


def _growth(model, slots, shape, jit_compile=False):
    """The slots to start with for inputs of this (B, S) shape, and the `Growth` from there on."""
    if isinstance(slots, int):  # all sizes are known, and to be fixed: eager, JAX
        return slots, None
    rows, length = shape
    first = ops.minimum(length + _LONGER, slots)
    select = None if isinstance(rows, int) else model.select
    if jit_compile:
        growth = Growth(model.grow, first, slots - first, select, least=_LEAST_ROWS, compile=xla)
    else:
        growth = Growth(model.grow, ops.minimum(first, _BLOCK), _BLOCK, select)
    return ops.minimum(slots, 0), growth


def _search(model, strategy, cache, limits, slots, growth, stays_here, **inputs):
    """The `Hypotheses` of a strategy, whose other arguments these are."""
    is_batch = growth is not None and growth.select is not None
    compiles = growth is not None and growth.compile is not None
    runs_ops = is_batch and not compiles  # TensorFlow's own
    step = functools.partial(model.step, beams=strategy.beams, **strategy.step_options)
    if (compiles or compiled_for() == XLA) and _takes_vocab_first(strategy, **inputs):
        step = functools.partial(step, vocab_first=True)
        inputs["vocab_first"] = True
    with contextlib.ExitStack() as stack:
        if runs_ops:
            in_blocks = stays_here and prepacked.suit_this_machine()
            kernels = prepacked.prepacked(model.step_layers(), in_blocks)
            stack.enter_context(traced(compiled_for=TENSORFLOW_CPU, kernels=kernels))
        return strategy.search(
            step,
            cache,
            limits,
            slots,
            model.config,
            reorder=model.reorder,
            growth=growth,
            **inputs,
        )


def _takes_vocab_first(strategy, allowed_ids=None, **_):
    return strategy.takes_vocab_first and strategy.forbids_only_controls and allowed_ids is None


def _limited(limits, slots, strategy, config):
    """Row limits and cache size, below those of the strategy and of learned positions."""
    for longest in (strategy.max_length, config.max_positions):
        if longest is not None:
            limits = ops.minimum(limits, longest)
            # A size that is known stays an integer: JAX makes no arrays of traced sizes.
            is_known = isinstance(slots, int)
            slots = min(slots, longest) if is_known else ops.minimum(slots, longest)
    return limits, slots


def _result(found, limits, config):
    ids = found.ids[:, 0]
    ends = ops.any(ops.equal(ids, config.eos_id), axis=1)
    truncated = ops.logical_and(limits > 0, ops.logical_not(ends))
    return DecodingResult(ids, truncated, found)
