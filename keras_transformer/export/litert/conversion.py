"""Graphs of TensorFlow -> the bytes of a LiteRT file, in any `Mode`."""

import functools
import tempfile

import tensorflow as tf

from keras_transformer.export.litert.modes import MODES, mode_named
from keras_transformer.layers.lowering.tracing import traced
from keras_transformer.quiet import quiet

# A flatbuffer's offsets have 31 bits; a little is left for the graph.
MOST_BYTES = 2**31 - 2**24


def check_size(model, mode):
    """Raises ValueError where the model is too large for LiteRT, before any work is done.

    Args:
        model: A Keras model.
        mode: Key of `MODES`. One that is calibrated runs a float32 file to choose its numbers, and
            so holds no more parameters than `"float32"`.
    """
    number_format = mode_named(mode)
    each = 4.0 if number_format.is_calibrated else number_format.promised_bytes
    parameters, most = model.count_params(), int(MOST_BYTES / each)
    if parameters > most:
        others = [name for name, other in MODES.items() if not other.is_calibrated]
        smaller = [name for name in others if MODES[name].promised_bytes < each]
        hint = f"A mode with fewer bits ({', '.join(smaller)}), a" if smaller else "A"
        raise ValueError(
            f"a model must have at most {most:,} parameters in mode {mode!r}, as a LiteRT file "
            f"must stay below 2 GiB. Received: {parameters:,} parameters. {hint} smaller "
            "vocabulary, embeddings that are shared (`embedding_sharing='all'`) or a narrower "
            "model help; a server takes any size: `export_saved_model`"
        )


def convert(module, mode, calibration=None, place=None):
    """Converts the signatures of a module to one LiteRT file with builtin ops only.

    Args:
        module: A `tf.Module` with a dict `signatures` of concrete functions, which are traced when
            it is asked for: a quantized mode has its own graphs (see `layers.lowering.tracing`).
            Its `first_signature`, if it has one, becomes the first of the file.
        mode: Key of `MODES`.
        calibration: A `calibration.Calibration`; required by modes that are calibrated.
        place: Where files lie meanwhile: the folder of the export, which is removed if the process
            is killed; the system's own place when `None`.

    Returns:
        `(content, graph)`: the bytes of the file, and the same as `flatbuffer.read` gives it.

    Raises:
        ValueError: if `mode` is unknown, or needs a calibration that is not there.
    """
    from keras_transformer.export.litert import flatbuffer
    from keras_transformer.export.litert.calibration import statistics
    from keras_transformer.export.litert.partitions import without_border_copies
    from keras_transformer.export.litert.quantization import quantized

    number_format = mode_named(mode)
    needed = number_format.is_calibrated
    if needed and (calibration is None or not calibration.rows):
        raise ValueError(
            f"mode {mode!r} must have sentences to calibrate on. "
            f"Received: calibration={calibration!r}"
        )
    is_quantized = number_format.weight_bits <= 8
    with traced(weight_folding=not is_quantized):
        signatures = module.signatures
    to_file = functools.partial(float_file, place=place)
    graph = flatbuffer.read(to_file(module, signatures))
    flatbuffer.lookups_for_gathers(graph)
    flatbuffer.argmax_for_top_1(graph)
    seen = statistics(calibration, to_file) if needed else None
    graph = quantized(graph, number_format, seen)
    without_border_copies(graph)
    if getattr(module, "first_signature", None):
        flatbuffer.put_first(graph, module.first_signature)
    content = flatbuffer.write_small(graph) if mode != "float32" else flatbuffer.write(graph)
    return content, flatbuffer.read(content)


def float_file(module, signatures, place=None):
    """The bytes of a float32 LiteRT file, as the converter leaves them.

    Beyond 2 GiB the weights lie behind the flatbuffer proper, and only `flatbuffer.read` takes it.

    Args:
        module: A `tf.Module` that tracks the variables of the graphs.
        signatures: A dict of concrete functions.
        place: As in `convert`.
    """
    with tempfile.TemporaryDirectory(dir=place) as folder, quiet():
        tf.saved_model.save(module, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=list(signatures)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        # Weights then lie behind the flatbuffer. TensorFlow has no public name for it.
        converter._experimental_use_buffer_offset = _weight_bytes(signatures) > MOST_BYTES
        return converter.convert()


def _weight_bytes(signatures):
    """The bytes of all variables of the graphs, each once."""
    found = {id(each): each for graph in signatures.values() for each in graph.variables}
    return sum(each.shape.num_elements() * each.dtype.size for each in found.values())
