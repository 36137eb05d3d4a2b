"""Runs an exported LiteRT folder: numpy, ai-edge-litert and, where the tokenizer is one,
sentencepiece; nothing else.

    python -m keras_transformer.export.runner FOLDER "text" ["text" ...]

Without texts it reads lines from standard input.
"""

import hashlib
import json
import os
import pathlib
import sys
import threading

import numpy as np

from keras_transformer.text.tokenizer import load_tokenizer

FORMAT = 1
MODEL_FILE = "model.tflite"
TOKENIZER = "tokenizer"  # with the suffix of its kind
TARGET_TOKENIZER = "target_tokenizer"  # only where the target has one of its own
METADATA_FILE = "metadata.json"
_SUFFIXES = (".model", ".json")

# What this module needs of the metadata; the rest is for people.
_FIELDS = {
    "signature": str,
    "vocab_size": int,
    "target_vocab_size": int,
    "pad_id": int,
    "eos_id": int,
    "max_source_length": int,
    "sha256": dict,
}


class Runner:
    """Translates text with an exported folder. Calls from several threads take turns.

    Args:
        folder: What `export_litert` wrote.
        num_threads: Threads of the interpreter. One is fastest for one sentence at a time.

    Raises:
        FileNotFoundError: if the folder or one of its files is missing.
        ValueError: if a file is damaged, or does not belong to the others.
    """

    def __init__(self, folder, *, num_threads=1):
        from ai_edge_litert.interpreter import Interpreter

        folder = pathlib.Path(folder)
        self.metadata = _read_metadata(folder)
        source_file, target_file = _tokenizer_files(self.metadata)
        for name in (MODEL_FILE, source_file, target_file):
            _check_file(folder / name, self.metadata["sha256"].get(name))
        self._tokenizer, self._target_tokenizer = (
            load_tokenizer(folder / name) for name in (source_file, target_file)
        )
        _check_ids(self.metadata, self._tokenizer, folder / source_file, "vocab_size")
        _check_ids(self.metadata, self._target_tokenizer, folder / target_file, "target_vocab_size")
        self._interpreter = Interpreter(
            model_path=str(folder / MODEL_FILE), num_threads=num_threads
        )
        self._translate = self._interpreter.get_signature_runner(self.metadata["signature"])
        self._lock = threading.Lock()

    def translate(self, texts):
        """A translation for each text, in order; an empty text gives an empty one.

        Args:
            texts: Sequence of `str`.

        Raises:
            TypeError: if `texts` is one string, or holds anything but strings.
            ValueError: if a text has more tokens than `max_source_length`.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"`texts` must be a list of strings. Received: {texts!r}")
        return [self.decode(self.translate_ids(self.encode(text))) for text in texts]

    def encode(self, text):
        """The ids of one text, EOS at the end, as `translate_ids` takes them."""
        return [*self._tokenizer.encode(text), self.metadata["eos_id"]]

    def decode(self, ids):
        """The text of ids that `translate_ids` gave."""
        return self._target_tokenizer.decode(ids)

    def translate_ids(self, source_ids):
        """Ids of one sentence, EOS at the end -> ids of its translation, without EOS and pads.

        Args:
            source_ids: Sequence of int in [0, vocab_size).

        Raises:
            TypeError: if the ids are not integers.
            ValueError: if an id lies outside the vocabulary, or there are more ids than
                `max_source_length`.
        """
        ids = np.asarray(source_ids)
        if ids.ndim != 1:
            raise ValueError(f"`source_ids` must be one list of ids. Received: shape {ids.shape}")
        vocab_size, longest = self.metadata["vocab_size"], self.metadata["max_source_length"]
        if ids.size > longest:
            raise ValueError(
                f"a source must have at most `max_source_length` = {longest} tokens. "
                f"Received: {ids.size}"
            )
        if not ids.size:
            return []
        if ids.dtype.kind not in "iu":
            raise TypeError(f"`source_ids` must be integers. Received: dtype {ids.dtype}")
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise ValueError(
                f"ids must lie in [0, {vocab_size}). Received: {ids.min()} to {ids.max()}"
            )
        with self._lock:
            # By name: the order of a file's inputs and outputs is the converter's whim.
            outputs = self._translate(source_ids=ids[np.newaxis].astype(np.int32))
            row = outputs["target_ids"][0].tolist()
        eos_id, pad_id = self.metadata["eos_id"], self.metadata["pad_id"]
        # Pads go, but do not end the row: an untrained model may choose one in the middle.
        end = row.index(eos_id) if eos_id in row else len(row)
        return [token for token in row[:end] if token != pad_id]


def _read_metadata(folder):
    path = folder / METADATA_FILE
    if not path.is_file():
        raise FileNotFoundError(f"an exported folder must hold {METADATA_FILE}. Received: {folder}")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        version = metadata["format"]
    except (ValueError, KeyError, TypeError) as error:
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


def _check_ids(metadata, tokenizer, path, size):
    received = {name: metadata[name] for name in (size, "pad_id", "eos_id")}
    expected = (tokenizer.vocab_size, tokenizer.pad_id, tokenizer.eos_id)
    if tuple(received.values()) != expected:
        raise ValueError(
            f"{METADATA_FILE} and {path} must agree on {size}, pad_id and eos_id. "
            f"Received: {received}, and in the tokenizer {expected}"
        )


def _check_file(path, expected):
    if not path.is_file():
        raise FileNotFoundError(f"an exported folder must hold {path.name}. Received: {path}")
    with path.open("rb") as file:
        received = hashlib.file_digest(file, "sha256").hexdigest()
    if received != expected:
        raise ValueError(
            f"{path} must be the file that {METADATA_FILE} was written for: it is damaged or "
            f"belongs to another export. Received: sha256 {received}, expected {expected}"
        )


def main(arguments=None):
    """The command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments else 2
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input, whatever the locale
    try:
        runner = Runner(arguments[0])
        for text in arguments[1:] or _standard_input():
            print(runner.translate([text])[0], flush=True)
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; Python must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ImportError, OSError, ValueError) as error:
        print(f"runner: error: {error}", file=sys.stderr)
        return 1
    return 0


def _standard_input():
    """Lines as UTF-8 whatever the locale; bytes that are not become U+FFFD, as everywhere."""
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", "replace").rstrip("\r\n")


if __name__ == "__main__":
    sys.exit(main())
