"""The tensors of a checkpoint as NumPy arrays, read when asked for, without torch.

Files are those of others: what is damaged or was made to do harm is an error. Nothing in a file is
run, and nothing outside its bounds is read. The formats are read here, since the libraries of two
of them would bring torch, and `safetensors` one more dependency for the forty lines it takes.
"""

import difflib
import functools
import json
import math
import mmap
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from keras_transformer.interop import torch_archive

# What a folder may hold, the best first.
_FILES = ("model.safetensors", "pytorch_model.bin")
_INDEX = ".index.json"  # of a checkpoint in several files
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # made float32 when read
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_LONGEST_HEADER = 100_000_000  # bytes, as in the library of the format


class Arrays(Mapping[str, np.ndarray]):
    """Arrays by name, each read from its file when asked for; counts which have been taken.

    An array may be a read-only view of its file. bfloat16 comes as float32, which holds it exactly.

    Args:
        readers: By name, a function that gives the array.
        origin: The file or folder, for messages.

    Example:
        >>> from keras_transformer.interop.arrays import read_arrays
        >>> np.savez("model.npz", weight=np.eye(2), bias=np.ones(2))
        >>> arrays = read_arrays("model.npz")
        >>> arrays.take("bias")
        array([1., 1.])
        >>> arrays.unused()
        ['weight']
    """

    def __init__(self, readers: Mapping[str, Callable[[], np.ndarray]], origin: object):
        self._readers = dict(readers)
        self._origin = origin
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def take(self, name: str) -> np.ndarray:
        """The array `name`, which from now on counts as used.

        Raises:
            ValueError: if there is none, it was taken before, or its part of the file is damaged.
        """
        found = self.peek(name)
        if name in self._used:
            raise ValueError(f"a tensor must be taken once. Received twice: {name!r}")
        self._used.add(name)
        return found

    def peek(self, name: str) -> np.ndarray:
        """The array `name`, which does not count as used.

        Raises:
            ValueError: if there is none, or its part of the file is damaged.
        """
        if name not in self._readers:
            near = difflib.get_close_matches(name, self._readers, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"a checkpoint must hold the tensor {name!r}. Received: {self._origin}, "
                f"{len(self)} tensors without it.{hint}"
            )
        return self[name]

    def unused(self) -> list[str]:
        """The names of those that were never taken."""
        return [name for name in self._readers if name not in self._used]


def read_arrays(path: os.PathLike | str) -> Arrays:
    """The tensors of a checkpoint: of one file, or of a folder as Hugging Face has it.

    Reads `*.safetensors`, the files of `torch.save` (`*.bin`, `*.pt`, `*.pth`, `*.ckpt`) and
    `*.npz`. A folder gives its `model.safetensors`, else its `pytorch_model.bin`, each also in
    several files with an `.index.json`, else its one `*.npz`.

    Args:
        path: The file or folder.

    Returns:
        `Arrays`.

    Raises:
        FileNotFoundError: if there is no such file, or the folder holds no checkpoint.
        ValueError: if a file is damaged or not of one of these formats, holds something else than
            tensors by name, or is a pointer of Git LFS, or there is more than one `.npz` to choose
            from.

    Example:
        >>> from keras_transformer.interop.arrays import read_arrays
        >>> np.savez("weights.npz", embeddings=np.zeros((7, 3)))
        >>> {name: array.shape for name, array in read_arrays("weights.npz").items()}
        {'embeddings': (7, 3)}
    """
    path = Path(path)
    file = _file_of(path) if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"`path` must be a checkpoint's file or folder. Received: {path}")
    try:
        return Arrays(_several(file) if file.name.endswith(_INDEX) else _one(file), path)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def content_of(file: Path, size: int = -1) -> bytes:
    """The content of a file that others have made, or its first `size` bytes.

    Raises:
        ValueError: if it is what a clone without Git LFS has in the place of a large file.
    """
    with open(file, "rb") as stream:
        content = stream.read(size)
    if content.startswith(b"version https://git-lfs.github.com/spec/"):
        raise ValueError(
            "a file must be there itself: get it by `git lfs pull`. Received: a pointer of Git LFS"
        )
    return content


def _file_of(folder):
    for name in _FILES:
        for candidate in (folder / name, folder / f"{name}{_INDEX}"):
            if candidate.is_file():
                return candidate
    archives = sorted(folder.glob("*.npz"))
    if not archives:
        raise FileNotFoundError(
            f"a checkpoint's folder must hold one of {_FILES}, or a *.npz. Received: {folder}"
        )
    if len(archives) > 1:
        raise ValueError(
            "a folder must hold one *.npz, or name the file itself. Received: "
            f"{[archive.name for archive in archives]}"
        )
    return archives[0]


def _one(file):
    content_of(file, 64)  # no pointer
    if file.suffix == ".safetensors":
        return _safetensors(file)
    if file.suffix == ".npz":
        return _npz(file)
    return torch_archive.read(file, map_file(file))


def _several(index):
    """The readers of all files that an index names."""
    try:
        names = json.loads(index.read_bytes())["weight_map"]
        files = sorted(set(names.values()))
        plain = all(file == Path(file).name and file for file in files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("an index must hold a `weight_map` from names to files") from error
    if not plain:
        raise ValueError(f"an index must name files beside it. Received: {files}")
    readers = {}
    for file in files:
        shard = index.parent / file
        if not shard.is_file():
            raise FileNotFoundError(f"a file of the index must exist. Received: {shard}")
        found = _one(shard)
        if twice := readers.keys() & found.keys():
            raise ValueError(f"a tensor must lie in one file. Received twice: {min(twice)!r}")
        missing = sorted(name for name in names if names[name] == file and name not in found)
        if missing:
            raise ValueError(f"{file} must hold what the index says. Received none: {missing[0]!r}")
        readers |= found
    return readers


def map_file(file):
    """The content of a file that is not empty, mapped into memory."""
    with open(file, "rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            raise ValueError("a checkpoint's file must not be empty. Received: 0 bytes")
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _safetensors(file):
    """Eight bytes for the header's size, the header in JSON, then the tensors."""
    content = map_file(file)
    size = int.from_bytes(content[:8], "little")
    start = 8 + size
    if len(content) < 8 or size > _LONGEST_HEADER or start > len(content):
        raise ValueError(
            "a safetensors file must begin with the size of its header, and hold that much. "
            f"Received: a header of {size} bytes in {len(content)} bytes"
        )
    try:
        header = json.loads(content[8:start])
    except (ValueError, RecursionError) as error:
        raise ValueError("the header of a safetensors file must be JSON") from error
    if not isinstance(header, dict):
        raise ValueError("the header of a safetensors file must name tensors")
    header.pop("__metadata__", None)
    return {
        name: functools.partial(_view, content, *_place(name, entry, start, len(content)))
        for name, entry in header.items()
    }


def _place(name, entry, start, end):
    """The dtype, shape and offset that an entry of a header tells, within its file."""
    try:
        dtype, shape, (first, last) = (entry[key] for key in ("dtype", "shape", "data_offsets"))
        whole = all(type(value) is int and value >= 0 for value in [first, last, *shape])
        size = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize if whole else -1
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the tensor {name!r} must have a dtype of {tuple(_DTYPES)}, a shape and offsets. "
            f"Received: {str(entry)[:200]}"
        ) from error
    if not whole or last - first != size or start + last > end:
        raise ValueError(
            f"the tensor {name!r} must lie within its file, in as many bytes as its shape needs. "
            f"Received: {dtype}, shape {shape}, offsets {[first, last]} of {end - start} bytes"
        )
    return dtype, tuple(shape), start + first


def _view(content, dtype, shape, offset):
    count = math.prod(shape)
    if not count:  # which may begin where the file ends
        return np.zeros(shape, "<f4" if dtype == "BF16" else _DTYPES[dtype])
    array = np.frombuffer(content, _DTYPES[dtype], count, offset).reshape(shape)
    return torch_archive.from_bfloat16(array) if dtype == "BF16" else array


# All that reading an entry of a damaged zip file raises.
_ZIP_FAULTS = (
    *(ValueError, EOFError, OSError, MemoryError, RuntimeError, zipfile.BadZipFile),
    *torch_archive.ZIP_FAULTS,
)


def _npz(file):
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except _ZIP_FAULTS as error:
        raise ValueError(f"an .npz must be a whole zip file ({error})") from error
    if others := [name for name in names if not name.endswith(".npy")]:
        raise ValueError(f"an .npz must hold arrays. Received: {others[0]!r:.80}")
    return {name.removesuffix(".npy"): functools.partial(_member, file, name) for name in names}


def _member(file, name):
    try:
        with zipfile.ZipFile(file) as archive, archive.open(name) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except _ZIP_FAULTS as error:
        raise ValueError(f"{file}: the array {name!r} must be whole ({error})") from error
