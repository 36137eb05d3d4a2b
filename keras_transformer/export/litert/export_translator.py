"""Export for devices: one LiteRT file with the whole decoding loop inside."""

import contextlib
import dataclasses
import importlib.metadata
import json
import time
from typing import NamedTuple

from keras_transformer.export.backend import check_backend
from keras_transformer.export.litert.conversion import check_size, convert
from keras_transformer.export.litert.graphs import (
    DEVICE_SIGNATURE,
    DeviceModule,
    check_search,
    check_signatures,
)
from keras_transformer.export.litert.modes import MODES, mode_named
from keras_transformer.export.parity import (
    ParityError,
    ParityReport,
    bleu,
    checked_references,
    checked_samples,
    compare,
)
from keras_transformer.models import Transformer
from keras_transformer.models.transfer import in_float32
from keras_transformer.translation import Translator
from keras_transformer_runner import folder as files
from keras_transformer_runner.integrity import sealed
from keras_transformer_runner.runner import Runner

__all__ = ["MODES", "export_litert"]


def export_litert(
    model,
    tokenizer,
    path,
    *,
    samples,
    mode="float32",
    references=None,
    strategy=None,
    target_tokenizer=None,
    calibration_samples=None,
    bleu_tokenize="13a",
    signatures=(DEVICE_SIGNATURE,),
    max_source_length=512,
    overwrite=False,
):
    """Writes a folder for a device, runs it, and compares its answers with Python's.

    A model of another compute dtype, such as `mixed_bfloat16`, is exported, and compared, as a
    float32 model of the same weights: LiteRT has no bfloat16 maths. What such a model finds in
    Python before that depends on how the processor multiplies in its dtype, and may differ;
    `load_run` gives the float32 model.

    The folder holds `model.tflite` (builtin ops only, signature `translate`), `tokenizer.model`
    (`.json` where it is no SentencePiece model), `metadata.json` and `parity.json`, and
    `target_tokenizer.*` where there is one.
    `keras_transformer_runner.runner` runs it.

    Args:
        model: A `Transformer`, trained or not.
        tokenizer: Its tokenizer; that of the source, where the target has another.
        path: The folder to make.
        samples: Sentences to compare on, at least one.
        mode: Key of `MODES`, which says what each promises.
        references: A translation of each sample by a person. With them the report has BLEU, and
            the mode's promise of BLEU is checked; a few hundred make the figure steady.
        strategy: Search strategy; `Greedy()` when `None`.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        calibration_samples: Sentences that modes with calibration choose their numbers on, of
            which the first 256 are used; `samples` when `None`.
        bleu_tokenize: sacreBLEU's tokenizer; `"none"` for text that is tokenized.
        signatures: `("translate",)`, or `device_graphs.SIGNATURES` for apps that show a
            translation as it grows: `encode` and `decode_step` share the weights in the file.
        max_source_length: Most source tokens that the runner accepts, EOS included.
        overwrite: Whether the folder of an earlier export is replaced; no other ever is.

    Returns:
        The `ParityReport`, which is also written to `parity.json`.

    Raises:
        TypeError: if `samples` or `references` is one string.
        ValueError: if `mode` is unknown, `strategy` samples, a sample is longer than
            `max_source_length`, there are not as many references as samples, or the model is too
            large for LiteRT.
        FileExistsError: if `path` exists and `overwrite` is false, or it holds anything else
            than an export writes.
        TargetInUseError: if another process is writing it.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if the mode's promise is broken; nothing is written then.
    """
    check_backend()
    mode_named(mode)
    signatures = check_signatures(signatures)
    translator = device_translator(model, tokenizer, strategy, target_tokenizer, max_source_length)
    samples = checked_samples(samples)
    references = checked_references(references, samples, bleu_tokenize)
    with files.new_export(path, overwrite) as folder:
        expected = Expected.of(translator, samples, references, bleu_tokenize)
        calibration = calibration_for(mode, translator, expected, calibration_samples)
        report = write_mode(folder, translator, mode, expected, calibration, signatures).check()
        report.write(folder / files.REPORT)
    return report


def device_translator(model, tokenizer, strategy, target_tokenizer, max_source_length):
    """A `Translator` of the model in float32, once it is known to fit a LiteRT file."""
    check_search(strategy)
    if isinstance(model, Transformer):
        check_size(model)
        model = in_float32(model)
    return Translator(
        model,
        tokenizer,
        strategy,
        target_tokenizer=target_tokenizer,
        max_source_length=max_source_length,
    )


class Expected(NamedTuple):
    """Sentences and Python's answers to them, the same for all modes."""

    samples: list
    source_ids: list
    target_ids: list
    texts: list
    references: list | None
    bleu_tokenize: str
    bleu: float | None

    @classmethod
    def of(cls, translator, samples, references=None, bleu_tokenize="13a"):
        """Lets Python translate the sentences."""
        source_ids = [translator.source_ids(sample) for sample in samples]
        target_ids = translator.translate_ids(translator.pad(source_ids))
        texts = [translator.target_tokenizer.decode(ids) for ids in target_ids]
        score = bleu(texts, references, bleu_tokenize)
        return cls(samples, source_ids, target_ids, texts, references, bleu_tokenize, score)


def calibration_for(mode, translator, expected, samples=None):
    """The sentences that a mode is calibrated on with Python's answers, or `None`."""
    if not MODES[mode].is_calibrated:
        return None
    from keras_transformer.export.litert.calibration import (
        MOST_SENTENCES,
        Calibration,
    )

    if samples is not None:
        expected = Expected.of(translator, checked_samples(samples)[:MOST_SENTENCES])
    bos_id = translator.model.config.bos_id
    pairs = zip(expected.source_ids, expected.target_ids, strict=True)
    rows = [{"source_ids": a, "target_ids": [bos_id, *b]} for a, b in pairs]
    return Calibration(translator.model, rows)


def write_mode(
    folder, translator, mode, expected, calibration=None, signatures=(DEVICE_SIGNATURE,)
):
    """Fills a folder with the export in one mode and runs it.

    Returns:
        A `ParityReport` whose promises have not been checked.
    """
    module = DeviceModule(translator.model, translator.strategy, signatures)
    content, graph = convert(module, mode, calibration, folder)
    (folder / files.MODEL_FILE).write_bytes(content)
    tokenizer, target = translator.tokenizer, translator.target_tokenizer
    tokenizer.save(folder / f"{files.TOKENIZER}{tokenizer.file_suffix}")
    if target is not tokenizer:
        target.save(folder / f"{files.TARGET_TOKENIZER}{target.file_suffix}")
    metadata = _metadata(folder, translator, mode)
    (folder / files.METADATA_FILE).write_text(json.dumps(sealed(metadata), indent=2) + "\n")
    return _parity(folder, translator, mode, expected, graph)


def runtime():
    """Name and version of the LiteRT runtime here."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"ai-edge-litert {importlib.metadata.version('ai-edge-litert')}"
    return "ai-edge-litert"


def _metadata(folder, translator, mode):
    config = translator.model.config
    return {
        "format": files.FORMAT,
        "mode": mode,
        "signature": DEVICE_SIGNATURE,
        "max_positions": config.max_positions,
        "inputs": {"source_ids": "int32 (1, S): pieces, then EOS"},
        "outputs": {"target_ids": "int32 (1, T): pieces, then EOS, then pads"},
        "vocab_size": config.vocab_size,
        "target_vocab_size": config.target_size,
        "pad_id": config.pad_id,
        "unk_id": config.unk_id,
        "bos_id": config.bos_id,
        "eos_id": config.eos_id,
        "max_source_length": translator.max_source_length,
        "search": {
            "name": type(translator.strategy).__name__,
            **dataclasses.asdict(translator.strategy),
        },
        "sha256": files.checksums(folder),
    }


def _check_steps(device, samples, texts):
    """Raises ParityError unless `decode_step`, where there is one, gives what `translate` does."""
    if "next_ids" not in device.step_outputs:
        return
    for sample, text in zip(samples, texts, strict=True):
        streamed = "".join(device.stream(sample))
        if streamed != text:
            raise ParityError(
                "`decode_step` must give what `translate` gives. Received: "
                f"{streamed[:80]!r} and {text[:80]!r} for {sample[:80]!r}. Nothing was written."
            )


def _parity(folder, translator, mode, expected, graph):
    from keras_transformer.export.litert import flatbuffer

    device = Runner(folder)
    samples, promise = expected.samples, MODES[mode]
    device.translate(samples[:1])
    start = time.perf_counter()
    received = [device.translate_ids(device.encode(sample)) for sample in samples]
    seconds = (time.perf_counter() - start) / len(samples)
    texts = [device.decode(ids) for ids in received]
    _check_steps(device, samples, texts)
    pairs = zip(expected.texts, expected.target_ids, strict=True)
    return ParityReport(
        artefact="litert",
        mode=mode,
        **compare(samples, list(pairs), list(zip(texts, received, strict=True))),
        promised_agreement=promise.promised_agreement,
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
        seconds_a_sample=seconds,
        ops=flatbuffer.op_names(graph),
        bleu=bleu(texts, expected.references, expected.bleu_tokenize),
        python_bleu=expected.bleu,
        promised_bleu_loss=promise.promised_bleu_loss,
        parameters=translator.model.count_params(),
        weight_bytes=flatbuffer.weight_bytes(graph),
        promised_bytes=promise.promised_bytes,
        runtime=runtime(),
    )
