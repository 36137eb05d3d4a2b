"""Writing a folder so that it appears whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile


@contextlib.contextmanager
def new_folder(path, *, overwrite=False):
    """Yields a temporary folder beside `path` that becomes `path` when the block succeeds.

    Args:
        path: The folder to make.
        overwrite: Whether a folder that stands there is replaced.

    Raises:
        FileExistsError: if `path` exists and `overwrite` is false.
    """
    path = pathlib.Path(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"an export needs a new folder. Received: {path}, which exists")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    os.chmod(temporary, 0o755)  # mkdtemp makes it private; a server runs as another user
    try:
        yield temporary
        if path.exists():
            old = temporary.with_name(temporary.name + ".old")
            os.rename(path, old)
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
