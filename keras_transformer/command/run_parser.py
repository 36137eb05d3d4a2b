"""The arguments of the commands that make a run: `train`, `stop` and `import`."""

from keras_transformer.command import commands


def add_values(command):
    """Adds what changes an experiment from outside: `--data` and `--set`."""
    command.add_argument(
        "--data",
        metavar="FOLDER",
        help="where the experiment's files are; the folder of that file when left out",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help="replace a value of the experiment, for example training.max_minutes=30",
    )


def add_train(add_command):
    """Adds the command `train`.

    Args:
        add_command: Function of a name and a text, which gives the parser of a new command.
    """
    command = add_command(
        "train", "Train a model. Interrupted, the same command goes on where it stopped."
    )
    command.add_argument(
        "experiment", metavar="EXPERIMENT.toml", help="what to train: data, model, training time"
    )
    command.add_argument("run_dir", metavar="RUN", help="folder for the result")
    add_values(command)
    command.add_argument(
        "--more-epochs",
        type=int,
        metavar="N",
        help="let a finished run go on in its folder, for N epochs beside those it has had",
    )


def add_stop(add_command):
    """Adds the command `stop`; see `add_train`."""
    command = add_command(
        "stop",
        "End the training of a run before its time: it is then finished, as if it had been that "
        "short. (`train --more-epochs` lets it go on.)",
    )
    command.add_argument("run_dir", metavar="RUN", help="folder that `train` is working in")
    command.add_argument(
        "--now", action="store_true", help="stop after the step, and not after the epoch"
    )


def add_import(add_command):
    """Adds the command `import`; see `add_train`."""
    command = add_command(
        "import",
        "Make a run of a pretrained model: a folder of Hugging Face's (Marian, T5, M2M-100, NLLB, "
        "mBART-50), or Marian's own.",
        run=commands.import_model,
    )
    command.add_argument("folder", metavar="FOLDER", help="where the model's files are")
    command.add_argument("run_dir", metavar="RUN", help="new folder for the run")
    for side in ("source", "target"):
        command.add_argument(
            f"--{side}-language",
            metavar="NAME",
            help="as the model calls it, such as deu_Latn, where it has several",
        )
    command.add_argument(
        "--samples",
        metavar="FILE",
        help="source sentences that exports are compared on; random pieces if not",
    )
