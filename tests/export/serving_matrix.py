"""An exported SavedModel far from home, against Python, on a test set.

    PYTHONPATH=. python tests/export/serving_matrix.py RUN SOURCE [--lines 1000]

RUN is a folder that `train` has made, SOURCE text with a sentence a line (may be gzip). For each
kind of model and each search: export, move, delete the original, and translate in a process that
cannot import this package, in another folder, and as another user where this one is root.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import keras_transformer as kt
from keras_transformer.export.versions import next_version
from keras_transformer.text import read_lines

ELSEWHERE = """
import json, os, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("keras_transformer", "sentencepiece"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import tensorflow as tf, tensorflow_text

if os.getuid() == 0:  # after the imports: Python itself may lie where only root reads
    os.setgid(65534)
    os.setuid(65534)
texts = json.load(sys.stdin)
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
    signature = meta_graph.signature_def["serving_default"]
    run = session.make_callable(
        signature.outputs["translation"].name, feed_list=[signature.inputs["text"].name]
    )
    found = [text.decode() for n in range(0, len(texts), 32) for text in run(texts[n : n + 32])]
json.dump({"found": found, "user": os.getuid()}, sys.stdout)
"""


def models(run, kinds):
    config = run.model.config
    for kind in kinds:
        if kind == "reloaded":
            yield kind, run.model
            continue
        model = kt.Transformer(config, dtype="mixed_bfloat16" if kind == "mixed" else None)
        if kind == "mixed":
            model.set_weights(run.model.get_weights())
        yield kind, model


def translated_elsewhere(path, texts, folder):
    environment = {"PATH": os.environ["PATH"], "TF_CPP_MIN_LOG_LEVEL": "3", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(path)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run_dir")
    parser.add_argument("source")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", default=["reloaded", "fresh", "mixed"])
    arguments = parser.parse_args()
    run = kt.load_run(arguments.run_dir)
    texts = list(itertools.islice(read_lines(arguments.source), arguments.lines))
    failed = False
    for kind, model in models(run, arguments.kinds):
        for strategy in (kt.Greedy(), kt.BeamSearch(beam_size=4)):
            start = time.monotonic()
            folder = pathlib.Path(tempfile.mkdtemp())
            folder.chmod(0o755)
            tokenizers = {"target_tokenizer": run.target_tokenizer}
            path = next_version(folder / "made")
            kt.export_saved_model(
                model, run.tokenizer, path, samples=texts[:2], strategy=strategy, **tokenizers
            )
            (folder / "made").rename(folder / "moved")
            found = translated_elsewhere(folder / "moved" / "1", texts, folder)
            shutil.rmtree(folder)
            expected = kt.Translator(model, run.tokenizer, strategy, **tokenizers).translate(texts)
            equal = sum(map(str.__eq__, found["found"], expected))
            name = type(strategy).__name__
            seconds = time.monotonic() - start
            print(
                f"{kind}, {name}: {equal} of {len(texts)} equal, as user {found['user']}, "
                f"{seconds:.0f} s",
                flush=True,
            )
            failed |= equal < len(texts)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
