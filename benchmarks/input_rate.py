"""Pairs a second that a core of the input pipeline reads and batches, from a prepared corpus.

    python benchmarks/input_rate.py PREPARED [--batch-tokens 25088] [--epochs 3]

One epoch warms up; the others are counted. Processor time is that of all threads, so the figure is
what a core does, whatever else the machine is at. Prints JSON: pairs a second of processor time;
the mean of positions that a pair needs (its longer side and EOS); and the share of the positions of
the batches that is no padding.
"""

import argparse
import json
import os
import pathlib
import sys
import time

from reporting import processor


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("prepared", help="folder of a prepared corpus, also a remote one")
    parser.add_argument("--batch-tokens", type=int, default=25_088)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, help="JSON file for the figures")
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error(f"--epochs must be at least 2. Received: {arguments.epochs}")
    found = {"processor": processor(), "cores": os.cpu_count(), **_measured(arguments)}
    print(json.dumps(found, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


def _measured(arguments):
    from keras_transformer.data import PreparedCorpus, training_batches

    corpus = PreparedCorpus(arguments.prepared)
    counts = corpus.length_counts.sum(axis=0)
    needed = sum(length * int(count) for length, count in enumerate(counts))
    batches = training_batches(
        corpus,
        corpus.source_tokenizer,
        batch_tokens=arguments.batch_tokens,
        epochs=arguments.epochs,
        seed=0,
    )
    an_epoch = int(batches.cardinality()) // arguments.epochs
    positions = pairs = 0
    for number, (_, labels) in enumerate(batches):
        if number == an_epoch:
            start, used = time.perf_counter(), time.process_time()
            positions = pairs = 0
        positions += labels.shape[0] * labels.shape[1]
        if (number + 1) % an_epoch == 0:
            pairs += len(corpus)
    used, seconds = time.process_time() - used, time.perf_counter() - start
    return {
        "pairs": len(corpus),
        "pairs_a_core_second": round(pairs / used),
        "pairs_a_second": round(pairs / seconds),
        "positions_a_pair": round(needed / len(corpus), 2),
        "fill": round(needed * (arguments.epochs - 1) / positions, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
