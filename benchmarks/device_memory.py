"""Peak memory of translating on a device: our int8 LiteRT file against CTranslate2's int8.

    pip install ctranslate2
    python benchmarks/device_memory.py [--size base] [--out FILE]

Random weights, equal for both, each stored as int8. Each system runs in fresh processes that import
what it needs to translate text (ours: NumPy, SentencePiece, LiteRT), load the file and translate
sentences of 12 to 28 ids, greedily, one at a time on one thread. What counts is the peak of
resident memory (`VmHWM`), so Linux only. CTranslate2 is also measured as it is used most, with a
float32 file that it quantizes when it loads.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import types

from keras_transformer.quiet import start_tensorflow

_REPEATS = 3
_COUNT = 12

_PEAK = """
import re
status = open("/proc/self/status").read()
print(int(re.search(r"^VmHWM:\\s+(\\d+) kB", status, re.M)[1]) / 1024)
"""
_OURS = """
import json, sys
import numpy as np, sentencepiece
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
run = interpreter.get_signature_runner("translate")
for ids in json.load(open(sys.argv[2])):
    run(source_ids=np.array([ids], np.int32))
"""
_THEIRS = """
import json, sys
import sentencepiece, ctranslate2
translator = ctranslate2.Translator(
    sys.argv[1], compute_type="int8", inter_threads=1, intra_threads=1
)
for ids in json.load(open(sys.argv[2])):
    translator.translate_batch(
        [[str(token) for token in ids[:-1]]], beam_size=1, max_decoding_length=len(ids) + 4
    )
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=("tiny", "base"), default="base")
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    start_tensorflow()
    import device

    import keras_transformer as kt
    from keras_transformer.interop.ctranslate2 import save_ctranslate2

    options = types.SimpleNamespace(random=arguments.size, count=_COUNT, extra_length=4)
    model, sources = device.random_model(kt, options)
    tokenizer = types.SimpleNamespace(pieces=list(map(str, range(model.config.vocab_size))))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "ids.json").write_text(json.dumps(sources))
        ours = folder / "model.tflite"
        ours.write_bytes(device.converted(model, kt.Greedy(extra_length=4), "int8", sources))
        save_ctranslate2(model, tokenizer, folder / "int8", quantization="int8")
        save_ctranslate2(model, tokenizer, folder / "float32")
        systems = {
            "LiteRT int8": (_OURS, ours),
            "CTranslate2 int8": (_THEIRS, folder / "int8"),
            "CTranslate2 int8 from a float32 file": (_THEIRS, folder / "float32"),
        }
        peaks = {name: [] for name in systems}
        for _ in range(_REPEATS):
            for name, (script, path) in systems.items():
                peaks[name].append(peak(script, path, folder / "ids.json"))
    found = {name: statistics.median(values) for name, values in peaks.items()}
    ratio = found["LiteRT int8"] / found["CTranslate2 int8"]
    print(f"{model.count_params():,} weights")
    for name, mebibytes in found.items():
        print(f"{name:38} {mebibytes:6.1f} MiB at most")
    print(f"LiteRT int8 / CTranslate2 int8: {ratio:.2f}")
    if arguments.out:
        figures = {"weights": model.count_params(), "MiB": found, "ratio": ratio}
        pathlib.Path(arguments.out).write_text(json.dumps(figures, indent=1) + "\n")


def peak(script, path, ids):
    command = [sys.executable, "-c", script + _PEAK, str(path), str(ids)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
