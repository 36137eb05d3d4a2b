"""Time and peak memory of one training step against the length of the sequence.

    python benchmarks/long_attention.py [--longest 16384] [--out long_attention]

A small causal model (two blocks, width 128, four heads) is trained for a few steps on one
sequence, with self-attention of four kinds: `keras.layers.MultiHeadAttention`, ours all at once,
ours in chunks (the same numbers) and ours in a window. Each runs in a process of its own, whose
memory may not pass `--memory` GiB. Prints a table, and writes it with a plot to OUT.md and
OUT.png (matplotlib). Ratios are to Keras' layer in the same run.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

KINDS = ("keras", "all at once", "chunks of 256", "window of 256")
WIDTH, HEADS, BLOCKS, VOCABULARY = 128, 4, 2, 1000


def model_of(kind):
    import keras

    from keras_transformer import LanguageModel, TransformerConfig

    options = {
        "chunks of 256": {"attention_chunk": 256},
        "window of 256": {"attention_window": 256},
    }
    if kind != "keras":
        config = TransformerConfig(
            vocab_size=VOCABULARY,
            model_dim=WIDTH,
            num_heads=HEADS,
            decoder_layers=BLOCKS,
            intermediate_dim=2 * WIDTH,
            dropout=0.0,
            **options.get(kind, {}),
        )
        return LanguageModel(config)
    ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.ReversibleEmbedding(VOCABULARY, WIDTH)
    states = embedding(ids)
    for _ in range(BLOCKS):
        attention = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        states = keras.layers.LayerNormalization()(
            states + attention(states, states, use_causal_mask=True)
        )
        hidden = keras.layers.Dense(2 * WIDTH, activation="relu")(states)
        states = keras.layers.LayerNormalization()(states + keras.layers.Dense(WIDTH)(hidden))
    return keras.Model(ids, embedding(states, reverse=True))


def peak_memory():
    """Most bytes of memory that this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(kind, length, steps):
    """Seconds a training step (median, the first left out), and bytes above an empty process."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    before = peak_memory()
    model = model_of(kind)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=False)
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (1, length + 1)).astype("int32")
    seconds = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        value = float(model.train_on_batch(ids[:, :-1], ids[:, 1:]))
        seconds.append(time.perf_counter() - start)
    if not np.isfinite(value):
        raise RuntimeError(f"the loss must be finite. Received: {value}")
    return {"seconds": statistics.median(seconds[1:]), "bytes": peak_memory() - before}


def measured_apart(kind, length, steps, gibibytes):
    """`measure` in a process of its own; `None` where the memory was not enough."""

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (int(gibibytes * 2**30),) * 2)

    command = [sys.executable, __file__, "--one", kind, str(length), str(steps)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, preexec_fn=limit, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = done.stderr[-4000:]
        # A process that cannot allocate is ended by a signal, or says so.
        if done.returncode > 0 and not any(word in message for word in ("OOM", "bad_alloc")):
            raise RuntimeError(f"{kind} at {length} failed: {message}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(results, lengths):
    """Markdown: a row a length, time and memory a kind, with the ratio to Keras' layer."""
    lines = [
        "| length | " + " | ".join(KINDS) + " |",
        "|---|" + "---|" * len(KINDS),
    ]
    for length in lengths:
        cells, peer = [], results[KINDS[0], length]
        for kind in KINDS:
            found = results[kind, length]
            if found is None:
                cells.append("not enough memory")
                continue
            text = f"{found['seconds']:.3g} s, {found['bytes'] / 2**20:,.0f} MiB"
            if peer and kind != KINDS[0]:
                text += (
                    f" ({found['seconds'] / peer['seconds']:.2f}, "
                    f"{found['bytes'] / peer['bytes']:.2f})"
                )
            cells.append(text)
        lines.append(f"| {length:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(results, lengths, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, key, unit, scale in zip(
        panels,
        ("seconds", "bytes"),
        ("seconds a step", "peak memory, GiB"),
        (1, 2**30),
        strict=True,
    ):
        for kind in KINDS:
            found = [(n, results[kind, n][key] / scale) for n in lengths if results[kind, n]]
            panel.plot(*zip(*found, strict=True), marker="o", markersize=3, label=kind)
        panel.set(xscale="log", yscale="log", xlabel="tokens", ylabel=unit)
        panel.set_xticks(lengths, [str(n) for n in lengths], rotation=45, minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--longest", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--memory", type=float, default=16.0, help="GiB a process")
    parser.add_argument("--out", default="long_attention")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kind, length, steps = arguments.one
        print(json.dumps(measure(kind, int(length), int(steps))))
        return
    lengths = [2**power for power in range(8, 21) if 2**power <= arguments.longest]
    results = {}
    for length in lengths:
        for kind in KINDS:
            found = measured_apart(kind, length, arguments.steps, arguments.memory)
            results[kind, length] = found
            print(f"{kind}, {length}: {found}", file=sys.stderr, flush=True)
    text = table(results, lengths)
    print(text)
    pathlib.Path(f"{arguments.out}.md").write_text(text, encoding="utf-8")
    plot(results, lengths, f"{arguments.out}.png")


if __name__ == "__main__":
    main()
