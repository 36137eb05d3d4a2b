"""A corpus and an experiment of toy size, for tests of training and of the command line."""

import json
import random

import numpy as np

SYLLABLES = [first + second for first in "bcdfgk" for second in "aeiou"]

TOML = """
[data]
source = "train.src"
target = "train.tgt"
valid_source = "valid.src"
valid_target = "valid.tgt"
max_length = 16

[tokenizer]
vocab_size = 50

[model]
preset = "tiny"
model_dim = 10
num_heads = 2
encoder_layers = 1
decoder_layers = 1
intermediate_dim = 14
dropout = 0.3

[training]
max_epochs = 3
batch_tokens = 256
buckets = [16]
warmup_steps = 20
jit_compile = false
average_checkpoints = 2
save_every_steps = 2
"""


def write_experiment(folder):
    """Writes words and their reversals, and the experiment; returns the path of the TOML file."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(7)
    for name, pairs in (("train", 80), ("valid", 17)):
        sentences = [
            [generator.choice(SYLLABLES) for _ in range(generator.randint(1, 5))]
            for _ in range(pairs)
        ]
        sources = "".join(" ".join(words) + "\n" for words in sentences)
        targets = "".join(" ".join(word[::-1] for word in words) + "\n" for words in sentences)
        (folder / f"{name}.src").write_text(sources, encoding="utf-8")
        (folder / f"{name}.tgt").write_text(targets, encoding="utf-8")
    path = folder / "experiment.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


def lines(run_dir):
    """The figures of a run's epochs, without times."""
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]


def state(run_dir):
    """The arrays that a run goes on from."""
    with np.load(run_dir / "checkpoints" / "state.npz") as file:
        return {name: file[name] for name in file if name != "progress"}
