"""What the 1/sqrt(d_k) of the paper's equation 1 is for, with random queries and keys.

    python score_scaling.py [--out FOLDER]

For q and k of unit variance, q . k has variance d_k. Unscaled, the softmax sharpens as d_k grows,
until one key takes all; its Jacobian diag(p) - p p^T, through which every gradient passes, then
vanishes for most queries. Scaled, neither depends on d_k. Prints a table, plots score_scaling.png.
"""

import argparse

import numpy as np

import keras_transformer as kt
from keras_transformer.plots import plot_lines

SCORES = {"scaled by 1/sqrt(d_k)": "scaled_dot_product", "unscaled": "dot_product"}
ENTROPY, MEAN, MEDIAN = "entropy, nats", "Jacobian's norm, mean", "Jacobian's norm, median query"


def attention_weights(score, queries, keys):
    """Softmax over the scores of bare queries and keys: attention that projects with identity."""
    options = dict(use_bias=False, kernel_initializer="identity", dtype="float64")
    attention = kt.CrossAttention(1, queries.shape[-1], attention_score=score, **options)
    _, weights_BNTS = attention(queries, keys, return_attention_scores=True)
    return np.asarray(weights_BNTS)[0, 0]


def measure(weights_TS):
    """Entropy and Frobenius norm of diag(p) - p p^T, over the rows p."""
    entropies = -(weights_TS * np.log(np.maximum(weights_TS, 1e-300))).sum(-1)
    squares = (weights_TS**2).sum(-1)
    norms = np.sqrt(np.maximum(squares - 2 * (weights_TS**3).sum(-1) + squares**2, 0))
    return {ENTROPY: entropies.mean(), MEAN: norms.mean(), MEDIAN: np.median(norms)}


def main(key_dims=(4, 8, 16, 32, 64, 128, 256, 512, 1024), count=4096, length=64, out="."):
    """Returns what is measured -> {kind of score: a value for each key width}."""
    rng = np.random.default_rng(0)
    results = {what: {name: [] for name in SCORES} for what in (ENTROPY, MEAN, MEDIAN)}
    print(f"{count} queries, {length} keys; a uniform softmax has entropy {np.log(length):.2f}")
    print(" " * 6 + "".join(f"{what:>30}" for what in results))
    print("   d_k" + f"{'scaled':>20}{'unscaled':>10}" * 3)
    for width in key_dims:
        queries, keys = rng.normal(size=(1, count, width)), rng.normal(size=(1, length, width))
        for name, score in SCORES.items():
            for what, value in measure(attention_weights(score, queries, keys)).items():
                results[what][name].append(value)
        rows = ("{:20.4f}{:10.4f}".format(*(v[-1] for v in r.values())) for r in results.values())
        print(f"{width:6}" + "".join(rows))
    lines = {what: {n: (key_dims, v) for n, v in results[what].items()} for what in results}
    figure = plot_lines({k: lines[k] for k in (ENTROPY, MEDIAN)}, x_label="d_k", x_base=2)
    figure.savefig(f"{out}/score_scaling.png")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=".", help="folder for the plot")
    main(out=parser.parse_args().out)
