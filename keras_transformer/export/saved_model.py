"""Export for TF Serving: a SavedModel that takes strings and gives strings."""

import pathlib
import time

from keras_transformer.decoding import Translator
from keras_transformer.export.folder import new_folder
from keras_transformer.export.graphs import check_backend
from keras_transformer.export.parity import ParityReport, checked_samples, compare
from keras_transformer.export.serving_graphs import TEXT_SIGNATURE, ServingModule

REPORT = "assets.extra/parity.json"


def export_saved_model(
    model,
    tokenizer,
    path,
    *,
    samples,
    strategy=None,
    target_tokenizer=None,
    max_source_length=1024,
    overwrite=False,
):
    """Writes a SavedModel, runs it, and compares its text with Python's.

    The folder holds all it needs, tokenizer included, names no path, and can be moved. Any
    process with TensorFlow and TensorFlow Text can serve it; so can the TF Serving binary, which
    links the ops of TensorFlow Text. It contains no XLA op, which that binary refuses by default.

    Args:
        model: A `Transformer`, trained or not.
        tokenizer: Its tokenizer; that of the source, where the target has another.
        path: The folder to make.
        samples: Sentences to compare on, at least one.
        strategy: Search strategy; `Greedy()` when `None`.
        target_tokenizer: The target's tokenizer; `tokenizer` when `None`.
        max_source_length: Most tokens of a sample, EOS included; the SavedModel has no limit.
        overwrite: Whether a folder that exists is replaced.

    Returns:
        The `ParityReport`, which is also written to `assets.extra/parity.json`.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is false.
        TypeError: if `samples` is one string.
        RuntimeError: if Keras runs on another backend than TensorFlow.
        ParityError: if a text differs from Python's; nothing is written then.
    """
    import tensorflow as tf

    check_backend()
    samples = checked_samples(samples)
    translator = Translator(
        model,
        tokenizer,
        strategy,
        target_tokenizer=target_tokenizer,
        max_source_length=max_source_length,
    )
    pieces = translator.target_tokenizer.encode
    with new_folder(path, overwrite=overwrite) as folder:
        module = ServingModule(translator)
        tf.saved_model.save(module, str(folder), signatures=module.signatures)
        loaded = tf.saved_model.load(str(folder))  # owns what its signatures use
        run = loaded.signatures[TEXT_SIGNATURE]
        strings = tf.constant([sample.encode("utf-8", "surrogatepass") for sample in samples])
        texts = [text.decode() for text in run(text=strings)["translation"].numpy()]
        expected = translator.translate(samples)
        report = ParityReport(
            artefact="savedmodel",
            mode=model.policy.compute_dtype,
            **compare(
                samples,
                [(text, pieces(text)) for text in expected],
                [(text, pieces(text)) for text in texts],
            ),
            promised_agreement=1.0,
            size_bytes=_size(folder),
            seconds_a_sample=_seconds_a_sample(run, strings),
            ops=_ops(folder),
        ).check()
        (folder / REPORT).parent.mkdir(exist_ok=True)
        report.write(folder / REPORT)
    return report


def _seconds_a_sample(run, strings, at_most=16):
    rows = [strings[index : index + 1] for index in range(min(len(strings), at_most))]
    run(text=rows[0])
    start = time.perf_counter()
    for row in rows:
        run(text=row)
    return (time.perf_counter() - start) / len(rows)


def _size(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())


def _ops(folder):
    """Names of all ops in the graphs of a SavedModel."""
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    nodes = []
    for meta_graph in proto.meta_graphs:
        nodes.extend(meta_graph.graph_def.node)
        for function in meta_graph.graph_def.library.function:
            nodes.extend(function.node_def)
    return tuple(sorted({node.op for node in nodes}))
