"""Runs an exported folder on an emulated arm64 processor and compares it with this machine.

    python export/mobile/check.py ARM64_ROOT FOLDER TEXTS [--reference FOLDER]

TEXTS has a sentence a line. The answers of FOLDER on ARM64_ROOT (see arm64_root.sh) are compared
with those of this machine's runner, or of another export of the same model that it runs, such as
the float32 one. Exit status: 0 if the mode's promise is kept, 1 if not, 2 for a wrong call, 77
without an emulator.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1]
NO_EMULATOR = 77

# What runs under the emulator: the runner itself, and no TensorFlow.
DEVICE = """
import json, platform, sys
from keras_transformer_runner.runner import Runner

texts = json.load(sys.stdin)
runner = Runner(sys.argv[1])
sources = [runner.encode(text) for text in texts]
targets = [runner.translate_ids(ids) for ids in sources]
answers = [
    {"source_ids": source, "target_ids": target, "text": runner.decode(target)}
    for source, target in zip(sources, targets)
]
print(json.dumps({"machine": platform.machine(), "answers": answers}))
"""


def on_arm64(root, folder, texts):
    """The runner's answers on an arm64 processor.

    Args:
        root: What `arm64_root.sh` made.
        folder: What `export_litert` wrote.
        texts: List of str.

    Returns:
        A list of dicts with `source_ids`, `target_ids` and `text`.

    Raises:
        FileNotFoundError: if there is no emulator.
        RuntimeError: if the runner fails there, or ran on another processor.
    """
    done = subprocess.run(
        [HERE / "arm64_python.sh", root, "-c", DEVICE, folder],
        input=json.dumps(list(texts)),  # ASCII: the emulated process has no locale
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_EMULATOR:
        raise FileNotFoundError(done.stderr.strip())
    if done.returncode:
        raise RuntimeError(
            f"the runner must work on arm64. Received: status {done.returncode}, "
            f"{done.stderr.strip()[-2000:]}"
        )
    result = json.loads(done.stdout)
    if result["machine"] != "aarch64":
        raise RuntimeError(f"the machine must be aarch64. Received: {result['machine']}")
    return result["answers"]


def on_this_machine(folder, texts):
    """The same for the processor that this runs on."""
    from keras_transformer_runner.runner import Runner

    runner = Runner(folder)
    sources = [runner.encode(text) for text in texts]
    targets = [runner.translate_ids(ids) for ids in sources]
    return [
        {"source_ids": source, "target_ids": target, "text": runner.decode(target)}
        for source, target in zip(sources, targets, strict=True)
    ]


def agreement(texts, expected, received):
    """What two lists of answers have in common, as `export.parity.compare` counts it."""
    from keras_transformer.export.parity import compare

    def rows(answers):
        return [(answer["text"], answer["target_ids"]) for answer in answers]

    result = compare(texts, rows(expected), rows(received))
    result["same_source_ids"] = sum(
        a["source_ids"] == b["source_ids"] for a, b in zip(expected, received, strict=True)
    )
    return result


def main(arguments=None):
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("root", "folder", "texts"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--reference", type=pathlib.Path)
    options = parser.parse_args(arguments)
    from keras_transformer_runner.lines import read_lines

    try:
        texts = list(read_lines(options.texts))
        report = json.loads((options.folder / "parity.json").read_text(encoding="utf-8"))
        expected = on_this_machine(options.reference or options.folder, texts)
        received = on_arm64(options.root, options.folder, texts)
    except (OSError, ValueError, RuntimeError) as error:
        print(f"check.py: error: {error}", file=sys.stderr)
        is_missing = isinstance(error, FileNotFoundError) and "qemu" in str(error)
        return NO_EMULATOR if is_missing else 1
    result = agreement(texts, expected, received)
    promised = report["promised_agreement"]
    kept = result["token_agreement"] >= promised and result["same_source_ids"] == len(texts)
    print(json.dumps({"mode": report["mode"], "promised": promised, **result}, indent=2))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE))
    sys.exit(main())
