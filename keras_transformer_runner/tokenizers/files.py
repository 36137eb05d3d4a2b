"""Tokenizers of any kind from their files."""

import json
import os
import pathlib

from keras_transformer_runner.tokenizers.base import Tokenizer
from keras_transformer_runner.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_transformer_runner.tokenizers.tables import from_fields

SUFFIXES = (".model", ".json")


def find_tokenizer(folder: os.PathLike | str, name: str = "tokenizer") -> pathlib.Path | None:
    """Finds the file of a tokenizer in a folder: `name.model` or `name.json`.

    Args:
        folder: The folder.
        name: The file's name without suffix.

    Returns:
        The path, or `None` if there is no such file.

    Example:
        >>> from keras_transformer_runner.tokenizers import find_tokenizer
        >>> kt.BytesTokenizer().save("tokenizer.json")
        >>> find_tokenizer(".").name
        'tokenizer.json'
        >>> find_tokenizer(".", "target_tokenizer") is None
        True
    """
    paths = [pathlib.Path(folder) / f"{name}{suffix}" for suffix in SUFFIXES]
    return next((path for path in paths if path.is_file()), None)


def load_tokenizer(path: os.PathLike | str) -> Tokenizer:
    """Reads a tokenizer from the file that its `save` wrote, or from a SentencePiece `.model`.

    Needs no TensorFlow.

    Args:
        path: The file.

    Returns:
        A `Tokenizer`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no tokenizer.

    Example:
        >>> kt.CharacterTokenizer("abc").save("characters.json")
        >>> kt.load_tokenizer("characters.json").encode("cab")
        [6, 4, 5]
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a tokenizer's file. Received: {path}")
    content = path.read_bytes()
    try:
        if content.startswith(b"{"):  # no SentencePiece model does: its first tag is 0x0a
            return from_fields(json.loads(content))
        return SentencePieceTokenizer(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error
