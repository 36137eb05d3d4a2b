"""Training and decoding on one NVIDIA GPU, against KerasHub and PyTorch: at most ten minutes.

    python3.11 -m venv jax   && jax/bin/pip install . keras-hub 'jax[cuda12]==0.10.2'
    python3.11 -m venv tf    && tf/bin/pip install . keras-hub 'tensorflow[and-cuda]==2.20.*'
    python3.11 -m venv torch && torch/bin/pip install torch numpy
    jax/bin/python benchmarks/gpu.py --out gpu.json --python jax=jax/bin/python \\
        --python tensorflow=tf/bin/python --python torch=torch/bin/python

The three pin different versions of cuDNN, so each is best in an environment of its own; one that
is not named is this script's own. Nothing is installed here. The script itself does not touch the
GPU. Each row is a process with a time limit, so that one that fails or hangs loses one row; each
is written to the file at once, and what is in the file is not run again: run it again for the rows
that are left when `--minutes` are over. `--quick --cpu` shows on any machine that all works.

Training is a step on 392 rows of 64 random ids a side (`base`, 32,000 ids, dropout 0.1), under
mixed_bfloat16, Adam, smoothed cross-entropy; it ends when its loss is on the host. All drop
weights of attention, as KerasHub and `nn.Transformer` do with one rate for all, but for the rows
"no attention dropout", which fused attention needs. The share of the peak is the arithmetic of the
model's products over time and the card's dense bfloat16 rate. Decoding is 32 ids a row to exactly
64, of `base` with 16,000 ids, in float32. Exits with 1 if a row was not measured.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types

import numpy as np
from accelerator_programs.programs import training_flops
from processes.child import Child, Failed
from reporting import options_of, pythons, say, shown, spread, write_json
from training_peers import batches

_HERE = pathlib.Path(__file__).parent
MODELS = {  # of training; `quick` fits into any machine
    "base": {"model_dim": 512, "num_heads": 8, "layers": 6, "intermediate_dim": 2048,
             "vocab_size": 32_000, "max_length": 64, "rows": 392},
    "quick": {"model_dim": 32, "num_heads": 2, "layers": 1, "intermediate_dim": 64,
              "vocab_size": 100, "max_length": 8, "rows": 4},
}  # fmt: skip
_TASK = {"dropout": 0.1, "label_smoothing": 0.1, "learning_rate": 1e-4, "seed": 1,
         "pad_id": 0, "bos_id": 1, "eos_id": 2}  # fmt: skip
# Dense bfloat16 TFLOP/s by a part of the card's name, the first that fits: NVIDIA's data sheets.
PEAKS = {"B200": 2250, "H200": 989, "H100 PCIe": 756, "H100": 989, "A100": 312, "L40S": 362,
         "L4": 121, "A10G": 70, "A10": 125, "RTX 4090": 165, "RTX 3090": 71}  # fmt: skip
OURS, HUB, TORCH = "keras_transformer", "KerasHub", "torch.nn.Transformer"
_PLAIN = {"attention_dropout": 0.0}
# Row -> the Python, the script, its settings. What matters most is first.
TRAINING = {
    f"{OURS}, JAX": ("jax", "ours.py", {}),
    f"{OURS}, TensorFlow": ("tensorflow", "ours.py", {}),
    f"{TORCH}, compiled": ("torch", "torch_peer.py", {}),
    f"{HUB}, JAX": ("jax", "keras_hub_peer.py", {}),
    f"{OURS}, JAX, no attention dropout": ("jax", "ours.py", _PLAIN),
    f"{OURS}, JAX, no attention dropout, fused": ("jax", "ours.py", _PLAIN | {"fused": True}),
    TORCH: ("torch", "torch_peer.py", {"compiled": False}),
    f"{HUB}, TensorFlow": ("tensorflow", "keras_hub_peer.py", {}),
}
DECODING = {
    f"{OURS}, JAX": ("jax", "ours.py", {}),
    f"{OURS}, TensorFlow": ("tensorflow", "ours.py", {}),
    f"{HUB}, TensorFlow": ("tensorflow", "keras_hub_peer.py", {}),
}
BEAMS = (1, 4)


def main():
    arguments = parse_arguments()
    end = time.monotonic() + 60 * arguments.minutes
    report = {"options": options_of(arguments), "card": card(arguments), "rows": {}}
    if arguments.out.exists():
        report["rows"] = json.loads(arguments.out.read_text())["rows"]
    with tempfile.TemporaryDirectory() as folder:
        folders = make_tasks(pathlib.Path(folder), arguments)
        for title, measure, system in rows(arguments):
            limit = min(arguments.row_seconds, end - time.monotonic())
            if "failed" in report["rows"].get(title, {"failed": True}) and limit > 0:
                report["rows"][title] = row(title, measure, system, folders, arguments, limit)
                write_json(arguments.out, report)
    print(table(report, arguments))
    wanted = [report["rows"].get(title, {"failed": ""}) for title, *_ in rows(arguments)]
    return int(any("failed" in found for found in wanted))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON file for the figures")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH",
                        help="the Python of jax, tensorflow or torch")  # fmt: skip
    parser.add_argument("--peak-tflops", type=float, help="dense bfloat16, of a card not known")
    parser.add_argument("--minutes", type=float, default=10, help="in which rows are begun")
    parser.add_argument("--row-seconds", type=float, default=150, help="that a row may take")
    parser.add_argument("--steps", type=int, default=30, help="of a round of training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], help="words, all of which are in a row")
    parser.add_argument("--quick", action="store_true", help="tiny models and few steps")
    parser.add_argument("--cpu", action="store_true", help="on the CPU: shows that all works")
    arguments = parser.parse_args()
    if not arguments.out.absolute().parent.is_dir():
        parser.error(f"--out must be in a folder that exists. Received: {arguments.out}")
    arguments.python = pythons(parser, arguments.python, ("jax", "tensorflow", "torch"))
    if arguments.quick:
        arguments.steps, arguments.rounds = 2, 2
    return arguments


def card(arguments):
    """Name, driver and memory of the first GPU, as NVIDIA's tool says it, and its peak."""
    if arguments.cpu:
        return {"name": "none: on the CPU", "peak_flops": None}
    query = "--query-gpu=name,driver_version,memory.total"
    try:
        found = subprocess.check_output(["nvidia-smi", query, "--format=csv,noheader"], text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"no GPU was found ({error}); --cpu runs without one") from error
    name, driver, memory = found.splitlines()[0].split(", ")
    known = [value for part, value in PEAKS.items() if part in name]
    peak = arguments.peak_tflops or (known[0] if known else None)
    return {"name": name, "driver": driver, "memory": memory, "peak_flops": peak and peak * 1e12}


def make_tasks(folder, arguments):
    """Writes what the children read: a folder for training and one for decoding."""
    folders = {name: folder / name for name in ("training", "decoding")}
    for each in folders.values():
        each.mkdir()
    task = _TASK | MODELS["quick" if arguments.quick else "base"]
    (folders["training"] / "task.json").write_text(json.dumps(task | {"batch_tokens": 0}))
    rng, shape = np.random.default_rng(0), (4, 2, task["rows"], task["max_length"])
    pairs = rng.integers(3, task["vocab_size"], shape, "int32")
    batches.write(folders["training"] / "full.npz", list(pairs))
    with without_gpu():
        from decoding_peers import tasks

        import keras_transformer as kt

        options = types.SimpleNamespace(
            batch=2 if arguments.quick else 32, extra_length=50, length_penalty=1.0
        )
        size = "tiny" if arguments.quick else "base"
        tasks.random_task(kt, folders["decoding"], size, options)
    return folders | {"task": types.SimpleNamespace(**task)}


@contextlib.contextmanager
def without_gpu():
    """What is imported inside sees no GPU, in this process for good."""
    before = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")}
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", JAX_PLATFORMS="cpu")
    yield
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


def rows(arguments):
    """(title, function, (Python, script, settings)) of each row."""
    training = ((f"train: {name}", train, system) for name, system in TRAINING.items())
    decoding = ((f"decode: {name}", decode, system) for name, system in DECODING.items())
    for title, measure, system in (*training, *decoding):
        runs_here = not (arguments.cpu and system[-1].get("fused"))
        if runs_here and all(word in title for word in arguments.only):
            yield title, measure, system


def row(title, measure, system, folders, arguments, limit):
    """What is measured of one system, a dict; or why it was not, under `failed`."""
    (environment, script, settings), start = system, time.monotonic()
    settings = {
        "backend": environment if environment != "torch" else "tensorflow",
        "gpu": not arguments.cpu, "policy": "mixed_bfloat16", "threads": os.cpu_count(),
        "compiled": True, "jit_compile": True, "workers": 1,
    } | settings  # fmt: skip
    python = arguments.python.get(environment, sys.executable)
    try:
        found = measure(script, python, settings, folders, arguments, limit)
    except Failed as error:
        found = {"failed": str(error)[-600:]}
    found["seconds"] = round(time.monotonic() - start, 1)
    say(f"{title}: {found}")
    return found


def train(script, python, settings, folders, arguments, limit):
    path = _HERE / "training_peers" / script
    with Child(path, python, folders["training"], settings, limit) as child:
        warm = child.ask(do="warm_up", feed="full")
        order = {"do": "train", "feed": "full", "steps": arguments.steps}
        done = [child.ask(**order) for _ in range(arguments.rounds)]
        return {
            "tokens_a_second": spread([each["tokens"] / each["seconds"] for each in done]),
            "step_seconds": spread([each["seconds"] / each["steps"] for each in done]),
            "flops": flops_of_step(folders["task"]),
            "first_loss": warm["first_loss"], "last_loss": done[-1]["loss"],
            "warm_up_seconds": warm["seconds"], "peak_bytes": child.ask(do="memory")["peak"],
            "versions": child.versions,
        }  # fmt: skip


def flops_of_step(task):
    """The arithmetic of a step's products; the peers' models have the same."""
    sides = {"encoder_layers": task.layers, "decoder_layers": task.layers}
    config = types.SimpleNamespace(**vars(task), **sides, target_size=task.vocab_size)
    return training_flops(config, task.rows, task.max_length)


def decode(script, python, settings, folders, arguments, limit):
    path, found = _HERE / "decoding_peers" / script, {}
    with Child(path, python, folders["decoding"], settings, limit) as child:
        for beams in BEAMS:
            child.ask(do="warm_up", beams=beams)
            done = [child.ask(do="decode", beams=beams) for _ in range(arguments.rounds)]
            rates = [each["ids"] / each["seconds"] for each in done]
            found[f"ids_a_second_{beams}"] = spread(rates)
        return found | {"versions": child.versions}


def table(report, arguments):
    """The report as Markdown, with what was not measured."""
    peak = report["card"]["peak_flops"]
    lines = [
        f"Card: {report['card']['name']}, peak "
        f"{f'{peak / 1e12:.0f} TFLOP/s, dense bfloat16' if peak else 'not known'}", "",
        "| training | target tokens/s | share of the peak | peak memory | loss |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    by_kind = {"train": [], "decode": []}
    for title, found in report["rows"].items():
        kind, _, name = title.partition(": ")
        by_kind[kind].append((name, found))
    for name, found in by_kind["train"]:
        if "failed" not in found:
            share = found["flops"] / found["step_seconds"]["median"] / peak if peak else None
            memory = found["peak_bytes"]
            lines.append(
                f"| {name} | {shown(found['tokens_a_second'], ',.0f')} "
                f"| {'' if share is None else f'{share:.0%}'} "
                f"| {'' if memory is None else f'{memory / 1e9:.2f} GB'} "
                f"| {found['first_loss']:.2f} to {found['last_loss']:.2f} |"
            )
    lines += ["", "| decoding | greedy, ids/s | 4 beams, ids/s |", "|---|---|---|"]
    for name, found in by_kind["decode"]:
        if "failed" not in found:
            cells = [shown(found[f"ids_a_second_{beams}"], ",.0f") for beams in BEAMS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    for title, _, _ in rows(arguments):
        why = report["rows"].get(title, {"failed": "no time was left"}).get("failed")
        lines += [] if why is None else [f"NOT MEASURED: {title}: {why}"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
