"""keras_transformer: a `Translator` on ids, with the graph of TensorFlow or compiled by XLA."""

import concurrent.futures
import types

import orders
import worker

from keras_transformer.quiet import start_tensorflow


def make_decoder(task, settings, weights, folder):
    start_tensorflow()
    import keras
    import tensorflow as tf

    import keras_transformer as kt

    threads = max(1, orders.cores() // settings.workers)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    if keras.backend.backend() != "tensorflow":  # whose GPU it is
        tf.config.set_visible_devices([], "GPU")
    model = keras.models.load_model(folder / "model.keras", compile=False)
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    searches = {}

    def search_with(beams):
        options = {"extra_length": task.extra_length}
        if task.exact_length:
            # No EOS comes by itself (see tasks.set_random_weights), so this is the exact length.
            options = {"extra_length": task.exact_length, "max_length": task.exact_length}
        strategy = kt.Greedy(**options)
        if beams > 1:
            # As CTranslate2 does.
            options |= {"length_penalty": task.length_penalty, "stopping": "first_finished"}
            strategy = kt.BeamSearch(beam_size=beams, **options)
        return make_search(model, strategy, settings)

    pool = concurrent.futures.ThreadPoolExecutor(settings.workers)

    def decode(batches, beams, limits):
        if beams not in searches:
            searches[beams] = search_with(beams)
        overlapping = map if settings.workers == 1 else pool.map
        return list(overlapping(searches[beams], batches))

    return worker.Decoder(versions, decode)


def make_search(model, strategy, settings):
    """Function of source ids that gives rows of ids."""
    from keras_transformer.translation import Translator

    ids = ("vocab_size", "pad_id", "unk_id", "bos_id", "eos_id")
    tokenizer = types.SimpleNamespace(**{name: getattr(model.config, name) for name in ids})
    return Translator(model, tokenizer, strategy, jit_compile=settings.jit_compile).translate_ids


if __name__ == "__main__":
    worker.serve(make_decoder)
