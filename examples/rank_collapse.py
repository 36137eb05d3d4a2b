"""Attention alone makes all tokens of a sentence the same (Dong et al., arXiv 2103.03404).

    python rank_collapse.py [--out FOLDER]

Without skips (residual paths) the part of the states in which tokens differ falls doubly
exponentially: its logarithm falls by steps that grow by a factor (of 3 in the paper's theorem).
"""

import argparse

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer.diagnostics import rank_residuals
from keras_transformer.plots import plot_lines

STACKS = {"skips and FFN": (1, 1), "skips only": (1, 0), "FFN only": (0, 1), "neither": (0, 0)}


def make_stack(depth, width, heads, gain, skips, ffn, norm):
    """Random blocks. `gain` makes scores larger and the collapse slower: more of it to be seen."""
    options = dict(use_residual=bool(skips), use_feed_forward=bool(ffn), normalization=norm)
    sizes = heads, width // heads, 4 * width
    blocks = [kt.EncoderBlock(*sizes, **options, dtype="float64") for _ in range(depth)]
    for block in blocks:
        block.build((None, None, width))
        kernel = block.self_attention.query_key_value.kernel
        kernel.assign(gain * kernel)
    return blocks


def growth(residuals, floor=1e-14):
    """By what factor each step of the residual's logarithm is larger than the step before."""
    steps = np.diff(np.log(residuals[residuals > floor]))
    return steps[1:] / steps[:-1]


def main(depth=10, width=64, heads=4, sentences=8, length=32, gain=1.7, out="."):
    """Returns normalization -> {stack: residual before the first block and after each}."""
    inputs = np.random.default_rng(0).normal(size=(sentences, length, width))
    results, panels = {"none": {}, "layer": {}}, {}
    for norm, lines in results.items():
        for name, switches in STACKS.items():
            keras.utils.set_random_seed(0)
            blocks = make_stack(depth, width, heads, gain, *switches, norm)
            lines[name] = rank_residuals(blocks, inputs)
        print(f"\nnormalization={norm!r}\nblocks" + "".join(f"{name:>16}" for name in lines))
        for block, row in enumerate(zip(*lines.values(), strict=True)):
            print(f"{block:6}" + "".join(f"{value:16.1e}" for value in row))
        print("With neither, the logarithm's steps grow by", growth(lines["neither"]).round(2))
        panels[f"residual, norm: {norm}"] = {k: (range(depth + 1), v) for k, v in lines.items()}
    plot_lines(panels, x_label="blocks", y_base=10).savefig(f"{out}/rank_collapse.png")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=".", help="folder for the plot")
    main(out=parser.parse_args().out)
