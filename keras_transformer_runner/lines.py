"""Lines of text files."""

import contextlib
import gzip
import json
import os
import pathlib
import stat
import sys
import warnings
import weakref
import zlib
from collections.abc import Iterator

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Control characters at which some reader or terminal begins a line.
_LINE_ENDS = dict.fromkeys(map(ord, "\n\v\f\r\x1c\x1d\x1e\x85"), " ")
# Characters that JSON does not escape and that some readers take for the end of a line.
_JSON_ESCAPES = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}

_streams_read, _pipes_read = weakref.WeakSet(), set()


class FormatWarning(UserWarning):
    """Plain text looks like another format: it holds a tab, or its first line is a JSON object."""


def one_line(text):
    """`text` as it stands in a file with a text a line: what ends a line becomes a space.

    That is LF and CR, which `read_lines` takes for an end, and the other control characters at
    which Python's `splitlines` and terminals begin a line. U+2028 and U+2029 are no control
    characters, and text. Each character becomes one, so a text may go through in pieces.
    """
    return text.translate(_LINE_ENDS)


def check_file(path):
    """Raises a `FileNotFoundError` if there is no text file at `path`; `"-"` is always one."""
    if str(path) != "-" and not pathlib.Path(path).exists():
        raise FileNotFoundError(f"a text file must exist. Received: {path}")


def read_lines(path: os.PathLike | str, *, plain: bool = False) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file, plain or gzip, without their ends.

    Only LF and CRLF end a line: U+2028 and its like are text. A byte order mark is dropped.

    Args:
        path: A file, or `"-"` for standard input (plain or gzip), which can be read only once, as
            can a pipe.
        plain: Whether a line is a text and nothing else, so that the first tab is warned of, and
            a JSON object in the first line: the file may be one of columns, or JSON lines.

    Raises:
        FileNotFoundError: if there is no such file.
        OSError: if it cannot be read.
        ValueError: if the file is UTF-16, a line is not UTF-8 (with its number), gzip data are
            damaged, or standard input is closed, or it or a pipe was read before.

    Example:
        >>> from keras_transformer_runner.lines import read_lines
        >>> with open("lines.txt", "wb") as file:
        ...     _ = file.write("é\\r\\ntwo".encode())
        >>> list(read_lines("lines.txt"))
        ['é', 'two']
    """
    for number, line in enumerate(read_byte_lines(path, plain=plain), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text must be UTF-8. Received: {_display(path)}, line {number}: {error}"
            ) from error


def read_text(path: os.PathLike | str) -> str:
    """A whole UTF-8 text file, plain or gzip, as one text with all its line ends.

    A byte order mark is dropped.

    Args:
        path: A file, or `"-"` for standard input (plain or gzip), which can be read only once.

    Raises:
        FileNotFoundError, OSError, ValueError: as `read_lines`.

    Example:
        >>> from keras_transformer_runner.lines import read_text
        >>> with open("text.txt", "wb") as file:
        ...     _ = file.write("é\\r\\n\\ntwo".encode())
        >>> read_text("text.txt")
        'é\\r\\n\\ntwo'
    """
    with _open_bytes(path) as file:
        lines = list(_raw_lines(file, path))
    if lines:
        _check_encoding(lines[0], path)
    try:
        return b"".join(lines).removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text must be UTF-8. Received: {_display(path)}: {error}") from error


def read_byte_lines(path, *, plain=False):
    """Reads as `read_lines` does, without decoding: the caller judges what is not UTF-8."""
    has_tab = False
    with _open_bytes(path) as file:
        for number, line in enumerate(_raw_lines(file, path), start=1):
            if number == 1:
                _check_encoding(line, path)
                line = line.removeprefix(BYTE_ORDER_MARK)
                if plain and _is_object(line):
                    warnings.warn(
                        f"{_display(path)}, line 1: plain text is a JSON object. A file of JSON "
                        "lines has the format 'jsonl'",
                        FormatWarning,
                        stacklevel=1,
                    )
            if plain and not has_tab and b"\t" in line:
                has_tab = True
                warnings.warn(
                    f"{_display(path)}, line {number}: plain text has a tab. A file with both "
                    "sides in columns is one source of the format 'tsv'",
                    FormatWarning,
                    stacklevel=1,  # the same place for every reader: said once
                )
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _is_object(line):
    if not (line.startswith(b"{") and line.rstrip().endswith(b"}")):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def json_line(fields):
    """A JSON object on one line for every reader, in what UTF-8 can hold; the rest is escaped."""
    line = json.dumps(fields, ensure_ascii=False).translate(_JSON_ESCAPES)
    return line.encode("utf-8", "backslashreplace").decode()  # lone surrogates


def _raw_lines(file, path):
    try:
        yield from file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"a gzip file must be complete. Received: {_display(path)}: {error}"
        ) from error
    except OSError as error:
        raise OSError(
            f"a text file must be readable. Received: {_display(path)}: {error}"
        ) from error


def _check_encoding(line, path):
    """Refuses UTF-16 by the first line: its mark, or a NUL for each character of ASCII."""
    content = line.removesuffix(b"\n")
    high, low = content[::2], content[1::2]  # of big-endian units; the other way round of others
    is_big = any(low) and not any(high)
    is_little = any(high) and not any(low) and len(high) == len(low)
    if line.startswith(_UTF16_MARKS) or is_big or is_little:
        raise ValueError(f"text must be UTF-8. Received: {_display(path)}, which is UTF-16")


def _display(path):
    return "standard input" if str(path) == "-" else str(path)


@contextlib.contextmanager
def _open_bytes(path):
    if str(path) == "-":
        yield _unpacked(_standard_input())
        return
    check_file(path)
    found = os.stat(path)
    if stat.S_ISFIFO(found.st_mode):  # also what the shell makes of <(...)
        _read_once(_pipes_read, (found.st_dev, found.st_ino), "a pipe", path)
    with open(path, "rb") as file:
        yield _unpacked(file)


def _unpacked(file):
    """`file`, or what is packed in it."""
    # Not every stream that stands in for standard input can be peeked at.
    magic = file.peek(2)[:2] if hasattr(file, "peek") else b""
    return gzip.open(file) if magic == GZIP_MAGIC else file


def _standard_input():
    if sys.stdin is None:
        raise ValueError("standard input must be open to be read. Received: a closed one")
    _read_once(_streams_read, sys.stdin.buffer, "standard input", "-")
    return sys.stdin.buffer


def _read_once(already_read, stream, what, path):
    if stream in already_read:
        raise ValueError(
            f"{what} can be read only once; what needs a second pass (a check, a vocabulary, "
            "another epoch) needs a file, or the folder that `prepare` writes. "
            f"Received: a second pass over '{path}'"
        )
    already_read.add(stream)
