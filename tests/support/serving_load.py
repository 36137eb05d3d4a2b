"""Many clients at once: every answer the same as alone, no failed call, memory flat.

    PYTHONPATH=tests/support python tests/support/serving_load.py MODELS
        [--requests 20000] [--texts FILE]

MODELS is a folder of exported versions. It serves them with the stand-in for TF Serving, with the
kit's batching unless `--no-batching`, calls each text alone first, and then all at once from 16
threads, gRPC and REST, in mixed sizes and 1% malformed; halfway it puts a copy of the newest
version in place as the next one.
"""

import argparse
import json
import pathlib
import random
import shutil
import threading
import time

from serving_process import BATCHING, load_client, serving

client = load_client()
# What a malformed call is answered with; the last where it shares a batch.
REFUSED = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL")
WRONG = [
    ("nothing", {"text": [b"a"]}),
    ("translate", {"text": [b"a"]}),
    ("translate", {"text": [3], "n_best": [1]}),
    ("translate_ids", {"source_ids": [3, 4]}),
]
RETRIES = client.Retries(deadline=120, tries=9)  # malformed calls cost others of a batch a try
_OVERTIME = 120  # seconds that a load waits for a newer version


def run(
    models, texts, *, requests, threads=16, most_rows=8, too_long="ab " * 40_000, batching=BATCHING
):
    """Returns the figures, with `faults`, a list that is to be empty."""
    models = pathlib.Path(models)
    with serving(models, batching=batching) as server:
        load = Load(server, texts, requests, most_rows, too_long)
        before = _memory(server.pid)
        start = time.monotonic()
        workers = [threading.Thread(target=load.work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        memory, newer = [], None
        while any(worker.is_alive() for worker in workers):
            memory.append(_memory(server.pid))
            if newer is None and load.taken >= requests // 2:
                newer = _put_next(models)
            elif newer is not None and not load.has_swapped:
                load.has_swapped = _answers(server, newer, load.texts[0])
            time.sleep(0.2)
        seconds = time.monotonic() - start
        # The quarter before the swap, and the last.
        figures = {
            "requests": load.taken,
            "seconds": round(seconds, 1),
            "malformed": load.malformed,
            "too_long": load.refused,
            "rows": load.rows,
            "memory_mb": {
                "before": before,
                "quarter": memory[len(memory) // 4],
                "half": memory[len(memory) // 2],
                "end": memory[-1],
            },
            "faults": load.faults[:20],
        }
    last = {"version": server.last["version"], "runs_by_calls": server.last["merged"]}
    return {**figures, **last, "server_faults": server.last["faults"]}


class Load:
    """What the threads share."""

    def __init__(self, server, texts, requests, most_rows, too_long):
        self.server, self.texts, self.requests = server, texts, requests
        self.most_rows, self.too_long = most_rows, too_long
        self.has_swapped = False
        self.latest = None
        self.taken = self.malformed = self.refused = self.rows = 0
        self.faults, self.lock = [], threading.Lock()
        with client.GrpcClient(server.grpc, server.name) as caller:
            self.alone = {text: caller.translate([text])[0] for text in texts}

    def take(self):
        """The number of the next request; they go on until the newer version has taken over."""
        with self.lock:
            if self.taken >= self.requests:
                self.latest = self.latest or time.monotonic() + _OVERTIME
                if self.has_swapped or time.monotonic() > self.latest:
                    return None
            self.taken += 1
            return self.taken

    def work(self, number):
        over_rest = number % 4 == 3
        address = self.server.rest if over_rest else self.server.grpc
        make = client.RestClient if over_rest else client.GrpcClient
        with make(address, self.server.name, retries=RETRIES) as caller:
            while (request := self.take()) is not None:
                try:
                    self.call(caller, random.Random(request))
                except Exception as error:  # all of them are what this is about
                    self.faults.append(repr(error)[:300])

    def call(self, caller, rng):
        if rng.random() < 0.01:
            self.malformed += 1
            try:
                caller.predict(*rng.choice(WRONG))
            except client.ServingError as error:
                if error.code not in REFUSED:
                    raise
            else:
                self.faults.append("a malformed call was answered")
            return
        texts = rng.choices(self.texts, k=rng.randint(1, self.most_rows))
        expected = [self.alone[text] for text in texts]
        if rng.random() < 0.02:
            place = rng.randint(0, len(texts))
            texts.insert(place, self.too_long)
            expected.insert(place, None)
            self.refused += 1
        self.rows += len(texts)
        answers = caller.translate_n_best(texts, 1)
        found = [one.translations[0] if one.status == "ok" else None for one in answers]
        if found != expected:
            self.faults.append(f"{found} and alone {expected}"[:300])


def _put_next(models):
    newest = max(int(path.name) for path in models.iterdir() if path.name.isdigit())
    temporary = models / f".{newest + 1}.copy"
    shutil.copytree(models / str(newest), temporary)
    temporary.rename(models / str(newest + 1))
    return newest + 1


def _answers(server, version, text):
    """Whether this version of the model answers by now."""
    options = {"version": version, "retries": client.Retries(deadline=20, tries=1)}
    with client.GrpcClient(server.grpc, server.name, **options) as caller:
        try:
            caller.translate([text])
        except client.ServingError:
            return False
    return True


def _memory(pid):
    """Megabytes that the process holds, or `None` where /proc does not tell."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--texts", help="a sentence a line; default: a few words")
    parser.add_argument("--no-batching", action="store_true")
    arguments = parser.parse_args()
    texts = ["a dog runs .", "two men", "", "a", "the woman in a red shirt plays the guitar ."]
    if arguments.texts:
        texts = pathlib.Path(arguments.texts).read_text("utf-8").splitlines()
    batching = None if arguments.no_batching else BATCHING
    figures = run(arguments.models, texts, requests=arguments.requests, batching=batching)
    print(json.dumps(figures, indent=2))
    return bool(figures["faults"] or figures["server_faults"])


if __name__ == "__main__":
    raise SystemExit(main())
