"""Files and folders that appear whole or not at all, written by one process at a time.

What is being written has a name of its own beside its target, `.1f00ba47.writing.TARGET`, and is
renamed when it is whole. While it is written, the system locks `.TARGET.lock`. The system lets go
of a lock when its process dies, however it dies, on this machine or another; so whoever holds the
lock knows that everything of such a name was left by the dead, and removes it.

Needs nothing but Python.
"""

import contextlib
import errno
import fnmatch
import itertools
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import stat
import time
import warnings

try:
    import fcntl
except ImportError:  # Windows, where this was not tried
    import msvcrt

    fcntl = None

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_NO_RESERVING = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # of file systems
_GRACE = 0.5  # seconds for a holder to sign, or to die of the signal that it was sent
_WAIT = 60  # seconds for another writer of a single file, which takes an instant
_MARK = 1 << 30  # Windows locks bytes; these are beyond the text, which others may read

# A child that a process forks must not keep the locks of its dead parent.
_held = set()
if hasattr(os, "register_at_fork"):

    def _let_go_in_child():
        while _held:
            os.close(_held.pop())

    os.register_at_fork(after_in_child=_let_go_in_child)


class TargetInUseError(OSError):
    """Another process is writing what was to be written."""


@contextlib.contextmanager
def locked(target, *, wait=0.0):
    """Holds `target` for this process and yields its real path; removes what dead ones have left.

    The target itself need not exist, and is not touched. Missing parents are made; those that are
    empty at the end are removed if the block fails. A file system that cannot lock gets a warning;
    nothing is removed there, since the writer may be alive.

    Args:
        target: A file or a folder; a symbolic link stands for what it points at.
        wait: Seconds to wait for another holder; half a second at least.

    Raises:
        TargetInUseError: if another process, or another thread of this one, holds it.
    """
    target = pathlib.Path(os.path.realpath(target))
    with _parents(target):
        lock = target.with_name(f".{target.name}.lock")
        descriptor, alone = _acquire(lock, target, wait)
        _held.add(descriptor)
        try:
            if alone:
                _sweep(target)
            yield target
        except OSError as error:
            if error.errno in _FULL and error.filename is None:
                # The system does not say what could not be written, and HDF5 says too much.
                error.strerror, error.filename = os.strerror(error.errno), str(target)
            raise
        finally:
            if descriptor in _held:  # a forked child has let go of it already
                _held.discard(descriptor)
                _release(lock, descriptor)


@contextlib.contextmanager
def new_folder(target, *, replaces=None, mark=None, what="a folder", lock=True):
    """Yields a temporary folder that becomes `target` when the block succeeds.

    When the block fails nothing is left, not even the parents that were made.

    Args:
        target: The folder to make. An empty one may stand there.
        replaces: Patterns of files, such as `"variables/*"`; a folder that holds no other is
            replaced. `None` replaces nothing.
        mark: Name of a file that a folder must hold to be replaced: one that others do not make.
        what: Names what is made, for errors.
        lock: Whether to hold the target; `False` where the caller does.

    Raises:
        FileExistsError: if the target exists and may not be replaced, or the name of its lock is
            that of another file.
        TargetInUseError: if another process is writing it.
    """
    target = pathlib.Path(os.path.realpath(target))
    rules = target, replaces, mark, what
    with locked(target) if lock else _parents(target):
        _check_free(*rules)
        with scratch_folder(target) as temporary:
            yield temporary
            _check_free(*rules)
            for path in (*temporary.rglob("*"), temporary):
                _flush(path)
            _put(temporary, target)


@contextlib.contextmanager
def scratch_folder(target):
    """Yields a folder beside `target`, which the caller holds, for the parts of it.

    It is removed at the end, or by the next holder where this process dies.
    """
    temporary = _temporary(pathlib.Path(os.path.realpath(target)))
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_unheld(target):
    """Raises `TargetInUseError` if another process holds `target` now; removes what it left."""
    target = pathlib.Path(os.path.realpath(target))
    if target.with_name(f".{target.name}.lock").exists():
        with locked(target):
            pass


def write_file(target, write, *, lock=True):
    """Calls `write(path)` with a temporary path; what it wrote becomes `target` when it is done.

    A kill at any moment leaves the old file or the new one. The temporary name has the target's
    suffix, since Keras and NumPy choose a format by it. Of two at once the second waits.

    Args:
        target: The file. What stands there is replaced, if it is a file.
        lock: Whether to hold the target; `False` where the caller does, or where all write the
            same.

    Raises:
        FileExistsError: if something other than a file stands there, or the name of its lock is
            that of another file.
        TargetInUseError: if another process has held it for a minute.
    """
    path = pathlib.Path(os.path.realpath(target))
    with locked(path, wait=_WAIT) if lock else contextlib.nullcontext():
        if path.exists() and not path.is_file():
            raise FileExistsError(
                f"a file can take the place of nothing but a file. Received: {target}"
            )
        temporary = _temporary(path)
        try:
            write(temporary)
            _flush(temporary)
            os.replace(temporary, path)
            _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def check_space(path, size):
    """Raises an OSError unless a disk takes a file of `size` bytes at `path`; leaves it empty.

    For what is written by code that does not survive a full disk, such as HDF5's.
    """
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in _NO_RESERVING:
                    raise
            file.truncate(0)


def write_text(target, text):
    """Writes a text file in UTF-8 with `write_file`."""
    write_file(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


# --- Locks -----------------------------------------------------------------------------------


def _acquire(lock, target, wait):
    """An open descriptor of the lock's file, and whether the system has locked it."""
    end = time.monotonic() + max(wait, _GRACE)
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        _check_ours(lock, descriptor)
        try:
            _lock(descriptor)
        except BlockingIOError:
            owner = _owner(lock)
            os.close(descriptor)
            if time.monotonic() >= end:
                raise TargetInUseError(
                    f"one process at a time may write a target. Received: {target}, which is "
                    f"being written by {owner or 'another process'}"
                ) from None
            time.sleep(0.02)
        except OSError as error:
            warnings.warn(
                f"the file system of {target} cannot lock ({error}): see to it that only one "
                "process writes there",
                stacklevel=4,
            )
            return descriptor, False
        else:
            if _is_open_file(lock, descriptor):
                _sign(descriptor)
                return descriptor, True
            os.close(descriptor)  # its holder has removed it in the meantime


def _check_ours(lock, descriptor):
    """Raises FileExistsError, and closes the file, if it is no lock but somebody's file."""
    try:
        content = os.pread(descriptor, 1024, 0) if hasattr(os, "pread") else b""
        is_ours = {*json.loads(content or b"{}")} <= {"pid", "host", "since"}
    except (ValueError, TypeError, RecursionError):
        # As a crash of the machine, or a full disk, leaves it.
        is_ours = not content.strip(b"\0") or content.startswith(b'{"pid": ')
    except OSError:  # not even a file
        is_ours = False
    if not is_ours:
        os.close(descriptor)
        raise FileExistsError(
            f"this name is for a lock: move the file elsewhere. Received: {lock}, which is no lock"
        )


def _lock(descriptor):
    """Raises BlockingIOError if another holds it, OSError where locks are not to be had."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    os.lseek(descriptor, _MARK, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        raise BlockingIOError(*error.args) from error


def _is_open_file(path, descriptor):
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _sign(descriptor):
    """Writes who holds a lock into its file, for whoever is refused."""
    fields = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(fields).encode())


def _owner(lock):
    try:
        fields = json.loads(lock.read_bytes())
        return f"process {fields['pid']} on {fields['host']} since {fields['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _release(lock, descriptor):
    # Removed while it is held: whoever opens the old file next sees that it has lost its name.
    with contextlib.suppress(OSError):
        if fcntl is not None and _is_open_file(lock, descriptor):
            lock.unlink()
    os.close(descriptor)
    if fcntl is None:
        with contextlib.suppress(OSError):
            lock.unlink()


# --- Names and places ------------------------------------------------------------------------


def _temporary(target, purpose="writing"):
    return target.with_name(f".{secrets.token_hex(4)}.{purpose}.{target.name}")


def _sweep(target):
    """Removes what was being written when its process died; puts back what it was to replace."""
    name = re.escape(target.name)
    for path in sorted(target.parent.iterdir()):
        if found := re.fullmatch(rf"\.[0-9a-f]{{8}}\.(writing|replaced)\.{name}", path.name):
            if found[1] == "replaced" and not target.exists():
                os.rename(path, target)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # of another user
                    path.unlink()


@contextlib.contextmanager
def _parents(target):
    missing = [parent for parent in target.parents if not parent.exists()]
    if not target.parents[len(missing)].is_dir():
        raise NotADirectoryError(f"a file or folder must lie in a folder. Received: {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # someone else uses one of them by now
            for parent in missing:
                parent.rmdir()
        raise


def _check_free(target, replaces, mark, what):
    if os.path.lexists(target) and not target.is_dir():
        raise FileExistsError(f"{what} needs a new folder. Received: {target}, which is no folder")
    if not target.exists() or not any(target.iterdir()):
        return
    if replaces is None:
        raise FileExistsError(f"{what} needs a new folder. Received: {target}, which exists")
    others = (path for path in target.rglob("*") if not _fits(path, target, replaces))
    names = sorted(path.relative_to(target).as_posix() for path in itertools.islice(others, 5))
    received = f"also holds {', '.join(names)}" if names else ""
    if not names and mark and not (target / mark).is_file():
        received = f"does not hold {mark}"
    if received:
        raise FileExistsError(
            f"{what} replaces only what it has made itself. Received: {target}, which {received}"
        )


def _fits(path, folder, patterns):
    """Whether a file is of a pattern, or a folder above one."""
    parts, is_folder = path.relative_to(folder).parts, path.is_dir() and not path.is_symlink()
    return any(
        (len(parts) < len(split) if is_folder else len(parts) == len(split))
        and all(map(fnmatch.fnmatchcase, parts, split))
        for split in (pattern.split("/") for pattern in patterns)
    )


def _put(temporary, target):
    """Renames a folder to its target, in the place of what may be replaced."""
    if not target.exists():
        os.rename(temporary, target)
    else:
        old = _temporary(target, "replaced")
        os.rename(target, old)
        try:
            os.rename(temporary, target)
        except OSError:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    _flush(target.parent)


def _flush(path):
    """Has the system write a file, or a folder's names, to the disk."""
    is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    if is_folder and fcntl is None:
        return  # Windows opens no folders
    descriptor = os.open(path, os.O_RDONLY if is_folder or fcntl is not None else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems flush no folders
        if not is_folder or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)
