"""keras_transformer: a `Translator` on ids, with the graph of TensorFlow or compiled by XLA."""

import concurrent.futures
import functools
import os
import types

import numpy as np
import worker

from keras_transformer.quiet import start_tensorflow

_COLUMNS = 16  # sources are filled up to a multiple, so that XLA compiles a few shapes


def make_decoder(task, settings, weights, folder):
    start_tensorflow()
    import keras
    import tensorflow as tf

    import keras_transformer as kt

    threads = max(1, os.cpu_count() // settings.workers)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model = keras.models.load_model(folder / "model.keras", compile=False)
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    searches = {}

    def search_with(beams):
        options = {"extra_length": task.extra_length}
        if task.exact_length:
            options |= {"min_length": task.exact_length, "max_length": task.exact_length}
        strategy = kt.Greedy(**options)
        if beams > 1:
            strategy = kt.BeamSearch(beam_size=beams, length_penalty=task.length_penalty, **options)
        return make_search(tf, model, strategy, settings)

    pool = concurrent.futures.ThreadPoolExecutor(settings.workers)

    def decode(source_ids, beams, longest):
        if beams not in searches:
            searches[beams] = search_with(beams)
        if settings.jit_compile:
            source_ids = filled(source_ids, task.pad_id)
        parts = np.array_split(source_ids, min(settings.workers, len(source_ids)))
        if len(parts) == 1:
            return searches[beams](source_ids)
        return [row for rows in pool.map(searches[beams], parts) for row in rows]

    return worker.Decoder(versions, decode)


def make_search(tf, model, strategy, settings):
    """Function of source ids that gives rows of ids."""
    from keras_transformer.decoding import Translator, decode

    ids = ("vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")
    tokenizer = types.SimpleNamespace(**{name: getattr(model.config, name) for name in ids})
    try:
        return Translator(
            model, tokenizer, strategy, jit_compile=settings.jit_compile
        ).translate_ids
    except TypeError:  # a version without this argument
        if not settings.jit_compile:
            return Translator(model, tokenizer, strategy).translate_ids
    search = tf.function(
        functools.partial(decode, model, strategy=strategy),
        input_signature=[tf.TensorSpec((None, None), tf.int32)],
        jit_compile=True,
    )
    return lambda source_ids: search(source_ids).ids.numpy()


def filled(source_ids, pad_id):
    """Source ids with more columns, which hold pads: this changes no result."""
    more = -source_ids.shape[1] % _COLUMNS
    return np.pad(source_ids, [(0, 0), (0, more)], constant_values=pad_id)


if __name__ == "__main__":
    worker.serve(make_decoder)
