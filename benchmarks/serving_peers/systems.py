"""The translators behind the server: texts to texts, a batch at a time, from several threads."""

import queue

import numpy as np


def make(task, settings, folder):
    """A dict of versions, and a function of (B,) bytes that gives (B,) bytes."""
    return _SYSTEMS[settings.system](task, settings, folder)


def _saved_model(task, settings, folder):
    """The SavedModel in TensorFlow's C++ session, as TF Serving loads and calls it."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (TF Serving's binary links these ops)
    from serving_models import Version

    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=settings.intra_threads,
        inter_op_parallelism_threads=settings.batch_threads,
    )
    version = Version(folder / "savedmodel" / "1", config=config)

    def translate(texts):
        return version.run("serving_default", {"text": texts})["translation"]

    return {"tensorflow": tf.__version__}, translate


def _ctranslate2(task, settings, folder):
    """CTranslate2's translator, and SentencePiece for lists of texts on both sides of it."""
    import ctranslate2
    import sentencepiece

    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"),
        device="cpu",
        compute_type=settings.compute_type,
        inter_threads=settings.batch_threads,
        intra_threads=settings.intra_threads,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def translate(texts):
        sources = pieces.encode([text.decode() for text in texts], out_type=str)
        results = translator.translate_batch(
            sources,
            beam_size=task.beam_size,
            length_penalty=0,
            max_decoding_length=max(map(len, sources)) + 1 + task.extra_length,
        )
        found = pieces.decode([result.hypotheses[0] for result in results])
        return np.array([text.encode() for text in found], object)

    versions = {"ctranslate2": ctranslate2.__version__}
    return versions, translate


def _device(task, settings, folder):
    """A runner of the exported folder for each thread, as `keras-transformer serve` holds them.

    A runner's graph is for one sentence: those of a batch follow one another.
    """
    import ai_edge_litert

    from keras_transformer_runner import Runner

    free = queue.SimpleQueue()
    for _ in range(settings.batch_threads):
        free.put(Runner(folder / settings.mode, num_threads=settings.intra_threads))

    def translate(texts):
        runner = free.get()
        try:
            found = runner.translate([text.decode() for text in texts])
        finally:
            free.put(runner)
        return np.array([text.encode() for text in found], object)

    return {"ai-edge-litert": ai_edge_litert.__version__}, translate


_SYSTEMS = {"keras_transformer": _saved_model, "device": _device, "ctranslate2": _ctranslate2}
