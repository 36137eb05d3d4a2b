"""Training speed on Multi30k: ours against KerasHub, tf-models-official and torch.nn.Transformer.

    python benchmarks/training.py --data FOLDER --out training.json \\
        --python keras-hub=PATH --python tf-models=PATH --python torch=PATH [--quick]

FOLDER holds train.en.gz and train.de.gz. The peers' pins clash, so each PATH is the Python of an
environment of its own: `keras-hub tensorflow-cpu kagglehub kagglesdk tokenizers`;
`tf-models-official`; `torch numpy`. All run on the CPU. Takes about 20 minutes on 2 cores, on
which nothing else may run: with one of them busy torch was seen to be ten times slower.

All train the tiny model (tied embeddings, pre-norm, biases, padding masks, dropout also of the
attention weights and inside the feed-forward layer, where KerasHub has none) with Adam on smoothed
cross-entropy, in a process each. What counts is real target tokens a second: EOS, but no padding.
We take the batches of `training_batches`; peers take plain padded batches of the same token
budget and, in a second table, our batches. For each peer and kind of batch a short trial keeps the
fastest of its settings. Then all do the same number of steps in turn, round after round, in
alternating order; time spent compiling is not counted. A ratio is of two speeds of one round.
Exits with 1 when a peer could not be measured.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile

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
)
from training_peers import batches

MODEL = {
    "model_dim": 128, "num_heads": 4, "layers": 4, "intermediate_dim": 256, "dropout": 0.1,
    "label_smoothing": 0.1, "learning_rate": 1e-3, "max_length": 128, "seed": 1,
}  # fmt: skip
OURS = "keras_transformer"
SCRIPTS = {"keras-hub": "keras_hub_peer.py", "tf-models": "tf_models_peer.py",
           "torch": "torch_peer.py"}  # fmt: skip
FEEDS = ("plain", "bucketed")
# A compiler is given few shapes of its own; torch's makes one kernel for all shapes.
ROUNDED = "plain_rounded"
_PEERS = pathlib.Path(__file__).parent / "training_peers"


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        report = {
            "machine": {"cores": os.cpu_count(), "processor": processor()},
            "options": options_of(arguments),
            "feeds": make_task(folder, arguments),
            "trials": [], "not_measured": [],
        }  # fmt: skip
        entries = start_systems(folder, arguments, report, stack)
        if not entries:
            raise SystemExit("nothing could be measured")
        report["rounds"] = run_rounds(entries, arguments, report)
    report["systems"] = summary(entries, report["rounds"])
    print(tables(report))
    write_json(arguments.out, report)
    return 1 if report["not_measured"] else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON file to write")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH",
                        help=f"the Python of a peer: {', '.join(SCRIPTS)}")  # fmt: skip
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, help="a system does in a round")
    parser.add_argument("--trial-steps", type=int, help="that decide on a setting")
    parser.add_argument("--quick", action="store_true",
                        help="few steps and no trials: shows that all works")  # fmt: skip
    arguments = parser.parse_args()
    for name, quick, full in (("rounds", 2, 7), ("steps", 6, 30), ("trial_steps", 2, 10)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, quick if arguments.quick else full)
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if not arguments.out.parent.is_dir():
        parser.error(f"--out must be in a folder that exists. Received: {arguments.out}")
    arguments.python = pythons(parser, arguments.python, SCRIPTS)
    return arguments


def make_task(folder, arguments):
    """Writes what the children read; returns what the batches are like."""
    from keras_transformer.quiet import start_tensorflow

    start_tensorflow()
    import numpy as np

    from keras_transformer import data
    from keras_transformer_runner.tokenizers import SentencePieceTokenizer

    corpus = data.ParallelCorpus(*(arguments.data / f"train.{side}.gz" for side in ("en", "de")))
    tokenizer = SentencePieceTokenizer.train(
        (sentence for pair in corpus for sentence in pair), vocab_size=6000
    )
    tokenized = data.tokenize_corpus(corpus, tokenizer, max_length=MODEL["max_length"])
    columns = ("source_values", "source_lengths", "target_values", "target_lengths")
    np.savez(folder / "corpus.npz", **{name: getattr(tokenized, name) for name in columns})
    ids = ("vocab_size", "pad_id", "bos_id", "eos_id")
    budget = {"batch_tokens": arguments.batch_tokens}
    task = MODEL | budget | {name: getattr(tokenizer, name) for name in ids}
    (folder / "task.json").write_text(json.dumps(task))
    ours = data.training_batches(tokenized, tokenizer, seed=MODEL["seed"], epochs=1, **budget)
    feeds = {
        "plain": batches.plain_batches(tokenized, tokenizer, **budget),
        ROUNDED: batches.plain_batches(tokenized, tokenizer, multiple=8, **budget),
        "bucketed": ((inputs["source_ids"], labels) for inputs, labels in ours),
    }
    real = int(tokenized.target_lengths.sum()) + len(tokenized)
    about = {}
    for name, feed in feeds.items():
        about[name] = batches.write(folder / f"{name}.npz", feed)
        about[name]["real_share"] = real / about[name]["slots"]
        say(f"{name} batches: {about[name]}")
    return about


def start_systems(folder, arguments, report, stack):
    """One entry a system and kind of batch: the child that is fastest there, warmed up."""
    cores = os.cpu_count()
    best = {"compiled": True, "threads": cores}
    entries = trial(OURS, "ours.py", sys.executable, [best], folder, arguments, report, stack)
    for name, script in SCRIPTS.items():
        if name not in arguments.python:
            not_measured(report, name, f"no --python {name}=PATH was given")
            continue
        settings = [{"compiled": compiled, "threads": cores} for compiled in (False, True)]
        if cores > 1:
            settings.append({"compiled": False, "threads": 1})
        settings = settings[:1] if arguments.quick else settings
        python = arguments.python[name]
        entries |= trial(name, script, python, settings, folder, arguments, report, stack)
    return entries


def trial(name, script, python, settings, folder, arguments, report, stack):
    """Tries the settings; (name, feed) -> (child, file, setting, first loss) of the fastest."""
    fastest, first_losses, children = {}, {}, []
    for setting in settings:
        try:
            child = stack.enter_context(Child(_PEERS / script, python, folder, setting))
        except Failed as error:  # and so would every other setting
            not_measured(report, name, str(error))
            break
        children.append(child)
        for feed in FEEDS[1:] if name == OURS else FEEDS:
            rounded = feed == "plain" and setting["compiled"] and name != "torch"
            file = ROUNDED if rounded else feed
            try:
                result = try_setting(child, file, arguments.trial_steps)
            except Failed as error:
                not_measured(report, f"{name} {setting}", str(error))
                break
            about = {"system": name, "feed": feed, "setting": setting}
            report["trials"].append(about | result | {"versions": child.versions})
            say(f"{name}, {feed}, {setting}: {result['rate']:.0f} tokens/s; warm-up of "
                f"{result['shapes']} shapes {result['seconds']:.0f} s")  # fmt: skip
            first_losses.setdefault(child, result["first_loss"])
            if (name, feed) not in fastest or result["rate"] > fastest[name, feed][0]:
                first_loss = first_losses[child]
                fastest[name, feed] = result["rate"], child, file, setting, first_loss
    for child in children:
        if all(child is not kept for _, kept, *_ in fastest.values()):
            child.close()
    return {key: kept for key, (_, *kept) in fastest.items()}


def try_setting(child, file, steps):
    warm = child.ask(do="warm_up", feed=file)
    done = child.ask(do="train", feed=file, first=0, steps=steps)
    return warm | {"rate": done["tokens"] / done["seconds"]}


def run_rounds(entries, arguments, report):
    """A list a round of {system, feed, tokens, slots, seconds, loss ...}; drops who fails."""
    rounds = []
    for number in range(arguments.rounds):
        order = list(entries.items())
        results = []
        for (name, feed), (child, file, *_) in order if number % 2 == 0 else reversed(order):
            steps = arguments.steps
            try:
                done = child.ask(do="train", feed=file, first=number * steps, steps=steps)
            except Failed as error:
                not_measured(report, f"{name} on {feed} batches", str(error))
                del entries[name, feed]
                continue
            results.append({"system": name, "feed": feed, **done})
        say(f"round {number + 1}: " + ", ".join(
            f"{r['system']} {r['feed']} {r['tokens'] / r['seconds']:.0f}" for r in results
        ))  # fmt: skip
        rounds.append(results)
    return rounds


def summary(entries, rounds):
    """Median and range of each entry's speed, and of ours over it."""
    rates = {
        key: [r["tokens"] / r["seconds"] for results in rounds for r in results
              if (r["system"], r["feed"]) == key]
        for key in entries
    }  # fmt: skip
    ours = rates.get((OURS, "bucketed"), [])
    systems = []
    for (name, feed), (child, _, setting, first_loss) in entries.items():
        key = name, feed
        results = [r for round_ in rounds for r in round_ if (r["system"], r["feed"]) == key]
        ratios = [a / b for a, b in zip(ours, rates[key], strict=False)]
        systems.append({
            "system": name, "feed": feed, "setting": setting, "versions": child.versions,
            "rate": spread(rates[key]), "ours_over_it": spread(ratios),
            "real_share": sum(r["tokens"] for r in results) / sum(r["slots"] for r in results),
            "first_loss": first_loss, "last_loss": results[-1]["loss"],
            "slowest_step": max(r["slowest_step"] for r in results),
            "mean_step": sum(r["seconds"] for r in results) / sum(r["steps"] for r in results),
        })  # fmt: skip
    return systems


def tables(report):
    """Both comparisons as Markdown, with what was not measured."""
    ours = [entry for entry in report["systems"] if entry["system"] == OURS]
    lines = []
    for feed, title in (
        ("plain", "Peers take plain padded batches, we take `training_batches`"),
        ("bucketed", "All take the batches of `training_batches`"),
    ):
        peers = [e for e in report["systems"] if e["system"] != OURS and e["feed"] == feed]
        lines += ["", f"{title}:", ""]
        lines += ["| system | setting | real target tokens/s | real slots | loss | ours / it |",
                  "|---|---|---|---|---|---|"]  # fmt: skip
        for entry in ours + peers:
            setting = "compiled" if entry["setting"]["compiled"] else "not compiled"
            ratio = "" if entry in ours else shown(entry["ours_over_it"], ".2f")
            lines.append(
                f"| {entry['system']} | {setting}, {entry['setting']['threads']} threads "
                f"| {shown(entry['rate'], ',.0f')} | {entry['real_share']:.0%} "
                f"| {entry['first_loss']:.2f} to {entry['last_loss']:.2f} | {ratio} |"
            )
        if peers and ours:
            peer = max(peers, key=lambda entry: entry["rate"]["median"])
            lines += ["", f"The fastest peer is {peer['system']}: "
                      f"we are {shown(peer['ours_over_it'], '.2f')} times as fast."]  # fmt: skip
    for entry in report["systems"]:
        # Steps differ in size by a few times at most: more than that is a compilation, or a
        # machine that had other things to do.
        if entry["slowest_step"] > 5 * entry["mean_step"]:
            lines += ["", f"DOUBTFUL: {entry['system']} on {entry['feed']} batches took "
                      f"{entry['slowest_step']:.2f} s for one step, "
                      f"{entry['mean_step']:.2f} s on average"]  # fmt: skip
    if report["not_measured"]:
        lines.append("")
    lines += [f"NOT MEASURED: {what}: {why}" for what, why in report["not_measured"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
