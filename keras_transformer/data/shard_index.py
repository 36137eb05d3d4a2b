"""The index of a prepared corpus, `prepared.json`: its fields and their checks."""

import hashlib
import json

import numpy as np

from keras_transformer.data.places import path_in, size
from keras_transformer_runner.integrity import check_file, check_seal, read_json, sealed
from keras_transformer_runner.tokenizers.base import SpecialIds
from keras_transformer_runner.tokenizers.files import SUFFIXES, find_tokenizer

INDEX = "prepared.json"
SMALL_FILES = (INDEX, *(f"{n}{s}" for n in ("tokenizer", "target_tokenizer") for s in SUFFIXES))
FORMAT = 1
_IDS = ("vocab_size", *SpecialIds._fields)
_WHAT = "the index of a corpus that `prepare` wrote"
_FIELDS = {
    "max_length": int,
    "pairs": int,
    "skipped": dict,
    "skipped_lines": dict,
    "fingerprint": str,
    "tokenizer": dict,
    "target_tokenizer": dict,
    "shards": list,
}


def shard_file(shard, shards):
    return f"shard-{shard:05d}-of-{shards:05d}.tfrecord"


def make_index(name, tokenizers, *, max_length, seed, compression, faults, shards):
    """The content of `prepared.json`, as a string."""
    fields = {
        "format": FORMAT,
        "corpus": name,
        "max_length": max_length,
        "seed": seed,
        "compression": compression,
        "pairs": sum(shard["pairs"] for shard in shards),
        "skipped": {"empty": 0, "too_long": 0} | faults.counts,
        "skipped_lines": faults.lines,
    }
    for side, tokenizer in zip(("tokenizer", "target_tokenizer"), tokenizers, strict=True):
        fields[side] = {"fingerprint": tokenizer.fingerprint}
        fields[side] |= {name: int(getattr(tokenizer, name)) for name in _IDS}
    fields["shards"] = shards
    fields["fingerprint"] = _fingerprint(fields)
    return json.dumps(sealed(fields), sort_keys=True) + "\n"


def _fingerprint(fields):
    """A hash of all ids, and of the tokenizers."""
    names = ("fingerprint", *_IDS)
    sides = fields["tokenizer"], fields["target_tokenizer"]
    contents = [{name: side[name] for name in names} for side in sides]
    contents += [shard["sha256"] for shard in fields["shards"]]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def read_index(folder, near):
    """The fields of a folder's index, once they are known to fit together and to the files.

    Of the shards the sizes are compared here; what is in them, when they are read.

    Args:
        folder: Where the shards are.
        near: Where index and tokenizers are, on this machine.

    Raises:
        FileNotFoundError: if there is no index, or a file that it lists is missing.
        ValueError: if the index cannot be right, or a file is not what it lists.
    """
    path = near / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"`folder` must be one that `prepare` wrote, with {INDEX}. Received: {folder}"
        )
    fields = read_json(path, _WHAT, {"format": int})
    if fields["format"] != FORMAT:
        raise ValueError(
            f"{INDEX} must have format {FORMAT}. Received: {path} with format {fields['format']!r}"
        )
    fields = read_json(path, _WHAT, _FIELDS)
    if fault := next(_faults(fields), None):
        raise ValueError(f"{path} must be as `prepare` wrote it. Received: {fault}")
    check_seal(path, fields)
    _check_files(folder, near, fields)
    return fields


def length_counts(fields):
    """int64 `(shards, longest + 1)`: how many pairs need how many positions."""
    shards = fields["shards"]
    longest = max(length for shard in shards for length, _ in shard["length_counts"])
    counts = np.zeros((len(shards), longest + 1), np.int64)
    for row, shard in zip(counts, shards, strict=True):
        for length, count in shard["length_counts"]:
            row[length] = count
    return counts


def _faults(fields):
    """What cannot be in an index."""
    shards = fields["shards"]
    if not 2 <= fields["max_length"] < 1 << 31:
        yield f"max_length={fields['max_length']}"
    for number, shard in enumerate(shards):
        name = shard_file(number, len(shards))
        if type(shard) is not dict or shard.get("file") != name:
            found = shard.get("file") if type(shard) is dict else shard
            yield f"{found!r} as shard {number} of {len(shards)}, expected {name!r}"
        elif not _is_entry(shard, fields["max_length"]):
            yield f"an entry of {name} that cannot be"
    pairs = sum(shard["pairs"] for shard in shards)
    if not pairs or fields["pairs"] != pairs:
        yield f"{fields['pairs']} pairs in all, and {pairs} in {len(shards)} shards"
    if fields.get("compression", "") not in (None, "GZIP"):
        yield f"compression={fields.get('compression')!r}"
    if not _are_counts(fields["skipped"].values()) or "empty" not in fields["skipped"]:
        yield f"skipped={fields['skipped']}"
    lines = fields["skipped_lines"]
    if not all(type(numbers) is list and _are_counts(numbers) for numbers in lines.values()):
        yield f"skipped_lines={lines}"
    for side in ("tokenizer", "target_tokenizer"):
        ids = [fields[side].get(name) for name in _IDS]
        if not _are_counts(ids) or type(fields[side].get("fingerprint")) is not str:
            yield f"{side}={fields[side]}"
    expected = _fingerprint(fields)
    if fields["fingerprint"] != expected:
        yield f"fingerprint {fields['fingerprint']}, where shards and tokenizers have {expected}"


def _is_entry(shard, max_length):
    lengths = shard.get("length_counts")
    numbers = [shard.get("pairs"), shard.get("bytes", 0)]
    if type(shard.get("sha256")) is not str or not _are_counts(numbers):
        return False
    if type(lengths) is not list or not all(type(x) is list and len(x) == 2 for x in lengths):
        return False
    if not _are_counts(number for both in lengths for number in both):
        return False
    ascending = [length for length, _ in lengths]
    return (
        ascending == sorted(set(ascending))
        and all(2 <= length <= max_length for length in ascending)
        and sum(count for _, count in lengths) == shard["pairs"]
    )


def _are_counts(values):
    return all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _check_files(folder, near, fields):
    for shard in fields["shards"]:
        path = path_in(folder, shard["file"])
        if (found := size(path)) is None:
            raise FileNotFoundError(
                f"every shard must be in the folder. Received: {folder} without {shard['file']}"
            )
        if found != shard.get("bytes", found):
            raise ValueError(
                f"a shard must be as {INDEX} says. Received: {path} with {found} "
                f"bytes, expected {shard['bytes']}"
            )
    for name, expected in tokenizer_fingerprints(fields).items():
        path = find_tokenizer(near, name) or near / f"{name}.model"
        check_file(path, expected, INDEX)


def tokenizer_fingerprints(fields):
    """The checksum of each tokenizer's file by its name without suffix; one where both share it."""
    source, target = fields["tokenizer"], fields["target_tokenizer"]
    found = {"tokenizer": source["fingerprint"]}
    if target != source:
        found["target_tokenizer"] = target["fingerprint"]
    return found
