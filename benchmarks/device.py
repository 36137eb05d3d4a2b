"""One sentence at a time on one thread: our LiteRT file against CTranslate2 with equal weights.

    pip install ctranslate2
    python benchmarks/device.py --run RUN --sentences FILE     a trained model, real sentences
    python benchmarks/device.py --random base                  random weights of the paper's size

RUN is a folder that `keras-transformer train` has made, FILE has a sentence a line, plain or .gz.
All systems live in one process. Each is measured against CTranslate2's int8 alone, as a third
would empty the processor's caches for both: the two take turns at every sentence, and at who comes
first. A round goes over all sentences, and its time is the sum over them; printed are medians over
the rounds and the ratio of CTranslate2's int8 time to each, round by round. Beam search ends as
CTranslate2's does, with as many finished hypotheses as beams. Equal: rows of ids that are those of
CTranslate2 in the same kind of numbers. With `--lengths` files of fixed source lengths alone are
measured beside those that take any: sources are padded to the shortest that they fit in.

The share of memory bandwidth is what the decoder's weights take to be read once a token, against
the speed of a copy of 256 MiB in the same process. Nothing else should run on the machine.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys
import tempfile
import time
import types

import numpy as np

from keras_transformer.quiet import quiet, start_tensorflow
from keras_transformer_runner.lines import read_lines

sys.path.insert(0, str(pathlib.Path(__file__).parent / "decoding_peers"))
REFERENCE = "CTranslate2 int8"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run")
    parser.add_argument("--sentences")
    parser.add_argument("--random", choices=("tiny", "base"))
    parser.add_argument("--count", type=int, default=100, help="sentences")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--modes", nargs="+", default=["float32", "int8", "int4"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[],
                        help="measure files of these fixed source lengths too")  # fmt: skip
    parser.add_argument("--extra-length", type=int, default=50)
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    if bool(arguments.random) == bool(arguments.run and arguments.sentences):
        parser.error("give --random, or --run and --sentences")
    start_tensorflow()
    import keras_transformer as kt

    model, sources = random_model(kt, arguments) if arguments.random else trained(kt, arguments)
    results = {"weights": model.count_params(), "copy GB/s": copy_speed()}
    length, copy = sum(map(len, sources)) / len(sources), results["copy GB/s"]
    print(f"{model.count_params():,} weights, {len(sources)} sentences of {length:.1f} ids, "
          f"copy {copy:.1f} GB/s")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for beam_size in arguments.beam_sizes:
            systems = make_systems(kt, model, sources, beam_size, pathlib.Path(folder), arguments)
            results[f"beam {beam_size}"] = measure(systems, sources, arguments.rounds)
            show(results[f"beam {beam_size}"], model.config, beam_size, copy)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(results, indent=1) + "\n")
    return 0


def trained(kt, arguments):
    """The run's model and the first sentences as ids."""
    run = kt.load_run(arguments.run)
    lines = itertools.islice(read_lines(arguments.sentences), arguments.count)
    return run.model, [[*run.tokenizer.encode(line), run.model.config.eos_id] for line in lines]


def random_model(kt, arguments):
    """Random weights that give varied ids and no EOS, and sources of 12 to 28 random ids."""
    import tasks

    sizes = dict(tasks.SIZES[arguments.random])
    layers = sizes.pop("layers")
    config = kt.TransformerConfig(
        **sizes, encoder_layers=layers, decoder_layers=layers, residual="pre",
        positions="tensor2tensor", pad_id=0, bos_id=0, eos_id=1, unk_id=2,
    )  # fmt: skip
    model = kt.Transformer(config)
    tasks.set_random_weights(model, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    lengths = rng.integers(11, 28, arguments.count)
    arguments.extra_length = min(arguments.extra_length, 4)  # no EOS comes: they all get this long
    rows = [rng.integers(3, config.vocab_size, length).tolist() for length in lengths]
    return model, [[*row, config.eos_id] for row in rows]


def make_systems(kt, model, sources, beam_size, folder, arguments):
    """Functions from ids to ids by name, ours and CTranslate2's."""
    import ctranslate2

    from keras_transformer.interop.ctranslate2 import save_ctranslate2

    config, systems = model.config, {}
    if not (folder / "ctranslate2").exists():
        pieces = [str(index) for index in range(config.vocab_size)]
        save_ctranslate2(model, types.SimpleNamespace(pieces=pieces), folder / "ctranslate2")
    for kind in ("float32", "int8"):
        translator = ctranslate2.Translator(
            str(folder / "ctranslate2"), compute_type=kind, inter_threads=1, intra_threads=1
        )
        systems[f"CTranslate2 {kind}"] = ctranslate2_function(translator, beam_size, arguments)
    strategy = kt.Greedy(extra_length=arguments.extra_length)
    if beam_size > 1:
        strategy = kt.BeamSearch(
            beam_size=beam_size, length_penalty=1.0, stopping="first_finished",
            extra_length=arguments.extra_length,
        )  # fmt: skip
    for mode in arguments.modes:
        path = folder / f"{beam_size}.{mode}.tflite"
        path.write_bytes(converted(model, strategy, mode, sources))
        systems[f"LiteRT {mode}"] = litert_function(path, config)
        if arguments.lengths:
            path = folder / f"{beam_size}.fixed.{mode}.tflite"
            path.write_bytes(converted(model, strategy, mode, sources, arguments.lengths))
            systems[f"LiteRT {mode}, fixed lengths"] = litert_function(path, config)
    return systems


def converted(model, strategy, mode, sources, lengths=()):
    from keras_transformer.export.litert.calibration import Calibration
    from keras_transformer.export.litert.conversion import convert
    from keras_transformer.export.litert.graphs import DeviceModule

    # What the weights are fitted to does not change how long they take.
    bos = model.config.bos_id
    rows = [{"source_ids": row, "target_ids": [bos, *row[:-1]]} for row in sources[:8]]
    with quiet():
        module = DeviceModule(model, strategy, lengths=lengths, lengths_only=bool(lengths))
        return convert(module, mode, Calibration(model, rows))[0]


def litert_function(path, config):
    """By the signature for all lengths, or the shortest fixed one that a sentence fits in."""
    from ai_edge_litert.interpreter import Interpreter

    from keras_transformer_runner.freed_memory import keep_freed_memory

    keep_freed_memory()  # as the runner does
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    ends = (config.pad_id, config.eos_id)
    calls = {
        int(name.partition("_")[2] or 0): interpreter.get_signature_runner(name)
        for name in interpreter.get_signature_list()
    }

    def translate(ids):
        length = min((each for each in calls if each >= len(ids)), default=0)
        row = np.full((1, length or len(ids)), config.pad_id, np.int32)
        row[0, : len(ids)] = ids
        row = calls[length](source_ids=row)["target_ids"][0]
        return [token for token in row.tolist() if token not in ends]

    return translate


def ctranslate2_function(translator, beam_size, arguments):
    def translate(ids):
        [result] = translator.translate_batch(
            [[str(token) for token in ids[:-1]]],  # the model adds EOS
            beam_size=beam_size, length_penalty=1.0, min_decoding_length=0,
            max_decoding_length=len(ids) + arguments.extra_length,
        )  # fmt: skip
        return [int(token) for token in result.hypotheses[0]]

    return translate


def measure(systems, sources, rounds):
    """What is known of each system, from rounds that it shares with the reference alone."""
    answers = {name: [run(ids) for ids in sources] for name, run in systems.items()}  # warm-up
    found = {}
    for name, run in systems.items():
        own, reference = paired_seconds(run, systems[REFERENCE], sources, rounds)
        kind = "float32" if "float32" in name else "int8"
        pairs = zip(answers[name], answers[f"CTranslate2 {kind}"], strict=True)
        ratios = [b / a for a, b in zip(own, reference, strict=True)]
        found[name] = {
            "ms a sentence": 1e3 * statistics.median(own) / len(sources),
            "reference's ms a sentence": 1e3 * statistics.median(reference) / len(sources),
            "ids a second": sum(len(row) + 1 for row in answers[name]) / statistics.median(own),
            "times CTranslate2 int8": [min(ratios), statistics.median(ratios), max(ratios)],
            "equal rows": sum(a == b for a, b in pairs) / len(sources),
        }
    return found


def paired_seconds(run, reference, sources, rounds):
    """Seconds of each round of two systems that take turns, the first one in turn too."""
    seconds = [0.0] * rounds, [0.0] * rounds
    for turn in range(rounds):
        for place, ids in enumerate(sources):
            pair = [(0, run), (1, reference)]
            for which, system in pair if (turn + place) % 2 else pair[::-1]:
                start = time.perf_counter()
                system(ids)
                seconds[which][turn] += time.perf_counter() - start
    return seconds


def show(found, config, beam_size, copy):
    print(f"beam size {beam_size}")
    for name, row in found.items():
        low, middle, high = row["times CTranslate2 int8"]
        line = (f"  {name:20} {row['ms a sentence']:8.2f} ms a sentence, "
                f"{row['ids a second']:6.0f} ids/s, {middle:.2f} ({low:.2f} to {high:.2f}) "
                f"times {REFERENCE}, "
                f"{row['equal rows']:.0%} of rows equal")  # fmt: skip
        bits = {"float32": 32, "int8": 8, "int4": 4}.get(name.split()[-1])
        if bits and beam_size == 1:
            rate = weights_a_token(config) * bits / 8 * row["ids a second"] / 1e9
            row["GB/s of weights"] = rate
            line += f", {rate:.1f} GB/s of weights ({rate / copy:.0%} of a copy)"
        print(line)


def weights_a_token(config):
    """Weights that decoding reads for one token: the decoder's, and the output projection."""
    width, inner = config.model_dim, config.intermediate_dim
    keys, values = config.head_key_dim * config.num_heads, config.head_value_dim * config.num_heads
    block = width * (2 * keys + 2 * values) + width * (keys + values) + 2 * width * inner
    return config.decoder_layers * block + config.target_size * width


def copy_speed(megabytes=256):
    """GB/s that a copy reads."""
    source = np.ones(megabytes << 20, np.uint8)
    target = np.empty_like(source)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - start)
    return source.nbytes / min(times) / 1e9


if __name__ == "__main__":
    sys.exit(main())
