"""A corpus whose targets teachers have written: the folder that `distil` makes."""

from pathlib import Path

from keras_transformer.data.corpus import Corpus
from keras_transformer.data.readers import JsonLinesCorpus
from keras_transformer_runner.integrity import check_file, check_seal, read_json

NOTE_FILE = "distilled.json"
_FIELDS = {"job": dict, "sources": int, "parts": list}


def pairs_file(number):
    """The file with the pairs of the `number`-th corpus."""
    return f"pairs-{number}.jsonl"


def read_note(folder):
    """What the note in a folder says: `job`, `sources` and `parts`, of which there are none before
    all is translated.

    Raises:
        FileNotFoundError: if there is no note.
        ValueError: if it is damaged.
    """
    path = Path(folder) / NOTE_FILE
    note = read_json(path, "the note of a corpus that `distil` writes", _FIELDS)
    check_seal(path, note)
    return note


def open_distilled(folder, corpora: int) -> list[Corpus]:
    """The corpora of a folder that `distil` has finished.

    Args:
        folder: The folder.
        corpora: How many corpora the experiment has.

    Raises:
        FileNotFoundError: if the folder or a file of it is missing.
        ValueError: if it is not finished, was made of another number of corpora, or a file is
            damaged.
    """
    folder = Path(folder)
    parts = read_note(folder)["parts"]
    if not parts:
        raise ValueError(
            "`data.distilled` must be finished: give the `distil` that began it again. "
            f"Received: {folder}"
        )
    if len(parts) != corpora:
        raise ValueError(
            "`data.distilled` must be made of as many corpora as [data] names. "
            f"Received: {folder}, made of {len(parts)}, for {corpora}"
        )
    opened = []
    for number, part in enumerate(parts):
        path = folder / pairs_file(number)
        check_file(path, part["file"], NOTE_FILE)
        opened.append(JsonLinesCorpus(path, "source", "target"))
    return opened
