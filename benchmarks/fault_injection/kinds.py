"""What is damaged, the command that reads it, and what that command's answer is."""

import dataclasses
import json
import re

from fault_injection.children import CLI, RUNNER
from fault_injection.results import without_times

_TEXTS = ["bafe", "dudi koka", "ge gi go", "fa", "baba bebe bibi bobo bubu", "kuda"]
_SKIPPED = re.compile(r"(^|/)(tensorboard|plots)(/|$)|\.lock$")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A folder that is damaged, a file at a time.

    Attributes:
        name: As in the report.
        base: Function of the `World` that gives the whole folder.
        other: The same for a folder of other content.
        command: Function of the `World`, the damaged folder, an empty folder for results and a
            `random.Random`, that gives a module and its arguments.
        answer: Function of the child, the damaged folder and that of the results: what the
            command has found, comparable; `None` where it has not.
        until: Function of the same folders that says whether the answer is there before the
            command ends; `None` to wait for its end.
        favourites: Pattern of the files that take half of the cases.
        only: Pattern of the files that are damaged.
        free: Pattern of files that people may edit: another answer is right there too.
        free_how: A mutation after which another answer is right, whatever the file.
        names: Whether an error must name the file or the folder.
        limit: Seconds for a case.
    """

    name: str
    base: object
    other: object
    command: object
    answer: object
    until: object = None
    favourites: str = ""
    only: str = ""
    free: str = "$^"
    free_how: str = ""
    names: bool = True
    limit: float = 120.0

    def files(self, world):
        folder = self.base(world)
        found = (
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        )
        found = (name for name in found if re.search(self.only, name))
        return sorted(name for name in found if not _SKIPPED.search(name))


def _printed(child, folder, results):
    return child.out


def _output(child, folder, results):
    return _bytes(folder / "out.txt")


def _bytes(path):
    return path.read_bytes().hex() if path.exists() else None


def _prepared(child, folder, results):
    out = results / "out"
    return {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else None


def _last_epoch(run):
    """The figures of the epoch that the command has trained."""
    return lambda child, folder, results: _figures(run(folder, results))


def _has_epoch(run, epochs):
    def until(folder, results):
        path = run(folder, results) / "metrics.jsonl"
        return path.exists() and path.read_bytes().count(b"\n") >= epochs

    return until


def _figures(run):
    path = run / "metrics.jsonl"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    try:
        return without_times(json.loads(lines[-1])) if lines else None
    except ValueError:
        return lines[-1]


def _translate(world, folder, results, generator):
    return CLI, ["translate", folder, *_TEXTS]


def _run_device(world, folder, results, generator):
    if generator.random() < 0.8:
        return RUNNER, [folder, *_TEXTS]
    return _evaluate(world, folder, "litert")


def _run_served(world, folder, results, generator):
    return _evaluate(world, folder, "savedmodel")


def _evaluate(world, artifact, kind):
    files = ["--source", world.inputs / "valid.src", "--target", world.inputs / "valid.tgt"]
    return CLI, ["evaluate", world.run, *files, "--with", kind, "--artifact", artifact]


def _go_on(world, folder, results, generator):
    return CLI, ["train", world.experiment, folder]


def _train_on_shards(world, folder, results, generator):
    return CLI, ["train", world.on_shards, results / "run", "--set", f"data.source={folder}"]


def _train(world, folder, results, generator):
    return CLI, ["train", folder / "experiment.toml", results / "run", "--data", world.inputs]


def _translate_on(world, folder, results, generator):
    return CLI, ["translate", world.sampled, "--input", world.lines, "--output", folder / "out.txt"]


_SOURCES = (
    ["--source", "train.tsv"],
    ["--source", "train.jsonl"],
    ["--source", "train.src", "--target", "train.tgt"],
    ["--source", "packed.tsv.gz"],
)


def _prepare(world, folder, results, generator, tokenizer=None):
    source = generator.choice(_SOURCES)
    source = [part if part.startswith("--") else folder / part for part in source]
    tokenizer = tokenizer or world.tokenizer
    return CLI, ["prepare", results / "out", *source, "--shards", 2, "--tokenizer", tokenizer]


def _prepare_with(world, folder, results, generator):
    tokenizer = folder / generator.choice(("joint.model", "table.json"))
    return _prepare(world, world.corpora, results, generator, tokenizer)


def _start_from(world, folder, results, generator):
    start = ["--set", f"training.start_from={folder}"]
    return CLI, ["train", world.experiment, results / "run", *start]


def _translate_by_shortlist(world, folder, results, generator):
    return CLI, ["translate", folder, "--shortlist", *_TEXTS]


def _run_cached(world, folder, results, generator):
    return RUNNER, [world.device, *_TEXTS, "--weight-cache", folder]


def _compare(world, folder, results, generator):
    files = [folder / "one.txt", folder / "two.txt.gz", "--target", folder / "references.txt"]
    return CLI, ["compare", *files, "--samples", 20]


def _import(world, folder, results, generator):
    return CLI, ["import", folder, results / "run"]


def _imported(child, folder, results):
    """All but the model's file, which has a date in it."""
    paths = sorted((results / "run").glob("*.[jt]*")) if (results / "run").exists() else ()
    return {path.name: _bytes(path) for path in paths if path.name != "run.json"} or None


def _in_results(folder, results):
    return results / "run"


def _in_folder(folder, results):
    return folder


KINDS = {
    kind.name: kind
    for kind in (
        Kind("run", lambda world: world.sampled, lambda world: world.run, _translate, _printed,
             favourites=r"model.*\.keras|tokenizer", free=r"experiment\.toml|samples\.txt"),
        Kind("state", lambda world: world.interrupted, lambda world: world.interrupted_other,
             _go_on, _last_epoch(_in_folder), _has_epoch(_in_folder, 2),
             favourites=r"state\.npz", free=r"metrics\.jsonl"),
        Kind("shards", lambda world: world.shards, lambda world: world.shards_other,
             _train_on_shards, _last_epoch(_in_results), _has_epoch(_in_results, 1),
             favourites=r"prepared\.json"),
        Kind("note", lambda world: world.part, lambda world: world.part_other,
             _translate_on, _output, favourites=r"\.json"),
        Kind("device", lambda world: world.device, lambda world: world.device_other,
             _run_device, _printed, favourites=r"metadata\.json"),
        Kind("savedmodel", lambda world: world.served, lambda world: world.served_other,
             _run_served, _printed, favourites=r"saved_model\.pb|variables"),
        Kind("experiment", lambda world: world.experiments, lambda world: world.experiments_other,
             _train, _last_epoch(_in_results), _has_epoch(_in_results, 1), free=".", names=False),
        Kind("corpus", lambda world: world.corpora, lambda world: world.corpora_other,
             _prepare, _prepared, free=r"(?<!\.gz)$", free_how="swapped"),
        Kind("tokenizer", lambda world: world.tokenizers, lambda world: world.tokenizers_other,
             _prepare_with, _prepared, free="."),
        Kind("start", lambda world: world.run, lambda world: world.other_run, _start_from,
             _last_epoch(_in_results), _has_epoch(_in_results, 1),
             favourites=r"model.*\.keras|tokenizer", free=r"experiment\.toml|samples\.txt"),
        Kind("shortlist", lambda world: world.shortlisted, lambda world: world.run,
             _translate_by_shortlist, _printed, only=r"shortlist\.npz"),
        Kind("cache", lambda world: world.cache, lambda world: world.device, _run_cached, _printed),
        Kind("comparison", lambda world: world.comparison, lambda world: world.comparison_other,
             _compare, _printed, free="."),
        Kind("import", lambda world: world.pretrained, lambda world: world.pretrained_other,
             _import, _imported, favourites=r"\.json|\.spm", free="."),
    )
}  # fmt: skip
