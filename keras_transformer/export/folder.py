"""Writing a folder so that it appears whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile


@contextlib.contextmanager
def new_folder(path, *, overwrite=False):
    """Yields a temporary folder beside `path` that becomes `path` when the block succeeds.

    When it fails, nothing is left, not even the parents that were made for it.

    Args:
        path: The folder to make; a symbolic link stands for the folder it points at.
        overwrite: Whether a folder that stands there is replaced.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is false, or is not a folder.
    """
    path = pathlib.Path(os.path.realpath(path))
    _check_free(path, overwrite)
    missing = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    os.chmod(temporary, 0o755)  # mkdtemp makes it private; a server runs as another user
    try:
        yield temporary
        _check_free(path, overwrite)  # again: exporting takes a while
        _rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):  # someone else uses one of them by now
            for parent in missing:
                parent.rmdir()
        raise


def _check_free(path, overwrite):
    if path.exists() and not (overwrite and path.is_dir()):
        advice = "" if path.is_dir() else " and is not a folder"
        raise FileExistsError(
            f"an export needs a new folder. Received: {path}, which exists{advice}"
        )


def _rename(temporary, path):
    if not path.exists():
        os.rename(temporary, path)
        return
    old = temporary.with_name(temporary.name + ".old")
    os.rename(path, old)
    try:
        os.rename(temporary, path)
    except OSError:
        os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)
