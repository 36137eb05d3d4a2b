"""Damage to files, by seed: bits, ranges, JSON and TOML values, weights, files of other folders."""

import io
import json
import pathlib
import re
import shutil
import zipfile

import h5py
import numpy as np

_HUGE = (2**63, -(2**63), 10**30, -1, 0, 1e308, float("nan"), float("inf"))
_OTHERS = (None, True, "", "x", [], {}, [[]], 0.5, "\x00", "é" * 10)


class NothingToChange(Exception):
    """The mutation does not go with the file."""


def mutate(folder, name, other, generator):
    """Damages one file of a folder.

    Args:
        folder: A copy of a folder.
        name: The file's name in it.
        other: A folder of the same kind with other content, to swap files with.
        generator: A `random.Random`, which decides all.

    Returns:
        The name of the mutation.
    """
    path = pathlib.Path(folder) / name
    kinds = [*_BYTES, "missing", "swapped", *_OF_SUFFIX.get(path.suffix, ())]
    before = path.read_bytes()
    while True:
        kind = generator.choice(kinds)
        try:
            if kind == "missing":
                path.unlink()
            elif kind == "swapped":
                if not (other / name).is_file():
                    raise NothingToChange
                shutil.copyfile(other / name, path)
            else:
                path.write_bytes(_MUTATIONS[kind](before, generator))
        except NothingToChange:
            continue
        if not path.exists() or path.read_bytes() != before:
            return kind


def _flip_bits(data, generator):
    data = bytearray(data)
    for _ in range(generator.randint(1, 8)):
        data[_place(data, generator)] ^= 1 << generator.randrange(8)
    return bytes(data)


def _truncate(data, generator):
    return data[: _place(data, generator)]


def _zero(data, generator):
    first = _place(data, generator)
    length = min(len(data) - first, generator.randint(1, max(1, len(data) // 2)))
    return data[:first] + bytes(length) + data[first + length :]


def _append(data, generator):
    return data + generator.randbytes(generator.randint(1, 200))


def _repeat(data, generator):
    first = _place(data, generator)
    return data[:first] + data[first : first + 100] + data[first:]


def _place(data, generator):
    if not data:
        raise NothingToChange
    return generator.randrange(len(data))


def _empty(data, generator):
    del data, generator
    return b""


# --- JSON and TOML ---------------------------------------------------------------------------


def _json_value(data, generator):
    """A value of another type, or a huge number, somewhere in it."""
    line, lines, record = _record(data, generator)
    holder, key = generator.choice(_places(record))
    holder[key] = generator.choice((*_HUGE, *_OTHERS))
    return _with_record(lines, line, json.dumps(record))


def _json_removed(data, generator):
    line, lines, record = _record(data, generator)
    holder, key = generator.choice(_places(record))
    del holder[key]
    return _with_record(lines, line, json.dumps(record))


def _json_twice(data, generator):
    """A key twice, the second time with another value."""
    line, lines, record = _record(data, generator)
    key = generator.choice(sorted(record))
    value = generator.choice((*_HUGE, *_OTHERS, record[key]))
    text = json.dumps(record)
    return _with_record(lines, line, f"{text[:-1]}, {json.dumps(key)}: {json.dumps(value)}}}")


def _record(data, generator):
    """A line of JSON lines, or the whole; of which it is which, and the object."""
    try:
        lines = data.decode().splitlines() or [""]
        whole = [data.decode()] if len(lines) > 1 and not _is_json(lines[0]) else lines
        line = generator.randrange(len(whole))
        record = json.loads(whole[line])
    except (ValueError, RecursionError):
        raise NothingToChange from None
    if not isinstance(record, dict) or not record:
        raise NothingToChange
    return line, whole, record


def _is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _with_record(lines, line, text):
    return "".join(f"{each}\n" for each in [*lines[:line], text, *lines[line + 1 :]]).encode()


def _places(value):
    """All `(holder, key)` in nested objects and lists."""
    found = []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            found += _places(value[key])
    return found


def _toml_value(data, generator):
    values = ("-1", "0", "10000000000000000000000", "1e300", "nan", "true", '""', '"x"', "[]", "{}")
    lines, chosen = _toml_lines(data, generator)
    key = lines[chosen].partition("=")[0]
    lines[chosen] = f"{key}= {generator.choice(values)}"
    return "\n".join([*lines, ""]).encode()


def _toml_removed(data, generator):
    lines, chosen = _toml_lines(data, generator)
    return "\n".join([*lines[:chosen], *lines[chosen + 1 :], ""]).encode()


def _toml_twice(data, generator):
    lines, chosen = _toml_lines(data, generator)
    return "\n".join([*lines[: chosen + 1], *lines[chosen:], ""]).encode()


def _toml_key(data, generator):
    lines, chosen = _toml_lines(data, generator)
    lines[chosen] = "x" + lines[chosen]
    return "\n".join([*lines, ""]).encode()


def _toml_lines(data, generator):
    try:
        lines = data.decode().splitlines()
    except ValueError:
        raise NothingToChange from None
    places = [at for at, line in enumerate(lines) if re.match(r"\s*\w+\s*=", line)]
    if not places:
        raise NothingToChange
    return lines, generator.choice(places)


# --- Weights ---------------------------------------------------------------------------------


def _keras_weights(data, generator):
    """The archive of a model, whole, with other weights."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        weights = next(name for name in entries if name.endswith(".h5"))
    except (zipfile.BadZipFile, StopIteration):
        raise NothingToChange from None
    entries[weights] = _h5_weights(entries[weights], generator)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return made.getvalue()


def _h5_weights(data, generator):
    file, names = io.BytesIO(data), []
    with h5py.File(file, "r+") as weights:
        weights.visititems(lambda name, item: names.append(name) if _is_floating(item) else None)
        if not names:
            raise NothingToChange
        dataset = weights[generator.choice(sorted(names))]
        dataset[...] = _spoilt(dataset[...], generator)
    return file.getvalue()


def _is_floating(item):
    return isinstance(item, h5py.Dataset) and item.dtype.kind == "f" and item.size


def _npz_arrays(data, generator):
    """One array of a state spoilt, of another shape or type, twice or removed."""
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    name = generator.choice(sorted(arrays))
    how = generator.choice(("spoilt", "removed", "flat", "integers", "swapped"))
    if how == "removed":
        del arrays[name]
    elif how == "flat":
        arrays[name] = np.append(arrays[name].ravel(), arrays[name].ravel()[:1])
    elif how == "swapped":
        arrays[name] = arrays[generator.choice(sorted(arrays))]
    elif arrays[name].dtype.kind not in "fiu":
        arrays[name] = np.array(generator.choice(("", "{}", "[]", "null", '{"epoch": -1}', "x")))
    elif how == "integers":
        arrays[name] = np.zeros(arrays[name].shape, "int8")
    else:
        arrays[name] = _spoilt(arrays[name], generator)
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()


def _spoilt(values, generator):
    values = np.array(values)
    if values.dtype.kind != "f":
        return np.zeros_like(values)
    how = generator.choice((np.nan, np.inf, 0.0, 1e30))
    if generator.random() < 0.5:
        return np.full_like(values, how)
    values.ravel()[generator.randrange(values.size)] = how
    return values


_BYTES = {
    "bits": _flip_bits,
    "truncated": _truncate,
    "zeros": _zero,
    "appended": _append,
    "repeated": _repeat,
    "empty": _empty,
}
_OF_JSON = {"json value": _json_value, "json removed": _json_removed, "json twice": _json_twice}
_OF_TOML = {
    "toml value": _toml_value,
    "toml removed": _toml_removed,
    "toml twice": _toml_twice,
    "toml key": _toml_key,
}
_OF_WEIGHTS = {
    "keras weights": _keras_weights,
    "h5 weights": _h5_weights,
    "npz arrays": _npz_arrays,
}
_MUTATIONS = {**_BYTES, **_OF_JSON, **_OF_TOML, **_OF_WEIGHTS}
# Twice, so that they are as frequent as damage to bytes.
_OF_SUFFIX = {
    ".json": [*_OF_JSON] * 2,
    ".jsonl": [*_OF_JSON] * 2,
    ".toml": [*_OF_TOML] * 2,
    ".keras": ["keras weights"] * 3,
    ".h5": ["h5 weights"] * 3,
    ".npz": ["npz arrays"] * 6,
}
