"""The YAML files of Marian: settings of one level, and vocabularies. No more of YAML is read."""

import json
import re
from typing import Any

_KEY = re.compile(r"([A-Za-z0-9_.-]+):(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)$")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
# What would begin something else than a plain word.
_OTHERS = tuple("{}[]&*!|>%@`") + ("- ", "? ")


def read_settings(text: str, origin: object) -> dict[str, Any]:
    """Settings of one level: words, numbers, flags and lists of these.

    Args:
        text: The content of a file.
        origin: The file, for messages.

    Raises:
        ValueError: if a line is something else, or a key comes twice.

    Example:
        >>> from keras_transformer.interop.marian_yaml import read_settings
        >>> read_settings("type: transformer\\ndim-vocabs:\\n  - 9\\n  - 9\\nskip: false", "a.yml")
        {'type': 'transformer', 'dim-vocabs': [9, 9], 'skip': False}
    """
    settings, last = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.rstrip()
        if not line.strip() or line.lstrip().startswith("#") or line in ("---", "..."):
            continue
        try:
            if found := _KEY.match(line):
                last, value = found[1], _value(found[2] or "")
                if last in settings:
                    raise ValueError("it is there twice")
                settings[last] = value
            elif last is None or settings[last] not in (None, []) and not _is_list(settings[last]):
                raise ValueError("it belongs to nothing")
            elif found := _ITEM.match(line):
                settings[last] = [*(settings[last] or []), _value(found[1])]
            elif line.strip() == "[]" and settings[last] is None:
                settings[last] = []
            else:
                raise ValueError("it is neither a setting nor an item of a list")
        except ValueError as error:
            raise ValueError(
                f"{origin}: line {number} must be a setting of one level ({error}). "
                f"Received: {line!r:.80}"
            ) from error
    return settings


def _is_list(value):
    return isinstance(value, list)


def _value(text):
    """A word, number, flag, nothing, or a list of these in brackets."""
    text = _without_comment(text.strip())
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [_value(part) for part in inner.split(",")] if inner else []
    if text[:1] in ("'", '"'):
        return unquoted(text)
    if text.startswith(_OTHERS):
        raise ValueError("it is YAML of another kind")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.match(text):
        return float(text) if re.search("[.eE]", text) else int(text)
    return text


def _without_comment(text):
    if text[:1] in ("'", '"'):
        end = text.rfind(text[0])
        return text[: end + 1] if text[end + 1 :].lstrip().startswith("#") else text
    return re.split(r"(?:^|[ \t])#", text, maxsplit=1)[0].rstrip()


def unquoted(text: str) -> str:
    """A word of YAML without its quotes, if it has any.

    Raises:
        ValueError: if the quotes do not close, or an escape is unknown.

    Example:
        >>> from keras_transformer.interop.marian_yaml import unquoted
        >>> unquoted("'it''s'"), unquoted('"\\\\x41\\\\""'), unquoted("plain")
        ("it's", 'A"', 'plain')
    """
    quote = text[:1]
    if quote not in ("'", '"'):
        return text
    if len(text) < 2 or not text.endswith(quote):
        raise ValueError("a quote does not close")
    if quote == "'":
        return text[1:-1].replace("''", "'")
    # YAML's escapes are those of JSON, and more, of which bytes are in use.
    return json.loads(re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", text), strict=False)


def read_vocabulary(text: str, origin: object) -> dict[str, int]:
    """The ids of pieces, from lines such as `"▁the": 5`.

    Args:
        text: The content of a file.
        origin: The file, for messages.

    Raises:
        ValueError: if a line is something else, or a piece comes twice.

    Example:
        >>> from keras_transformer.interop.marian_yaml import read_vocabulary
        >>> read_vocabulary('</s>: 0\\n<unk>: 1\\n"a b": 2\\n', "vocab.yml")
        {'</s>': 0, '<unk>': 1, 'a b': 2}
    """
    ids, long_piece = {}, None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if not line or line == "---":
            continue
        if line.startswith("? "):  # a long piece, whose id is in the next line
            long_piece = line[2:]
            continue
        piece, _, token = line.rpartition(":")
        piece, long_piece = (piece if long_piece is None else long_piece), None
        try:
            piece, token = unquoted(piece), int(token)
            if piece in ids:
                raise ValueError("it is there twice")
        except ValueError as error:
            raise ValueError(
                f"{origin}: line {number} must be a piece and its id ({error}). "
                f"Received: {line!r:.80}"
            ) from error
        ids[piece] = token
    return ids
