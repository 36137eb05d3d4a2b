"""Which files of a folder are opened, by whatever: Linux tells."""

import contextlib
import ctypes
import os
import pathlib
import struct

_OPEN, _IS_FOLDER = 0x20, 0x40000000  # IN_OPEN, IN_ISDIR
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name


@contextlib.contextmanager
def files_opened(folder):
    """Yields a set, which has the names of the files below a folder that were opened at the end.

    Args:
        folder: A folder, whose folders are there already.
    """
    libc, found = ctypes.CDLL(None, use_errno=True), set()
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    try:
        folders = [folder, *(path for path in pathlib.Path(folder).rglob("*") if path.is_dir())]
        watches = {
            libc.inotify_add_watch(descriptor, os.fsencode(each), _OPEN): each for each in folders
        }
        yield found
        for watch, name in _events(descriptor):
            found.add((watches[watch] / name).relative_to(folder).as_posix())
    finally:
        os.close(descriptor)


def _events(descriptor):
    with contextlib.suppress(BlockingIOError):
        while data := os.read(descriptor, 1 << 16):
            while data:
                watch, mask, _, length = _EVENT.unpack_from(data)
                name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                data = data[_EVENT.size + length :]
                if name and not mask & _IS_FOLDER:
                    yield watch, os.fsdecode(name)
