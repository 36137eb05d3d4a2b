"""The commands that write, as the soak disturbs them."""

import dataclasses
import pathlib

_TRAIN = "train"


@dataclasses.dataclass(frozen=True)
class Target:
    """A command that writes one target, the only thing in a folder of its own.

    Attributes:
        name: As in the report.
        arguments: Function of the `World` and the target's path.
        file: The target's name.
        limit: Seconds after which a command hangs.
        refusal: What a command must say that finds the target complete.
        finished: The file of the target that is there when it is complete; `None` for itself.
    """

    name: str
    arguments: object
    file: str = "out"
    limit: float = 240.0
    refusal: str = ""
    finished: str | None = None

    def argv(self, world, folder):
        return [str(item) for item in self.arguments(world, pathlib.Path(folder) / self.file)]

    def is_finished(self, folder):
        path = pathlib.Path(folder) / self.file
        return (path if self.finished is None else path / self.finished).exists()


def _translate(world, out, *options):
    return ["translate", world.sampled, "--input", world.lines, "--output", out, *options]


def _export(world, out, *options):
    samples = world.inputs / "samples.txt"
    return ["export", world.run, out, "--samples", samples, "--to", *options]


TARGETS = [
    Target(
        "train",
        lambda world, out: ["train", world.experiment, out],
        refusal="finished",
        finished="model.keras",
    ),
    Target(
        "prepare",
        lambda world, out: [
            *("prepare", out, "--source", world.inputs / "train.tsv", "--shards", 3),
            *("--tokenizer", world.tokenizer, "--max-length", 16),
        ],
        refusal="must not exist|new folder",
    ),
    Target("translate", _translate, "out.txt", refusal="new file"),
    Target(
        "translate --workers 2",
        lambda world, out: _translate(world, out, "--workers", 2),
        "out.txt",
        refusal="new file",
    ),
    Target(
        "export savedmodel",
        lambda world, out: _export(world, out, "savedmodel"),
        finished="1",
    ),
    Target(
        "export litert",
        lambda world, out: _export(world, out, "litert"),
        refusal="new folder",
    ),
]
BY_NAME = {target.name: target for target in TARGETS}
WORKERS = "translate --workers 2"
SAVED_MODEL = "export savedmodel"
