"""A corpus, tokenizers, a trained run and exports, all tiny and made on the spot, by seed."""

import gzip
import json
import pathlib
import random
import shutil

from fault_injection.children import Child

_SYLLABLES = [first + second for first in "bcdfgk" for second in "aeiou"]
_LIMIT = 300

EXPERIMENT = """\
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
dropout = 0.1

[training]
max_epochs = 3
batch_tokens = 512
buckets = [16]
warmup_steps = 10
jit_compile = false
average_checkpoints = 2
save_every_steps = 2

[decoding]
max_length = 12
"""


class World:
    """Where the inputs of all commands lie.

    Args:
        folder: A new folder.
        lines: Of the file to translate.

    Attributes:
        run: A finished run folder.
        sampled: Another, which samples, so that its translations differ from line to line.
    """

    def __init__(self, folder, lines=400):
        self.folder = pathlib.Path(folder)
        self.run, self.sampled = self.folder / "run", self.folder / "sampled"
        self.inputs = self.folder / "inputs"
        self.experiment = self.inputs / "experiment.toml"
        self.tokenizer = self.inputs / "joint.model"
        self.lines = self.inputs / "lines.txt"
        self.served, self.device = self.folder / "served", self.folder / "device"
        self.shards = self.folder / "shards"
        self._write_corpus(lines)

    def make(self, *names):
        """Makes by the commands themselves what is named: `"run"`, `"shards"`, `"device"`, ..."""
        for name in names:
            getattr(self, f"_make_{name}")()

    def call(self, name, *argv, module=None):
        """Runs a command that must succeed."""
        child = Child(argv, self.folder / "logs" / name, **({"module": module} if module else {}))
        if child.wait(_LIMIT) != 0:
            raise RuntimeError(f"{argv} must succeed. Received: {child.code}, {child.err[-2000:]}")
        return child

    # Weights so large that any of them counts for what is found.
    _BOLD = (
        "training.schedule=inverse_sqrt",
        "training.learning_rate=0.2",
        "training.warmup_steps=1",
    )

    def _write_corpus(self, lines):
        self.inputs.mkdir(parents=True)
        generator = random.Random(7)
        for name, pairs in (("train", 160), ("valid", 17), ("lines", lines), ("other", lines)):
            sentences = [
                [generator.choice(_SYLLABLES) for _ in range(generator.randint(1, 5))]
                for _ in range(pairs)
            ]
            sources = [" ".join(words) for words in sentences]
            targets = [" ".join(word[::-1] for word in words) for words in sentences]
            if name in ("lines", "other"):
                _write(self.inputs / f"{name}.txt", sources)
                continue
            _write(self.inputs / f"{name}.src", sources)
            _write(self.inputs / f"{name}.tgt", targets)
            _write(self.inputs / f"{name}.tsv", map("\t".join, zip(sources, targets, strict=True)))
            records = zip(sources, targets, strict=True)
            _write(
                self.inputs / f"{name}.jsonl",
                (json.dumps({"source": one, "target": other}) for one, other in records),
            )
        with gzip.GzipFile(self.inputs / "lines.txt.gz", "wb", mtime=0) as file:
            file.write(self.lines.read_bytes())
        _write(self.inputs / "samples.txt", self.lines.read_text().splitlines()[:4])
        self.experiment.write_text(EXPERIMENT)

    def _make_tokenizer(self):
        files = [self.inputs / "train.src", self.inputs / "train.tgt"]
        self.call("tokenizer", "tokenizer", self.tokenizer, "--input", *files,
                  "--set", "vocab_size=50")  # fmt: skip

    def _make_run(self):
        self._train("run", *self._BOLD)

    def _make_sampled(self):
        self._train("sampled", "decoding.strategy=sampling")

    def _train(self, name, *options):
        options = [part for option in options for part in ("--set", option)]
        self.call(name, "train", self.experiment, self.folder / name, *options,
                  "--set", "training.max_epochs=1")  # fmt: skip

    def _make_served(self):
        self.call("served", "export", self.run, self.served, "--to", "savedmodel",
                  "--samples", self.inputs / "samples.txt")  # fmt: skip

    def _make_device(self):
        self.call("device", "export", self.run, self.device, "--to", "litert",
                  "--samples", self.inputs / "samples.txt")  # fmt: skip

    def _make_shards(self):
        self.call("shards", "prepare", self.shards, "--source", self.inputs / "train.tsv",
                  "--tokenizer", self.tokenizer, "--shards", "3", "--max-length", "16")  # fmt: skip

    def _make_interrupted(self):
        """A run folder whose training was stopped by signal 9 after an epoch."""
        path = self.folder / "interrupted"
        child = Child(["train", self.experiment, path], self.folder / "logs" / "interrupted")
        metrics = path / "metrics.jsonl"
        while child.poll() is None and not (metrics.exists() and metrics.read_text()):
            pass
        child.kill()
        if (path / "model.keras").exists() or not (path / "checkpoints" / "state.npz").exists():
            raise RuntimeError("an interrupted run must have a state and no model")


def copy(folder, to):
    """A copy of a folder or file, times included."""
    (shutil.copytree if folder.is_dir() else shutil.copy2)(folder, to)
    return to


def _write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

