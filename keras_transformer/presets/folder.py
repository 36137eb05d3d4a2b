"""What lies where in a preset, and writing one."""

import contextlib
import os
from pathlib import Path

from keras_transformer.presets.card_file import write_card
from keras_transformer.presets.record import MODEL_FILE, check_record, write_record
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.folders import check_new_folder, received

CONFIG_FILE = "config.json"
EXPERIMENT_FILE = "experiment.toml"  # of a preset with tokenizers: its `[decoding]`
SAMPLES_FILE = "samples.txt"
SHORTLIST_FILE = "shortlist.npz"  # of a run, by the command `shortlist`
SOURCE_TOKENIZER = "tokenizer"
TARGET_TOKENIZER = "target_tokenizer"


def check_preset(folder: os.PathLike | str) -> Path:
    """`folder` as a `Path`, if it holds a model whose files are whole.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if one is damaged.
    """
    folder = Path(folder)
    for name in (CONFIG_FILE, MODEL_FILE):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"a preset must hold {name}, as `save_to_preset` and a finished run leave it. "
                f"Received: {received(folder)}"
            )
    check_record(folder, (CONFIG_FILE, MODEL_FILE))
    return folder


@contextlib.contextmanager
def new_preset(folder, texts, card):
    """Yields a folder for the model and the tokenizers of a preset, which then appears whole.

    Args:
        folder: The folder to make; an empty one may stand there.
        texts: Content of other files by their names.
        card: The model card. It is in no record: people go on writing it.
    """
    check_new_folder(folder, "a preset")
    with new_folder(folder, what="a preset") as temporary:
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8", newline="\n")
        yield temporary
        write_record(temporary, {path.name: path for path in temporary.iterdir()})
        write_card(temporary, card)
