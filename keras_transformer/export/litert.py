"""Export for devices: one LiteRT file with the whole decoding loop inside."""

import dataclasses
import hashlib
import json
import tempfile
import time

from keras import ops

from keras_transformer.arguments import check_choice
from keras_transformer.decoding import Translator
from keras_transformer.export import runner
from keras_transformer.export.device_graphs import DEVICE_SIGNATURE, DeviceModule
from keras_transformer.export.folder import new_folder
from keras_transformer.export.graphs import check_backend
from keras_transformer.export.parity import ParityReport, checked_samples, compare
from keras_transformer.models import Transformer
from keras_transformer.quiet import quiet

REPORT = "parity.json"


@dataclasses.dataclass(frozen=True)
class Mode:
    """A number format and what it promises.

    Attributes:
        weight_bits: Bits of a quantized weight, or `None` for float32.
        promised_agreement: Least share of Python's tokens; below it the export fails.
    """

    weight_bits: int | None
    promised_agreement: float


MODES = {
    "float32": Mode(weight_bits=None, promised_agreement=1.0),
    # Weights in 8 bits with a scale a row, activations float: products quantize them on the fly.
    "int8": Mode(weight_bits=8, promised_agreement=0.8),
}


def export_litert(
    model,
    tokenizer,
    path,
    *,
    samples,
    mode="float32",
    strategy=None,
    target_tokenizer=None,
    max_source_length=512,
    overwrite=False,
):
    """Writes a folder for a device, runs it, and compares its answers with Python's.

    A model of another compute dtype, such as `mixed_bfloat16`, is exported, and compared, as a
    float32 model of the same weights: LiteRT has no bfloat16 maths.

    The folder holds `model.tflite` (builtin ops only, signature `translate`), `tokenizer.model`
    (`.json` where it is no SentencePiece model), `metadata.json` and `parity.json`, and
    `target_tokenizer.*` where there is one.
    `keras_transformer.export.runner` runs it.

    Args:
        model: A `Transformer`, trained or not.
        tokenizer: Its tokenizer; that of the source, where the target has another.
        path: The folder to make.
        samples: Sentences to compare on, at least one.
        mode: Key of `MODES`.
        strategy: Search strategy; `Greedy()` when `None`.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        max_source_length: Most source tokens that the runner accepts, EOS included.
        overwrite: Whether a folder that exists is replaced.

    Returns:
        The `ParityReport`, which is also written to `parity.json`.

    Raises:
        TypeError: if `samples` is one string.
        ValueError: if `mode` is unknown, or a sample is longer than `max_source_length`.
        FileExistsError: if `path` exists and `overwrite` is false.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if fewer tokens equal Python's than the mode promises; nothing is written
            then.
    """
    check_backend()
    check_choice(MODES, mode=mode)
    samples = checked_samples(samples)
    model = _in_float32(model)
    translator = Translator(
        model,
        tokenizer,
        strategy,
        target_tokenizer=target_tokenizer,
        max_source_length=max_source_length,
    )
    with new_folder(path, overwrite=overwrite) as folder:
        content, ops = _convert(model, translator.strategy, MODES[mode])
        (folder / runner.MODEL_FILE).write_bytes(content)
        tokenizer.save(folder / f"{runner.TOKENIZER}{tokenizer.file_suffix}")
        target = translator.target_tokenizer
        if target is not tokenizer:
            target.save(folder / f"{runner.TARGET_TOKENIZER}{target.file_suffix}")
        metadata = _metadata(folder, model, translator, mode)
        (folder / runner.METADATA_FILE).write_text(json.dumps(metadata, indent=2) + "\n")
        report = _parity(folder, translator, samples, mode, ops).check()
        report.write(folder / REPORT)
    return report


def _in_float32(model):
    if model.policy.compute_dtype == "float32":
        return model
    copy = Transformer(model.config, dtype="float32")
    for weight, value in zip(copy.weights, model.weights, strict=True):
        weight.assign(ops.cast(value, "float32"))
    return copy


def _convert(model, strategy, mode):
    """The bytes of the LiteRT file and the names of its ops."""
    from keras_transformer.export import flatbuffer

    graph = flatbuffer.read(_converted(DeviceModule(model, strategy)))
    flatbuffer.lookups_for_gathers(graph)
    content = flatbuffer.write(graph)
    if mode.weight_bits is not None:
        graph = flatbuffer.read(_quantized(content, mode.weight_bits))
        content = flatbuffer.write_small(graph)
    return content, flatbuffer.op_names(graph)


def _converted(module):
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder, quiet():
        tf.saved_model.save(module, folder, signatures=module.signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=list(module.signatures)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        return bytes(converter.convert())


def _quantized(content, bits):
    from litert_quantizer import qtyping, quantizer, recipe_manager

    recipe = recipe_manager.RecipeManager()
    # One rule for both, or the matrix that they share would be stored twice.
    for operation in ("FULLY_CONNECTED", "EMBEDDING_LOOKUP"):
        recipe.add_dynamic_config(
            regex=".*",
            operation_name=qtyping.TFLOperationName[operation],
            num_bits=bits,
            granularity=qtyping.QuantGranularity.CHANNELWISE,
        )
    with quiet():
        result = quantizer.Quantizer(
            bytearray(content), recipe.get_quantization_recipe()
        ).quantize()
    return bytes(result.quantized_model)


def _metadata(folder, model, translator, mode):
    config = model.config
    files = sorted(path.name for path in folder.iterdir())
    return {
        "format": runner.FORMAT,
        "mode": mode,
        "signature": DEVICE_SIGNATURE,
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
        "sha256": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files
        },
    }


def _parity(folder, translator, samples, mode, ops):
    device = runner.Runner(folder)
    rows = translator.pad([translator.source_ids(sample) for sample in samples])
    expected = translator.translate_ids(rows)
    device.translate(samples[:1])
    start = time.perf_counter()
    received = [device.translate_ids(device.encode(sample)) for sample in samples]
    seconds = (time.perf_counter() - start) / len(samples)
    decoded = translator.target_tokenizer.decode
    return ParityReport(
        artefact="litert",
        mode=mode,
        **compare(
            samples,
            [(decoded(ids), ids) for ids in expected],
            [(device.decode(ids), ids) for ids in received],
        ),
        promised_agreement=MODES[mode].promised_agreement,
        size_bytes=sum(file.stat().st_size for file in folder.iterdir()),
        seconds_a_sample=seconds,
        ops=ops,
    )
