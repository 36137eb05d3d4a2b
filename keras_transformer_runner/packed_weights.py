"""A LiteRT file run with packed weights that are kept in a file of their own and mapped from it.

XNNPACK computes with weights that it has packed for its kernels. LiteRT's `Interpreter` packs them
into memory of the process at every start. Its `CompiledModel` can keep them in a file: written
once, mapped by every process from then on, so that the system can drop them and share them.

XNNPACK compares neither the model nor the bytes with what the file was made from: a wrong file
is a wrong answer. So the name of a file here says all that its packed weights depend on, and a
checksum beside it is compared before each use. Needs NumPy and ai-edge-litert, nothing else.
"""

import contextlib
import ctypes
import errno
import hashlib
import mmap
import os
import pathlib
import platform
import sys

import numpy as np

from keras_transformer_runner.atomic import check_unheld, locked, scratch_folder
from keras_transformer_runner.folder import METADATA_FILE, MODEL_FILE
from keras_transformer_runner.integrity import checksum
from keras_transformer_runner.lengths import signatures_of

_SUFFIX = ".xnnpack"
_LEAST_VERSION = "2.1.5"  # of ai-edge-litert, that lets Python name the file
_DTYPES = {
    "target_ids": np.int32,
    "hypotheses": np.int32,
    "scores": np.float32,
    "logits": np.float32,
}
# 32 bits that no output holds: as an id it is -1, as a float a NaN that no arithmetic gives.
_UNWRITTEN = -1
_BEYOND = 2**24  # bytes behind an output that may be written without harm; never touched else
_MOST = 2**31 - 1  # numbers of an output
_LONGEST_BUILD = 600  # seconds
_MOST_GROWTH = 4  # packed weights to the file's, at most: 8-bit weights that become float32


class PackedModel:
    """The signatures that answer by a folder's metadata, run with packed weights from a file.

    Not safe for threads. One process makes the file where it is missing or damaged; others wait
    for it.

    Args:
        opened: A `DeviceFolder`.
        directory: Where files of packed weights are; made if missing.
        num_threads: Threads of the runtime.

    Attributes:
        signatures: Names of inputs and outputs by signature, as an `Interpreter` gives them.
        answering: Names of the signatures that `run` takes.

    Raises:
        OSError: if the directory or the file cannot be made, or another process takes more than
            ten minutes to make it.
        RuntimeError: if this ai-edge-litert cannot keep packed weights.
        ValueError: if the metadata lack what bounds the outputs, or LiteRT cannot run the model.
    """

    def __init__(self, opened, directory, num_threads):
        self._metadata = opened.metadata
        self.answering = signatures_of(opened.metadata)
        # Raises before anything is written.
        _largest(self._metadata, self._metadata["max_source_length"])
        cache = pathlib.Path(directory) / _file_name(opened.metadata["sha256"][MODEL_FILE])
        cache.parent.mkdir(parents=True, exist_ok=True)
        if _is_whole(cache):
            with contextlib.suppress(OSError):  # held, or nothing that we may remove
                check_unheld(cache)
        else:
            with locked(cache, wait=_LONGEST_BUILD):
                if not _is_whole(cache):  # nobody has made it in the meantime
                    _build(opened.model, cache, num_threads)
        self._model = _load(opened.model, cache, num_threads)
        self._file = MappedFile(opened.model)
        self.signatures = self._model.get_signature_list()

    def reserve(self):
        """Makes the memory of the outputs, once the signature is known to be in the file."""
        from ai_edge_litert.tensor_buffer import TensorBuffer

        any_one = self.answering[0]
        names = self.signatures[any_one]["outputs"]
        if not _DTYPES.keys() >= set(names):
            raise ValueError(
                f"with `weight_cache` outputs must be of {sorted(_DTYPES)}. Received: {names}"
            )
        details = self._model.get_output_tensor_details(any_one)
        self._ranks = {name: len(details[name]["shape"]) for name in names}
        # LiteRT believes that an output has the size it had before the run, and writes all of it
        # wherever it is told to. So the memory is ours, for the largest output that there can be.
        largest = _largest(self._metadata, self._metadata["max_source_length"])
        self._words, self._buffers = {}, {}
        for name in names:
            memory = _memory(4 * (largest[name] + 1) + _BEYOND)
            self._words[name] = np.frombuffer(memory, np.int32)
            self._buffers[name] = TensorBuffer.create_from_host_memory(self._words[name])

    def run(self, signature, **inputs):
        """The outputs of a signature by name; `inputs` is one int32 array (1, S) by its name."""
        ((name, ids),) = inputs.items()
        largest = _largest(self._metadata, ids.shape[1])
        for output, words in self._words.items():
            words[: largest[output] + 1] = _UNWRITTEN
        if signature == self._metadata["signature"]:  # the others have a length
            self._model.resize_input_tensor_by_name(signature, name, ids.shape, strict=False)
        buffer = self._model.create_input_buffer_by_name(signature, name)
        try:
            buffer.write(ids.reshape(-1))
            self._model.run_by_name(signature, {name: buffer}, self._buffers)
        finally:
            buffer.destroy()
            self._file.let_go()
        written = {output: self._written(output, largest[output]) for output in self._words}
        return {output: self._shaped(output, written, ids.shape[1]) for output in written}

    def _written(self, name, largest):
        """What the last run has written to an output, a copy of one axis."""
        words = self._words[name][: largest + 1]
        count = int(np.argmax(words == _UNWRITTEN))  # 0 too where all are written
        if count == 0:
            raise ValueError(
                f"{METADATA_FILE} must say what the model does: by it `{name}` has 1 to {largest} "
                "numbers. Received: another count"
            )
        return words[:count].view(_DTYPES[name]).copy()

    def _shaped(self, name, written, length):
        """An output with its axes: (1, T), (1, N), (1, N, T), (1, C) or (1, S, C)."""
        if self._ranks[name] == 2:
            return written[name][np.newaxis]
        rows = length if name == "logits" else written["scores"].size
        return written[name].reshape(1, rows, -1)


def _largest(metadata, length):
    """The most numbers that each output has for an input of this length, by output."""
    largest = _largest_by_metadata(metadata, length)
    for name, count in largest.items():
        if count > _MOST:
            raise ValueError(
                f"with `weight_cache` an output must have at most {_MOST} numbers. Received: "
                f"{METADATA_FILE}, by which `{name}` has up to {count}"
            )
    return largest


def _largest_by_metadata(metadata, length):
    if metadata["signature"] == "classify":
        return {"logits": length * _count(metadata, "num_classes")}
    search = metadata.get("search")
    search = search if type(search) is dict else {}
    tokens = length + _count(search, "extra_length")
    for fields, name in ((search, "max_length"), (metadata, "max_positions")):
        if fields.get(name) is not None:
            tokens = min(tokens, _count(fields, name))
    n_best = _count(search, "n_best") if "n_best" in search else 1
    return {"target_ids": tokens, "scores": n_best, "hypotheses": n_best * tokens}


def _count(fields, name):
    value = fields.get(name)
    if type(value) is not int or value < 0:
        raise ValueError(
            f"with `weight_cache` {METADATA_FILE} must have `{name}`, a count, as exports write "
            f"it: export the model again. Received: {value!r}"
        )
    return value


def _memory(size):
    try:
        return mmap.mmap(-1, size)
    except OSError as error:
        raise ValueError(
            f"there must be memory for what {METADATA_FILE} says of the outputs. "
            f"Received: {size} bytes: {error}"
        ) from error


class MappedFile:
    """A file that something else has mapped into this process, for reading only.

    LiteRT looks embeddings up in the model's file, and Linux maps 64 KiB around each: in the end
    most of the vocabulary.
    """

    LEAST_BYTES = 2**23  # a smaller file is left alone: it is not worth the time

    def __init__(self, path):
        self._ranges = []
        if sys.platform != "linux" or path.stat().st_size < self.LEAST_BYTES:
            return
        name = str(path.resolve())
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.rstrip("\n").split(maxsplit=5) for line in file]
        for line in lines:
            if line[-1] == name and "w" not in line[1]:
                start, end = (int(number, 16) for number in line[0].split("-"))
                self._ranges.append((ctypes.c_void_p(start), ctypes.c_size_t(end - start)))
        self._advise = ctypes.CDLL(None).madvise

    def let_go(self):
        """Gives the pages back that were read; they come from the system's cache when needed."""
        for start, size in self._ranges:
            self._advise(start, size, mmap.MADV_DONTNEED)


# --- The file ------------------------------------------------------------------------------


def _file_name(model_sha256):
    """The name of the file: all that packed weights depend on."""
    import ai_edge_litert

    version = getattr(ai_edge_litert, "__version__", "unknown")
    return f"{model_sha256}-{version}-{platform.machine()}-{_processor()}{_SUFFIX}"


def _processor():
    """Eight digits for what XNNPACK chooses its kernels by, and with them the packing."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            features = next((x for x in file if x.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return hashlib.sha256(features.encode()).hexdigest()[:8]


def _is_whole(cache):
    """Whether a file of packed weights is the one that its checksum was written for."""
    try:
        return checksum(cache) == _checksum_file(cache).read_text(encoding="ascii").strip()
    except (FileNotFoundError, ValueError):
        return False


def _checksum_file(cache):
    return cache.with_name(cache.name + ".sha256")


def _build(model, cache, num_threads):
    """Makes the file and its checksum: aside, then renamed over what is there."""
    _check_space(model, cache.parent)
    with scratch_folder(cache) as folder:
        made = folder / cache.name
        _load(model, made, num_threads)
        # XNNPACK goes on where it cannot write the file, or not all of it. One that is not whole it
        # would write again.
        if made.is_file():
            os.utime(made, (0, 0))
            _load(model, made, num_threads)
        if not made.is_file() or made.stat().st_mtime:
            raise OSError(errno.EIO, "packed weights could not be written", str(cache))
        os.utime(made)
        _checksum_file(made).write_text(checksum(made) + "\n", encoding="ascii")
        os.replace(made, cache)
        os.replace(_checksum_file(made), _checksum_file(cache))


def _check_space(model, directory):
    """Raises OSError where the file might not fit: XNNPACK ends the process on a full disk."""
    import shutil

    needed = _MOST_GROWTH * model.stat().st_size
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"packed weights need {needed} bytes, {free} are free", str(directory)
        )


def _load(model, cache, num_threads):
    """A `CompiledModel` that maps its packed weights, or writes them where there are none."""
    try:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.environment import Environment
        from ai_edge_litert.options import CpuOptions, Options
    except ImportError as error:
        raise RuntimeError(
            f"`weight_cache` must have ai-edge-litert {_LEAST_VERSION} or later. Received: {error}"
        ) from error
    options = Options(
        cpu_options=CpuOptions(num_threads=num_threads, xnnpack_weight_cache_path=str(cache))
    )
    # LiteRT would load vendors' compilers from its own folder; in this one there are none.
    nothing = str(pathlib.Path(__file__).parent)
    environment = Environment.create(
        runtime_path=nothing, compiler_plugin_path=nothing, dispatch_library_path=nothing
    )
    try:
        return CompiledModel.from_file(str(model), environment=environment, options=options)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{model} must be a model that this version of LiteRT can run. Received: {error}"
        ) from error
