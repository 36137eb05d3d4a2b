"""Whether what a command has left equals what it leaves when nobody disturbs it."""

import io
import json
import pathlib
import zipfile

import h5py
import numpy as np

# What differs from run to run by its nature: times, and with them names of logs.
_TIMES = {"seconds", "time", "date_saved", "latency", "made", "since"}
_TIMES |= {"seconds_a_sample", "size_bytes", "record_sha256"}  # of records with times in them
_TIMES |= {"shared_object_id"}  # an address in memory, which Keras writes into a model's config
_RANDOM = "fingerprint.pb"  # TensorFlow puts a random number into it
_LOGS = "tensorboard"


def differences(found, expected):
    """What of `found` is not as in `expected`.

    Args:
        found, expected: Folders, or files.

    Returns:
        A dict of three lists of names: `"wrong"` content, `"lost"`, and `"left"` over.
    """
    mine, theirs = _listing(found), _listing(expected)
    shared = sorted(mine.keys() & theirs.keys())
    return {
        "wrong": [name for name in shared if not same(mine[name], theirs[name])],
        "lost": sorted(theirs.keys() - mine.keys()),
        "left": sorted(mine.keys() - theirs.keys()),
    }


def same(one, other):
    """Whether two files say the same; of those with times in them all but the times."""
    if one.is_dir() or other.is_dir():
        return one.is_dir() and other.is_dir()
    if one.read_bytes() == other.read_bytes() or one.name == _RANDOM:
        return True
    try:
        return _equal(_content(one), _content(other))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return False


def _listing(path):
    path = pathlib.Path(path)
    if not path.is_dir():
        return {path.name: path} if path.exists() else {}
    entries = {entry.relative_to(path).as_posix(): entry for entry in path.rglob("*")}
    return {name: entry for name, entry in entries.items() if _LOGS not in name.split("/")[:-1]}


def _content(path):
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            if archive.testzip():
                raise ValueError(f"{path} must be whole")
            return {
                name: _weights(io.BytesIO(archive.read(name)))
                if name.endswith(".h5")
                else without_times(json.loads(archive.read(name)))
                for name in archive.namelist()
            }
    if path.suffix == ".h5":
        return _weights(path)
    if path.suffix == ".npz":
        with np.load(path) as file:
            arrays = dict(file)
        progress = json.loads(str(arrays.pop("progress")))
        return {**arrays, "progress": without_times(progress)}
    if path.suffix == ".jsonl":
        return [without_times(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".json":
        return without_times(json.loads(path.read_text()))
    raise ValueError(f"{path} must be as it was")


def _weights(file):
    arrays = {}
    with h5py.File(file) as weights:
        weights.visititems(
            lambda name, item: (
                arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return arrays


def without_times(value):
    if isinstance(value, dict):
        return {
            key: without_times(item)
            for key, item in value.items()
            if key not in _TIMES and not key.endswith("seconds") and not _of_dated_file(key)
        }
    return [without_times(item) for item in value] if isinstance(value, list) else value


def _of_dated_file(name):
    """Whether a key names a file with a date in it, whose checksum differs from run to run."""
    return str(name).endswith((".keras", ".npz", ".h5", "parity.json", "serving.json", _RANDOM))


def _equal(one, other):
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_equal(one[key], other[key]) for key in one)
        )
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    return one == other
