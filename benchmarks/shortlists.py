"""What a lexical shortlist saves: a search with and without one, in turns, on one thread.

    python benchmarks/shortlists.py [--vocabulary 8000 32000] [--out FILE.json]

Random weights of the paper's tiny model (width 128), sources of 12 to 28 random ids, and for each
source id `--ids` random target ids beside `--frequent` for all: about as many candidates as a
learnt shortlist has. Both searches of a pair take turns at every sentence, and at who comes first;
a round is the sum over the sentences. Printed are the medians in milliseconds a sentence (or a
batch) and the ratio of the rounds, whole vocabulary over shortlist: above 1 the shortlist is
faster. What the texts become is for a trained model: `keras-transformer shortlist RUN --check`.
"""

import argparse
import os
import pathlib
import platform
import sys
import tempfile
import time

import numpy as np

from keras_transformer.quiet import quiet, start_tensorflow

sys.path.insert(0, str(pathlib.Path(__file__).parent / "decoding_peers"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[8000, 32000])
    parser.add_argument("--ids", type=int, default=25, help="of a source id")
    parser.add_argument("--frequent", type=int, default=100)
    parser.add_argument("--count", type=int, default=16, help="sentences")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    start_tensorflow()
    from reporting import processor, write_json

    results = {"processor": processor(), "python": platform.python_version()}
    results["options"] = {name: value for name, value in vars(arguments).items() if name != "out"}
    for size in arguments.vocabulary:
        results[f"vocabulary {size}"] = of_vocabulary(size, arguments)
        if arguments.out:
            write_json(arguments.out, results)
    return 0


def of_vocabulary(size, arguments):
    """The figures of one size by the name of a pair."""
    import tasks

    import keras_transformer as kt
    from keras_transformer.decoding.shortlist import Shortlist

    sizes = {**tasks.SIZES["tiny"], "vocab_size": size}
    layers = sizes.pop("layers")
    config = kt.TransformerConfig(
        **sizes, encoder_layers=layers, decoder_layers=layers, residual="pre",
        positions="tensor2tensor", pad_id=0, bos_id=0, eos_id=1, unk_id=2,
    )  # fmt: skip
    model = kt.Transformer(config)
    tasks.set_random_weights(model, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    lists = rng.integers(3, size, (size, arguments.ids))
    frequent = rng.choice(np.arange(3, size), arguments.frequent, replace=False)
    shortlist = Shortlist(frequent, lists, target_size=size)
    lengths = rng.integers(11, 28, arguments.count)
    rows = [[*rng.integers(3, size, length).tolist(), config.eos_id] for length in lengths]
    candidates = [len(shortlist.ids_for(row)) for row in rows]
    print(f"\nvocabulary {size:,}: {np.mean(candidates):.0f} candidates a sentence")
    found = {"candidates": float(np.mean(candidates))}
    singles = [np.array([row], "int32") for row in rows]
    step = arguments.batch
    batches = [padded(rows[at : at + step]) for at in range(0, len(rows), step)]
    for beam_size in (1, 4):
        search = kt.Greedy(extra_length=4)
        if beam_size > 1:
            search = kt.BeamSearch(beam_size=beam_size, extra_length=4)
        pairs = {
            "TensorFlow, a sentence": (in_graph, singles),
            f"TensorFlow, {arguments.batch} sentences": (in_graph, batches),
            "LiteRT float32": (on_device("float32"), singles),
            "LiteRT int8": (on_device("int8"), singles),
        }
        for name, (make, inputs) in pairs.items():
            both = [make(model, search, each) for each in (None, shortlist)]
            name = f"{name}, beam {beam_size}"
            found[name] = measured(both, inputs, arguments.rounds)
            show(name, found[name])
    return found


def padded(rows):
    longest = max(map(len, rows))
    return np.array([[*row, *[0] * (longest - len(row))] for row in rows], "int32")


def in_graph(model, search, shortlist):
    """Ids to ids, by the graph that a `Translator` runs."""
    from keras_transformer.decoding import decode
    from keras_transformer.decoding.compiled import compiled
    from keras_transformer.decoding.shortlist import candidate_inputs

    def run(source_ids):
        chosen = candidate_inputs(shortlist, source_ids, model.config.pad_id)
        return decode(model, source_ids, search, for_this_cpu=True, **chosen).ids

    run = compiled(run, model)
    return lambda ids: run(ids).numpy()


def on_device(mode):
    """A function that makes ids to ids by a LiteRT file of a mode."""

    def make(model, search, shortlist):
        from ai_edge_litert.interpreter import Interpreter

        from keras_transformer.export.litert.conversion import convert
        from keras_transformer.export.litert.graphs import DeviceModule

        with quiet(), tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.tflite"
            path.write_bytes(convert(DeviceModule(model, search, shortlist=shortlist), mode)[0])
            interpreter = Interpreter(model_path=str(path), num_threads=1)
        run = interpreter.get_signature_runner("translate")
        return lambda ids: run(source_ids=ids)["target_ids"]

    return make


def measured(both, inputs, rounds):
    """Milliseconds of each, and the ratios of the rounds."""
    from reporting import spread

    for ids in inputs:
        for run in both:
            run(ids)
    times, ratios = ([], []), []
    for number in range(rounds):
        sums = [0.0, 0.0]
        for place, ids in enumerate(inputs):
            for which in (0, 1) if (number + place) % 2 else (1, 0):
                start = time.perf_counter()
                both[which](ids)
                sums[which] += time.perf_counter() - start
        for which in (0, 1):
            times[which].append(sums[which] * 1e3 / len(inputs))
        ratios.append(sums[0] / sums[1])
    whole, short = map(spread, times)
    return {"whole": whole, "shortlist": short, "ratio": spread(ratios)}


def show(name, found):
    from reporting import shown

    print(f"{name:<34} {found['whole']['median']:8.2f} ms, shortlist "
          f"{found['shortlist']['median']:8.2f} ms, ratio {shown(found['ratio'], '.2f')}",
          flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
