"""Files of this machine and of what `tf.io.gfile` reaches, such as an object store, by one name.

A path with `://` in it is remote. An object store has no rename and no locks, so a folder there is
whole when the file that is written last is in it, and the user sees to it that one process at a
time writes it.
"""

import contextlib
import os
import pathlib
import shutil
import tempfile
import weakref

from keras_transformer_runner.atomic import write_file


def is_remote(path: os.PathLike | str) -> bool:
    """Whether a path is one of `tf.io.gfile`, such as `"gs://bucket/folder"`."""
    return "://" in os.fspath(path)


def place(path):
    """`path` as what its files are found from: text if it is remote, or a `pathlib.Path`."""
    return os.fspath(path).rstrip("/") if is_remote(path) else pathlib.Path(path)


def path_in(folder, name):
    """The path of a file in a folder."""
    return f"{place(folder)}/{name}" if is_remote(folder) else pathlib.Path(folder) / name


@contextlib.contextmanager
def reached(path):
    """What `tf.io.gfile` raises of a remote path in the block becomes an `OSError` of one line.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if it cannot be reached.
    """
    if not is_remote(path):
        yield
        return
    import tensorflow as tf

    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"a file must exist. Received: {path}") from error
    except tf.errors.OpError as error:
        raise OSError(
            f"a path must be one that TensorFlow reaches (tf.io.gfile). Received: {path}: "
            f"{' '.join(error.message.split())}"
        ) from error


def status(path):
    """Bytes, time of the last change, and number of a file: what changes when it is written.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if it cannot be reached.
    """
    if not is_remote(path):
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns, found.st_ino
    import tensorflow as tf

    with reached(path):
        found = tf.io.gfile.stat(path)
    return found.length, found.mtime_nsec, 0


def size(path):
    """The bytes of a file; `None` if there is no file at the path."""
    if not is_remote(path):
        return os.path.getsize(path) if os.path.isfile(path) else None
    import tensorflow as tf

    try:
        with reached(path):
            found = tf.io.gfile.stat(path)
    except FileNotFoundError:
        return None
    return None if found.is_directory else found.length


@contextlib.contextmanager
def open_bytes(path):
    """Opens a file for reading its bytes.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if it cannot be read.
    """
    if not is_remote(path):
        with open(path, "rb") as file:
            yield file
        return
    import tensorflow as tf

    with reached(path), tf.io.gfile.GFile(path, "rb") as file:
        yield file


class _Near:
    """`path`, a folder of this machine; a copy goes with this object."""

    def __init__(self, path, *, is_copy=False):
        self.path = pathlib.Path(path)
        if is_copy:
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)


def near(folder, names):
    """A folder of this machine with the files `names` of a folder, those that are there.

    Returns:
        Object with `path`: the folder itself, or a copy if it is remote, as long as that object
        is kept.
    """
    if not is_remote(folder):
        return _Near(folder)
    import tensorflow as tf

    copy = _Near(tempfile.mkdtemp(), is_copy=True)
    for name in names:
        if size(path := path_in(folder, name)) is not None:
            with reached(path):
                tf.io.gfile.copy(path, os.fspath(copy.path / name), overwrite=True)
    return copy


def put(path, write):
    """Calls `write(path)` with a path of this machine; what it wrote is then at `path`, whole."""
    if not is_remote(path):
        write_file(path, write, lock=False)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = pathlib.Path(folder) / path.rpartition("/")[2]
        write(local)
        _copy(local, path)


def _copy(local, path):
    import tensorflow as tf

    with reached(path):
        tf.io.gfile.copy(os.fspath(local), path, overwrite=True)


@contextlib.contextmanager
def remote_folder(folder, names, *, last, what, passing=()):
    """Yields a folder of this machine, whose files are in the remote `folder` when the block ends.

    When the block fails, what it may have written there is removed.

    Args:
        folder: The remote folder.
        names: Files that the block, or its workers, may write there themselves.
        last: Name of the file that is copied behind all others: who finds it, finds all.
        what: Names what is made, for errors.
        passing: Files that the block needs there and that are removed at the end.

    Raises:
        FileExistsError: if there is something in the folder.
        OSError: if it cannot be reached.
    """
    check_empty(folder, what)
    with tempfile.TemporaryDirectory() as temporary:
        written = [*names, *passing]
        try:
            yield pathlib.Path(temporary)
            local = sorted(pathlib.Path(temporary).iterdir(), key=lambda path: path.name == last)
            written = [path.name for path in local] + written
            _remove(folder, passing)
            for path in local:
                _copy(path, path_in(folder, path.name))
        except BaseException:
            for name in written:
                with contextlib.suppress(OSError):  # the others go all the same
                    _remove(folder, [name])
            raise


def check_empty(folder, what):
    """Raises a `FileExistsError` if there is something in a remote folder; makes the folder."""
    import tensorflow as tf

    with reached(folder):
        found = tf.io.gfile.listdir(folder) if tf.io.gfile.exists(folder) else []
        if found:
            raise FileExistsError(
                f"{what} needs a new folder; one that has no index was left by a process that "
                f"died, and may be removed. Received: {folder}, which holds {found[0]}"
            )
        tf.io.gfile.makedirs(os.fspath(folder))


def _remove(folder, names):
    import tensorflow as tf

    for name in names:
        path = path_in(folder, name)
        if size(path) is not None:
            with reached(path):
                tf.io.gfile.remove(path)
