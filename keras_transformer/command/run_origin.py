"""Where an exported model comes from, for its model card."""

import pathlib

from keras_transformer.presets.card import Card
from keras_transformer.presets.card_file import stated
from keras_transformer.presets.record import MODEL_FILE
from keras_transformer_runner.integrity import checksum

_OPTIONS = ("beam_size", "n_best", "length_penalty", "length_normalization", "max_source_length")


def card_of_export(run, arguments):
    """The `Card` of what `export` makes of a run.

    Its licence and its languages are those of the run's own card, which its owner may have edited.

    Args:
        run: The `Run`.
        arguments: Those of `export`.
    """
    folder = pathlib.Path(arguments.run_dir)
    license, languages = stated(folder)
    given = {"mode": arguments.mode} if arguments.form == "litert" else {}
    given |= {name: getattr(arguments, name) for name in _OPTIONS}
    extra = "".join(
        f" --{name.replace('_', '-')} {value}" for name, value in given.items() if value
    )
    return Card(
        name=folder.resolve().name,
        license=license,
        languages=languages,
        data=f"that of the run {folder.resolve().name}",
        figures=run.figures,
        search=run.strategy,
        sections={
            "Make it again": {
                "command": f"`keras-transformer export RUN FOLDER --to {arguments.form}{extra}`",
                f"sha256 of the run's {MODEL_FILE}": checksum(folder / MODEL_FILE),
            }
        },
        translates=True,
    )
