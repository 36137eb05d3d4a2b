"""Runs an exported LiteRT folder: numpy, sentencepiece and ai-edge-litert, nothing else.

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

FORMAT = 1
MODEL_FILE = "model.tflite"
TOKENIZER_FILE = "tokenizer.model"
TARGET_TOKENIZER_FILE = "target_tokenizer.model"  # only where the target has one of its own
METADATA_FILE = "metadata.json"

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
        import sentencepiece
        from ai_edge_litert.interpreter import Interpreter

        folder = pathlib.Path(folder)
        self.metadata = _read_metadata(folder)
        has_target = TARGET_TOKENIZER_FILE in self.metadata["sha256"]
        target_file = TARGET_TOKENIZER_FILE if has_target else TOKENIZER_FILE
        for name in (MODEL_FILE, TOKENIZER_FILE, target_file):
            _check_file(folder / name, self.metadata["sha256"].get(name))
        self._pieces, self._target_pieces = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / name))
            for name in (TOKENIZER_FILE, target_file)
        )
        _check_ids(self.metadata, self._pieces, folder / TOKENIZER_FILE, "vocab_size")
        _check_ids(self.metadata, self._target_pieces, folder / target_file, "target_vocab_size")
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
        if not isinstance(text, str):
            raise TypeError(f"`text` must be a string. Received: {type(text).__name__}")
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        return [*self._pieces.encode(text), self.metadata["eos_id"]]

    def decode(self, ids):
        """The text of ids that `translate_ids` gave."""
        return self._target_pieces.decode(ids)

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


def _check_ids(metadata, pieces, path, size):
    received = {name: metadata[name] for name in (size, "pad_id", "eos_id")}
    expected = (pieces.get_piece_size(), pieces.pad_id(), pieces.eos_id())
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
