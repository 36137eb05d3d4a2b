"""The command of the native core: its options, standard streams, and what it reads as text."""

import gzip
import io
import os
import subprocess
import sys

import pytest

from keras_transformer_runner import command

pytestmark = pytest.mark.slow
USAGE = "kt-translate FOLDER [--n-best N"


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "FOLDER must be given. Received: none"),
        (["a", "b"], "texts must come from standard input. Received: b"),
        (["--stream"], "FOLDER must be given. Received: none"),
        (["a", "-x"], "an option must be one of those below. Received: -x"),
        (["a", "--stream=1"], "an option must be one of those below. Received: --stream=1"),
        (["a", "--n-best"], "--n-best must have a value. Received: none"),
        (["a", "--n-best", "0"], "--n-best must be an integer in [1, 2^31). Received: 0"),
        (["a", "--n-best=2x"], "--n-best must be an integer in [1, 2^31). Received: 2x"),
        (["a", "--threads", "9" * 20], f"in [1, 2^31). Received: {'9' * 20}"),
        (["a", "--threads="], "--threads must be an integer in [1, 2^31). Received: "),
        (["a", "--text", "--stream"], "must be given one at a time. Received: several"),
        (["a", "--language", "en"], "--language goes with --text"),
    ],
)
def test_what_is_wrong_with_the_words_behind_it(words, message, native_tool):
    done = native_tool(*words)
    first, last = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"")
    assert first.startswith("kt-translate: error: ") and first.endswith(message)
    assert last.startswith(USAGE)


def test_values_in_the_same_word(native_tool, native_pieces):
    expected = native_tool(native_pieces, "--n-best", "2").stdout
    done = native_tool(native_pieces, "--n-best=2", "--threads=1", "--language=")
    assert done.returncode == 0 and done.stdout == expected and expected.count(b"\n") == 2


def test_a_stream_that_fails_writes_nothing(native_tool, native_pieces):
    done = native_tool(native_pieces, "--stream")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"a stream must have a file of a greedy search" in done.stderr


# --- What it reads -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, options",
    [
        (b"\xef\xbb\xbfe f g\nc d\r\n\r\ne\r", []),
        (b"\xef\xbb\xbfa b\r\n\xef\xbb\xbfa", ["--text"]),
        (b"", []),
        (b"", ["--text"]),
        (b"a\n" + b"a " * 700, []),
        (b"a\n" + b"a " * 700, ["--stream"]),
        ("a b\n".encode("utf-16"), []),
        ("a b\n".encode("utf-16-le"), []),
        ("a b\n".encode("utf-16-be"), ["--text"]),
        (b"a\0b\n", []),
        (b"a\n\xff\n", []),
        (b"a\n\xe2\x82", ["--text"]),
    ],
)
def test_text_is_read_as_python_reads_it(
    content, options, native_tool, native_words, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    code = command.main([str(native_words), *options])
    out, told = capsys.readouterr()
    done = native_tool(native_words, *options, input=content)
    assert (done.returncode, done.stdout.decode()) == (code, out)
    if code:
        rule = done.stderr.decode().splitlines()[-1].removeprefix("kt-translate: error: ")
        sentence = told.splitlines()[-1].removeprefix("keras-transformer-run: error: ")
        # Python's codec says which bytes are no UTF-8.
        assert sentence == rule or sentence.startswith(f"{rule.removesuffix('other bytes')}'utf-8'")


def test_what_is_no_text(native_tool, native_words, tmp_path):
    done = native_tool(native_words, input=gzip.compress(b"a\n"))
    assert b"text must be UTF-8. Received: standard input, which is gzip" in done.stderr
    folder = os.open(tmp_path, os.O_RDONLY)
    done = native_tool(native_words, input=None, stdin=folder)
    os.close(folder)
    rule = b"a text file must be readable. Received: standard input: Is a directory"
    assert done.returncode == 1 and rule in done.stderr


# --- Standard streams ----------------------------------------------------------------------


def test_streams_that_are_closed_or_full(native_build, native_words):
    def run(redirected):
        script = f'"$0" "$@" {redirected}'
        words = ["sh", "-c", script, native_build / "kt-translate", native_words]
        return subprocess.run(words, input=b"a b\n", capture_output=True, check=False)

    for redirected, message in (
        ("<&-", b"standard input must be open to be read. Received: a closed one"),
        (">&-", b"standard output must be open for the answer. Received: a closed one"),
        (">/dev/full", b"standard output must take what is written. Received: No space left"),
        ("--stream >/dev/full", b"standard output must take what is written. Received: No space"),
    ):
        done = run(redirected)
        assert (done.returncode, done.stdout) == (1, b"") and message in done.stderr
    assert run("2>&-").stdout == run("").stdout


def test_no_file_of_the_library_gets_the_number_of_a_closed_stream(
    native_build, native_words, tmp_path
):
    script = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
library.kt_open_cached.restype = ctypes.c_void_p
os.closerange(0, 3)
is_open = library.kt_open_cached(os.fsencode(sys.argv[2]), 1, b"cache")
found = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
with open("found", "w") as file:
    print(bool(is_open), *found, file=file)
"""
    library = native_build / "libkeras_transformer.so"
    command = [sys.executable, "-c", script, library, native_words]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "found").read_text() == "True /dev/null /dev/null /dev/null\n"
