"""The graphs that a device runs, with their names: what an app relies on."""

import contextlib
import functools

import tensorflow as tf
from keras import ops

from keras_transformer.decoding import Greedy, Sampling, decode, generate
from keras_transformer.decoding.constraints import Constraints
from keras_transformer.decoding.generation import source_limits, told_prefix
from keras_transformer.decoding.shortlist import candidate_inputs
from keras_transformer.export.backend import as_graph, variables
from keras_transformer.layers import masks
from keras_transformer.layers.lowering.places import arange
from keras_transformer.layers.lowering.tracing import traced
from keras_transformer.layers.recurrence import RecurrentState
from keras_transformer.models.cache import Cache
from keras_transformer_runner.lengths import fixed_signature

DEVICE_SIGNATURE = "translate"
STEP_SIGNATURES = ("encode", "decode_step")
SIGNATURES = (DEVICE_SIGNATURE, *STEP_SIGNATURES)
LANGUAGE_MODEL_SIGNATURES = ("generate", "decode_step")


def check_signatures(signatures, known=SIGNATURES):
    """The signatures as a tuple, in the order of those that are known.

    Raises:
        TypeError: if they are one string.
        ValueError: if one is unknown, the first of `known` is missing, or the others do not come
            together.
    """
    if isinstance(signatures, (str, bytes)):
        raise TypeError(f"`signatures` must be several names. Received: {signatures!r}")
    signatures = tuple(signatures)
    chosen = tuple(name for name in known if name in signatures)
    if set(signatures) - set(known) or chosen not in (known[:1], known):
        raise ValueError(
            f"`signatures` must be {known[:1]}, or all of {known}. Received: {signatures}"
        )
    return chosen


def check_with_shortlist(signatures, lengths):
    """Raises ValueError for signatures that go without a shortlist."""
    if tuple(signatures) != (DEVICE_SIGNATURE,) or lengths:
        raise ValueError(
            f"`shortlist` goes with the signature {DEVICE_SIGNATURE!r} alone, whose sizes are "
            "free: without others and `lengths`. "
            f"Received: signatures={signatures}, lengths={lengths}"
        )


def check_search(strategy):
    """Raises ValueError for a search that LiteRT's ops cannot do, before any work is done."""
    if isinstance(strategy, Sampling):
        raise ValueError(
            "a LiteRT file holds a greedy or a beam search; a SavedModel samples as well. "
            f"Received: strategy={strategy!r}"
        )


class DeviceModule(tf.Module):
    """A `Transformer` as graphs for a device, ids in and ids out, one sentence at a time.

    `translate`: `source_ids` (1, S) int32, pieces and EOS, no pads -> `target_ids` (1, T) int32,
    pieces and EOS, then pads. A search that gives scores has also `hypotheses` (1, N, T) int32,
    best first, and `scores` (1, N) float32; what it has not found has a score below -1e29.

    For apps that show a translation as it grows:

    `encode`: `source_ids` as above -> `limit` (1,) int32, the most tokens of the translation, and
    the source for `decode_step`. Each decoder block i has `memory_i_keys` (1, N, S, H) and
    `memory_i_values` (1, N, S, U) float32, but for blocks that are tied to an earlier one, which
    use that one's; `memory_mask` (1, S) int32 is 1 at real source tokens.

    `decode_step`: all of these but `limit`, `token_ids` (1, 1) int32, BOS at first and then the
    last token, `position` (1,) int32, tokens decoded so far, and for each decoder block i
    `cache_i_keys` (1, N, T, H) and `cache_i_values` (1, N, T, U) float32, at first zeros for the
    app to make, of T = `limit` (with a recurrence, `cache_i_state` (1, 1, D) in the place of these
    two) -> `logits` (1, V) float32 of the next token, the new caches, and, where the search is
    greedy and asks nothing of what was decoded before, `next_ids` (1,) int32, the token that it
    takes.

    Empty caches are no outputs of `encode`: they would all be one tensor, which `CompiledModel`
    neither tells apart nor writes, and with which it runs a signature no second time.

    No input has rank 0: runtimes on ARM crash on one.

    Args:
        model: A `Transformer`.
        strategy: A search strategy, for `translate`; if it is `Greedy`, for `decode_step` too.
        signatures: Names of those wanted. All share the weights in the file, but each that runs
            costs a copy of its own in memory.
        prefix_ids: The tokens that `translate` begins with, such as a language. Whoever calls
            `decode_step` gives them after BOS, and takes no other token before.
        lengths: Source lengths, each of a signature more, such as `translate_32`: `translate` with
            S and T fixed, T as the most tokens for such a source.
        lengths_only: Whether there is none but these.
        shortlist: A `Shortlist` for `translate`, without the other signatures; or `None`.

    Attributes:
        first_signature: The one that whoever knows no names runs; `None` where it does not matter.
            Of lengths alone it is the longest, which takes every source.
    """

    def __init__(
        self,
        model,
        strategy,
        signatures=(DEVICE_SIGNATURE,),
        prefix_ids=(),
        lengths=(),
        lengths_only=False,
        shortlist=None,
    ):
        super().__init__()
        self.model_variables = variables(model)
        ids = _ids("source_ids")
        translate = _translate(model, strategy, prefix_ids, shortlist)
        graphs = _answers(DEVICE_SIGNATURE, "source_ids", translate, lengths, lengths_only)
        self._lengths = tuple(lengths)
        self.first_signature = _first(DEVICE_SIGNATURE, lengths, lengths_only)
        chosen = check_signatures(signatures)
        if chosen != (DEVICE_SIGNATURE,):
            graphs["encode"] = (_encode(model, strategy), (ids,))
        self._functions = {name: as_graph(graph, specs) for name, (graph, specs) in graphs.items()}
        if "encode" in graphs:
            begin = as_graph(functools.partial(_started, model, strategy), (ids,))
            specs = {
                name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name)
                for name, tensor in begin.get_concrete_function().structured_outputs.items()
                if name != "limit"
            }
            self._functions["decode_step"] = _step_function(model, strategy, specs)

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return _concrete(self._functions, self._lengths)


def _ids(name, length=None):
    return tf.TensorSpec((1, length), tf.int32, name=name)


def _answers(signature, ids, graph, lengths, lengths_only):
    """The graph of an answer and its specs by signature: for every length, and for each of these.

    Args:
        signature: Its name.
        ids: The name of its input.
        graph: A function of ids (1, S) or (1, length).
        lengths, lengths_only: See `DeviceModule`.
    """
    graphs = {} if lengths_only else {signature: (graph, (_ids(ids),))}
    for length in lengths:
        name = fixed_signature(signature, length)
        graphs[name] = (_without_tables(graph), (_ids(ids, length),))
    return graphs


def _first(signature, lengths, lengths_only):
    return fixed_signature(signature, lengths[-1]) if lengths_only else None


def _concrete(functions, lengths):
    # Where shapes are known the converter folds more, and would store weights once more.
    folding = traced(weight_folding=False) if lengths else contextlib.nullcontext()
    with folding:
        return {name: graph.get_concrete_function() for name, graph in functions.items()}


def _translate(model, strategy, prefix_ids, shortlist):
    def translate(source_ids):
        options = told_prefix(prefix_ids, source_ids)
        options |= candidate_inputs(shortlist, source_ids, model.config.pad_id)
        found = decode(model, source_ids, strategy, **options)
        return {"target_ids": found.ids, **_scored(found.hypotheses)}

    return translate


def _without_tables(translate):
    """The graph for sources of a fixed length, without what the converter would store of them."""

    def fixed(source_ids):
        # No id is below 0, which the converter does not know.
        with traced(zero=ops.minimum(ops.max(source_ids), 0)):
            return translate(source_ids)

    return fixed


def _scored(hypotheses):
    """The outputs that a search with scores has more; none of another."""
    if hypotheses.scores is None:
        return {}
    return {"hypotheses": hypotheses.ids, "scores": hypotheses.scores}


def _started(model, strategy, source_ids):
    """`limit` and all that `decode_step` carries, as it is before the first token."""
    limits, slots = source_limits(source_ids, strategy, model.config)
    cache = model.start(model.encode(source_ids), slots)
    mask = ops.cast(ops.equal(cache.memory_bias[:, 0, 0], 0), "int32")
    return {"limit": limits, "memory_mask": mask, **_named(model, cache, ("cache", "memory"))}


def _encode(model, strategy):
    def encode(source_ids):
        started = _started(model, strategy, source_ids)
        return {name: each for name, each in started.items() if not name.startswith("cache_")}

    return encode


def _step_function(model, strategy, carried):
    """`decode_step` for tensors of the specs `carried`, by name."""
    chooses = None
    if isinstance(strategy, Greedy):
        constraints = Constraints(strategy, model.config)
        if not constraints.reads_output:
            chooses = strategy.chooser(constraints)

    def decode_step(token_ids, position, carried):
        position = ops.squeeze(position, 0)
        cache = _cache(model, carried)
        logits, cache = model.step(token_ids, cache, position)
        logits = ops.squeeze(logits, 1)
        outputs = {"logits": logits, **_named(model, cache, ("cache",))}
        if chooses is not None:
            outputs["next_ids"] = chooses(logits, position, None)
        return outputs

    token_ids = tf.TensorSpec((1, 1), tf.int32, name="token_ids")
    position = tf.TensorSpec((1,), tf.int32, name="position")
    return as_graph(decode_step, (token_ids, position, carried))


def _named(model, cache, parts):
    """The tensors of a `Cache` by the names that an app knows; memory once of tied blocks."""
    named, numbers = {}, model.config.decoder_blocks
    for index, block in enumerate(cache.blocks):
        tensors_of = {"cache": cache.own_buffers(index), "memory": block[1]}
        for part in parts:
            if part == "memory" and numbers[index] != index:
                continue  # the same tensor, and `CompiledModel` does not tell two outputs apart
            tensors = tensors_of[part]
            kinds = ("state",) if isinstance(tensors, RecurrentState) else ("keys", "values")
            for kind, tensor in zip(kinds, tensors, strict=True):
                named[f"{part}_{index}_{kind}"] = tensor
    return named


def _cache(model, named):
    """The inverse of `_named`: the `Cache` of the model."""
    is_recurrent = model.config.decoder_recurrence is not None

    def pair(part):
        return named[f"{part}_keys"], named[f"{part}_values"]

    def own(index):
        part = f"cache_{index}"
        return RecurrentState(named[f"{part}_state"]) if is_recurrent else pair(part)

    layers = range(model.config.decoder_layers)
    if "memory_mask" not in named:  # a language model has no source
        slot_ids = arange(ops.shape(named["cache_0_keys"])[2])
        return Cache(tuple(map(own, layers)), (), slot_ids, ())
    numbers = model.config.decoder_blocks
    blocks = tuple((own(index), pair(f"memory_{numbers[index]}")) for index in layers)
    mask_B11S = ops.expand_dims(ops.cast(named["memory_mask"], "bool"), (1, 2))
    slot_ids = () if is_recurrent else arange(ops.shape(named["cache_0_keys"])[2])
    return Cache(blocks, masks.additive(mask_B11S), slot_ids, ())


class LanguageModelModule(tf.Module):
    """A `LanguageModel` as graphs for a device, one prompt at a time.

    `generate`: `prompt_ids` (1, P) int32, pieces without BOS and EOS; one pad for an empty
    prompt -> `target_ids` (1, T) int32, the prompt, what follows and EOS, then pads, and the
    outputs with scores of `DeviceModule`.

    `decode_step`, for apps that show a text as it grows: that of `DeviceModule` without a source.
    Whoever calls it gives the tokens of the prompt after BOS, and takes no other token before;
    T is the most tokens of the prompt and what follows.

    Args:
        model: A `LanguageModel`.
        strategy: A search strategy, for `generate`; if it is `Greedy`, for `decode_step` too.
        signatures: Names of those wanted.
        lengths, lengths_only: See `DeviceModule`.
    """

    def __init__(
        self,
        model,
        strategy,
        signatures=LANGUAGE_MODEL_SIGNATURES[:1],
        lengths=(),
        lengths_only=False,
    ):
        super().__init__()
        self.model_variables = variables(model)

        def generate_ids(prompt_ids):
            found = generate(model, prompt_ids, strategy)
            return {"target_ids": found.ids, **_scored(found.hypotheses)}

        def begin(prompt_ids):
            cache = model.start(1, ops.shape(prompt_ids)[1])
            return _named(model, cache, ("cache",))

        graphs = _answers("generate", "prompt_ids", generate_ids, lengths, lengths_only)
        self._functions = {name: as_graph(graph, specs) for name, (graph, specs) in graphs.items()}
        if "decode_step" in check_signatures(signatures, LANGUAGE_MODEL_SIGNATURES):
            started = as_graph(begin, (_ids("prompt_ids"),)).get_concrete_function()
            specs = {
                name: tf.TensorSpec(tensor.shape, tensor.dtype, name=name)
                for name, tensor in started.structured_outputs.items()
            }
            self._functions["decode_step"] = _step_function(model, strategy, specs)
        self._lengths = tuple(lengths)
        self.first_signature = _first("generate", lengths, lengths_only)

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return _concrete(self._functions, self._lengths)


class ClassifierModule(tf.Module):
    """A `SequenceClassifier` or `TokenClassifier` as graphs for a device, one text at a time.

    `classify`: `source_ids` (1, S) int32, pads at the end if any -> `logits` float32, (1, C) or
    (1, S, C), where those at pads mean nothing.

    Args:
        model: The classifier.
        lengths, lengths_only: See `DeviceModule`.
    """

    def __init__(self, model, lengths=(), lengths_only=False):
        super().__init__()
        self.model_variables = variables(model)

        def classify(source_ids):
            return {"logits": model(source_ids, training=False)}

        graphs = _answers("classify", "source_ids", classify, lengths, lengths_only)
        self._functions = {name: as_graph(graph, specs) for name, (graph, specs) in graphs.items()}
        self._lengths = tuple(lengths)
        self.first_signature = _first("classify", lengths, lengths_only)

    @property
    def signatures(self):
        """Concrete functions by signature name."""
        return _concrete(self._functions, self._lengths)
