"""The Pareto front: BLEU against time, megabytes and memory, one sentence at a time on one thread.

    pip install ctranslate2
    python benchmarks/front.py --run teacher=RUN student=RUN --source FILE --target FILE \\
        [--modes float32 int8 int4] [--beam-sizes 1 4] --out front.json [--plot front.png]

Each run (a folder that `keras-transformer train` or `distil` has made) is exported for devices as
the command does it, in each mode, with each beam size, and where it has a shortlist, with and
without that. CTranslate2 gets the same weights in int8, the same beam size, and the shortlist as
its vocabulary map; each ends a beam search by its own default, ours later. Every system is a
process of its own, from text to text: it translates all of `--source` for BLEU (sacreBLEU against
`--target`) and its peak of memory, and then times rounds of the first `--count` sentences, one
system after the other, in alternating order. Printed are the medians over the rounds, and which
systems are on the front: no other has as much BLEU in less time. A system of ours is behind
CTranslate2 where one of that is at least as good and as fast; exits with 1 then, or where
something was not measured. Nothing else may run on the machine. Linux only.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import types

from processes.child import Child, Failed
from reporting import (
    not_measured,
    options_of,
    processor,
    pythons,
    say,
    shown,
    spread,
    write_json,
)  # fmt: skip

from keras_transformer.quiet import start_tensorflow
from keras_transformer_runner.lines import read_lines

_SCRIPT = pathlib.Path(__file__).parent / "front_peers" / "translator.py"
_OURS, _THEIRS = "LiteRT", "CTranslate2"
_LENGTH_PENALTY = 1.0
_TOLERANCE = 1.02  # of times: less is within what two rounds differ by


def main():
    arguments = parse_arguments()
    start_tensorflow()
    report = {"processor": processor(), "options": options_of(arguments), "not_measured": []}
    texts, references = (list(read_lines(path)) for path in (arguments.source, arguments.target))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        (folder / "task.json").write_text(json.dumps({"texts": texts}))
        systems = {}
        for name, settings in settings_of(arguments, folder, report):
            try:
                child = stack.enter_context(Child(_SCRIPT, sys.executable, folder, settings))
                systems[name] = measured(child, settings, references)
                say(f"{name}: BLEU {systems[name]['BLEU']:.2f}")
            except Failed as error:
                not_measured(report, name, str(error))
        take_turns(systems, arguments)
    for system in systems.values():
        del system["child"]
    report["systems"] = systems
    report["front"], report["behind"] = front(systems), behind(systems)
    show(report)
    if arguments.out:
        write_json(arguments.out, report)
    if arguments.plot:
        draw(report, arguments.plot)
    return int(bool(report["not_measured"] or report["behind"]))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", nargs="+", required=True, metavar="NAME=RUN", dest="runs")
    parser.add_argument("--source", required=True, help="sentences, plain or .gz")
    parser.add_argument("--target", required=True, help="their translations")
    parser.add_argument("--modes", nargs="+", default=["float32", "int8", "int4"])
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--count", type=int, default=200, help="sentences that are timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="JSON file for the figures")
    parser.add_argument("--plot", help="picture of BLEU against time")
    arguments = parser.parse_args()
    names = [pair.partition("=")[0] for pair in arguments.runs]
    arguments.runs = pythons(parser, arguments.runs, names)
    return arguments


# --- What is measured ----------------------------------------------------------------------------


def settings_of(arguments, folder, report):
    """The name and the settings of each system, its files written."""
    for name, run in arguments.runs.items():
        has_shortlist = (pathlib.Path(run) / "shortlist.npz").exists()
        weights = save_for_ctranslate2(run, folder / f"{name}.ctranslate2", has_shortlist)
        for beam_size in arguments.beam_sizes:
            for shortlist in (False, True)[: 1 + has_shortlist]:
                title = f"{name}, beam {beam_size}" + (", shortlist" if shortlist else "")
                devices = {}
                for mode in arguments.modes:
                    device = folder / f"{title}, {mode}"
                    try:
                        export(run, device, mode, beam_size, shortlist)
                    except subprocess.CalledProcessError as error:
                        last = error.stderr.strip().splitlines()[-1:]
                        not_measured(report, f"{_OURS} {mode}, {title}", "".join(last))
                        continue
                    devices[mode] = str(device)
                    files = [device / "model.tflite"]
                    settings = {"system": "litert", "device": str(device)}
                    yield f"{_OURS} {mode}, {title}", settings | {"files": [*map(str, files)]}
                if devices:
                    settings = dict(
                        system="ctranslate2", device=next(iter(devices.values())),
                        weights=str(weights), files=[str(weights / "model.bin")],
                        beam_size=beam_size, shortlist=shortlist,
                        length_penalty=_LENGTH_PENALTY if beam_size > 1 else 0,
                        extra_length=extra_length(next(iter(devices.values()))),
                    )  # fmt: skip
                    yield f"{_THEIRS} int8, {title}", settings


def export(run, device, mode, beam_size, shortlist):
    command = [sys.executable, "-m", "keras_transformer_command", "export", run, device]
    command += ["--to", "litert", "--mode", mode, "--beam-size", str(beam_size)]
    command += ["--length-penalty", str(_LENGTH_PENALTY)] if beam_size > 1 else []
    command += ["--shortlist"] if shortlist else []
    subprocess.run(command, check=True, capture_output=True, text=True)


def extra_length(device):
    search = json.loads((pathlib.Path(device) / "metadata.json").read_text())["search"]
    return search["extra_length"]


def save_for_ctranslate2(run, folder, has_shortlist):
    """The run's weights, with tokens that are ids, written out."""
    import keras_transformer as kt
    from keras_transformer.decoding.shortlist import Shortlist
    from keras_transformer.interop.ctranslate2 import save_ctranslate2

    model = kt.load_run(run).model
    pieces = [str(index) for index in range(model.config.vocab_size)]
    save_ctranslate2(model, types.SimpleNamespace(pieces=pieces), folder, quantization="int8")
    if has_shortlist:
        shortlist = Shortlist.load(pathlib.Path(run) / "shortlist.npz")
        (folder / "vmap.txt").write_text(vocabulary_map(shortlist, model.config.eos_id))
    return folder


def vocabulary_map(shortlist, eos_id):
    """A line a source token, and the first for all of them: what it may become, behind a tab."""
    lists = {"": [*shortlist.frequent.tolist(), eos_id]}
    for token in range(shortlist.source_size):
        own = shortlist.ids[shortlist.starts[token] : shortlist.starts[token + 1]].tolist()
        lists[str(token)] = [*own, token] if shortlist.joint else own
    return "".join(f"{key}\t{' '.join(map(str, ids))}\n" for key, ids in lists.items() if ids)


def measured(child, settings, references):
    from keras_transformer.evaluation import TextScorer

    answer = child.ask(do="translate")
    bleu = TextScorer()(answer["texts"], references)["bleu"].value
    size = sum(pathlib.Path(path).stat().st_size for path in settings["files"])
    return {"BLEU": bleu, "MB": size / 1e6, "MiB": answer["MiB"], "child": child, "rounds": []}


def take_turns(systems, arguments):
    for number in range(arguments.rounds):
        order = list(systems.values())
        for system in order if number % 2 else order[::-1]:
            seconds = system["child"].ask(do="round", count=arguments.count)["seconds"]
            system["rounds"].append(1e3 * seconds / arguments.count)
    for system in systems.values():
        system["ms a sentence"] = spread(system.pop("rounds"))


# --- What is said of it --------------------------------------------------------------------------


def milliseconds(system):
    return system["ms a sentence"]["median"]


def front(systems):
    """The names of systems that no other beats in both BLEU and time, fastest first."""
    found, best = [], float("-inf")
    for name, system in sorted(systems.items(), key=lambda item: milliseconds(item[1])):
        if system["BLEU"] > best:
            found.append(name)
            best = system["BLEU"]
    return found


def behind(systems):
    """Systems of CTranslate2 that none of ours is as good and as fast as."""
    ours = [system for name, system in systems.items() if name.startswith(_OURS)]
    return [
        name
        for name, system in systems.items()
        if name.startswith(_THEIRS)
        and not any(
            one["BLEU"] >= system["BLEU"] and milliseconds(one) <= _TOLERANCE * milliseconds(system)
            for one in ours
        )
    ]


def show(report):
    titles = ["system", "BLEU", "ms a sentence", "MB", "peak MiB", "on the front"]
    print("| " + " | ".join(titles) + " |", "|---" * len(titles) + "|", sep="\n")
    for name, system in sorted(report["systems"].items(), key=lambda item: milliseconds(item[1])):
        cells = [
            name, f"{system['BLEU']:.2f}", shown(system["ms a sentence"], ".2f"),
            f"{system['MB']:.2f}", f"{system['MiB']:.0f}", "yes" if name in report["front"] else "",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")
    for name in report["behind"]:
        print(f"None of ours is as good and as fast as {name}.")


def draw(report, path):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for kind, marker in ((_OURS, "o"), (_THEIRS, "x")):
        chosen = {n: one for n, one in report["systems"].items() if n.startswith(kind)}
        points = [(milliseconds(one), one["BLEU"]) for one in chosen.values()]
        axes.scatter(*zip(*points, strict=True), marker=marker, label=kind)
        for name, point in zip(chosen, points, strict=True):
            axes.annotate(name.partition(" ")[2], point, fontsize=6, textcoords="offset points",
                          xytext=(4, 2))  # fmt: skip
    points = [
        (milliseconds(report["systems"][name]), report["systems"][name]["BLEU"])
        for name in report["front"]
    ]
    axes.plot(*zip(*points, strict=True), drawstyle="steps-post", linewidth=0.8, color="gray")
    axes.set(xscale="log", xlabel="milliseconds a sentence, one thread", ylabel="BLEU")
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
