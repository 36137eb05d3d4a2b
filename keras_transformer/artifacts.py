"""What lies in the folder of a SavedModel: its numbered versions, and whether they are whole."""

import contextlib
import pathlib

from keras_transformer_runner.atomic import TargetInUseError, check_unheld
from keras_transformer_runner.integrity import check_file, check_seal, read_json

DESCRIPTION = "assets.extra/serving.json"


def versions(path):
    """The version numbers in a model's folder, rising.

    Folders whose name is a number, as TF Serving reads them; it ignores all others, and so do the
    temporary folders of an export.

    Args:
        path: The model's folder; it need not exist.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        return []
    return sorted(
        int(child.name)
        for child in path.iterdir()
        if child.name.isascii() and child.name.isdigit() and child.is_dir()
    )


def next_version(path):
    """The folder of the version after the newest: `path/1` at first.

    Of two exports at once the second is refused: here, or where it begins to write.

    Raises:
        FileExistsError: if `path` is a file, or is itself a SavedModel.
        TargetInUseError: if another process is writing that version.
    """
    path = pathlib.Path(path)
    if (path / "saved_model.pb").exists() or (path.exists() and not path.is_dir()):
        what = "a SavedModel itself" if path.is_dir() else "a file"
        raise FileExistsError(
            f"a model's folder must be new or hold numbered versions. Received: {path}, {what}"
        )
    found = versions(path)
    version = path / str(max(found, default=0) + 1)
    if found:
        with contextlib.suppress(TargetInUseError):  # it is whole, and about to be let go
            check_unheld(path / str(found[-1]))
    check_unheld(version)
    return version


def newest_version(path):
    """The folder of the newest version below `path`; `path` itself if there is none."""
    path = pathlib.Path(path)
    found = versions(path)
    return path / str(found[-1]) if found else path


def read_description(folder):
    """What an exported SavedModel says of itself: `assets.extra/serving.json`.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged.
    """
    fields = {"signatures": dict, "bounds": dict, "requires": dict, "latency": list}
    return read_json(
        pathlib.Path(folder) / DESCRIPTION, "the facts of an exported SavedModel", fields
    )


def check_whole(folder):
    """Raises an error if a SavedModel is not what the export has written; servers do not look.

    One without a description, or of an earlier version of this package, passes.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if one is damaged.
    """
    path = pathlib.Path(folder) / DESCRIPTION
    if not path.is_file():
        return
    description = read_description(folder)
    check_seal(path, description)
    for name, expected in description.get("sha256", {}).items():
        check_file(path.parents[1] / name, expected, path.name)
