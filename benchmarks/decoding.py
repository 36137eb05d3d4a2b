"""Batch decoding: ours against CTranslate2, KerasHub and tf-models-official, with equal weights.

    python benchmarks/decoding.py --out decoding.json \\
        --python keras-hub=PATH --python tf-models=PATH \\
        [--run RUN --sentences FILE] [--sizes tiny base] [--memory] [--quick]

Needs ctranslate2 beside this package. The peers' pins clash, so each PATH is the Python of an
environment of its own: `keras-hub tensorflow-cpu kagglehub kagglesdk tokenizers` and
`tf-models-official`. All run on the CPU; nothing else may run on it.

All get the same weights and the same batches of 32 rows of ids, and search greedily and with beam
4. Two kinds of work: random weights of each of the `--sizes` and 4 batches of 32 source ids into
exactly 64 target ids; and, with `--run` and `--sentences`, a trained run folder and the first
`--count` sentences of a file (plain or .gz), sorted by length, with their real ends. A system gets
all batches of a work at once and may overlap them, but decodes each as one. It uses all cores as
it does best: by the threads of an op, by workers that take whole batches (CTranslate2's own, or
our threads), or, but for CTranslate2, by a process a core: each is pinned to its core, takes every
so-manyth batch, all start together, and the time is that of the slowest. What counts is ids a
second of the best hypothesis, EOS included, over all batches. A short trial keeps the fastest of a
system's settings for each search; then all decode in turn, round after round, in alternating
order. A ratio is of two speeds of one round. A table also says which share of rows equals ours:
searches differ where KerasHub has no finished hypotheses and tf-models stops early. Without a
length penalty, as by default, ours and CTranslate2's are comparable. Needs Linux. Exits with 1
when something was not measured.

`--memory` adds the peak memory of our graph, above the idle process: beam 4 over greedy with four
times the rows.
"""

import argparse
import contextlib
import itertools
import pathlib
import statistics
import sys
import tempfile

from decoding_peers import tasks
from processes.child import Child, Failed
from processes.orders import cores
from processes.team import Team, in_order
from reporting import (
    not_measured,
    options_of,
    processor,
    pythons,
    say,
    shown,
    spread,
    write_json,
)

OURS, CTRANSLATE2 = "keras_transformer", "ctranslate2"
SCRIPTS = {OURS: "ours.py", CTRANSLATE2: "ctranslate2_peer.py",
           "ctranslate2-int8": "ctranslate2_peer.py", "keras-hub": "keras_hub_peer.py",
           "tf-models": "tf_models_peer.py"}  # fmt: skip
OWN_PYTHON = ("keras-hub", "tf-models")
SEARCHES = {"greedy": 1, "beam 4": 4}
_PEERS = pathlib.Path(__file__).parent / "decoding_peers"
_MEMORY_REPEATS = 3


def main():
    arguments = parse_arguments()
    from keras_transformer.quiet import start_tensorflow

    start_tensorflow()
    import keras_transformer as kt

    report = {
        "machine": {"cores": cores(), "processor": processor()},
        "options": options_of(arguments) | {"out": arguments.out.name},
        "workloads": [], "not_measured": [],
    }  # fmt: skip
    for name in [*(["trained"] if arguments.run else []), *arguments.sizes]:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            folder = pathlib.Path(folder)
            if name == "trained":
                about = tasks.trained_task(kt, folder, arguments)
            else:
                about = tasks.random_task(kt, folder, name, arguments)
            result = {"name": name, "about": about, "trials": []}
            report["workloads"].append(result)
            entries = start_systems(folder, arguments, report, result, stack)
            result["rounds"] = run_rounds(entries, arguments, report)
            result["systems"] = summary(entries, result["rounds"])
            stack.close()  # so that memory is measured alone
            if arguments.memory:
                result["memory"] = memory(folder, arguments, report, name)
        write_json(arguments.out, report)
    print(tables(report))
    return 1 if report["not_measured"] else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON file to write")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH",
                        help=f"the Python of a peer: {', '.join(OWN_PYTHON)}")  # fmt: skip
    parser.add_argument("--run", help="a folder that `keras-transformer train` has made")
    parser.add_argument("--sentences", help="a file with a source sentence a line")
    parser.add_argument("--count", type=int, help="sentences of the file")
    parser.add_argument("--sizes", nargs="*", choices=list(tasks.SIZES))
    parser.add_argument("--systems", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--extra-length", type=int, default=50)
    parser.add_argument("--length-penalty", type=float, default=0.0)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--quick", action="store_true",
                        help="one setting each, two of ours, and few rounds")  # fmt: skip
    arguments = parser.parse_args()
    quick = arguments.quick
    for name, few, many in (("rounds", 2, 7), ("count", 64, 320)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, few if quick else many)
    if arguments.sizes is None:
        arguments.sizes = ["tiny"] if quick else list(tasks.SIZES)
    for name in ("rounds", "count", "batch"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1. Received: {getattr(arguments, name)}")
    if bool(arguments.run) != bool(arguments.sentences):
        parser.error("--run and --sentences go together")
    if not arguments.out.parent.is_dir():
        parser.error(f"--out must be in a folder that exists. Received: {arguments.out}")
    arguments.python = pythons(parser, arguments.python, OWN_PYTHON)
    return arguments


def settings_of(name, quick):
    """The settings that a system is tried with, the likeliest first."""
    count = cores()
    if name.startswith(CTRANSLATE2):
        kind = "int8" if name.endswith("int8") else "float32"
        threads = [(1, 1)] if count == 1 else [(count, 1), (1, count), (1, 1)]
        settings = [
            {"compute_type": kind, "inter_threads": inter, "intra_threads": intra}
            for inter, intra in threads
        ]
    else:
        compiler = "jit_compile" if name == OURS else "compiled"
        settings = [
            {"processes": processes, compiler: compiled}
            for processes in sorted({count, 1}, reverse=True)
            # XLA makes KerasHub's beam search some six times as fast, and our greedy search faster.
            for compiled in ((False, True) if name == "tf-models" else (True, False))
        ]
    if name == OURS:
        settings = [
            setting | {"workers": workers}
            for workers in sorted({1, count})
            for setting in settings
            if workers == 1 or setting["processes"] == 1
        ]
    if quick:  # ours with XLA and without: greedy and beam search differ in what they gain by it
        return settings[: 2 if name == OURS else 1]
    return settings


def start_systems(folder, arguments, report, result, stack):
    """(system, search) -> (child, setting, rows) of the fastest setting, warmed up."""
    entries = {}
    for name in arguments.systems:
        if name in OWN_PYTHON and name not in arguments.python:
            not_measured(report, f"{name} on {result['name']}", f"no --python {name}=PATH")
            continue
        entries |= trial(name, folder, arguments, report, result, stack)
    return entries


def trial(name, folder, arguments, report, result, stack):
    """Tries the settings of one system; what `start_systems` returns, for it."""
    fastest, children = {}, []
    python = arguments.python.get(name, sys.executable)
    for setting in settings_of(name, arguments.quick):
        try:
            child = stack.enter_context(Team(_PEERS / SCRIPTS[name], python, folder, setting))
        except Failed as error:  # and so would every other setting
            not_measured(report, f"{name} on {result['name']}", str(error))
            break
        children.append(child)
        for search, beams in SEARCHES.items():
            try:
                warm = child.ask(do="warm_up", beams=beams)
                rows = in_order([share["rows"] for share in warm])
                done = together(child.ask(do="decode", beams=beams))
            except Failed as error:
                where = f"{name} {setting} on {result['name']}, {search}"
                not_measured(report, where, str(error))
                break
            rate = done["ids"] / done["seconds"]
            result["trials"].append(
                {"system": name, "search": search, "setting": setting, "rate": rate}
            )
            say(f"{result['name']}, {name}, {search}, {setting}: {rate:.0f} ids/s")
            if (name, search) not in fastest or rate > fastest[name, search][0]:
                fastest[name, search] = rate, child, setting, list(itertools.chain(*rows))
    for child in children:
        if all(child is not kept for _, kept, *_ in fastest.values()):
            child.close()
    return {key: kept for key, (_, *kept) in fastest.items()}


def together(answers):
    """What processes that began at the same time did: all their ids, in the time of the slowest."""
    return {
        "ids": sum(answer["ids"] for answer in answers),
        "seconds": max(answer["seconds"] for answer in answers),
    }


def run_rounds(entries, arguments, report):
    """A list a round of {system, search, ids, seconds}; drops who fails."""
    rounds = []
    for number in range(arguments.rounds):
        results = []
        for search, beams in SEARCHES.items():
            keys = [key for key in entries if key[1] == search]
            for key in keys if number % 2 == 0 else reversed(keys):
                try:
                    done = together(entries[key][0].ask(do="decode", beams=beams))
                except Failed as error:
                    not_measured(report, " ".join(key), str(error))
                    del entries[key]
                    continue
                results.append({"system": key[0], "search": search, **done})
        say(f"round {number + 1}: " + ", ".join(
            f"{r['system']} {r['search']} {r['ids'] / r['seconds']:.0f}" for r in results
        ))  # fmt: skip
        rounds.append(results)
    return rounds


def summary(entries, rounds):
    """Median and range of each entry's speed, and of ours over it, of the rounds of both."""
    rates = [
        {(r["system"], r["search"]): r["ids"] / r["seconds"] for r in results} for results in rounds
    ]
    systems = []
    for key, (child, setting, rows) in entries.items():
        ours = OURS, key[1]
        ratios = [each[ours] / each[key] for each in rates if ours in each]
        our_rows = entries[ours][2] if ours in entries else []
        equal = [a == b for a, b in zip(our_rows, rows, strict=bool(our_rows))]
        systems.append({
            "system": key[0], "search": key[1], "setting": setting, "versions": child.versions,
            "rate": spread([each[key] for each in rates]), "ours_over_it": spread(ratios),
            "ids_a_row": statistics.fmean(map(len, rows)),
            "different_ids_a_row": statistics.fmean(len(set(row)) for row in rows),
            "equal_rows": statistics.fmean(equal) if equal else None,
        })  # fmt: skip
    return systems


def memory(folder, arguments, report, name):
    """Peak of our plain graph above idle, MiB: greedy at 4 B rows, beam 4 at B, and the ratio."""
    found = {}
    for search, beams in SEARCHES.items():
        rows = arguments.batch * max(SEARCHES.values()) // beams
        peaks = []
        for _ in range(1 if arguments.quick else _MEMORY_REPEATS):
            setting = {"jit_compile": False, "workers": 1}
            try:
                with Child(_PEERS / SCRIPTS[OURS], sys.executable, folder, setting) as child:
                    peaks.append(child.ask(do="memory", beams=beams, rows=rows)["mebibytes"])
            except Failed as error:
                not_measured(report, f"memory of {search} on {name}", str(error))
        found[search] = {"rows": rows, "mebibytes": spread(peaks)}
    values = [found[search]["mebibytes"] for search in ("beam 4", "greedy")]
    found["ratio"] = values[0]["median"] / values[1]["median"] if all(values) else None
    return found


def tables(report):
    """Every workload as Markdown, with what was not measured."""
    lines = []
    for result in report["workloads"]:
        about = result["about"]
        length = about["exact_length"]
        kind = f"random weights, exactly {length} ids" if length else "trained, real ends"
        lines += ["", f"{result['name']} ({about['weights']:,} weights, {kind}, "
                  f"{about['sentences']} rows):", "",
                  "| search | system | setting | ids/s | ours / it | rows as ours | ids a row |",
                  "|---|---|---|---|---|---|---|"]  # fmt: skip
        for entry in sorted(result["systems"], key=lambda e: list(SEARCHES).index(e["search"])):
            setting = ", ".join(f"{name} {value}" for name, value in entry["setting"].items())
            ratio, equal = shown(entry["ours_over_it"], ".2f"), entry["equal_rows"]
            lines.append(
                f"| {entry['search']} | {entry['system']} | {setting} "
                f"| {shown(entry['rate'], ',.0f')} | {'' if entry['system'] == OURS else ratio} "
                f"| {'?' if equal is None else f'{equal:.0%}'} "
                f"| {entry['ids_a_row']:.1f}, {entry['different_ids_a_row']:.1f} different |"
            )
        if "memory" in result:
            lines += ["", *memory_lines(result["memory"])]
    if report["not_measured"]:
        lines.append("")
    lines += [f"NOT MEASURED: {what}: {why}" for what, why in report["not_measured"]]
    return "\n".join(lines)


def memory_lines(found):
    lines = [
        f"Memory above the idle process, {search} of {found[search]['rows']} rows: "
        f"{shown(found[search]['mebibytes'], ',.0f')} MiB."
        for search in SEARCHES
    ]
    if found["ratio"] is not None:
        lines.append(f"Beam 4 over greedy at four times the rows: {found['ratio']:.2f}.")
    return lines


if __name__ == "__main__":
    sys.exit(main())
