"""Peak memory of translating on a device: our int8 LiteRT folder against CTranslate2's int8.

    pip install ctranslate2
    python benchmarks/device_memory.py [--size base] [--out FILE]

Random weights, equal for both, each stored as int8. Each system runs in fresh processes that import
what it needs to translate text, load the file and translate sentences of 12 to 28 ids, greedily,
one at a time on one thread, from text to text with the same SentencePiece model: ours by
`export.runner.Runner`, without a weight cache, when it makes one, and when it finds one. What
counts is the peak of resident memory (`VmHWM`), so Linux only; pages of mapped files are counted.
CTranslate2 is also measured as it is used most, with a float32 file that it quantizes when it
loads. The time is that from a folder to the first answer, with the runtime's import in ours.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import types

from keras_transformer.quiet import start_tensorflow

_REPEATS = 5
_COUNT = 12
_EXTRA_LENGTH = 4
_REFERENCE = "CTranslate2 int8"

_OURS = """
import json, sys, time
import sentencepiece
from keras_transformer_runner.runner import Runner
texts = json.load(open(sys.argv[1]))
start = time.perf_counter()
runner = Runner(sys.argv[2], weight_cache=sys.argv[3] if len(sys.argv) > 3 else None)
translate = lambda text: runner.translate([text])
"""
_THEIRS = """
import json, sys, time
import sentencepiece, ctranslate2
texts = json.load(open(sys.argv[1]))
start = time.perf_counter()
tokenizer = sentencepiece.SentencePieceProcessor(model_file=sys.argv[3])
translator = ctranslate2.Translator(
    sys.argv[2], compute_type="int8", inter_threads=1, intra_threads=1
)
def translate(text):
    pieces = tokenizer.encode(text, out_type=str)
    limit = len(pieces) + 1 + %d
    found = translator.translate_batch([pieces], beam_size=1, max_decoding_length=limit)
    return tokenizer.decode(found[0].hypotheses[0])
"""
_TRANSLATE = """
translate(texts[0])
seconds = time.perf_counter() - start
for text in texts[1:]:
    translate(text)
import re
status = open("/proc/self/status").read()
peak = int(re.search(r"^VmHWM:\\s+(\\d+) kB", status, re.M)[1]) / 1024
print(json.dumps({"MiB": peak, "seconds to the first answer": seconds}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=("tiny", "base"), default="base")
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    start_tensorflow()
    import keras_transformer as kt
    from keras_transformer.interop.ctranslate2 import save_ctranslate2

    model, tokenizer, texts = random_task(kt, arguments.size)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "texts.json").write_text(json.dumps(texts))
        save_ours(kt, model, tokenizer, texts, folder / "ours")
        save_ctranslate2(model, tokenizer, folder / "int8", quantization="int8")
        save_ctranslate2(model, tokenizer, folder / "float32")
        cache, tokens = folder / "cache", folder / "ours" / "tokenizer.model"
        theirs = _THEIRS % _EXTRA_LENGTH
        systems = {
            "LiteRT int8": (_OURS, folder / "ours"),
            "LiteRT int8, makes a weight cache": (_OURS, folder / "ours", cache),
            "LiteRT int8, has a weight cache": (_OURS, folder / "ours", cache),
            _REFERENCE: (theirs, folder / "int8", tokens),
            f"{_REFERENCE} from a float32 file": (theirs, folder / "float32", tokens),
        }
        drop_from_cache(folder)
        found = {name: [] for name in systems}
        for _ in range(_REPEATS):
            shutil.rmtree(cache, ignore_errors=True)
            for name, (script, *paths) in systems.items():
                found[name].append(measured(script, folder / "texts.json", *paths))
    figures = {"weights": model.count_params(), "systems": summary(found)}
    show(figures)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(figures, indent=1) + "\n")


def random_task(kt, size):
    """A model of random weights, a SentencePiece model of as many characters, and sentences."""
    import device

    from keras_transformer_runner.tokenizers import SentencePieceTokenizer

    options = types.SimpleNamespace(random=size, count=_COUNT, extra_length=_EXTRA_LENGTH)
    made, sources = device.random_model(kt, options)
    size = made.config.vocab_size
    letters = [chr(0x4E00 + index) for index in range(size - 5)]  # control ids, and the word mark
    tokenizer = SentencePieceTokenizer.train(letters, size, model_type="char")
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    model = kt.Transformer(dataclasses.replace(made.config, **ids))
    model.set_weights(made.get_weights())
    return model, tokenizer, [tokenizer.decode(row[:-2]) for row in sources]


def save_ours(kt, model, tokenizer, texts, folder):
    """The folder that `export_litert` writes, whose promises random weights do not keep."""
    from keras_transformer.export.litert import export_translator

    folder.mkdir()
    strategy = kt.Greedy(extra_length=_EXTRA_LENGTH)
    translator = export_translator.device_translator(model, tokenizer, strategy, None, 512)
    expected = export_translator.PythonAnswers.translated_by(translator, texts)
    calibration = export_translator.calibration_for("int8", translator, expected)
    export_translator.write_mode(folder, translator, "int8", expected, calibration)


def drop_from_cache(folder):
    """As after a start of the machine: Linux may map what it has just written in pieces of 2 MB."""
    for path in folder.rglob("*.*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measured(script, *arguments):
    command = [sys.executable, "-c", script + _TRANSLATE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def summary(found):
    """Medians by system, and ratios of peaks to the reference's, round by round."""
    systems = {}
    for name, runs in found.items():
        ratios = [a["MiB"] / b["MiB"] for a, b in zip(runs, found[_REFERENCE], strict=True)]
        medians = {kind: statistics.median(run[kind] for run in runs) for kind in runs[0]}
        systems[name] = {**medians, f"MiB to {_REFERENCE}": statistics.median(ratios)}
    return systems


def show(figures):
    print(f"{figures['weights']:,} weights")
    for name, values in figures["systems"].items():
        mebibytes, seconds, ratio = values.values()
        print(f"{name:38} {mebibytes:6.1f} MiB at most, {ratio:.2f} of CTranslate2's, ", end="")
        print(f"{seconds:.3f} s to the first answer")


if __name__ == "__main__":
    main()
