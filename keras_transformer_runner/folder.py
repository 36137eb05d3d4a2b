"""The folder of an export for devices: its files, and whether they are whole and fit together.

Needs NumPy and, where the tokenizer is one, sentencepiece; nothing else.
"""

import pathlib
from typing import NamedTuple

from keras_transformer_runner.integrity import check_file, check_seal, checksum, read_json
from keras_transformer_runner.lengths import fixed_lengths
from keras_transformer_runner.tokenizers.base import Tokenizer
from keras_transformer_runner.tokenizers.files import load_tokenizer

FORMAT = 1
MODEL_FILE = "model.tflite"
TOKENIZER = "tokenizer"  # with the suffix of its kind
TARGET_TOKENIZER = "target_tokenizer"  # only where the target has one of its own
METADATA_FILE = "metadata.json"
REPORT = "parity.json"
CARD = "README.md"  # for people
_SUFFIXES = (".model", ".json")
_TOKENIZER_FILES = [f"{stem}{end}" for stem in (TOKENIZER, TARGET_TOKENIZER) for end in _SUFFIXES]
_CHECKED = (MODEL_FILE, *_TOKENIZER_FILES)
FILES = (*_CHECKED, METADATA_FILE, REPORT, CARD)
_LARGEST = 2**31 - 1  # of a number: ids and sizes are int32 on a device

_WHAT = "the metadata of an export"
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
        check_file(folder / name, metadata["sha256"].get(name), METADATA_FILE)
    tokenizer = _tokenizer(folder / source_file, metadata, "vocab_size")
    target = tokenizer
    if target_file != source_file:
        target = _tokenizer(folder / target_file, metadata, "target_vocab_size")
    _check_ids(metadata, target, folder / target_file, "target_vocab_size")
    _check_prefixes(metadata, tokenizer, target)
    check_seal(folder / METADATA_FILE, metadata)
    return DeviceFolder(metadata, folder / MODEL_FILE, tokenizer, target)


def prefix_fields(source, target):
    """The `prefix_ids` of two tokenizers as fields of metadata; none where they are empty."""
    sides = {"source_prefix_ids": source, "target_prefix_ids": target}
    ids = {name: list(getattr(side, "prefix_ids", ())) for name, side in sides.items()}
    return {name: each for name, each in ids.items() if each}


def checksums(folder):
    """The SHA-256 of each file that a runner reads by name, as the metadata holds them."""
    paths = sorted(pathlib.Path(folder).iterdir())
    return {path.name: checksum(path) for path in paths if path.name in _CHECKED}


def _read_metadata(folder):
    path = folder / METADATA_FILE
    if not path.is_file():
        from keras_transformer_runner.folders import received

        raise FileNotFoundError(
            f"an exported folder must hold {METADATA_FILE}. Received: {received(folder)}"
        )
    version = read_json(path, _WHAT, {"format": int})["format"]
    if version != FORMAT:
        raise ValueError(f"{path} must have format {FORMAT}. Received: {version!r}")
    metadata = read_json(path, _WHAT, _FIELDS)
    for name, kind in _FIELDS.items():
        if kind is int and not 0 <= metadata[name] <= _LARGEST:
            raise ValueError(f"in {path} `{name}` must be in [0, 2^31). Received: {metadata[name]}")
    _check_classes(metadata, path)
    try:
        fixed_lengths(metadata)
    except ValueError as error:
        raise ValueError(f"in {path} {error}") from error
    return metadata


def _check_classes(metadata, path):
    """What only a classifier has."""
    labels, adds_eos = metadata.get("labels", []), metadata.get("adds_eos", True)
    if type(labels) is not list or not all(type(label) is str for label in labels):
        raise ValueError(f"in {path} `labels` must be a list of strings. Received: {labels!r}")
    if labels and len(labels) != metadata.get("num_classes", len(labels)):
        raise ValueError(
            f"in {path} `labels` must name all of `num_classes`. Received: {len(labels)} labels, "
            f"num_classes={metadata['num_classes']!r}"
        )
    if type(adds_eos) is not bool:
        raise ValueError(f"in {path} `adds_eos` must be true or false. Received: {adds_eos!r}")


def _tokenizer_files(metadata):
    """The names of the tokenizers' files; one twice where both sides share it."""
    unknown = sorted(metadata["sha256"].keys() - set(_CHECKED))
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


def _check_prefixes(metadata, source, target):
    expected = prefix_fields(source, target)
    names = ("source_prefix_ids", "target_prefix_ids")
    received = {name: metadata[name] for name in names if name in metadata}
    if received != expected:
        raise ValueError(
            f"{METADATA_FILE} and the tokenizers must agree on {' and '.join(names)}. "
            f"Received: {received}, and in the tokenizers {expected}"
        )


def _check_ids(metadata, tokenizer, path, size):
    fields = ("pad_id", "bos_id", "eos_id")
    received = {name: metadata[name] for name in (size, *fields)}
    expected = (tokenizer.vocab_size, *(getattr(tokenizer, name) for name in fields))
    if tuple(received.values()) != expected:
        raise ValueError(
            f"{METADATA_FILE} and {path} must agree on {size}, pad_id, bos_id and eos_id. "
            f"Received: {received}, and in the tokenizer {expected}"
        )
