"""Compiles training steps and searches for TPUs and GPUs without one, and reads what they cost.

    pip install 'jax[tpu]'             # for v5e, v5p, v6e: the JAX of the extra `jax`, and libtpu
    pip install 'jax[cuda12]'          # for a100, h100: the same JAX, and NVIDIA's libraries, 6 GB
    python benchmarks/accelerators.py --out accelerators.json [--only 'train base' v5e ...]

XLA compiles for a chip that is not there, 1, 4 and 8 of them. For each program this says the
operations, against the arithmetic of the model; the peak of memory, against the chip's; the bytes
through HBM; and so the least time of a step by the roofline. Nothing is measured: a chip can be
slower than its roofline, and on a GPU XLA tries kernels before it chooses, which it cannot here.
A program fails if it holds float64, calls of the host or dynamic shapes, or needs more memory than
the chip has; a training step also if a product is not bfloat16, its state is not given away, or it
needs more than 1.1 times the arithmetic.

A program takes 5 to 90 s on 2 idle cores, all of them an hour; each is added to the file at once,
and what is in the file is not compiled again. Exits with 1 if one fails.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys

from accelerator_programs.chips import CHIPS
from accelerator_programs.programs import GPU_TRAINING, SEARCHES, SPLIT_TRAINING, TRAINING
from reporting import options_of, say, write_json

_HERE = pathlib.Path(__file__).parent
_CHIPS = (1, 4, 8)
_MOST_FLOPS = 1.1  # of the arithmetic


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON file for the figures")
    parser.add_argument("--only", nargs="+", default=[], help="words, all of which are in the name")
    arguments = parser.parse_args()
    report = {"options": options_of(arguments), "programs": {}}
    if arguments.out.exists():
        report["programs"] = json.loads(arguments.out.read_text())["programs"]
    for name, chip, chips in _wanted(arguments.only):
        title = _title(name, chip, chips)
        if title not in report["programs"]:
            report["programs"][title] = found = _compiled(name, chip, chips)
            say(f"{title}: {found['seconds']} s")
            report["versions"] = found.pop("versions")
            write_json(arguments.out, report)
    print(table(report["programs"]))
    faults = {title: faults_of(one) for title, one in report["programs"].items()}
    for title, found in faults.items():
        for fault in found:
            say(f"{title}: {fault}")
    return int(any(faults.values()))


def _wanted(words):
    training = itertools.product(TRAINING, CHIPS, _CHIPS)
    gpus = [name for name, chip in CHIPS.items() if chip.platform == "cuda"]
    on_one = [*itertools.product(SEARCHES, CHIPS, (1,))]
    on_one += itertools.product(GPU_TRAINING, gpus, (1,))
    split = itertools.product(SPLIT_TRAINING, CHIPS, _CHIPS[1:])
    for program in (*training, *split, *on_one):
        title = _title(*program)
        if all(word in title for word in words):
            yield program


def _title(name, chip, chips):
    return f"{name}, {chip} x {chips}"


def _compiled(name, chip, chips):
    paths = [str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "accelerator_programs.programs", name, chip, str(chips)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    child = subprocess.run(command, env=environment, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(
            f"{name} for {chips} {chip} could not be compiled: {child.stderr[-2000:]}"
        )
    return json.loads(child.stdout.splitlines()[-1])


def faults_of(program):
    """What is wrong with a compiled program, as lines; none if nothing is."""
    faults = [f"it holds {what}: {count}" for what, count in program["forbidden"].items() if count]
    memory = CHIPS[program["chip"]].memory
    if program["peak"] > memory:
        faults.append(f"it needs {program['peak'] / 1e9:.2f} GB of {memory / 1e9:.0f}")
    if arithmetic := program.get("arithmetic"):
        if program["flops"] > _MOST_FLOPS * arithmetic:
            faults.append(f"{program['flops']:.3g} FLOPs where arithmetic says {arithmetic:.3g}")
        if program["given_away"] < 0.99 * program["state"]:
            faults.append("its state is not given away")
        # A search chooses among its beams' scores by a product in float32.
        if others := set(program["products"]) - {"bf16"}:
            faults.append(f"products must be bfloat16. Received: {sorted(others)}")
    return faults


def table(programs):
    """A Markdown table, a row a program."""
    lines = [
        "| program | FLOPs a chip | of the arithmetic | peak memory | HBM a step "
        "| least time, by FLOPs and by HBM | most of the chip's FLOPs | collectives |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(title, one) for title, one in programs.items())])


def _row(title, one):
    chip = CHIPS[one["chip"]]
    by_flops, by_hbm = one["flops"] / chip.flops, one["hbm_bytes"] / chip.bandwidth
    training = "arithmetic" in one  # a search's loop is counted once, whatever its steps
    cells = [
        title,
        f"{one['flops']:.3g}",
        f"{one['flops'] / one['arithmetic']:.3f}" if training else "",
        f"{one['peak'] / 1e9:.2f} of {chip.memory / 1e9:.0f} GB",
        f"{one['hbm_bytes'] / 1e9:.1f} GB" if training else "",
        f"{by_flops * 1e3:.1f} and {by_hbm * 1e3:.1f} ms" if training else "",
        f"{by_flops / max(by_flops, by_hbm):.0%}" if training else "",
        ", ".join(f"{count} {name}" for name, count in one["collectives"].items()) or "none",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
