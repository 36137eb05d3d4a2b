"""What lies at a path, and whether something can be made there: known before any long work."""

import os
import pathlib
import re

_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")  # `pathlib` leaves one slash; not a Windows drive
# By the files that tell.
_KINDS = {
    ("experiment.toml",): "a run folder of `train`",
    ("metadata.json", "model.tflite"): "a LiteRT folder of `export`, which "
    "`keras-transformer-run` and `evaluate --with litert` run",
    ("saved_model.pb",): "a SavedModel of `export`, which TF Serving and "
    "`evaluate --with savedmodel` run",
    ("prepared.json",): "a corpus of `prepare`, which [data] source may name",
}


def received(path):
    """`path` with what it is, for an error where something else was needed."""
    path = pathlib.Path(path)
    if not path.is_dir():
        return f"{path}, which {'is a file' if path.exists() else 'does not exist'}"
    for folder in (path, *sorted(child for child in path.iterdir() if child.name.isdigit())):
        for files, kind in _KINDS.items():
            if all((folder / file).is_file() for file in files):
                return f"{path}, which is {kind}"
    return str(path)


def check_new_folder(path, what):
    """Raises a `FileExistsError` if something is at `path` that a new folder cannot replace."""
    path = pathlib.Path(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(f"{what} needs a new folder. Received: {path}, which exists")


def check_writable(path):
    """Raises an `OSError` if nothing can be made at `path`, which need not exist."""
    if _URL.match(str(path)):
        raise OSError(f"an output must be in a folder of this machine. Received: {path}")
    path = pathlib.Path(path).absolute()
    parent = next(parent for parent in path.parents if parent.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"an output must be in a folder. Received: {path}: {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"an output must be in a writable folder. Received: {path}")
