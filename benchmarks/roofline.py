"""What a corpus costs on v5e and H100 by the roofline, from the training steps as compiled.

    python benchmarks/roofline.py [benchmarks/results/accelerators/*.json] \
        [--pairs 1e9] [--epochs 3] [--chips 8 32] [--price v5e=1.0 h100=3.0]

Nothing is measured on a chip. One line an assumption:

- Step: the larger of FLOPs / peak rate and bytes through HBM / bandwidth; a chip is slower.
- FLOPs and bytes are those of the step that XLA compiled for one such chip, which was not there.
- Data parallel: then an all-reduce of float32 gradients in a ring, 2 (n - 1) / n of their bytes
  in and out of each chip, with no other work meanwhile, at the rate of one direction.
- Beyond the chips that one fabric joins (256 v5e, 8 H100), the ring goes at most at the rate at
  which all of them together reach the network.
- Pairs a step: target positions of the batch x the share that is no padding / positions a pair.
- Input: cores that read and batch as many pairs as all chips train on. Each process of a run
  makes all batches and takes its rows, so each needs that many.

Prices change: give them, in any currency, an hour of a chip.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

from accelerator_programs.chips import CHIPS
from accelerator_programs.programs import TRAINING

_FOLDER = pathlib.Path(__file__).parent / "results/accelerators"
_RESULTS = [_FOLDER / "accelerators.json", _FOLDER / "gpus.json"]
_MODELS = ("train base", "train big")
_STATE = 3  # weights and Adam's two slots, float32


@dataclasses.dataclass(frozen=True)
class Rates:
    """What a chip does in a second at most.

    Attributes:
        flops: bfloat16 operations.
        bandwidth: Bytes of HBM.
        link: Bytes to other chips of its fabric, in one direction.
        joined: Chips that one fabric joins.
        network: Bytes out of a fabric, all its chips together.
    """

    flops: float
    bandwidth: float
    link: float
    joined: int
    network: float


CHIP_RATES = {
    # docs.cloud.google.com/tpu/docs/v5e: 400 GB/s between chips, both directions together; pods of
    # 256, with 6.4 Tbit/s to the data centre's network.
    "v5e": Rates(CHIPS["v5e"].flops, CHIPS["v5e"].bandwidth, 200e9, 256, 800e9),
    # glennklockwood.com/garden/processors/h100, of the SXM5 and after NVIDIA's data sheet: without
    # sparsity, NVLink 900 GB/s in both directions together. Eight adapters of 400 Gbit/s for
    # eight, as in DGX H100.
    "h100": Rates(989e12, 3.35e12, 450e9, 8, 400e9),
}


@dataclasses.dataclass(frozen=True)
class Step:
    """The parts of a training step on `chips` chips, in seconds, and its target positions."""

    by_flops: float
    by_hbm: float
    by_link: float
    positions: int

    @property
    def seconds(self):
        return max(self.by_flops, self.by_hbm) + self.by_link

    @property
    def bound(self):
        parts = {"FLOPs": self.by_flops, "HBM": self.by_hbm, "interconnect": self.by_link}
        return max(parts, key=parts.get)


def step_of(program, chip, chips):
    """The `Step` of a compiled program on several chips, a copy of the model each."""
    rates = CHIP_RATES[chip]
    link = rates.link if chips <= rates.joined else min(rates.link, rates.network)
    gradients = program["state"] / _STATE
    _, _, rows, length = TRAINING[program["program"]]
    return Step(
        program["flops"] / rates.flops,
        program["hbm_bytes"] / rates.bandwidth,
        2 * (chips - 1) / chips * gradients / link,
        rows * length * chips,
    )


def main():
    arguments = _arguments()
    programs = {}
    for path in arguments.results:
        programs |= json.loads(path.read_text())["programs"]
    lines = [_HEAD, "|" + "---|" * (_HEAD.count("|") - 1)]
    for model in _MODELS:
        for chip in CHIP_RATES:
            program = programs[f"{model}, {chip} x 1"]
            for chips in arguments.chips:
                lines.append(_row(arguments, step_of(program, chip, chips), model, chip, chips))
    print("\n".join(lines))
    if arguments.prepare_rate:
        hours = arguments.pairs / arguments.prepare_rate / 3600
        print(f"\nPreparing {arguments.pairs:.3g} pairs: {hours:,.1f} hours of a core.")


_HEAD = (
    "| model, chips | by FLOPs, HBM, interconnect (ms) | bound | target positions a step "
    "| pairs a second | hours | hours x chips | price | input cores |"
)


def _row(arguments, step, model, chip, chips):
    pairs = step.positions * arguments.fill / arguments.positions / step.seconds
    hours = arguments.pairs * arguments.epochs / pairs / 3600
    price = arguments.price.get(chip)
    parts = (step.by_flops, step.by_hbm, step.by_link)
    cells = [
        f"{model.removeprefix('train ')}, {chips} {chip}",
        ", ".join(f"{part * 1e3:.1f}" for part in parts),
        step.bound,
        f"{step.positions:,}",
        f"{pairs:,.0f}",
        f"{hours:,.1f}",
        f"{hours * chips:,.0f}",
        "" if price is None else f"{hours * chips * price:,.0f}",
        f"{pairs / arguments.input_rate:.2f}" if arguments.input_rate else "",
    ]
    return "| " + " | ".join(cells) + " |"


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=pathlib.Path, nargs="*", default=_RESULTS)
    parser.add_argument("--pairs", type=_positive, default=1e9)
    parser.add_argument("--epochs", type=_positive, default=3)
    parser.add_argument("--chips", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--price", nargs="*", default=[], metavar="CHIP=PRICE", help="an hour")
    parser.add_argument(
        "--positions", type=_positive, default=32, help="of a pair's longer side, EOS included"
    )
    parser.add_argument("--fill", type=_positive, default=0.85, help="share that is no padding")
    for name, what in (("input", "reads and batches"), ("prepare", "prepares")):
        parser.add_argument(f"--{name}-rate", type=_positive, help=f"pairs a core {what} a second")
    arguments = parser.parse_args()
    try:
        prices = (pair.split("=") for pair in arguments.price)
        arguments.price = {chip: float(price) for chip, price in prices}
    except ValueError:
        parser.error(f"--price must be CHIP=PRICE. Received: {arguments.price}")
    if unknown := set(arguments.price) - set(CHIP_RATES):
        parser.error(f"--price must name one of {list(CHIP_RATES)}. Received: {sorted(unknown)}")
    if min(arguments.chips) < 1:
        parser.error(f"--chips must be at least 1. Received: {arguments.chips}")
    return arguments


def _positive(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number. Received: {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
