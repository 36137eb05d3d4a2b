"""Prepares a corpus by Apache Beam on a cluster of worker processes, and compares the shards.

    pip install '.[beam-dask]'
    python benchmarks/prepare_cluster.py FOLDER --source train.en.gz --target train.de.gz \
        --pairs 200000 --workers 2 --out prepare_cluster.json

The cluster is Dask's (`distributed`): a scheduler and worker processes of one thread each, which
talk over TCP as they do on several machines. The corpus is written to a temporary folder as plain
files, its pairs repeated up to `--pairs`, and prepared four times: by `prepare`, by Beam's
DirectRunner, on the cluster, and on the cluster while the worker that holds most results is killed
by signal 9. All folders must have the same bytes; exits with 1 if one has not.

What is printed is pairs a second of processor time, on the cluster that of the workers together:
what a core does, whatever else the machine is at. A killed worker takes its time along, so none is
printed then.
"""

import argparse
import contextlib
import functools
import gzip
import itertools
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

from reporting import options_of, processor, say, write_json

_SHARDS = 8
_MAX_LENGTH = 128
_SAMPLE = 20_000  # texts that the tokenizer is learnt from


def main():
    arguments = _arguments()
    # Of this process and of the workers, before TensorFlow is imported: a thread a process.
    os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    report = {"options": options_of(arguments), "processor": processor(), "steps": {}}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        corpus, tokenizer = _inputs(arguments, scratch)
        first = arguments.keep or scratch / "prepare"
        with _parts_of(arguments.part):
            for name, step in _steps(arguments).items():
                folder = scratch / name if report["steps"] else first
                report["steps"][name] = found = step(corpus, tokenizer, folder)
                found["same"] = _contents(folder) == _contents(first)
                say(f"{name}: {found}")
                if arguments.out:
                    write_json(arguments.out, report)
    print(_table(report["steps"]))
    return int(not all(step["same"] for step in report["steps"].values()))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="holds the corpus")
    parser.add_argument("--source", default="train.en.gz", help="file of sentences in it")
    parser.add_argument("--target", default="train.de.gz", help="file of their translations")
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--part", type=int, default=8192, help="pairs that a task reads")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--skip-direct", action="store_true", help="leave the DirectRunner out")
    parser.add_argument("--keep", type=pathlib.Path, help="new folder for what `prepare` made")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file for the figures")
    arguments = parser.parse_args()
    for name in (arguments.source, arguments.target):
        if not (arguments.folder / name).is_file():
            parser.error(f"the folder must hold {name}. Received: {arguments.folder}")
    if arguments.workers < 2:
        parser.error(f"--workers must be at least 2. Received: {arguments.workers}")
    return arguments


def _inputs(arguments, scratch):
    """The corpus in plain files of as many pairs as are asked for, and a tokenizer of it."""
    from keras_transformer.data import ParallelCorpus
    from keras_transformer_runner.tokenizers import SentencePieceTokenizer

    paths = []
    for side in ("source", "target"):
        path = arguments.folder / getattr(arguments, side)
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            lines = file.readlines()
        paths.append(scratch / f"corpus.{side}")
        with open(paths[-1], "wb") as file:
            file.writelines(itertools.islice(itertools.cycle(lines), arguments.pairs))
    corpus = ParallelCorpus(*paths)
    sample = itertools.islice(corpus.sentences(), _SAMPLE)
    return corpus, SentencePieceTokenizer.train(sample, arguments.vocab_size)


@contextlib.contextmanager
def _parts_of(pairs):
    """Parts of fewer pairs than by default: tasks for all workers from a small corpus."""
    from keras_transformer.data import apache_beam

    whole = apache_beam.corpus_parts
    apache_beam.corpus_parts = functools.partial(whole, pairs=pairs)
    try:
        yield
    finally:
        apache_beam.corpus_parts = whole


def _steps(arguments):
    steps = {
        "prepare": _prepare,
        "DirectRunner": _direct,
        "cluster": functools.partial(_on_cluster, arguments.workers, kill=False),
        "cluster, a worker killed": functools.partial(_on_cluster, arguments.workers, kill=True),
    }
    if arguments.skip_direct:
        del steps["DirectRunner"]
    return steps


def _prepare(corpus, tokenizer, folder):
    from keras_transformer.data import prepare

    return _timed(
        lambda: prepare(corpus, tokenizer, folder, max_length=_MAX_LENGTH, shards=_SHARDS)
    )


def _direct(corpus, tokenizer, folder):
    return _timed(lambda: _with_beam(corpus, tokenizer, folder, "--runner=DirectRunner"))


def _with_beam(corpus, tokenizer, folder, *options):
    from apache_beam.options.pipeline_options import PipelineOptions

    from keras_transformer.data import prepare_with_beam

    return prepare_with_beam(
        corpus,
        tokenizer,
        folder,
        max_length=_MAX_LENGTH,
        shards=_SHARDS,
        options=PipelineOptions(list(options)),
    )


def _on_cluster(workers, corpus, tokenizer, folder, *, kill):
    from dask import distributed

    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        with contextlib.closing(distributed.Client(cluster, set_as_default=False)) as client:
            client.run(_load)  # no part of what is measured
            pids = client.run(os.getpid)
            lost = _kill_later(cluster.scheduler, pids) if kill else []
            options = (
                "--runner=apache_beam.runners.dask.dask_runner.DaskRunner",
                f"--dask_client_address={cluster.scheduler_address}",
                "--dask_partition_size=1",  # a part of the corpus a task
            )
            found = _timed(
                lambda: _with_beam(corpus, tokenizer, folder, *options),
                None if kill else lambda: sum(client.run(time.process_time).values()),
            )
            distributed.default_client().close()  # the runner's, which it leaves open
        if kill:
            if not lost:
                raise RuntimeError("no worker held two results: give more --pairs")
            found["results_lost"] = lost[0]
    return found


def _load():
    import apache_beam.runners.dask.dask_runner  # noqa: F401 - in a worker
    import tensorflow_text  # noqa: F401

    import keras_transformer.data  # noqa: F401


def _kill_later(scheduler, pids):
    """Kills the worker that holds most results, once it has two.

    Args:
        scheduler: Dask's scheduler, in this process.
        pids: The process of each worker, by its address.

    Returns:
        List that then holds how many results the worker took along.
    """
    lost = []

    def kill():
        while not lost:
            time.sleep(0.02)
            held = {address: len(worker.has_what) for address, worker in _workers(scheduler)}
            address = max(held, key=held.get, default=None)
            if held.get(address, 0) >= 2:
                lost.append(held[address])
                os.kill(pids[address], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    return lost


def _workers(scheduler):
    return list(scheduler.workers.items())


def _timed(do, processor_seconds=time.process_time):
    """Pairs, seconds, and seconds of processor time as a function says; `None` says none."""
    used, start = processor_seconds() if processor_seconds else 0, time.perf_counter()
    corpus = do()
    found = {"pairs": len(corpus), "seconds": round(time.perf_counter() - start, 2)}
    if processor_seconds:
        found["processor_seconds"] = round(processor_seconds() - used, 2)
    return found


def _contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _table(steps):
    lines = [
        "| | pairs | seconds | pairs a second of a core | same bytes |",
        "|---|---|---|---|---|",
    ]
    for name, step in steps.items():
        used = step.get("processor_seconds")
        rate = f"{step['pairs'] / used:,.0f}" if used else ""
        lost = f" ({step['results_lost']} results lost)" if "results_lost" in step else ""
        same = "yes" if step["same"] else "NO"
        lines.append(f"| {name}{lost} | {step['pairs']:,} | {step['seconds']} | {rate} | {same} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
