"""Exports for devices of models that are no encoder-decoder: classifiers and language models."""

import dataclasses
import functools
import json
import time

import keras
import numpy as np

from keras_transformer.arguments import check_flag, check_size
from keras_transformer.decoding import Greedy, generate
from keras_transformer.decoding.compiled import compiled
from keras_transformer.export.backend import check_backend
from keras_transformer.export.litert.conversion import (
    check_size as check_model_size,
)
from keras_transformer.export.litert.conversion import convert
from keras_transformer.export.litert.graphs import (
    ClassifierModule,
    LanguageModelModule,
    check_search,
)
from keras_transformer.export.litert.modes import mode_named
from keras_transformer.export.parity import (
    ParityError,
    ParityReport,
    checked_samples,
    compare,
)
from keras_transformer.models import LanguageModel, SequenceClassifier, TokenClassifier
from keras_transformer.models.transfer import in_float32
from keras_transformer_runner import folder as device_folder
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.runner import Runner

_BATCH = 64  # prompts that Python continues at a time
# Float32 probabilities differ in how sums are ordered, over all layers, and in nothing else.
_MOST_DIFFERENCE = 1e-3


def export_classifier(
    model,
    tokenizer,
    path,
    *,
    samples,
    mode="float32",
    labels=None,
    adds_eos=True,
    max_source_length=512,
    overwrite=False,
):
    """Writes a folder for a device that classifies texts, or their tokens, and compares it.

    The folder is that of `export_litert` with the signature `classify`: `source_ids` (1, S) int32
    -> `logits` float32, (1, C) of a `SequenceClassifier`, (1, S, C) of a `TokenClassifier`.
    `Runner.classify` gives probabilities.

    Args:
        model: A `SequenceClassifier` or a `TokenClassifier`.
        tokenizer: Its tokenizer.
        path: The folder to make.
        samples: Texts to compare on, at least one.
        mode: Key of `MODES`. Its promise of tokens is one of classes: a text's, or a token's.
            `"float32"` also promises probabilities within 0.001.
        labels: Names of the classes, in order, for the metadata.
        adds_eos: Whether EOS follows a text's pieces, as it did in training.
        max_source_length: Most tokens of a text that the runner accepts.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is.

    Returns:
        The `ParityReport`, which is also written to `parity.json`. Its texts are classes.

    Raises:
        TypeError: if `model` is no classifier, or `samples` or `labels` is one string.
        ValueError: if `mode` is unknown, a sample has too many ids or none, there are not as many
            labels as classes, model and tokenizer disagree, or the model is too large for LiteRT.
        FileExistsError: if `path` exists and `overwrite` is false, or it holds anything else
            than an export writes.
        TargetInUseError: if another process is writing it.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if the mode's promise is broken; nothing is written then.
    """
    _check_kind(model, (SequenceClassifier, TokenClassifier))
    check_flag(adds_eos=adds_eos)
    labels = _checked_labels(labels, model.num_classes)
    extra = {"adds_eos": adds_eos, "num_classes": model.num_classes}
    if labels:
        extra["labels"] = labels
    export = _Export(_prepared(model), tokenizer, mode, checked_samples(samples), max_source_length)
    export.check_tokenizer(model.config.vocab_size)
    end = [tokenizer.eos_id] if adds_eos else []
    rows = export.rows(end)
    if not all(rows):
        raise ValueError(
            "every text to classify must have an id. Received: "
            f"{export.samples[rows.index([])]!r}, which has none"
        )
    outputs = [_as_array(export.model(np.array([row], "int32"), training=False))[0] for row in rows]
    expected = [keras.ops.softmax(logits, axis=-1) for logits in outputs]
    expected = [_as_array(probabilities) for probabilities in expected]
    calibrated = [{"source_ids": row} for row in rows]
    with device_folder.new_export(path, overwrite) as folder:
        graph = export.write(folder, "classify", ClassifierModule(export.model), calibrated, extra)
        runner, seconds = export.timed(folder, "classify")
        received = [runner.classify_ids(row) for row in rows]
        pairs = (
            [_class_pair(x, extra.get("labels")) for x in both] for both in (expected, received)
        )
        report = export.report(folder, graph, compare(export.samples, *pairs), seconds).check()
        if mode == "float32":
            _check_probabilities(expected, received)
        report.write(folder / device_folder.REPORT)
    return report


def export_language_model(
    model,
    tokenizer,
    path,
    *,
    samples,
    mode="float32",
    strategy=None,
    max_source_length=512,
    overwrite=False,
):
    """Writes a folder for a device that continues prompts, and compares it with Python.

    The folder is that of `export_litert` with the signature `generate`, the whole loop of
    `decoding.generate`: `prompt_ids` (1, P) int32 -> `target_ids` (1, T) int32. `Runner.generate`
    takes and gives text.

    Args:
        model: A `LanguageModel`.
        tokenizer: Its tokenizer.
        path: The folder to make.
        samples: Prompts to compare on, at least one; an empty one starts from nothing.
        mode: Key of `MODES`. Its promise is one of the tokens behind the prompt.
        strategy: Search strategy; `Greedy()` when `None`.
        max_source_length: Most tokens of a prompt that the runner accepts.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is.

    Returns:
        The `ParityReport`, which is also written to `parity.json`.

    Raises:
        TypeError: if `model` is no `LanguageModel`, or `samples` is one string.
        ValueError: if `mode` is unknown, `strategy` samples, a prompt is too long, model and
            tokenizer disagree, or the model is too large for LiteRT.
        FileExistsError, TargetInUseError, RuntimeError, ParityError: as `export_classifier`.
    """
    _check_kind(model, (LanguageModel,))
    strategy = Greedy() if strategy is None else strategy
    check_search(strategy)
    export = _Export(_prepared(model), tokenizer, mode, checked_samples(samples), max_source_length)
    export.check_tokenizer(model.config.target_size)
    rows = export.rows([])
    answers = _continued(export.model, rows, strategy)
    bos_id = model.config.bos_id
    calibrated = [{"token_ids": [bos_id, *answer]} for answer in answers]
    extra = {"search": {"name": type(strategy).__name__, **dataclasses.asdict(strategy)}}
    with device_folder.new_export(path, overwrite) as folder:
        module = LanguageModelModule(export.model, strategy)
        graph = export.write(folder, "generate", module, calibrated, extra)
        runner, seconds = export.timed(folder, "generate")
        received = [runner.generate_ids(row) for row in rows]
        pairs = (
            [(tokenizer.decode(ids), ids[len(row) :]) for row, ids in zip(rows, both, strict=True)]
            for both in (answers, received)
        )
        report = export.report(folder, graph, compare(export.samples, *pairs), seconds).check()
        report.write(folder / device_folder.REPORT)
    return report


class _Export:
    """What both exports share: checks, files and the report."""

    def __init__(self, model, tokenizer, mode, samples, max_source_length):
        check_size(max_source_length=max_source_length)
        self.model, self.tokenizer, self.samples = model, tokenizer, samples
        self.mode, self.promise = mode, mode_named(mode)
        longest = model.config.max_positions or max_source_length
        self.max_source_length = min(max_source_length, longest)

    def check_tokenizer(self, vocab_size):
        config, tokenizer = self.model.config, self.tokenizer
        special = {name: getattr(config, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
        for name, ours in {"vocab_size": vocab_size, **special}.items():
            theirs = getattr(tokenizer, name)
            if ours != theirs:
                raise ValueError(
                    f"`tokenizer` and the model must have the same `{name}`. "
                    f"Received: tokenizer {theirs}, model {ours}"
                )
        self.vocab_size = vocab_size

    def rows(self, end):
        """The ids of each sample, with `end` behind them."""
        rows = [[*self.tokenizer.encode(sample), *end] for sample in self.samples]
        longest = max(map(len, rows))
        if longest > self.max_source_length:
            raise ValueError(
                f"a sample must have at most `max_source_length` = {self.max_source_length} "
                f"tokens. Received: {longest}"
            )
        return rows

    def write(self, folder, signature, module, calibrated, extra):
        """Fills the folder; returns the graph of its file."""
        calibration = None
        if self.promise.is_calibrated:
            from keras_transformer.export.litert.calibration import Calibration

            calibration = Calibration(self.model, calibrated)
        content, graph = convert(module, self.mode, calibration, folder)
        (folder / device_folder.MODEL_FILE).write_bytes(content)
        self.tokenizer.save(folder / f"{device_folder.TOKENIZER}{self.tokenizer.file_suffix}")
        config = self.model.config
        metadata = {
            **{"format": device_folder.FORMAT, "mode": self.mode, "signature": signature},
            **{"vocab_size": self.vocab_size, "target_vocab_size": self.vocab_size},
            **{name: getattr(config, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")},
            **{"max_source_length": self.max_source_length},
            **{"max_positions": config.max_positions, **extra},
            "sha256": device_folder.checksums(folder),
        }
        text = json.dumps(sealed(metadata), indent=2, ensure_ascii=False) + "\n"
        (folder / device_folder.METADATA_FILE).write_text(text, encoding="utf-8")
        return graph

    def timed(self, folder, method):
        """A runner of the folder, and its mean seconds a sample after one warm-up."""
        runner = Runner(folder)
        answer = getattr(runner, method)
        answer(self.samples[:1])
        start = time.perf_counter()
        answer(self.samples)
        return runner, (time.perf_counter() - start) / len(self.samples)

    def report(self, folder, graph, counts, seconds):
        from keras_transformer.export.litert import flatbuffer

        return ParityReport(
            artefact="litert",
            mode=self.mode,
            **counts,
            promised_agreement=self.promise.promised_agreement,
            size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
            seconds_a_sample=seconds,
            ops=flatbuffer.op_names(graph),
            parameters=self.model.count_params(),
            weight_bytes=flatbuffer.weight_bytes(graph),
            promised_bytes=self.promise.promised_bytes,
        )


def _check_kind(model, kinds):
    if not isinstance(model, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"`model` must be a {names}. Received: {type(model).__name__}")


def _prepared(model):
    """The model in float32, once it is known that it can be exported."""
    check_backend()
    check_model_size(model)
    return in_float32(model)


def _checked_labels(labels, num_classes):
    if labels is None:
        return None
    is_text = isinstance(labels, (str, bytes))
    labels = [labels] if is_text else list(labels)
    if is_text or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"`labels` must be a list of strings. Received: {labels!r}")
    if len(labels) != num_classes:
        raise ValueError(
            "`labels` must name every class of the model. Received: "
            f"{len(labels)} labels, num_classes={num_classes}"
        )
    return labels


def _class_pair(probabilities, labels):
    """The classes of one text as `(text, ids)`, as `compare` takes them."""
    ids = probabilities.reshape(-1, probabilities.shape[-1]).argmax(axis=-1).tolist()
    return " ".join(labels[index] if labels else str(index) for index in ids), ids


def _check_probabilities(expected, received):
    largest = max(float(np.abs(a - b).max()) for a, b in zip(expected, received, strict=True))
    if not largest <= _MOST_DIFFERENCE:
        raise ParityError(
            f"a float32 classifier must give Python's probabilities within {_MOST_DIFFERENCE}. "
            f"Received: a difference of {largest:.3g}. Nothing was written."
        )


def _continued(model, rows, strategy):
    """Python's ids for each prompt, without EOS and pads."""
    config = model.config
    run = compiled(functools.partial(generate, model, strategy=strategy), model)
    answers = []
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        width = max(1, max(map(len, batch)))
        prompts = np.full((len(batch), width), config.pad_id, "int32")
        for row, ids in zip(prompts, batch, strict=True):
            row[: len(ids)] = ids
        for ids in _as_array(run(prompts).ids):
            answers.append([int(x) for x in ids if x not in (config.pad_id, config.eos_id)])
    return answers


def _as_array(tensor):
    return keras.ops.convert_to_numpy(tensor)
