"""The record of a run, `run.json`: checksums of its files, compared whenever these are read.

An interrupted run has one too, of the files that it began with. The checksum of `model.keras` is
written before that file gets its name, so that a run with a model always has a record.
"""

import json
import pathlib

from keras_transformer_runner.atomic import write_text
from keras_transformer_runner.integrity import check_file, checksum, read_json

RECORD_FILE = "run.json"
MODEL_FILE = "model.keras"  # written last: with it a run is finished


def write_record(run_dir, files):
    """Adds checksums to the record of a run.

    Args:
        run_dir: The folder of the run.
        files: Dictionary of names of files in it, and where their content is now.
    """
    path = pathlib.Path(run_dir) / RECORD_FILE
    sums = _read(path) if path.exists() else {}
    sums |= {name: checksum(file) for name, file in files.items()}
    write_text(path, json.dumps({"sha256": dict(sorted(sums.items()))}, indent=2) + "\n")


def check_record(run_dir, names, *, unread=()):
    """Compares files of a run with its record.

    Args:
        run_dir: The folder of the run.
        names: The files that are going to be read; the others in the record are compared too,
            since a file that is missing can change what is read.
        unread: Those that are not.

    Returns:
        Whether there is a record: the first runs had none.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file or the record is damaged.
    """
    path = pathlib.Path(run_dir) / RECORD_FILE
    if not path.exists():
        return False
    sums = _read(path)
    for name in sorted({*names, *sums} - set(unread)):
        if type(sums.get(name)) is not str or pathlib.Path(name).name != name:
            raise ValueError(
                f"{path} must have a checksum for each file that is read. "
                f"Received: {sums.get(name)!r} for {name!r}"
            )
        check_file(path.with_name(name), sums[name], RECORD_FILE)
    return True


def _read(path):
    return read_json(path, "the record of a run", {"sha256": dict})["sha256"]
