"""Why the paper took layer norm: sentences vary in length, and batch norm mixes sentences.

    python norm_study.py [--out FOLDER]

A small tagger learns which tokens are above the mean of their sentence, in batches of one length
each, as length buckets make them. Batch norm (masked, with running statistics) trains with the
statistics of its batch and answers with those of all batches; layer and RMS norm know no batch.
Two minutes on 2 cores; prints the losses on new sentences and plots norm_study.png.
"""

import argparse

import keras
import numpy as np

import keras_transformer as kt
from keras_transformer.plots import plot_lines

VALUES, FIRST_ID, IGNORED, TRAINED = 32, 4, -1, (8, 24)
LINES = {  # normalization -> its lines, and whether they are measured in training mode
    "layer": {"layer norm": False}, "rms": {"RMS norm": False},
    "batch": {"batch norm": False, "batch norm, training mode": True},
}  # fmt: skip


def make_rows(rng, lengths, longest):
    """One sentence for each length: ids and labels, (len(lengths), longest) int32."""
    real = np.arange(longest) < lengths[:, None]
    values = rng.integers(0, VALUES, real.shape)
    means = (values * real).sum(1, keepdims=True) / lengths[:, None]
    ids = np.where(real, FIRST_ID + values, 0)
    return ids.astype("int32"), np.where(real, values > means, IGNORED).astype("int32")


def train(normalization, batch_size, steps, seed):
    """A `TokenClassifier` after `steps` batches, each of sentences of one length."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    lengths = rng.integers(TRAINED[0], TRAINED[1] + 1, steps).repeat(batch_size)
    ids, labels = make_rows(rng, lengths, TRAINED[1])
    config = kt.TransformerConfig(
        vocab_size=FIRST_ID + VALUES, model_dim=32, num_heads=4, encoder_layers=2,
        intermediate_dim=64, dropout=0.0, positions="none", normalization=normalization,
    )  # fmt: skip
    model = kt.TokenClassifier(config, 2)
    rate = keras.optimizers.schedules.CosineDecay(3e-3, steps)
    model.compile(keras.optimizers.Adam(rate), kt.SmoothedCrossEntropy(0.0, pad_id=IGNORED))
    model.fit(ids, labels, batch_size=batch_size, shuffle=False, verbose=0)
    return model


def measure(model, length, batch_size, training, sentences=256):
    """Mean loss of new sentences of one length, in training mode in batches of `batch_size`."""
    ids, labels = make_rows(np.random.default_rng(99), np.full(sentences, length), length)
    size = batch_size if training else sentences
    batches = [slice(i, i + size) for i in range(0, sentences, size)]
    return np.mean([model.loss(labels[b], model(ids[b], training=training)) for b in batches])


def study(lengths, batch_size, steps, seeds):
    """Returns line -> losses (seeds, lengths)."""
    losses = {line: [] for lines in LINES.values() for line in lines}
    for seed in range(seeds):
        for normalization, lines in LINES.items():
            model = train(normalization, batch_size, steps, seed)
            for line, training in lines.items():
                losses[line].append([measure(model, n, batch_size, training) for n in lengths])
    return {line: np.array(rows) for line, rows in losses.items()}


def main(lengths=(2, 4, 8, 16, 24, 48), batches=(4, 32), steps=500, seeds=3, out="."):
    """Returns batch size -> {line: losses (seeds, lengths)}."""
    results, panels = {}, {}
    for size in batches:
        title = f"loss, batches of {size}, trained on lengths {TRAINED[0]} to {TRAINED[1]}"
        results[size] = study(lengths, size, steps, seeds)
        print(f"\n{title}\n{'length':26}" + "".join(f"{n:>15}" for n in lengths))
        for line, losses in results[size].items():
            cells = zip(losses.mean(0), losses.std(0), strict=True)
            print(f"{line:26}" + "".join(f"{mean:7.3f} ± {std:.3f}" for mean, std in cells))
        panels[title] = {line: (lengths, x.mean(0)) for line, x in results[size].items()}
    figure = plot_lines(panels, x_label="sentence length", x_base=2, y_base=10)
    figure.savefig(f"{out}/norm_study.png")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=".", help="folder for the plot")
    main(out=parser.parse_args().out)
