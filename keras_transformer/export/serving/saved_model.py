"""Export for TF Serving: a SavedModel that takes strings and gives strings."""

import json
import os
import pathlib
import time
from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.artifacts import DESCRIPTION
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.export.backend import check_backend
from keras_transformer.export.card import write_artifact_card
from keras_transformer.export.parity import ParityReport, checked_samples, compare
from keras_transformer.export.serving.classifiers import ClassifierGraphs
from keras_transformer.export.serving.comparison import (
    ClassifierComparison,
    GeneratorComparison,
    TranslatorComparison,
)
from keras_transformer.export.serving.description import checksums, describe, op_names
from keras_transformer.export.serving.graphs import ServingGraphs, ServingModule
from keras_transformer.export.serving.language_models import LanguageModelGraphs
from keras_transformer.export.serving.text_models import TextClassifier, TextGenerator
from keras_transformer.export.serving.warmup import (
    BATCH_SIZES,
    WARMUP,
    latencies,
    warmup_requests,
    write_warmup,
)
from keras_transformer.models import (
    LanguageModel,
    SequenceClassifier,
    TokenClassifier,
    Transformer,
)
from keras_transformer.presets.card import Card
from keras_transformer.presets.card_file import CARD_FILE
from keras_transformer.translation import Translator
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.tokenizers import Tokenizer

REPORT = "assets.extra/parity.json"
_FILES = ("saved_model.pb", "fingerprint.pb", "variables/variables.*", "assets/*")
_FILES += (REPORT, DESCRIPTION, WARMUP, CARD_FILE)


def export_saved_model(
    model: Transformer | LanguageModel | SequenceClassifier | TokenClassifier,
    tokenizer: Tokenizer,
    path: os.PathLike | str,
    *,
    samples: Sequence[str],
    strategy: SearchOptions | None = None,
    target_tokenizer: Tokenizer | None = None,
    labels: Sequence[str] | None = None,
    adds_eos: bool = True,
    max_source_length: int = 1024,
    ids_only: bool = False,
    shortlist: Shortlist | None = None,
    warmup_batch_sizes: Sequence[int] = BATCH_SIZES,
    measure_latency: bool = False,
    card: Card | None = None,
    overwrite: bool = False,
) -> ParityReport:
    """Writes a SavedModel, runs it, and compares its text with Python's.

    The folder holds all it needs, tokenizer included, names no path, and can be moved. Any
    process with TensorFlow and TensorFlow Text can serve it; so can the TF Serving binary, which
    links the ops of TensorFlow Text. It contains no XLA op, which that binary refuses by default.
    `ServingModule` documents its signatures; those of a language model are in
    `serving.language_models`, those of a classifier in `serving.classifiers`. In `assets.extra` lie
    `parity.json`, `serving.json` (signatures, bounds, ops, what a server needs, latency) and
    `tf_serving_warmup_requests`, which TF Serving runs before it answers. `README.md` is a model
    card.

    Example:
        >>> import tensorflow as tf
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> model = kt.Transformer(config)
        >>> report = kt.export_saved_model(model, tokenizer, "models/1", samples=["A man rides."])
        >>> report.identical, report.samples
        (1, 1)
        >>> sorted(tf.saved_model.load("models/1").signatures)
        ['embed', 'encode', 'score', 'serving_default', 'translate', 'translate_ids']

    Args:
        model: A `Transformer`, a `LanguageModel` or a classifier, trained or not.
        tokenizer: Its tokenizer; that of the source, where the target has another.
        path: The folder to make. TF Serving wants a number: see `next_version`.
        samples: Sentences to compare on, at least one.
        strategy: The search; `Greedy()` when `None`. A classifier has none.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        labels: Names of a classifier's classes, in order; `None` of another model.
        adds_eos: Whether EOS follows the pieces of a text to classify, as it did in training.
        max_source_length: Most tokens of a source, EOS included where there is one. The SavedModel
            answers a longer one with nothing, and names the fault in `status`.
        ids_only: Whether ids go in and come out, and no text: for runtimes that lack the ops of
            TensorFlow Text.
        shortlist: A `Shortlist`, for a search among its candidates: the table is in the graphs.
            `score` is still of the whole vocabulary.
        warmup_batch_sizes: Rows of the warm-up requests of each signature; `()` for none.
        measure_latency: Whether those requests are run, cold and warm, which takes seconds.
        card: A `presets.card.Card`: what the model card says of where the model comes from.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is. A model
            card there that somebody has edited stays.

    Returns:
        The `ParityReport`, which is also written to `assets.extra/parity.json`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is false, or it holds anything else
            than an export writes.
        TargetInUseError: if another process is writing it.
        TypeError: if `samples` or `labels` is one string.
        ValueError: if a sample is longer than `max_source_length`, a batch size is not positive,
            there are not as many `labels` as classes, or an argument is not for such a model.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if a text, or a class, differs from Python's; nothing is written then.
    """
    check_backend()
    samples = checked_samples(samples)
    _check_batch_sizes(warmup_batch_sizes)
    search = dict(strategy=strategy, target_tokenizer=target_tokenizer, shortlist=shortlist)
    classes = dict(labels=labels, adds_eos=adds_eos)
    owner, kind, comparison_of = _parts(model, tokenizer, max_source_length, search, classes)
    for sample in samples:
        owner.source_ids(sample)  # raises before the work begins
    replaces = _FILES if overwrite else None
    with new_folder(path, replaces=replaces, mark=REPORT, what="an export") as folder:
        module = ServingModule(owner, ids_only=ids_only, kind=kind)
        tf.saved_model.save(module, str(folder), signatures=module.signatures)
        (folder / REPORT).parent.mkdir(exist_ok=True)
        loaded = tf.saved_model.load(str(folder))  # owns what its signatures use
        comparison = comparison_of(module.graphs, samples)
        description = describe(module.graphs, loaded.signatures, op_names(folder))
        requests = warmup_requests(loaded.signatures, comparison.columns, warmup_batch_sizes)
        if requests:
            write_warmup(folder / WARMUP, requests)
        description["latency"] = latencies(loaded.signatures, requests if measure_latency else [])
        description["sha256"] = checksums(folder)
        text = json.dumps(sealed(description), indent=2) + "\n"
        (folder / DESCRIPTION).write_text(text, encoding="utf-8")
        report = _parity(folder, loaded.signatures, comparison, samples)
        report.check().write(folder / REPORT)
        facts = _facts(description)
        write_artifact_card(folder, path, card, comparison.owner.model, report, facts)
    return report


def _facts(description):
    """What the model card says of the description."""
    bounds = (f"{name} {value}" for name, value in description["bounds"].items())
    return {"signatures": ", ".join(description["signatures"]), "bounds": ", ".join(bounds)}


def _parts(model, tokenizer, max_source_length, search, classes):
    """What is exported, the class of its graphs, and that of its `comparison`.

    Args:
        model, tokenizer, max_source_length: See `export_saved_model`.
        search: Its arguments of a search.
        classes: Its arguments of a classifier.
    """
    if isinstance(model, (SequenceClassifier, TokenClassifier)):
        _check_unused(model, search)
        owner = TextClassifier(model, tokenizer, max_source_length=max_source_length, **classes)
        return owner, ClassifierGraphs, ClassifierComparison
    _check_unused(model, {"labels": classes["labels"], "adds_eos": classes["adds_eos"]})
    if isinstance(model, LanguageModel):
        strategy = search.pop("strategy")
        _check_unused(model, search)
        owner = TextGenerator(model, tokenizer, strategy, max_source_length)
        return owner, LanguageModelGraphs, GeneratorComparison
    owner = Translator(model, tokenizer, max_source_length=max_source_length, **search)
    return owner, ServingGraphs, TranslatorComparison


def _check_unused(model, arguments):
    """Raises ValueError if an argument is given that means nothing for such a model."""
    for name, value in arguments.items():
        default = True if name == "adds_eos" else None
        if value is not default:
            raise ValueError(
                f"`{name}` must be {default} for a {type(model).__name__}. Received: {value!r}"
            )


def _check_batch_sizes(sizes):
    if any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(
            f"`warmup_batch_sizes` must be positive integers. Received: {tuple(sizes)!r}"
        )


def _parity(folder, signatures, comparison, samples):
    return ParityReport(
        artefact="savedmodel",
        mode=comparison.owner.model.dtype_policy.compute_dtype,
        **compare(samples, comparison.pairs, comparison.served(signatures)),
        promised_agreement=1.0,
        size_bytes=_size(folder),
        seconds_a_sample=_seconds_a_sample(*comparison.call(signatures)),
        ops=op_names(folder),
    )


def _seconds_a_sample(run, inputs, at_most=16):
    ((name, values),) = inputs.items()
    rows = [values[index : index + 1] for index in range(min(len(values), at_most))]
    run(**{name: rows[0]})
    start = time.perf_counter()
    for row in rows:
        run(**{name: row})
    return (time.perf_counter() - start) / len(rows)


def _size(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())
