"""An exported SavedModel far from home, against Python, on a test set.

    PYTHONPATH=. python tests/support/serving_matrix.py RUN SOURCE [--python PATH] [--jax-run RUN]

RUN is a folder that `train` has made, SOURCE text with a sentence a line (may be gzip). For each
kind of model and each search: export, move, delete the original, and translate in a process that
cannot import this package, in another folder, and as another user where this one is root.

`--python` names the interpreter of a clean environment, for that process:

    python -m venv CLEAN && CLEAN/bin/pip install tensorflow 'tensorflow-text!=2.21.0'

Without it, this interpreter serves, and a hook refuses to import the package. `--jax-run` is a
folder that `KERAS_BACKEND=jax keras-transformer train` has made, of the same kind of text.
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

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402

import keras_transformer as kt  # noqa: E402
from keras_transformer.artifacts import next_version  # noqa: E402
from keras_transformer_runner.lines import read_lines  # noqa: E402

KINDS = ("reloaded", "fresh", "trained", "mixed", "jax")
STRATEGIES = (kt.Greedy(), kt.BeamSearch(beam_size=4))
ABSENT = ("keras_transformer", "sentencepiece")  # which a server has not

ELSEWHERE = """
import importlib.util, json, os, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ImportError(name)

path, absent, is_clean = sys.argv[1], sys.argv[2].split(","), bool(int(sys.argv[3]))
if not is_clean:
    sys.meta_path.insert(0, Refuse())
elif installed := [name for name in absent if importlib.util.find_spec(name)]:
    sys.exit(f"not a clean environment: {sys.executable} has {installed}")
import tensorflow as tf, tensorflow_text

if os.getuid() == 0:  # after the imports: Python itself may lie where only root reads
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
texts = json.load(sys.stdin)
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
    signature = meta_graph.signature_def["serving_default"]
    run = session.make_callable(
        signature.outputs["translation"].name, feed_list=[signature.inputs["text"].name]
    )
    found = [text.decode() for n in range(0, len(texts), 32) for text in run(texts[n : n + 32])]
json.dump({"found": found, "user": os.getuid(), "python": sys.executable}, sys.stdout)
"""


def model_of(kind, run, texts):
    """The model to export."""
    if kind in ("reloaded", "jax"):
        return run.model
    dtype = "mixed_bfloat16" if kind == "mixed" else None
    model = kt.Transformer(run.model.config, dtype=dtype)
    if kind != "fresh":
        model.set_weights(run.model.get_weights())
    return fitted(model, run, texts) if kind == "trained" else model


def fitted(model, run, texts, rows=32):
    """The model after an epoch of `fit` under XLA, on what it makes of the texts itself."""
    config = model.config
    translator = kt.Translator(run.model, run.tokenizer, target_tokenizer=run.target_tokenizer)
    texts = texts[: max(1, len(texts) // 4 // rows) * rows]
    sources = translator.pad([translator.source_ids(text) for text in texts])
    targets = [list(ids) for ids in translator.translate_ids(sources)]
    model.compile(
        optimizer=keras.optimizers.Adam(1e-4),
        loss=kt.SmoothedCrossEntropy(0.1, pad_id=config.pad_id),
        jit_compile=True,
    )
    inputs = translator.pad([[config.bos_id, *ids] for ids in targets])
    labels = translator.pad([[*ids, config.eos_id] for ids in targets])
    model.fit({"source_ids": sources, "target_ids": inputs}, labels, batch_size=rows, verbose=0)
    return model


def translated_elsewhere(path, texts, folder, python=None):
    environment = {"PATH": os.environ["PATH"], "TF_CPP_MIN_LOG_LEVEL": "3", "HOME": str(folder)}
    arguments = [str(path), ",".join(ABSENT), str(int(python is not None))]
    done = subprocess.run(
        [python or sys.executable, "-c", ELSEWHERE, *arguments],
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


def compared(translator, texts, python=None):
    """Exports, moves, serves and compares; returns the answers there and Python's own."""
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        kt.export_saved_model(
            translator.model,
            translator.tokenizer,
            next_version(folder / "made"),
            samples=texts[:2],
            strategy=translator.strategy,
            target_tokenizer=translator.target_tokenizer,
        )
        (folder / "made").rename(folder / "moved")
        elsewhere = translated_elsewhere(folder / "moved" / "1", texts, folder, python)
    finally:
        shutil.rmtree(folder)
    return elsewhere, translator.translate(texts)


def show_differences(translator, texts, found, expected, at_most=3):
    """The first answers that differ, with the model's own log-probability of both.

    In low precision a batch's shape decides how sums are rounded, so Python is asked once more, in
    the very batches of the server.
    """
    if found == expected:
        return
    chunks = [texts[start : start + 32] for start in range(0, len(texts), 32)]
    batched = [text for chunk in chunks for text in translator.translate(chunk)]
    equal, own = (sum(map(str.__eq__, batched, other)) for other in (found, expected))
    print(f"  Python in the server's batches: {equal} as there, {own} as in its own batches")
    rows = [row for row in zip(texts, found, expected, strict=True) if row[1] != row[2]]
    for source, there, here in rows[:at_most]:
        scores = [sum(one.token_log_probs) for one in translator.score([source] * 2, [there, here])]
        print(
            f"  {source!r}\n    there {scores[0]:.5f} {there!r}\n    here  {scores[1]:.5f} {here!r}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run_dir")
    parser.add_argument("source")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--python", help="an interpreter with TensorFlow and TensorFlow Text only")
    parser.add_argument("--jax-run", help="a run that was trained on JAX; without it, no such row")
    arguments = parser.parse_args()
    run = kt.load_run(arguments.run_dir)
    texts = list(itertools.islice(read_lines(arguments.source), arguments.lines))
    failed = False
    print("| model | search | as in Python | user | interpreter | seconds |")
    print(f"|{'---|' * 6}")
    for kind in arguments.kinds:
        if kind == "jax" and not arguments.jax_run:
            continue
        of = kt.load_run(arguments.jax_run) if kind == "jax" else run
        model = model_of(kind, of, texts)
        for strategy in STRATEGIES:
            start = time.monotonic()
            translator = kt.Translator(
                model, of.tokenizer, strategy, target_tokenizer=of.target_tokenizer
            )
            elsewhere, expected = compared(translator, texts, arguments.python)
            equal = sum(map(str.__eq__, elsewhere["found"], expected))
            print(
                f"| {kind} | {type(strategy).__name__} | {equal} of {len(texts)} "
                f"| {elsewhere['user']} | {elsewhere['python']} "
                f"| {time.monotonic() - start:.0f} |",
                flush=True,
            )
            show_differences(translator, texts, elsewhere["found"], expected)
            failed |= equal < len(texts)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
