"""The folder of an export for devices: its files, and whether they are whole and fit together.

Needs NumPy and, where the tokenizer is one, sentencepiece; nothing else.
"""

import hashlib
import json
import os
import pathlib
from typing import NamedTuple

from keras_transformer.text.tokenizer import Tokenizer, load_tokenizer

FORMAT = 1
MODEL_FILE = "model.tflite"
TOKENIZER = "tokenizer"  # with the suffix of its kind
TARGET_TOKENIZER = "target_tokenizer"  # only where the target has one of its own
METADATA_FILE = "metadata.json"
_SUFFIXES = (".model", ".json")

_LARGEST = 2**31 - 1  # of a number: ids and sizes are int32 on a device

# What running a folder needs of the metadata; the rest is for people.
_FIELDS = {
    "signature": str,
    "vocab_size": int,
    "target_vocab_size": int,
    "pad_id": int,
    "bos_id": int,
    "eos_id": int,
    "max_source_length": int,
    "sha256": dict,
}


class DeviceFolder(NamedTuple):
    """A folder that is whole."""

    metadata: dict
    model: pathlib.Path
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # the same one, where both sides share it


def open_folder(folder):
    """The `DeviceFolder` at a path, once all its files are known to be what the export wrote.

    Raises:
        FileNotFoundError: if the folder or one of its files is missing.
        ValueError: if a file is damaged, or does not belong to the others.
    """
    folder = pathlib.Path(folder)
    metadata = _read_metadata(folder)
    source_file, target_file = _tokenizer_files(metadata)
    for name in {MODEL_FILE, source_file, target_file}:
        _check_file(folder / name, metadata["sha256"].get(name))
    tokenizer = _tokenizer(folder / source_file, metadata, "vocab_size")
    target = tokenizer
    if target_file != source_file:
        target = _tokenizer(folder / target_file, metadata, "target_vocab_size")
    _check_ids(metadata, target, folder / target_file, "target_vocab_size")
    return DeviceFolder(metadata, folder / MODEL_FILE, tokenizer, target)


def checksums(folder):
    """The SHA-256 of each file of a folder by name, as the metadata holds them."""
    return {path.name: checksum(path) for path in sorted(pathlib.Path(folder).iterdir())}


def _read_metadata(folder):
    path = folder / METADATA_FILE
    if not path.is_file():
        from keras_transformer.folders import received

        raise FileNotFoundError(
            f"an exported folder must hold {METADATA_FILE}. Received: {received(folder)}"
        )
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        version = metadata["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} must be the metadata of an export. Received: {error!r}"
        ) from error
    if version != FORMAT:
        raise ValueError(f"{path} must have format {FORMAT}. Received: {version!r}")
    for name, kind in _FIELDS.items():
        if type(metadata.get(name)) is not kind:
            raise ValueError(
                f"{path} must have a field `{name}` of type {kind.__name__}. "
                f"Received: {metadata.get(name)!r}"
            )
        if kind is int and not 0 <= metadata[name] <= _LARGEST:
            raise ValueError(f"in {path} `{name}` must be in [0, 2^31). Received: {metadata[name]}")
    labels = metadata.get("labels", [])
    if type(labels) is not list or not all(type(label) is str for label in labels):
        raise ValueError(f"in {path} `labels` must be a list of strings. Received: {labels!r}")
    return metadata


def _tokenizer_files(metadata):
    """The names of the tokenizers' files; one twice where both sides share it."""
    names = {f"{stem}{suffix}" for stem in (TOKENIZER, TARGET_TOKENIZER) for suffix in _SUFFIXES}
    unknown = sorted(metadata["sha256"].keys() - names - {MODEL_FILE})
    sources, targets = (
        [name for name in metadata["sha256"] if name in {f"{stem}{end}" for end in _SUFFIXES}]
        for stem in (TOKENIZER, TARGET_TOKENIZER)
    )
    if unknown or len(sources) != 1 or len(targets) > 1:
        raise ValueError(
            f"{METADATA_FILE} must list {MODEL_FILE} and one tokenizer a side. "
            f"Received: {sorted(metadata['sha256'])}"
        )
    return sources[0], (targets or sources)[0]


def _tokenizer(path, metadata, size):
    try:
        tokenizer = load_tokenizer(path)
    except RuntimeError as error:  # SentencePiece's own
        raise ValueError(f"{path} must be a tokenizer. Received: {error}") from error
    _check_ids(metadata, tokenizer, path, size)
    return tokenizer


def _check_ids(metadata, tokenizer, path, size):
    fields = ("pad_id", "bos_id", "eos_id")
    received = {name: metadata[name] for name in (size, *fields)}
    expected = (tokenizer.vocab_size, *(getattr(tokenizer, name) for name in fields))
    if tuple(received.values()) != expected:
        raise ValueError(
            f"{METADATA_FILE} and {path} must agree on {size}, pad_id, bos_id and eos_id. "
            f"Received: {received}, and in the tokenizer {expected}"
        )


def _check_file(path, expected):
    if not path.is_file():
        raise FileNotFoundError(f"an exported folder must hold {path.name}. Received: {path}")
    received = checksum(path)
    if received != expected:
        raise ValueError(
            f"{path} must be the file that {METADATA_FILE} was written for: it is damaged or "
            f"belongs to another export. Received: sha256 {received}, expected {expected}"
        )


def checksum(path):
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            # Linux keeps what it has read ahead in blocks of up to 2 MB, and whoever maps the file
            # later has all of a block in memory where a page of it is used.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return hashlib.file_digest(file, "sha256").hexdigest()
