"""Exports of classifiers and language models for devices."""

import os
from collections.abc import Sequence

from keras_transformer.arguments import check_flag, check_size
from keras_transformer.decoding import Greedy
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.export.backend import check_backend
from keras_transformer.export.litert.calibration import Calibration
from keras_transformer.export.litert.conversion import check_size as check_model_size
from keras_transformer.export.litert.graphs import (
    LANGUAGE_MODEL_SIGNATURES,
    ClassifierModule,
    LanguageModelModule,
    check_search,
    check_signatures,
)
from keras_transformer.export.litert.lengths import (
    check_each_length,
    check_lengths,
    check_steps,
    fixed_lengths,
)
from keras_transformer.export.litert.modes import mode_named
from keras_transformer.export.litert.writer import (
    DeviceContents,
    new_export,
    parity_report,
    search_settings,
    timed_answers,
    write_folder,
    write_reports,
)
from keras_transformer.export.parity import ParityReport, checked_samples, compare
from keras_transformer.export.python_answers import (
    check_kind,
    check_probabilities,
    checked_labels,
    class_pair,
    likeliest,
    python_continuations,
    python_probabilities,
)
from keras_transformer.models import LanguageModel, SequenceClassifier, TokenClassifier
from keras_transformer.models.transfer import in_float32
from keras_transformer.translation.arguments import check_tokenizer
from keras_transformer_runner.lengths import FixedLength, fields, fixed_signature
from keras_transformer_runner.runner import Runner
from keras_transformer_runner.tokenizers import Tokenizer

_BATCH = 64  # prompts that Python continues at a time
# Float32 probabilities differ in how sums are ordered, over all layers, and in nothing else.
_MOST_DIFFERENCE = 1e-3


def export_classifier(
    model: SequenceClassifier | TokenClassifier,
    tokenizer: Tokenizer,
    path: os.PathLike | str,
    *,
    samples: Sequence[str],
    mode: str = "float32",
    labels: Sequence[str] | None = None,
    adds_eos: bool = True,
    lengths: Sequence[int] = (),
    lengths_only: bool = False,
    max_source_length: int = 512,
    overwrite: bool = False,
) -> ParityReport:
    """Writes a folder for a device that classifies texts, or their tokens, and compares it.

    The folder is that of `export_litert` with the signature `classify`: `source_ids` (1, S) int32
    -> `logits` float32, (1, C) of a `SequenceClassifier`, (1, S, C) of a `TokenClassifier`.
    `Runner.classify` gives probabilities.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> model = kt.SequenceClassifier(config, num_classes=2)
        >>> report = kt.export_classifier(
        ...     model, tokenizer, "device", samples=["A man rides."], labels=["no", "yes"])
        >>> report.token_agreement
        1.0
        >>> (probabilities,) = kt.Runner("device").classify(["A dog."])
        >>> probabilities.shape
        (2,)

    Args:
        model: A `SequenceClassifier` or a `TokenClassifier`.
        tokenizer: Its tokenizer.
        path: The folder to make.
        samples: Texts to compare on, at least one.
        mode: Key of `MODES`. Its promise of tokens is one of classes: a text's, or a token's.
            `"float32"` also promises probabilities within 0.001.
        labels: Names of the classes, in order, for the metadata.
        adds_eos: Whether EOS follows a text's pieces, as it did in training.
        lengths: Source lengths, each of a signature of fixed shapes more, such as `classify_32`;
            see `export_litert`.
        lengths_only: Whether there is none but these.
        max_source_length: Most tokens of a text that the runner accepts.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is.

    Returns:
        The `ParityReport`, which is also written to `parity.json`. Its texts are classes.

    Raises:
        TypeError: if `model` is not a classifier, `samples` or `labels` is one string, or
            `lengths` no list of integers.
        ValueError: if `mode` is unknown, a sample has too many ids or none, there are not as many
            labels as classes, `lengths` do not ascend or go beyond `max_source_length`, model and
            tokenizer disagree, or the model is too large for LiteRT.
        FileExistsError: if `path` exists and `overwrite` is false, or it holds anything else
            than an export writes.
        TargetInUseError: if another process is writing it.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if the mode's promise is broken; nothing is written then.
    """
    check_kind(model, (SequenceClassifier, TokenClassifier))
    check_flag(adds_eos=adds_eos)
    labels = checked_labels(labels, model.num_classes)
    samples = checked_samples(samples)
    model = _prepared(model, mode, max_source_length)
    settings = {"adds_eos": adds_eos, "num_classes": model.num_classes}
    if labels:
        settings["labels"] = labels
    limit, lengths = _limits(model, max_source_length, lengths, lengths_only)
    is_one_row = isinstance(model, SequenceClassifier)
    fixed = [
        FixedLength(fixed_signature("classify", each), each, 1 if is_one_row else each)
        for each in lengths
    ]
    settings |= fields(fixed, not lengths_only)
    module = ClassifierModule(model, lengths, lengths_only)
    contents = _contents("classify", model, module, tokenizer, limit, settings)
    check_tokenizer(tokenizer, "tokenizer", model.config, model.config.vocab_size)
    rows = _rows(contents, samples, [tokenizer.eos_id] if adds_eos else [])
    if not all(rows):
        raise ValueError(
            "every text to classify must have an id. Received: "
            f"{samples[rows.index([])]!r}, which has none"
        )
    expected = [python_probabilities(model, row) for row in rows]
    calibration = Calibration(model, [{"source_ids": row} for row in rows])
    with new_export(path, overwrite) as folder:
        graph = write_folder(folder, contents, mode, calibration)
        runner = Runner(folder)
        received, seconds = timed_answers(runner, runner.classify_ids, samples)
        pairs = ([class_pair(x, labels) for x in both] for both in (expected, received))
        found = compare(samples, *pairs)
        classes = [likeliest(each) for each in expected]
        check_each_length(
            runner.lengths,
            list(zip(rows, classes, strict=True)),
            lambda ids: likeliest(python_probabilities(model, ids)),
            lambda ids, length: likeliest(runner.classify_ids(ids, length=length)),
            mode,
        )
        report = parity_report(folder, contents, mode, graph, seconds, **found).check()
        if mode == "float32":
            check_probabilities(expected, received)
        write_reports(folder, path, contents, report)
    return report


def export_language_model(
    model: LanguageModel,
    tokenizer: Tokenizer,
    path: os.PathLike | str,
    *,
    samples: Sequence[str],
    mode: str = "float32",
    strategy: SearchOptions | None = None,
    signatures: Sequence[str] = LANGUAGE_MODEL_SIGNATURES[:1],
    lengths: Sequence[int] = (),
    lengths_only: bool = False,
    max_source_length: int = 512,
    overwrite: bool = False,
) -> ParityReport:
    """Writes a folder for a device that continues prompts, and compares it with Python.

    The folder is that of `export_litert` with the signature `generate`, the whole loop of
    `decoding.generate`: `prompt_ids` (1, P) int32 -> `target_ids` (1, T) int32. `Runner.generate`
    takes and gives text. With the signature `decode_step` too, `Runner.stream` gives the text as it
    grows.

    Example:
        >>> tokenizer = kt.BytesTokenizer()
        >>> config = kt.TransformerConfig(vocab_size=tokenizer.vocab_size, model_dim=8, num_heads=2,
        ...     encoder_layers=1, decoder_layers=1, intermediate_dim=16)
        >>> model = kt.LanguageModel(config)
        >>> report = kt.export_language_model(
        ...     model, tokenizer, "device", samples=["A man"], strategy=kt.Greedy(extra_length=4))
        >>> kt.Runner("device").generate(["A man"])[0].startswith("A man")
        True

    Args:
        model: A `LanguageModel`.
        tokenizer: Its tokenizer.
        path: The folder to make.
        samples: Prompts to compare on, at least one; an empty one starts from nothing.
        mode: Key of `MODES`. Its promise is one of the tokens behind the prompt.
        strategy: The search; `Greedy()` when `None`.
        signatures: `("generate",)`, or `LANGUAGE_MODEL_SIGNATURES` for apps that show a text as
            it grows.
        lengths: Lengths of prompts, each of a signature of fixed shapes more, such as
            `generate_32`; see `export_litert`.
        lengths_only: Whether there is none but these.
        max_source_length: Most tokens of a prompt that the runner accepts.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is.

    Returns:
        The `ParityReport`, which is also written to `parity.json`.

    Raises:
        TypeError: if `model` is not a `LanguageModel`, `samples` or `signatures` is one string, or
            `lengths` no list of integers.
        ValueError: if `mode` or a signature is unknown, `strategy` samples, a prompt is too long,
            `lengths` do not ascend or go beyond `max_source_length`, model and tokenizer disagree,
            or the model is too large for LiteRT.
        FileExistsError, TargetInUseError, RuntimeError, ParityError: as `export_classifier`.
    """
    check_kind(model, (LanguageModel,))
    strategy = Greedy() if strategy is None else strategy
    check_search(strategy)
    samples = checked_samples(samples)
    model = _prepared(model, mode, max_source_length)
    signatures = check_signatures(signatures, LANGUAGE_MODEL_SIGNATURES)
    limit, lengths = _limits(model, max_source_length, lengths, lengths_only, signatures)
    fixed = fixed_lengths("generate", lengths, strategy, model.config.max_positions)
    settings = {"search": search_settings(strategy), **fields(fixed, not lengths_only)}
    module = LanguageModelModule(model, strategy, signatures, lengths, lengths_only)
    contents = _contents("generate", model, module, tokenizer, limit, settings)
    check_tokenizer(tokenizer, "tokenizer", model.config, model.config.target_size)
    rows = _rows(contents, samples, [])
    expected = python_continuations(model, rows, strategy)
    bos_id = model.config.bos_id
    calibration = Calibration(model, [{"token_ids": [bos_id, *answer]} for answer in expected])
    with new_export(path, overwrite) as folder:
        graph = write_folder(folder, contents, mode, calibration)
        runner = Runner(folder)
        received, seconds = timed_answers(runner, runner.generate_ids, samples)
        pairs = (
            [(tokenizer.decode(ids), ids[len(row) :]) for row, ids in zip(rows, both, strict=True)]
            for both in (expected, received)
        )
        found = compare(samples, *pairs)
        check_steps(runner, samples, [tokenizer.decode(ids) for ids in received])
        check_each_length(
            runner.lengths,
            [(row, ids[len(row) :]) for row, ids in zip(rows, expected, strict=True)],
            lambda ids: python_continuations(model, [ids], strategy)[0][len(ids) :],
            lambda ids, length: runner.generate_ids(ids, length=length)[len(ids) :],
            mode,
        )
        report = parity_report(folder, contents, mode, graph, seconds, **found).check()
        write_reports(folder, path, contents, report)
    return report


def _limits(model, max_source_length, lengths, lengths_only, signatures=()):
    """The most tokens of a source, and its checked `lengths`."""
    longest = min(max_source_length, model.config.max_positions or max_source_length)
    lengths = check_lengths(lengths, longest, lengths_only, signatures)
    return lengths[-1] if lengths_only else longest, lengths


def _contents(signature, model, module, tokenizer, max_source_length, settings):
    """The `DeviceContents` of a model of one stack."""
    return DeviceContents(
        signature=signature,
        model=model,
        module=module,
        tokenizer=tokenizer,
        target_tokenizer=tokenizer,
        max_source_length=max_source_length,
        tensors={},
        settings={"max_positions": model.config.max_positions, **settings},
    )


def _rows(contents, samples, end):
    """The ids of each sample, with `end` behind them."""
    rows = [[*contents.tokenizer.encode(sample), *end] for sample in samples]
    longest, limit = max(map(len, rows)), contents.max_source_length
    if longest > limit:
        raise ValueError(
            f"a sample must have at most `max_source_length` = {limit} tokens. Received: {longest}"
        )
    return rows


def _prepared(model, mode, max_source_length):
    """The model in float32, once it is known that it can be exported."""
    check_backend()
    check_size(max_source_length=max_source_length)
    mode_named(mode)
    check_model_size(model, mode)
    return in_float32(model)
