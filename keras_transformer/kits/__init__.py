"""Kits: folders with all that runs an artefact outside Python, and the examples.

They are written from the installed package: what they are made of is in `contents`.
"""

import os
import pathlib
import shutil

import keras_transformer_runner
from keras_transformer.artifacts import check_whole, newest_version
from keras_transformer.kits.contents import KITS, Kit, kit_files
from keras_transformer_runner.atomic import new_folder
from keras_transformer_runner.folders import received

__all__ = ["KITS", "Kit", "new_kit"]

_HERE = pathlib.Path(__file__).resolve().parent
_RUNNER = pathlib.Path(keras_transformer_runner.__file__).resolve().parent


def new_kit(name, directory, folder=None):
    """Writes a kit, whole or not at all, which needs no file outside of it.

    Args:
        name: A key of `KITS`.
        directory: Where to write it: a new folder, or an empty one.
        folder: What `export` has written, to be put where the kit's README looks for it: of
            `"serving"` a model's folder, of which the newest version is taken, else a LiteRT
            folder. `None` leaves the place empty.

    Returns:
        The `Kit`.

    Raises:
        ValueError: if there is no such kit, or it takes no such folder, or a file of the folder is
            damaged.
        FileExistsError: if `directory` holds anything.
        FileNotFoundError: if `folder` is no export, or this installation has no kits.

    Example:
        >>> from keras_transformer.kits import new_kit
        >>> new_kit("serving", "server").readme
        'README.md'
        >>> import pathlib
        >>> pathlib.Path("server/compose.yaml").is_file()
        True
    """
    if name not in KITS:
        raise ValueError(f"a kit must be one of {', '.join(KITS)}. Received: {name!r}")
    kit = KITS[name]
    files = _files(kit)
    if folder is not None:
        files |= _model_files(name, kit, pathlib.Path(folder))
        _check_apart(directory, folder)
    with new_folder(directory, what="a kit") as temporary:
        for place, source in files.items():
            _copy(source, temporary / place)
    return kit


def _files(kit):
    """All files of a kit by their paths in it."""
    installed = _HERE / "files"
    files = kit_files(kit, installed if installed.is_dir() else _HERE.parents[1])
    if not files:
        raise FileNotFoundError(
            f"a kit needs an installed package, or a clone. Received: {_HERE}, without {kit.place}"
        )
    shared = {f"shared/{each}": _RUNNER / each for each in kit.shared}
    return files | shared | {"LICENSE": _RUNNER / "LICENSE"}


def _model_files(name, kit, folder):
    """The files of an export by their places in a kit, once they are known to be whole."""
    if kit.model is None:
        raise ValueError(f"the kit `{name}` must be written without a folder. Received: {folder}")
    find = _of_saved_model if name == "serving" else _of_device_folder
    source, paths = find(name, folder)
    place = f"{kit.model}/{source.name}" if name == "serving" else kit.model
    return {f"{place}/{path.relative_to(source).as_posix()}": path for path in paths}


def _of_saved_model(name, folder):
    source = pathlib.Path(os.path.abspath(newest_version(folder)))  # a link keeps its number
    if not (source / "saved_model.pb").is_file() or not source.name.isdigit():
        raise FileNotFoundError(
            f"the kit `{name}` needs a model's folder that `export --to savedmodel` has written, "
            f"with numbered versions. Received: {received(folder)}"
        )
    check_whole(source)
    return source, [path for path in source.rglob("*") if path.is_file()]


def _of_device_folder(name, folder):
    from keras_transformer_runner.folder import FILES, open_folder  # `--help` needs no NumPy

    metadata = open_folder(folder).metadata
    if name == "web" and not metadata.get("lengths"):
        raise ValueError(
            "a browser needs a folder with fixed lengths: `export --lengths 32,128,512`. "
            f"Received: {folder}, which has none"
        )
    return folder, [folder / each for each in FILES if (folder / each).is_file()]


def _check_apart(directory, folder):
    target, source = pathlib.Path(directory).resolve(), pathlib.Path(folder).resolve()
    if target.is_relative_to(source):
        raise ValueError(f"a kit must lie outside the folder it takes. Received: {directory}")


def _copy(source, target):
    """Copies a file, which is the user's own from then on: writable, executable as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(target.stat().st_mode | source.stat().st_mode & 0o111)
