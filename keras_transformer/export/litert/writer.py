"""Writes the folder of a device export and reports on it, whatever its model answers with."""

import contextlib
import dataclasses
import importlib.metadata
import json
import time
from typing import NamedTuple

from keras_transformer.export.card import write_artifact_card
from keras_transformer.export.litert.conversion import convert
from keras_transformer.export.litert.modes import MODES
from keras_transformer.export.parity import ParityReport
from keras_transformer_runner import folder as files
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.integrity import sealed


class DeviceContents(NamedTuple):
    """What a folder is written from.

    Attributes:
        signature: What the model does: `"translate"`, `"generate"` or `"classify"`.
        model: The Keras model, in float32.
        module: A `tf.Module` with a dict `signatures` of the model's graphs.
        tokenizer: Of the source.
        target_tokenizer: Of the target; `tokenizer` itself where both sides share it.
        max_source_length: Most tokens of a source that the runner accepts.
        tensors: Fields of the metadata that describe inputs and outputs.
        settings: Fields of the metadata that only this signature has.
    """

    signature: str
    model: object
    module: object
    tokenizer: object
    target_tokenizer: object
    max_source_length: int
    tensors: dict
    settings: dict


def new_export(path, overwrite):
    """`new_folder` for an export; `overwrite` replaces an earlier one, and nothing else."""
    replaces = files.FILES if overwrite else None
    return new_folder(path, replaces=replaces, mark=files.REPORT, what="an export")


def write_folder(folder, contents, mode, calibration=None):
    """Writes the model, the tokenizers and the metadata.

    Args:
        folder: An empty folder.
        contents: `DeviceContents`.
        mode: Key of `MODES`.
        calibration: As in `conversion.convert`.

    Returns:
        The graph of the model's file, as `flatbuffer.read` gives it.
    """
    content, graph = convert(contents.module, mode, calibration, folder)
    (folder / files.MODEL_FILE).write_bytes(content)
    tokenizer, target = contents.tokenizer, contents.target_tokenizer
    tokenizer.save(folder / f"{files.TOKENIZER}{tokenizer.file_suffix}")
    if target is not tokenizer:
        target.save(folder / f"{files.TARGET_TOKENIZER}{target.file_suffix}")
    metadata = {
        "format": files.FORMAT,
        "mode": mode,
        "signature": contents.signature,
        **contents.tensors,
        "vocab_size": tokenizer.vocab_size,
        "target_vocab_size": target.vocab_size,
        **target.special_ids._asdict(),
        **files.prefix_fields(tokenizer, target),
        "max_source_length": contents.max_source_length,
        **contents.settings,
        "sha256": files.checksums(folder),
    }
    text = json.dumps(sealed(metadata), indent=2, ensure_ascii=False) + "\n"
    (folder / files.METADATA_FILE).write_text(text, encoding="utf-8")
    return graph


def write_reports(folder, path, contents, report, card=None):
    """Writes `parity.json` and the model card.

    Args:
        folder: The folder that `write_folder` has filled.
        path: What it becomes.
        contents: `DeviceContents`.
        report: A `ParityReport`.
        card: A `Card` of where the model comes from, or `None`.
    """
    report.write(folder / files.REPORT)
    facts = {
        "signatures": ", ".join(sorted(contents.module.signatures)),
        "source ids, at most": f"{contents.max_source_length:,}",
        "builtin ops": len(report.ops),
    }
    model, method = contents.model, contents.signature
    write_artifact_card(folder, path, card, model, report, facts, method)


def timed_answers(runner, answer, samples):
    """What a device answers to each sample, and its mean seconds, after one warm-up.

    Args:
        runner: The `Runner` of the folder.
        answer: Its method that takes the ids of a source, such as `runner.translate_ids`.
        samples: Texts, at least one.
    """
    answer(runner.encode(samples[0]))
    start = time.perf_counter()
    answers = [answer(runner.encode(sample)) for sample in samples]
    return answers, (time.perf_counter() - start) / len(samples)


def parity_report(folder, contents, mode, graph, seconds, **found):
    """The `ParityReport` of a written folder; its promises have not been checked.

    Args:
        folder, contents, mode: As in `write_folder`.
        graph: What that returned.
        seconds: Mean time of an answer.
        **found: Further fields of the report, such as those that `parity.compare` gives.
    """
    # It needs ai-edge-litert, which is optional.
    from keras_transformer.export.litert import flatbuffer

    promise = MODES[mode]
    return ParityReport(
        artefact="litert",
        mode=mode,
        promised_agreement=promise.promised_agreement,
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
        seconds_a_sample=seconds,
        ops=flatbuffer.op_names(graph),
        parameters=contents.model.count_params(),
        weight_bytes=flatbuffer.weight_bytes(graph),
        promised_bytes=promise.promised_bytes,
        **found,
    )


def runtime():
    """Name and version of the LiteRT runtime here."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"ai-edge-litert {importlib.metadata.version('ai-edge-litert')}"
    return "ai-edge-litert"


def search_settings(strategy):
    """The field `search` of the metadata."""
    return {"name": type(strategy).__name__, **dataclasses.asdict(strategy)}
