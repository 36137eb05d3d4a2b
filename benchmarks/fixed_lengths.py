"""What signatures of fixed lengths cost a LiteRT file: size, memory and speed against open shapes.

    python benchmarks/fixed_lengths.py [--size tiny] [--out FILE]

Three folders of one model with random int8 weights: with the open signature alone, with those of
32, 128 and 512 tokens beside it, and with these three alone. Fresh processes translate from text to
text, greedily, one sentence at a time on one thread, by `Runner`, with and without a weight cache
that is there already: either short sentences only (12 to 28 ids, padded to 32), or sentences of
three lengths. What counts is the peak of resident memory (`VmHWM`, so Linux only) and the
processor's time, as ratios to the open signature's in the same round.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from device_memory import drop_from_cache, random_task

from keras_transformer.quiet import start_tensorflow

_LENGTHS = (32, 128, 512)
_EXTRA_LENGTH = 4
_REPEATS = 5
_REFERENCE = "open"
_WORK = """
import json, re, sys, time
import sentencepiece
from keras_transformer_runner.runner import Runner
tasks = json.load(open(sys.argv[1]))
runner = Runner(sys.argv[2], weight_cache=sys.argv[3] if len(sys.argv) > 3 else None)
runner.translate([text for texts in tasks.values() for text in texts])
figures = {}
for name, texts in tasks.items():
    passes = []
    for _ in range(3):
        start = time.process_time()
        runner.translate(texts)
        passes.append(time.process_time() - start)
    figures[f"seconds, {name}"] = min(passes)
status = open("/proc/self/status").read()
figures["MiB"] = int(re.search(r"^VmHWM:\\s+(\\d+) kB", status, re.M)[1]) / 1024
print(json.dumps(figures))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=("tiny", "base"), default="tiny")
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    start_tensorflow()
    import keras_transformer as kt

    model, tokenizer, texts = random_task(kt, arguments.size)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tasks = write_tasks(tokenizer, texts, folder)
        paths = save_folders(kt, model, tokenizer, folder)
        drop_from_cache(folder)
        figures = {"weights": model.count_params(), "file": sizes(paths)}
        for task, file in tasks.items():
            for cache in ((), (folder / "cache",)):
                found = rounds(file, paths, cache, arguments.repeats)
                figures[f"{task}, with a weight cache" if cache else task] = found
    print(json.dumps(figures, indent=1))
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(figures, indent=1) + "\n")


def write_tasks(tokenizer, texts, folder):
    """Files of sentences by what they are."""
    rng, short = np.random.default_rng(2), {"12 to 28 ids": texts[:8]}
    longer = {
        f"{length} ids": [tokenizer.decode(rng.integers(5, tokenizer.vocab_size, length).tolist())]
        for length in (90, 300)
    }
    tasks = {"short sentences": short, "all lengths": short | longer}
    for name, each in tasks.items():
        (folder / f"{name}.json").write_text(json.dumps(each))
    return {name: folder / f"{name}.json" for name in tasks}


def save_folders(kt, model, tokenizer, folder):
    """Exports, whose promises random weights do not keep, by what they hold."""
    from keras_transformer.export.litert import export_translator as export

    strategy = kt.Greedy(extra_length=_EXTRA_LENGTH)
    translator = export.device_translator(model, tokenizer, strategy, None, _LENGTHS[-1])
    kinds = {_REFERENCE: ((), False), "beside it": (_LENGTHS, False), "alone": (_LENGTHS, True)}
    for name, (lengths, lengths_only) in kinds.items():
        (folder / name).mkdir()
        contents = export.device_contents(translator, ("translate",), lengths, lengths_only)
        export.write_folder(folder / name, contents, "int8")
    return {name: folder / name for name in kinds}


def sizes(paths):
    """Bytes of the model's file, and the ratio to the open one's."""
    counts = {name: (path / "model.tflite").stat().st_size for name, path in paths.items()}
    return {
        name: {"bytes": count, f"to {_REFERENCE}": count / counts[_REFERENCE]}
        for name, count in counts.items()
    }


def measured(*arguments):
    command = [sys.executable, "-c", _WORK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def rounds(task, paths, cache, repeats):
    """Medians by folder, and of the ratios to the open one's, round by round."""
    for path in paths.values():
        measured(task, path, *cache)  # files are mapped, and the cache is made
    runs = {name: [] for name in paths}
    for _ in range(repeats):
        for name, path in paths.items():
            runs[name].append(measured(task, path, *cache))
    found = {}
    for name, own in runs.items():
        found[name] = {}
        for kind in own[0]:
            ratios = [a[kind] / b[kind] for a, b in zip(own, runs[_REFERENCE], strict=True)]
            found[name][kind] = statistics.median(run[kind] for run in own)
            found[name][f"{kind} to {_REFERENCE}"] = statistics.median(ratios)
    return found


if __name__ == "__main__":
    main()
