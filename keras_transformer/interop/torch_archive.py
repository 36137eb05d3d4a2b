"""The tensors of a file of `torch.save`, read without torch and without running what it holds.

Such a file is a zip archive: a pickle that names the tensors, and the numbers of each storage in an
entry of its own. Before torch 1.6 it was a row of pickles with the numbers behind them. A pickle
may call any function there is. These may only hold what a dictionary of tensors needs: anything
else is an error that names it.
"""

import collections
import functools
import io
import math
import pickle
import pickletools
import reprlib
import struct
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

_MOST_AXES = 64  # of an array; a copy of a long list takes more memory than its call
_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",  # made float32 when read
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
# The instructions that a dictionary of tensors is written with. None of the others is needed, and
# some of them ask for memory without bound.
_INSTRUCTIONS = {
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE", "TUPLE", "TUPLE1"),
    *("TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL", "REDUCE", "BUILD"),
    *("BINPERSID", "NEWOBJ", "FRAME", "STACK_GLOBAL"),
}
_LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # how files before torch 1.6 begin
_LEGACY_VERSION = 1001
_LARGEST_PICKLE = 100_000_000  # bytes; a thousand tensors take 100,000
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, sizes of the name and of the extra field
ZIP_FAULTS = (zlib.error, struct.error, NotImplementedError, KeyError, OverflowError)


def read(file, content):
    """By name, a function for each tensor of a dictionary of tensors that gives its array.

    Args:
        file: Path of the file.
        content: Its content, mapped into memory.

    Raises:
        ValueError: if it is no such file, or one that holds something else.
    """
    if content[: len(_LEGACY)] == _LEGACY:
        state, storages = _legacy(content)
    elif content[:4] == b"PK\x03\x04":
        state, storages = _zipped(file, content)
    else:
        raise ValueError(
            "a checkpoint must be *.safetensors, *.npz or a file of torch.save. "
            f"Received: a file that begins with {content[:8]!r}"
        )
    readers = {}
    for name, tensor in state.items():
        size, whole = storages[tensor.storage.key]
        _check_inside(name, tensor, size)
        readers[name] = functools.partial(_array, whole, tensor)
    return readers


class _Storage(NamedTuple):
    dtype: str
    key: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int  # this and the strides in items
    shape: tuple
    strides: tuple


class _Kind(NamedTuple):
    """Stands for a class of storages. Like all that follow, nothing that a pickle could change."""

    name: str


class _Rebuild:
    """Stands for `torch._utils._rebuild_tensor_v2`."""

    __slots__ = ()

    def __call__(self, storage, offset, shape, strides, *_):
        if not isinstance(storage, _Storage):
            raise ValueError("a tensor must be made of a storage")
        shape, strides = tuple(shape), tuple(strides)
        numbers = (offset, *shape, *strides)
        if any(type(number) is not int or number < 0 for number in numbers):
            shown = reprlib.repr(numbers)
            raise ValueError(f"a tensor must have sizes of at least 0. Received: {shown}")
        if len(shape) != len(strides):
            raise ValueError(f"a tensor must have a stride an axis. Received: {shape}, {strides}")
        return _Tensor(storage, offset, shape, strides)


class _Parameter:
    """Stands for `torch._utils._rebuild_parameter`."""

    __slots__ = ()

    def __call__(self, tensor, *_):
        return tensor


class _Size:
    """Stands for `torch.Size`."""

    __slots__ = ()

    def __call__(self, sizes=()):
        if not isinstance(sizes, (list, tuple)) or len(sizes) > _MOST_AXES:
            raise ValueError(f"a torch.Size must be of at most {_MOST_AXES} axes")
        return tuple(sizes)


class _State(collections.OrderedDict):
    """A dictionary whose attributes, such as torch's `_metadata`, are dropped."""

    __slots__ = ()

    def __init__(self, items=()):
        items = list(items)
        for name, _ in items:
            _check_key(name)
        super().__init__(items)

    def __setstate__(self, state):
        pass


_ALLOWED = {
    ("collections", "OrderedDict"): _State,
    ("torch._utils", "_rebuild_tensor_v2"): _Rebuild(),
    ("torch._utils", "_rebuild_parameter"): _Parameter(),
    ("torch", "Size"): _Size(),
    **{("torch", name): _Kind(name) for name in _STORAGES},
}


def _check_key(name):
    # A hash of tuples within each other takes time without end, or ends the process.
    if type(name) is not str:
        raise ValueError(f"a dictionary must have strings as keys, not {type(name).__name__}")


class _Unpickler(pickle._Unpickler):  # the one in Python, whose keys can be looked at
    dispatch = dict(pickle._Unpickler.dispatch)

    def load_setitem(self):
        _check_key(self.stack[-2])
        super().load_setitem()

    def load_setitems(self):
        for name in self.stack[::2]:  # since the last mark
            _check_key(name)
        super().load_setitems()

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems

    def find_class(self, module, name):
        if (module, name) not in _ALLOWED:
            raise ValueError(
                "a checkpoint must hold tensors by name and nothing that has to be run. "
                f"Received: {module}.{name}"
            )
        return _ALLOWED[module, name]

    def persistent_load(self, pid):
        # The sixth part was a view of another storage.
        parts = pid[:5] if isinstance(pid, tuple) and pid[5:] in ((), (None,)) else ()
        if len(parts) != 5 or parts[0] != "storage":
            raise ValueError(
                f"a checkpoint must refer to storages only. Received: {reprlib.repr(pid)}"
            )
        _, kind, key, _, _ = parts
        if not (isinstance(kind, _Kind) and isinstance(key, str)):
            raise ValueError(f"a storage must have a known type. Received: {reprlib.repr(pid)}")
        return _Storage(_STORAGES[kind.name], key)


def _zipped(file, content):
    """The tensors by name, and by key the size of a storage and a function that gives its bytes."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            prefix, state = _state(archive, entries)
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, *ZIP_FAULTS) as error:
        raise ValueError(f"a file of torch.save must be a whole zip file ({error})") from error
    keys = {tensor.storage.key for tensor in state.values()}
    return state, {key: _entry(content, entries.get(f"{prefix}data/{key}"), key) for key in keys}


def _state(archive, entries):
    """The folder within the archive, and its tensors by name."""
    pickles = [name for name in entries if name.split("/")[1:] == ["data.pkl"]]
    if len(pickles) != 1:
        raise ValueError(f"a file of torch.save must hold one data.pkl. Received: {len(pickles)}")
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}byteorder" in entries:
        with archive.open(f"{prefix}byteorder") as stream:
            _check_order(stream.read(10) == b"little")
    if entries[pickles[0]].file_size > _LARGEST_PICKLE:
        raise ValueError(f"a data.pkl must have at most {_LARGEST_PICKLE} bytes")
    return prefix, _tensors(_next_pickle(io.BytesIO(archive.read(pickles[0]))))


def _legacy(content):
    """As `_zipped`: a number, a version, the system, the tensors, the keys, then the storages."""
    content.seek(0)
    _, version, system = (_next_pickle(content) for _ in range(3))
    if version != _LEGACY_VERSION or not isinstance(system, dict):
        raise ValueError(f"a file of torch.save must have version {_LEGACY_VERSION}")
    _check_order(system.get("little_endian") is True)
    state, keys = _tensors(_next_pickle(content)), _next_pickle(content)
    dtypes = {tensor.storage.key: tensor.storage.dtype for tensor in state.values()}
    is_named = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not is_named or sorted(keys) != sorted(dtypes):
        raise ValueError("a file of torch.save must list the storages of its tensors")
    storages, start = {}, content.tell()
    for key in keys:
        items = int.from_bytes(content[start : start + 8], "little")
        start, size = start + 8, items * np.dtype(dtypes[key]).itemsize
        if start + size > len(content):
            raise ValueError(f"the storage {key!r} must lie within its file")
        storages[key] = size, functools.partial(_slice, content, start, size)
        start += size
    return state, storages


def _check_order(is_little):
    if not is_little:
        raise ValueError("a checkpoint must be of a little-endian machine")


def _tensors(state):
    wrong = None if isinstance(state, dict) else type(state).__name__
    if wrong is None:
        odd = (f"{name!r:.80}" for name, tensor in state.items() if not _is_entry(name, tensor))
        wrong = next(odd, None)
    if wrong is not None:
        raise ValueError(
            "a checkpoint must be a dictionary of tensors by name, as a `state_dict` is. "
            f"Received: {wrong}"
        )
    return state


def _is_entry(name, tensor):
    return isinstance(name, str) and isinstance(tensor, _Tensor)


def _next_pickle(stream):
    """What the pickle says that begins where a stream is; the stream is behind it then."""
    start = stream.tell()
    try:
        for instruction, argument, _ in pickletools.genops(stream):
            if instruction.name not in _INSTRUCTIONS:
                raise ValueError(f"an instruction {instruction.name} that tensors do not need")
            if instruction.name == "LONG_BINPUT" and argument > stream.tell() - start:
                raise ValueError("a memo without end")
        end = stream.tell()
        stream.seek(start)
        return _Unpickler(io.BytesIO(stream.read(end - start))).load()
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(f"the names of the tensors cannot be read: {error}") from error


def _entry(content, entry, key):
    """The size of a storage in a zip file, and a function that gives its bytes, if whole."""
    if entry is None:
        raise ValueError(f"a file of torch.save must hold the storage {key!r}. Received none")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("a file of torch.save must not be compressed. Save it with torch.save")
    start = entry.header_offset + 30
    if start > len(content):
        raise ValueError(f"the storage {key!r} must lie within its file")
    signature, name, extra = _LOCAL_HEADER.unpack_from(content, entry.header_offset)
    start += name + extra
    if signature != b"PK\x03\x04" or start + entry.file_size > len(content):
        raise ValueError(f"the storage {key!r} must lie within its file")

    @functools.cache
    def whole():
        storage = _slice(content, start, entry.file_size)
        if zlib.crc32(storage) != entry.CRC:
            raise ValueError(f"the storage {key!r} must be as it was written: its checksum differs")
        return storage

    return entry.file_size, whole


def _slice(content, start, size):
    return memoryview(content)[start : start + size]


def _check_inside(name, tensor, size):
    """Raises a `ValueError` unless a tensor lies in its storage without a number twice."""
    items = size // np.dtype(tensor.storage.dtype).itemsize
    count = math.prod(tensor.shape)
    pairs = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((length - 1) * stride for length, stride in pairs)
    if count > items or (count and last >= items):
        raise ValueError(
            f"the tensor {name!r} must lie within its storage. Received: offset {tensor.offset}, "
            f"shape {tensor.shape}, strides {tensor.strides} of {items} items"
        )


def _array(storage, tensor):
    dtype = np.dtype(tensor.storage.dtype)
    if not math.prod(tensor.shape):
        array = np.zeros(tensor.shape, dtype)
    else:
        numbers = storage()
        flat = np.frombuffer(numbers, dtype, len(numbers) // dtype.itemsize)[tensor.offset :]
        strides = [stride * dtype.itemsize for stride in tensor.strides]
        array = np.lib.stride_tricks.as_strided(flat, tensor.shape, strides, writeable=False)
    if tensor.storage.dtype == _STORAGES["BFloat16Storage"]:
        return from_bfloat16(array)
    return array


def from_bfloat16(array):
    """float32 of the bits of bfloat16, which are its upper half."""
    return (array.astype("<u4") << 16).view("<f4")
