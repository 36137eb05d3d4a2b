"""A corpus, tokenizers, a trained run and exports, all tiny, by seed: made when asked for, once."""

import functools
import gzip
import json
import pathlib
import random
import shutil
import time

from fault_injection import conversions
from fault_injection.children import CLI, RUNNER, Child

SYLLABLES = [first + second for first in "bcdfgk" for second in "aeiou"]
_LIMIT = 1800
_FAST = ("training.schedule=inverse_sqrt", "training.learning_rate=0.02")

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
    """Where the inputs of all commands lie. What takes a command to make is made when asked for.

    Args:
        folder: A new folder, or one that another `World` has left, whose things are used.
        lines: Of the file to translate.

    Attributes:
        inputs: Text files and an experiment.
    """

    def __init__(self, folder, lines=400):
        self.folder = pathlib.Path(folder).absolute() / f"{lines}-lines"
        self.inputs = self.folder / "inputs"
        self.experiment = self.inputs / "experiment.toml"
        self.lines = self.inputs / "lines.txt"
        self._once("inputs", lambda path: self._write_corpus(lines))
        conversions.take_over(*(self.folder / "logs").glob("*.conversions"))

    # --- Runs, and what is exported from them -------------------------------------------------

    @functools.cached_property
    def run(self):
        """A finished run."""
        return self._trained("run", "training.seed=1", *_FAST)

    @functools.cached_property
    def other_run(self):
        return self._trained("other_run", "training.seed=2", *_FAST)

    @functools.cached_property
    def sampled(self):
        """A run that samples, so that its translations differ from line to line."""
        return self._trained("sampled", "decoding.strategy=sampling", "training.max_epochs=1")

    @functools.cached_property
    def interrupted(self):
        """A run that signal 9 has stopped after an epoch."""
        return self._interrupted("interrupted", "training.seed=1")

    @functools.cached_property
    def interrupted_other(self):
        return self._interrupted("interrupted_other", "training.seed=1", "training.warmup_steps=9")

    @functools.cached_property
    def device(self):
        return self._exported("device", self.run, "litert")

    @functools.cached_property
    def device_other(self):
        return self._exported("device_other", self.other_run, "litert")

    @functools.cached_property
    def served(self):
        return self._exported("served", self.run, "savedmodel")

    @functools.cached_property
    def served_other(self):
        return self._exported("served_other", self.other_run, "savedmodel")

    @functools.cached_property
    def shortlisted(self):
        """A run with a shortlist."""

        def make(path):
            copy(self.sampled, path)
            self.call("shortlisted", "shortlist", path, "--references-only")

        return self._once("shortlisted", make)

    @functools.cached_property
    def cache(self):
        """Packed weights of `device`."""

        def make(path):
            self.call("cache", self.device, "bafe", "--weight-cache", path, module=RUNNER)

        return self._once("cache", make)

    @functools.cached_property
    def pretrained(self):
        return self._pretrained("pretrained", 0)

    @functools.cached_property
    def pretrained_other(self):
        return self._pretrained("pretrained_other", 1)

    # --- Texts, tokenizers, shards, parts -----------------------------------------------------

    @functools.cached_property
    def tokenizer(self):
        files = [self.inputs / "train.src", self.inputs / "train.tgt"]

        def make(path):
            self.call("joint.model", "tokenizer", path, "--input", *files, "--set", "vocab_size=50")

        return self._once("joint.model", make)

    @functools.cached_property
    def tokenizers(self):
        return self._tokenizers("tokenizers", "train.src")

    @functools.cached_property
    def tokenizers_other(self):
        return self._tokenizers("tokenizers_other", "train.tgt")

    @functools.cached_property
    def shards(self):
        return self._prepared("shards", "train.tsv")

    @functools.cached_property
    def shards_other(self):
        return self._prepared("shards_other", "valid.tsv")

    @functools.cached_property
    def corpora(self):
        return self._corpora("corpora", "train")

    @functools.cached_property
    def corpora_other(self):
        return self._corpora("corpora_other", "valid")

    @functools.cached_property
    def comparison(self):
        return self._comparison("comparison", "train")

    @functools.cached_property
    def comparison_other(self):
        return self._comparison("comparison_other", "valid")

    @functools.cached_property
    def experiments(self):
        return self._experiments("experiments", EXPERIMENT)

    @functools.cached_property
    def experiments_other(self):
        return self._experiments("experiments_other", EXPERIMENT.replace("10", "12"))

    @functools.cached_property
    def on_shards(self):
        """An experiment whose `data.source` is yet to be set to a folder of shards."""
        start, _, rest = EXPERIMENT.partition("[tokenizer]")
        lines = [line for line in start.splitlines() if not line.startswith(("target", "valid_"))]
        text = "\n".join([*lines, 'valid_source = "valid.tsv"', "", rest.partition("\n\n")[2]])
        path = self.inputs / "on_shards.toml"
        path.write_text(text)
        return path

    @functools.cached_property
    def part(self):
        return self._part("part", self.sampled, self.lines)

    @functools.cached_property
    def part_other(self):
        return self._part("part_other", self.sampled, self.inputs / "other.txt")

    # --- How ----------------------------------------------------------------------------------

    def call(self, name, *argv, module=CLI):
        """Runs a command that must succeed."""
        child = Child(argv, self.folder / "logs" / name, module=module, learn=True)
        if child.learnt(_LIMIT) != 0:
            raise RuntimeError(f"{argv} must succeed. Received: {child.code}, {child.err[-2000:]}")

    def _once(self, name, make):
        """The path of what `make(path)` makes, which an earlier process may have done."""
        path, made = self.folder / name, self.folder / "made" / name
        if made.exists():
            return path
        if path.is_dir():
            shutil.rmtree(path)
        make(path)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.touch()
        return path

    def _trained(self, name, *options):
        def make(path):
            self.call(name, "train", self.experiment, path, *_set(options))

        return self._once(name, make)

    def _interrupted(self, name, *options):
        return self._once(name, lambda path: self._interrupt(name, path, *options))

    def _interrupt(self, name, path, *options):
        argv = ["train", self.experiment, path, *_set(options)]
        child = Child(argv, self.folder / "logs" / name)
        metrics = path / "metrics.jsonl"
        while child.poll() is None and not (metrics.exists() and metrics.read_text()):
            time.sleep(0.001)
        state = path / "checkpoints" / "state.npz"
        before = state.stat().st_mtime_ns  # of a step; that of the epoch comes after its figures
        while child.poll() is None and state.stat().st_mtime_ns == before:
            time.sleep(0.001)
        child.kill()
        if (path / "model.keras").exists():
            raise RuntimeError("a run must be killed before it ends; this one was too fast")

    def _exported(self, name, run, form):
        samples = self.inputs / "samples.txt"

        def make(path):
            self.call(name, "export", run, path, "--to", form, "--samples", samples)

        return self._once(name, make)

    def _prepared(self, name, source):
        def make(path):
            self.call(name, "prepare", path, "--source", self.inputs / source, "--shards", "3",
                      "--tokenizer", self.tokenizer, "--max-length", "16")  # fmt: skip

        return self._once(name, make)

    def _tokenizers(self, name, source):
        options = (("joint.model", ["vocab_size=40"]), ("table.json", ["type=vocabulary"]))

        def make(path):
            for file, values in options:
                inputs = ["--input", self.inputs / source]
                self.call(name, "tokenizer", path / file, *inputs, *_set(values))

        return self._once(name, make)

    def _corpora(self, name, stem):
        return self._once(name, lambda path: self._write_corpora(path, stem))

    def _write_corpora(self, path, stem):
        path.mkdir()
        for end in ("src", "tgt", "tsv", "jsonl"):
            shutil.copyfile(self.inputs / f"{stem}.{end}", path / f"train.{end}")
        with gzip.GzipFile(path / "packed.tsv.gz", "wb", mtime=0) as file:
            file.write((path / "train.tsv").read_bytes())

    def _pretrained(self, name, seed):
        from fault_injection.readers import READERS

        def make(path):
            path.mkdir()
            READERS["import marian"].make(path, seed)

        return self._once(name, make)

    def _comparison(self, name, stem):
        """Two files of translations, one packed, and their references."""

        def make(path):
            path.mkdir()
            references = (self.inputs / f"{stem}.tgt").read_text().splitlines()
            _write(path / "references.txt", references)
            _write(path / "one.txt", references[1:] + references[:1])
            with gzip.GzipFile(path / "two.txt.gz", "wb", mtime=0) as file:
                file.write("".join(f"{line} ba\n" for line in references).encode())

        return self._once(name, make)

    def _experiments(self, name, text):
        def make(path):
            path.mkdir()
            (path / "experiment.toml").write_text(text)

        return self._once(name, make)

    def _part(self, name, run, source):
        """A translation that was killed after its third part."""
        return self._once(name, lambda path: self._write_part(name, path, run, source))

    def _write_part(self, name, path, run, source):
        path.mkdir()
        child = Child(
            ["translate", run, "--input", source, "--output", path / "out.txt"],
            self.folder / "logs" / name, window=40,
        )  # fmt: skip
        note = path / "out.txt.part.json"
        while child.poll() is None and not (note.exists() and '"lines": 120' in note.read_text()):
            time.sleep(0.0005)
        child.kill()
        if not note.exists():
            raise RuntimeError("a translation must be killed on its way; this one was too fast")

    def _write_corpus(self, lines):
        self.inputs.mkdir(parents=True)
        generator = random.Random(7)
        for name, pairs in (
            ("train", 160),
            ("valid", 17),
            ("lines", lines),
            ("other", lines),
            ("few", 3),
        ):
            sentences = [
                [generator.choice(SYLLABLES) for _ in range(generator.randint(1, 5))]
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
        _write(self.inputs / "samples.txt", self.lines.read_text().splitlines()[:4])
        self.experiment.write_text(EXPERIMENT)


def _set(options):
    return [part for option in options for part in ("--set", option)]


def copy(folder, to):
    """A copy of a folder or file, times included."""
    (shutil.copytree if folder.is_dir() else shutil.copy2)(folder, to)
    return to


def _write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
