"""The file of a model card: written again only while nobody has edited it, and what it says.

Its last line is a checksum of what stands above, which an edited card does not match.
"""

import contextlib
import hashlib
import json
import re
from pathlib import Path

from keras_transformer_runner.atomic import write_text

CARD_FILE = "README.md"
_SEAL = re.compile(
    r"\n<!-- Written by keras_transformer; an edited card is kept\. sha256: ([0-9a-f]{64}) -->\n*\Z"
)
_IN_QUOTES = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_ITEM = re.compile(rf"\s*(?:{_IN_QUOTES}|[^,]+)")


def sealed(text):
    """A card with the line that tells whether it is still as it was written."""
    text = text.rstrip("\n") + "\n"
    note = f"Written by keras_transformer; an edited card is kept. sha256: {_checksum(text)}"
    return f"{text}\n<!-- {note} -->\n"


def is_edited(path):
    """Whether somebody has written or changed the card at a path."""
    try:
        text = Path(path).read_bytes().decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        return False
    except (UnicodeDecodeError, OSError):
        return True
    seal = _SEAL.search(text)
    return seal is None or _checksum(text[: seal.start()]) != seal[1]


def write_card(folder, text):
    """Writes the card of a folder, unless an edited one is there.

    Returns:
        Whether it was written.
    """
    path = Path(folder) / CARD_FILE
    if is_edited(path):
        return False
    write_text(path, sealed(text))
    return True


def carried_card(earlier, text):
    """What becomes the card of a folder that replaces another: `text`, or the edited one there.

    Args:
        earlier: The folder that is replaced, which need not exist.
        text: The new card.
    """
    path = Path(earlier) / CARD_FILE
    return path.read_bytes() if is_edited(path) else sealed(text).encode("utf-8")


def stated(folder):
    """What the front matter of a folder's card says: its licence, or `None`, and its languages."""
    card = Path(folder) / CARD_FILE
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = re.match(r"---\n(.*?)^---", text, re.DOTALL | re.MULTILINE)
    values = [_values(name, front[1] if front else "") for name in ("license", "language")]
    return next(iter(values[0]), None), tuple(values[1])


def _values(name, front):
    """The values of a key in YAML: one, or a list in either form."""
    found = re.search(rf"^{name}:[ \t]*([^\n]*)((?:\n[ \t]*-[ \t]+[^\n]*)*)", front, re.MULTILINE)
    if not found:
        return []
    first, below = (
        found[1].strip(),
        re.sub(r"^[ \t]*-", "", found[2].strip("\n"), flags=re.MULTILINE),
    )
    if first.startswith("["):
        given = _ITEM.findall(first[1:].rpartition("]")[0])
    else:
        given = [first, *below.split("\n")]
    return [value for value in map(_value, given) if value]


def _value(text):
    """A string of YAML as Python's: in quotes of either kind, or bare, before a comment."""
    text = text.strip()
    if found := re.match(_IN_QUOTES, text):
        with contextlib.suppress(ValueError):
            return json.loads(found[0])  # double quotes are JSON's
        return found[0][1:-1].replace("''", "'")
    return re.split(r"(?:^|\s)#", text)[0].strip()


def _checksum(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
