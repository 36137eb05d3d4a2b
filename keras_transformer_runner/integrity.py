"""Whether files are what was written: checksums, and records in JSON. Needs nothing but Python."""

import hashlib
import json
import os
import pathlib

_OWNER = b"\nof:"  # before the digits of the checksum of an owner's name
_MARK = b"\nsha256:"  # before the digits of the checksum of all before it, the end of a file
_DIGITS = 64
_BLOCK = 1 << 20
SEAL = "record_sha256"


def checksum(path):
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        if hasattr(os, "posix_fadvise"):
            # Linux keeps what it has read ahead in blocks of up to 2 MB, and whoever maps the file
            # later has all of a block in memory where a page of it is used.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path, expected, record):
    """Raises an error unless a file has the checksum that a record says.

    Args:
        path: The file.
        expected: Its SHA-256, in hexadecimal.
        record: Name of the file that says so, for the error.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is another one.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} must hold {path.name}. Received: no such file")
    received = checksum(path)
    if received != expected:
        raise ValueError(
            f"{path} must be the file that {record} was written for: it is damaged or belongs to "
            f"another folder. Received: sha256 {received}, expected {expected}"
        )


def seal_file(path, owner=""):
    """Appends a file's owner and checksum, which readers of zip and HDF5 files do not look at.

    Args:
        path: The file.
        owner: String that names what the file is part of.
    """
    with open(path, "ab") as file:
        file.write(_owner_mark(owner))
    mark = _MARK + checksum(path).encode()
    with open(path, "ab") as file:
        file.write(mark)


def check_sealed_file(path, advice, *, owner=None, required=True):
    """Raises an error unless a file is what `seal_file` has left.

    Args:
        path: The file.
        advice: What to do if it is not, for the error.
        owner: What it must be part of; `None` for anything.
        required: Whether a file without a seal is an error as well.

    Raises:
        ValueError: if it is not.
    """
    size = os.path.getsize(path) - len(_MARK) - _DIGITS
    digest, last = hashlib.sha256(), b""
    with open(path, "rb") as file:
        left = max(size, 0)
        while left and (block := file.read(min(left, _BLOCK))):
            digest.update(block)
            left, last = left - len(block), (last + block)[-len(_OWNER) - _DIGITS :]
        mark = file.read(len(_MARK) + _DIGITS)
    is_sealed = size >= 0 and mark.startswith(_MARK)
    if not is_sealed and not required:
        return
    if not is_sealed:
        received = "no checksum at its end"
    elif mark != _MARK + digest.hexdigest().encode():
        received = "other content than its checksum says"
    elif owner is not None and last != _owner_mark(owner):
        received = "a file of another run"
    else:
        return
    raise ValueError(
        f"{path} must be as it was written, but it is damaged or of another version: {advice}. "
        f"Received: {received}"
    )


def _owner_mark(owner):
    return _OWNER + hashlib.sha256(owner.encode()).hexdigest().encode()


def read_json(path, what, fields=()):
    """The JSON object in a file.

    Args:
        path: The file.
        what: What the file must be, for the error: `"the index of shards"`.
        fields: Dictionary of names of fields that the object must have, and their types.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds anything else.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be {what}. Received: no such file")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be {what}, in JSON. Received: {error}") from error
    if type(record) is not dict:
        raise ValueError(f"{path} must be {what}, an object. Received: {type(record).__name__}")
    for name, kind in dict(fields).items():
        if type(record.get(name)) is not kind:
            raise ValueError(
                f"{path} must have a field `{name}` of type {kind.__name__}. "
                f"Received: {record.get(name)!r}"
            )
    return record


def sealed(record):
    """A record with a checksum of itself in the field `record_sha256`."""
    record = json.loads(json.dumps(record))  # as it will be read
    return {**record, SEAL: _seal(record)}


def check_seal(path, record):
    """Raises a `ValueError` if a record from a file has another checksum than it says.

    A record without one, which an earlier version of this package wrote, passes.
    """
    received = record.get(SEAL)
    if SEAL in record and received != (expected := _seal(record)):
        raise ValueError(
            f"{path} must be as it was written: one of its fields was changed. "
            f"Received: {SEAL} {received!r}, expected {expected!r}"
        )


def _seal(record):
    """The SHA-256 of all fields but the seal, whatever their order and the white space."""
    fields = {name: value for name, value in record.items() if name != SEAL}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
