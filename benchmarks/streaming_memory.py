"""Peak memory of `prepare` and of an epoch over its batches, as the corpus grows.

    python benchmarks/streaming_memory.py --pairs 1000000 10000000 --output memory.json

Sentences are made as they are read, so no corpus lies on the disk; its shards do (about 0.1 GB
for a million pairs). Every number is of a process of its own. A shard holds 250,000 pairs at most,
and a corpus has at least four, so memory that grows with the corpus and not with the shard shows.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

MAX_LENGTH = 64
BATCH_TOKENS = 4096
SHARD_PAIRS = 250_000
_WORDS = 5000
_CHUNK = 10_000


def sentence_pairs(count, seed=0):
    """Yields pairs of 2 to 12 made-up words; the target is the source backwards."""
    import numpy as np

    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, size=rng.integers(2, 9))) for _ in range(_WORDS)]
    for start in range(0, count, _CHUNK):
        lengths = rng.integers(2, 13, size=min(_CHUNK, count - start))
        ids = (rng.random(lengths.sum()) ** 2 * _WORDS).astype(int)  # some words are more common
        for sentence in np.split(ids, lengths.cumsum()[:-1]):
            chosen = [words[i] for i in sentence]
            yield " ".join(chosen), " ".join(reversed(chosen))


class Sentences:
    """`sentence_pairs`, again for every pass."""

    name = "made-up sentences"

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return sentence_pairs(self.count)


def run_prepare(pairs, folder):
    import tensorflow  # noqa: F401 - its own memory is no part of ours

    from keras_transformer.data.preparation import prepare
    from keras_transformer_runner.tokenizers import SentencePieceTokenizer

    sample = [text for pair in sentence_pairs(20_000) for text in pair]
    tokenizer = SentencePieceTokenizer.train(sample, 4000)
    shards = max(4, -(-pairs // SHARD_PAIRS))
    yield
    prepare(Sentences(pairs), tokenizer, folder, max_length=MAX_LENGTH, shards=shards)


def run_epoch(pairs, folder):
    import tensorflow  # noqa: F401 - its own memory is no part of ours

    from keras_transformer.data import training_batches
    from keras_transformer.data.shards import PreparedCorpus

    corpus = PreparedCorpus(folder)
    yield
    batches = training_batches(corpus, corpus.source_tokenizer, batch_tokens=BATCH_TOKENS, epochs=1)
    seen = sum(int((labels[:, 0] != 0).sum()) for _, labels in batches.as_numpy_iterator())
    if seen != len(corpus):
        raise RuntimeError(f"{seen} pairs in an epoch over {len(corpus)}")


def worker(stage, pairs, folder):
    """Runs a stage in this process and prints its numbers as JSON."""
    stages = {"prepare": run_prepare, "epoch": run_epoch}
    steps = stages[stage](pairs, folder)
    next(steps)
    before, start = peak_mib(), time.perf_counter()
    next(steps, None)
    seconds = time.perf_counter() - start
    row = {
        "pairs": pairs,
        "stage": stage,
        "peak_mib": round(peak_mib()),
        "above_start_mib": round(peak_mib() - before),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(row))


def peak_mib():
    """The most memory that this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def measure(pairs, parent):
    with tempfile.TemporaryDirectory(dir=parent) as place:
        folder = pathlib.Path(place) / "prepared"
        for stage in ("prepare", "epoch"):
            command = [sys.executable, __file__, "--worker", stage, str(pairs), str(folder)]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=environment
            )
            yield json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--output", type=pathlib.Path, help="also write the rows as JSON")
    parser.add_argument("--folder", help="where the shards lie meanwhile")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        stage, pairs, folder = arguments.worker
        return worker(stage, int(pairs), folder)
    rows = []
    print(f"{'pairs':>12} {'stage':>8} {'peak MiB':>9} {'above start':>12} {'seconds':>8}")
    for pairs in arguments.pairs:
        for row in measure(pairs, arguments.folder):
            rows.append(row)
            print(
                f"{row['pairs']:>12,} {row['stage']:>8} {row['peak_mib']:>9,} "
                f"{row['above_start_mib']:>12,} {row['seconds']:>8,.1f}",
                flush=True,
            )
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
