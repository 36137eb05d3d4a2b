"""The native core of export/native against the Python runner, and CTranslate2: the same texts?

    python benchmarks/native.py build/native/kt-translate FOLDER LINES [--ctranslate2 FOLDER]
        [--weight-cache DIR]

Each system is a process that gets a line, answers it and gets the next one, on one thread. What
counts is the wall time from the start of the process to the first answer, processor time an answer
after it, and the peak of resident memory (`VmHWM`), so Linux only. Systems take turns, and ratios
are of one round. Texts that differ from the Python runner's are counted. The first argument may be
a command, such as one that begins with an emulator; CTranslate2 runs from Python, as its users do.
With a weight cache ours are measured with packed weights in a file too, which is there already.
"""

import argparse
import contextlib
import operator
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import time

import reporting

_NATIVE, _PYTHON, _PEER = "native core", "Python runner", "CTranslate2"
_CACHED = ", packed weights in a file"
_CTRANSLATE2 = """
import sys
import sentencepiece, ctranslate2
tokenizer = sentencepiece.SentencePieceProcessor(model_file=sys.argv[2])
translator = ctranslate2.Translator(
    sys.argv[1], compute_type=sys.argv[3], inter_threads=1, intra_threads=1
)
for line in sys.stdin:
    pieces = tokenizer.encode(line.rstrip("\\n"), out_type=str)
    limit = len(pieces) + 1 + int(sys.argv[4])
    found = translator.translate_batch([pieces], beam_size=1, max_decoding_length=limit)
    print(tokenizer.decode(found[0].hypotheses[0]), flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tool", type=shlex.split, help="kt-translate, or a command that runs it")
    parser.add_argument("folder", help="an exported LiteRT folder")
    parser.add_argument("lines", type=pathlib.Path, help="a text a line")
    parser.add_argument("--count", type=int, default=1000, help="lines used (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stream", action="store_true", help="word by word, in both of ours")
    parser.add_argument("--weight-cache", metavar="DIR", help="also with packed weights in DIR")
    parser.add_argument("--ctranslate2", metavar="FOLDER", help="the same weights, greedily")
    parser.add_argument("--compute-type", default="float32", help="CTranslate2's (%(default)s)")
    parser.add_argument("--extra-length", type=int, default=4, help="of CTranslate2's limit")
    parser.add_argument("--out", help="JSON file for the figures")
    arguments = parser.parse_args()
    lines = arguments.lines.read_text(encoding="utf-8").split("\n")[: arguments.count]
    for name, command in systems(arguments).items():
        if name.endswith(_CACHED):
            measured(command, lines[:1])
    rounds = [
        {name: measured(command, lines) for name, command in systems(arguments).items()}
        for _ in range(arguments.rounds)
    ]
    report = {
        "options": reporting.options_of(arguments) | {"tool": os.path.basename(arguments.tool[-1])},
        "processor": reporting.processor(),
        "lines": len(lines),
        "texts as the Python runner's": same_texts(rounds),
        "systems": summary(rounds),
    }
    show(report)
    if arguments.out:
        reporting.write_json(arguments.out, report)


def systems(arguments):
    """The command of each system."""
    options = ["--stream"] if arguments.stream else []
    runner = [sys.executable, "-m", "keras_transformer_runner", arguments.folder, *options]
    found = {_NATIVE: [*arguments.tool, arguments.folder, *options], _PYTHON: runner}
    if arguments.weight_cache:
        cached = {name + _CACHED: [*found[name], "--weight-cache", arguments.weight_cache]
                  for name in (_NATIVE, _PYTHON)}  # fmt: skip
        found |= cached
    if arguments.ctranslate2:
        tokenizer = os.path.join(arguments.folder, "tokenizer.model")
        settings = (arguments.compute_type, str(arguments.extra_length))
        script = [sys.executable, "-c", _CTRANSLATE2, arguments.ctranslate2, tokenizer, *settings]
        found[_PEER] = script
    return found


def measured(command, lines):
    """Texts and figures of one process."""
    started = time.perf_counter()
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with subprocess.Popen(command, **pipes) as process:
        try:
            texts = [answer(process, lines[0])]
            first, before = time.perf_counter() - started, processor_seconds(process.pid)
            texts += [answer(process, line) for line in lines[1:]]
            used = processor_seconds(process.pid) - before
            peak = peak_mebibytes(process.pid)
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
    seconds = used / max(1, len(lines) - 1)
    return {"texts": texts, "first": first, "seconds": seconds, "MiB": peak}


def answer(process, line):
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    found = process.stdout.readline()
    if not found:
        raise RuntimeError(f"a system must answer each line. Received: nothing for {line!r}")
    return found.decode().rstrip("\n")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def peak_mebibytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024


def same_texts(rounds):
    """How many of the native core's texts are the Python runner's, the fewest of all rounds."""
    names = [name for name in rounds[0] if name.startswith(_NATIVE)]
    pairs = [(found[name]["texts"], found[_PYTHON]["texts"]) for found in rounds for name in names]
    return min(sum(map(operator.eq, *pair)) for pair in pairs)


def summary(rounds):
    """Medians by system, and the median of ratios to the Python runner, round by round."""
    found = {}
    for name in rounds[0]:
        found[name] = {}
        for kind in ("first", "seconds", "MiB"):
            ratios = [each[name][kind] / each[_PYTHON][kind] for each in rounds]
            median = statistics.median(each[name][kind] for each in rounds)
            found[name] |= {kind: median, f"{kind} to {_PYTHON}": statistics.median(ratios)}
    return found


def show(report):
    same, count = report["texts as the Python runner's"], report["lines"]
    print(f"{same} of {count} texts are the Python runner's")
    for name, values in report["systems"].items():
        first, _, seconds, _, peak, _ = values.values()
        ratios = ", ".join(f"{values[key]:.2f}" for key in values if " to " in key)
        print(
            f"{name:41} first answer after {first:.3f} s, then {1e3 * seconds:.2f} ms of processor "
            f"time, at most {peak:.1f} MiB; to the Python runner {ratios}"
        )


if __name__ == "__main__":
    main()
