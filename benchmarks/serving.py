"""The served path under load: our artefacts and CTranslate2 behind one and the same server.

    python benchmarks/serving.py --run RUN --sentences FILE --out serving.json
        [--beam-size 4] [--clients 1 8 32] [--rounds 3] [--seconds 2] [--quick]

RUN is a folder that `keras-transformer train` has made with a SentencePiece tokenizer, FILE has a
sentence a line (plain or .gz). Needs the extras `serving` and `ctranslate2`, and Linux; nothing
else should run on the machine.

TF Serving's binary is not used. A process for each system serves gRPC `PredictionService` on
127.0.0.1, from Python, and merges calls by TF Serving's rules (`tests/support/serving_batching.py`,
after its source), so what differs is the translator alone: the SavedModel in TensorFlow's C++
session, which TF Serving loads it into; the device folder in float32 or int8, by the runners that
`keras-transformer serve` holds; or CTranslate2 in float32 or int8 with the same weights,
SentencePiece before and after it. Both search alike: beams, no length penalty, stop at the first
finished hypotheses, the same limits. Each client asks for one sentence, waits for the answer, and
asks for the next.

First each system tries ways to use the cores: batches at once, and threads inside one; the fastest
under most clients stays. Then all systems take turns under 1, 8 and 32 clients, round after round,
in alternating order, with the kit's batching.config: requests a second, latency at p50 and p99 (of
all rounds' calls), and the mean call's time in the queue, in merging and splitting, in the model,
and elsewhere (gRPC, Python, waiting for a core). A ratio is of two speeds of one round. Last comes
a sweep of the SavedModel's `max_batch_size` and `batch_timeout_micros`. Chosen is, among the
settings within 5% of the most requests a second under most clients, the one with the lowest p99
under one client.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile

from processes.child import Child, Failed
from processes.orders import cores
from reporting import not_measured, options_of, processor, say, shown, spread, write_json
from serving_peers.load import Load, request_of

_TOP = pathlib.Path(__file__).resolve().parents[1]
_SERVER = pathlib.Path(__file__).parent / "serving_peers" / "server.py"
_KIT = _TOP / "export" / "serving" / "batching.config"
OURS = "keras_transformer"
SYSTEMS = {OURS: {"system": OURS},
           "device-float32": {"system": "device", "mode": "float32"},
           "device-int8": {"system": "device", "mode": "int8"},
           "ctranslate2": {"system": "ctranslate2", "compute_type": "float32"},
           "ctranslate2-int8": {"system": "ctranslate2", "compute_type": "int8"}}  # fmt: skip
SWEEP = tuple(itertools.product((8, 16, 32), (0, 2000, 10_000)))
PEERS = ("ctranslate2", "ctranslate2-int8")
_EXTRA_LENGTH = 50
_NEAR = 0.95  # of the most requests a second


def main():
    arguments = parse_arguments()
    report = {
        "machine": {"cores": cores(), "processor": processor()},
        "options": options_of(arguments) | {"out": arguments.out.name},
        "server": "Python's gRPC, batching after TF Serving's source; not TF Serving's binary",
        "batching": kit_batching(), "trials": [], "rounds": [], "sweep": [], "not_measured": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        requests = prepare(folder, arguments)
        servers = {}
        for name in arguments.systems:
            server = fastest(name, folder, requests, arguments, report, stack)
            if server is not None:
                servers[name] = server
        if servers:
            report["systems"] = describe(servers, requests, arguments)
            run_rounds(servers, requests, arguments, report)
            report["summary"] = summary(servers, report["rounds"], arguments)
            if OURS in servers:
                sweep(servers[OURS], requests, arguments, report)
                report["choice"] = choice(report, arguments)
        write_json(arguments.out, without_latencies(report))
    print(tables(report, arguments))
    return 1 if report["not_measured"] else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", required=True, help="a folder that `train` has made")
    parser.add_argument("--sentences", required=True, help="a file with a sentence a line")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON file to write")
    parser.add_argument("--count", type=int, default=500, help="sentences of the file")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true",
                        help="half a second each, one round, and few settings")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 0.5
        arguments.count = min(arguments.count, 64)
    for name in ("count", "beam_size", "rounds"):
        if getattr(arguments, name) < 1:
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} must be at least 1. Received: {getattr(arguments, name)}")
    if not all(1 <= clients <= 64 for clients in arguments.clients):
        parser.error(f"--clients must be from 1 to 64. Received: {arguments.clients}")
    if not arguments.out.parent.is_dir():
        parser.error(f"--out must be in a folder that exists. Received: {arguments.out}")
    return arguments


def kit_batching():
    text = _KIT.read_text("utf-8")
    return {
        name: int(re.search(rf"^{name} {{ value: (\d+) }}$", text, re.MULTILINE)[1])
        for name in ("max_batch_size", "batch_timeout_micros")
    }


def prepare(folder, arguments):
    """Writes what the servers load; returns the calls, in random order."""
    from keras_transformer.quiet import start_tensorflow

    start_tensorflow()
    import keras_transformer as kt
    from keras_transformer.interop.ctranslate2 import save_ctranslate2
    from keras_transformer_runner.lines import read_lines

    run = kt.load_run(arguments.run)
    texts = [*itertools.islice(read_lines(arguments.sentences), arguments.count)]
    options = {"extra_length": _EXTRA_LENGTH, "length_penalty": 0.0, "stopping": "first_finished"}
    if arguments.beam_size == 1:
        strategy = kt.Greedy(extra_length=_EXTRA_LENGTH)
    else:
        strategy = kt.BeamSearch(beam_size=arguments.beam_size, **options)
    kt.export_saved_model(
        run.model, run.tokenizer, folder / "savedmodel" / "1", samples=texts[:8],
        strategy=strategy, target_tokenizer=run.target_tokenizer, max_source_length=256,
    )  # fmt: skip
    for mode in {SYSTEMS[name].get("mode") for name in arguments.systems} - {None}:
        kt.export_litert(
            run.model, run.tokenizer, folder / mode, mode=mode, samples=texts[:64],
            strategy=strategy, target_tokenizer=run.target_tokenizer, max_source_length=256,
        )  # fmt: skip
    save_ctranslate2(run.model, run.tokenizer, folder / "ctranslate2")
    run.tokenizer.save(folder / "tokenizer.model")
    task = {"beam_size": arguments.beam_size, "extra_length": _EXTRA_LENGTH}
    (folder / "task.json").write_text(json.dumps(task))
    random.Random(0).shuffle(texts)
    return [request_of(text) for text in texts]


class Server:
    """A system behind its server."""

    def __init__(self, child, settings):
        self.child, self.settings = child, settings
        self.port = child.ask(do="port")["port"]

    def measure(self, requests, clients, seconds, batching):
        """Figures of one measurement; each begins with some calls that do not count."""
        self.child.ask(do="batching", **batching)
        load = Load(self.port, clients)
        try:
            load.answers(requests[: 2 * clients])
            self.child.ask(do="times")
            latencies, whole = load.measure(requests, seconds)
        finally:
            load.close()
        times = self.child.ask(do="times")
        inside = times["queue"] + times["batch"] + times["model"]
        return {
            "rate": len(latencies) / whole, "latencies": latencies, **times,
            "elsewhere": statistics.fmean(latencies) - inside,
        }  # fmt: skip


def fastest(name, folder, requests, arguments, report, stack):
    """The `Server` with the best use of the cores under most clients; `None` if none runs."""
    count = cores()
    ways = [(count, 1), (1, count), (count, count)] if count > 1 else [(1, 1)]
    servers = []
    for batches, threads in ways[:1] if arguments.quick else ways:
        settings = {"batch_threads": batches, "intra_threads": threads}
        try:
            child = stack.enter_context(Child(_SERVER, sys.executable, folder,
                                              SYSTEMS[name] | settings))  # fmt: skip
        except Failed as error:
            not_measured(report, name, str(error))
            break
        server = Server(child, settings)
        clients = max(arguments.clients)
        found = server.measure(requests, clients, arguments.seconds, report["batching"])
        say(f"{name}, {settings}: {found['rate']:.1f} requests/s with {clients} clients")
        report["trials"].append({"system": name, "settings": settings, "rate": found["rate"]})
        servers.append((found["rate"], server))
    if not servers:
        return None
    servers.sort(key=lambda each: -each[0])
    for _, server in servers[1:]:
        server.child.close()
    return servers[0][1]


def describe(servers, requests, arguments):
    """What runs, and how many of its answers are ours."""
    answers = {}
    for name, server in servers.items():
        load = Load(server.port, max(arguments.clients))
        answers[name] = load.answers(requests)
        load.close()
    ours = answers.get(OURS)
    return [
        {
            "system": name, "settings": server.settings, "versions": server.child.versions,
            "as_ours": None if ours is None else statistics.fmean(
                one == other for one, other in zip(answers[name], ours, strict=True)
            ),
        }
        for name, server in servers.items()
    ]  # fmt: skip


def run_rounds(servers, requests, arguments, report):
    for number in range(arguments.rounds):
        for clients in arguments.clients:
            names = list(servers) if number % 2 == 0 else list(reversed(servers))
            for name in names:
                found = servers[name].measure(
                    requests, clients, arguments.seconds, report["batching"]
                )
                row = {"round": number, "system": name, "clients": clients}
                report["rounds"].append(row | found)
            done = [each for each in report["rounds"] if each["round"] == number]
            say(f"round {number + 1}, {clients} clients: " + ", ".join(
                f"{each['system']} {each['rate']:.1f}" for each in done
                if each["clients"] == clients
            ))  # fmt: skip


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def summary(servers, rounds, arguments):
    """A row for each number of clients and system."""

    def of(clients, name):
        return [each for each in rounds if (each["clients"], each["system"]) == (clients, name)]

    rows = []
    for clients, name in itertools.product(arguments.clients, servers):
        own = of(clients, name)
        over = {
            peer: spread([a["rate"] / b["rate"] for a, b in zip(own, of(clients, peer))])  # noqa: B905
            for peer in PEERS if peer in servers and name not in PEERS
        }  # fmt: skip
        latencies = [value for each in own for value in each["latencies"]]
        parts = ("queue", "batch", "model", "elsewhere", "rows")
        rows.append({
            "clients": clients, "system": name, "calls": len(latencies),
            "rate": spread([each["rate"] for each in own]),
            "over": over,
            "p50": quantile(latencies, 0.5), "p99": quantile(latencies, 0.99),
            **{part: statistics.fmean(each[part] for each in own) for part in parts},
        })  # fmt: skip
    return rows


def sweep(server, requests, arguments, report):
    """Every setting of batching with the fewest and the most clients, of the SavedModel."""
    settings = SWEEP[::4] if arguments.quick else SWEEP
    for (rows, micros), clients in itertools.product(
        settings, sorted({min(arguments.clients), max(arguments.clients)})
    ):
        batching = {"max_batch_size": rows, "batch_timeout_micros": micros}
        found = server.measure(requests, clients, arguments.seconds / 2, batching)
        latencies = found.pop("latencies")
        found |= {"p50": quantile(latencies, 0.5), "p99": quantile(latencies, 0.99)}
        report["sweep"].append({"clients": clients, **batching, **found})


def choice(report, arguments):
    """The setting of the sweep that the module's docstring says."""
    by_setting = {}
    for row in report["sweep"]:
        key = row["max_batch_size"], row["batch_timeout_micros"]
        by_setting.setdefault(key, {})[row["clients"]] = row
    few, many = min(arguments.clients), max(arguments.clients)
    most = max(rows[many]["rate"] for rows in by_setting.values())
    near = {key: rows for key, rows in by_setting.items() if rows[many]["rate"] >= _NEAR * most}
    rows, micros = min(near, key=lambda key: near[key][few]["p99"])
    return {"max_batch_size": rows, "batch_timeout_micros": micros}


def without_latencies(report):
    rounds = [
        {key: value for key, value in each.items() if key != "latencies"}
        for each in report["rounds"]
    ]
    return report | {"rounds": rounds}


def tables(report, arguments):
    """What was measured, as Markdown."""
    batching = ", ".join(f"{name} {value}" for name, value in report["batching"].items())
    lines = [f"beam {arguments.beam_size}, {batching}; {report['server']}.", ""]
    for each in report.get("systems", ()):
        threads = ", ".join(f"{name} {value}" for name, value in each["settings"].items())
        same = "" if each["as_ours"] is None else f"; {each['as_ours']:.1%} of the texts are ours"
        lines.append(f"- {each['system']}: {threads}{same}")
    lines += ["", f"| clients | system | requests/s | over {' | over '.join(PEERS)} | p50 ms "
              "| p99 ms | queue ms | merge and split ms | model ms | elsewhere ms "
              "| rows a batch |", f"|{'---|' * 12}"]  # fmt: skip
    for row in report.get("summary", ()):
        ratios = [row["over"].get(peer) for peer in PEERS]
        ratios = " | ".join("" if each is None else shown(each, ".2f") for each in ratios)
        times = (
            row[name] * 1000 for name in ("p50", "p99", "queue", "batch", "model", "elsewhere")
        )
        cells = " | ".join(f"{value:.1f}" for value in times)
        rate = shown(row["rate"], ",.1f")
        lines.append(f"| {row['clients']} | {row['system']} | {rate} | {ratios} | {cells} "
                     f"| {row['rows']:.1f} |")  # fmt: skip
    lines += ["", "| max_batch_size | batch_timeout_micros | clients | requests/s | p50 ms "
              "| p99 ms | rows a batch |", f"|{'---|' * 7}"]  # fmt: skip
    lines += [
        f"| {row['max_batch_size']} | {row['batch_timeout_micros']} | {row['clients']} "
        f"| {row['rate']:,.1f} | {row['p50'] * 1000:.1f} | {row['p99'] * 1000:.1f} "
        f"| {row['rows']:.1f} |"
        for row in report["sweep"]
    ]
    if chosen := report.get("choice"):
        lines += ["", "Choose " + ", ".join(f"{name} {value}" for name, value in chosen.items())]
    lines += [f"NOT MEASURED: {what}: {why}" for what, why in report["not_measured"]]
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main())
