"""A line in, a line out; what is no text in UTF-8; and a tab in text that should have none."""

import io
import os
import sys
import threading
import warnings

import pytest

from keras_transformer.data import ParallelCorpus
from keras_transformer_runner.lines import FormatWarning, one_line, read_lines

ENDS = "\n\v\f\r\x1c\x1d\x1e\x85"


@pytest.mark.parametrize("end", ENDS)
def test_what_ends_a_line_becomes_a_space(end, tmp_path):
    text = one_line(f"a{end}b{end}")
    assert text == "a b "
    path = tmp_path / "file"
    path.write_bytes(f"{text}\n".encode())
    assert list(read_lines(path)) == text.splitlines() == [text]


def test_a_text_may_become_one_line_in_pieces():
    text = "".join(f"{end}x" for end in ENDS)
    assert "".join(map(one_line, text)) == one_line(text)
    assert one_line("a\u2028b\u2029\t") == "a\u2028b\u2029\t"


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"], ids=lambda name: name
)
@pytest.mark.parametrize("text", ["one two\nthree\n", "x\n", "one"])
def test_utf_16_is_refused_by_its_name(tmp_path, encoding, text):
    path = tmp_path / "text"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(ValueError, match="text must be UTF-8. Received: .*text, which is UTF-16"):
        list(read_lines(path))
    with pytest.raises(ValueError, match="which is UTF-16"):  # no faulty line, but a faulty file
        list(ParallelCorpus(path, path, invalid="skip"))


@pytest.mark.parametrize("content", [b"\0\n", b"a\0b\n", b"\xc3\xbf\xc3\xbe\n", b"\n", b""])
def test_odd_utf_8_is_read(tmp_path, content):
    path = tmp_path / "text"
    path.write_bytes(content)
    assert list(read_lines(path)) == content.decode().split("\n")[:-1]


def test_a_closed_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="standard input must be open to be read. Received: a clo"):
        list(read_lines("-"))


def test_what_cannot_be_read_is_named(monkeypatch):
    class Broken(io.BytesIO):
        def __next__(self):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    with pytest.raises(OSError, match="must be readable. Received: standard input: .*Input/output"):
        list(read_lines("-"))


def test_the_first_tab_of_plain_text_is_told_once(tmp_path):
    path = tmp_path / "text"
    path.write_text("a\nb\tc\nd\te\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert list(read_lines(path)) == ["a", "b\tc", "d\te"]
        assert caught == []
        corpus = ParallelCorpus(path, path)
        for _ in range(3):
            assert len(list(read_lines(path, plain=True))) == len(list(corpus)) == 3
    (warning,) = caught
    assert warning.category is FormatWarning
    assert f"{path}, line 2: plain text has a tab" in str(warning.message)
    assert list(ParallelCorpus(_columns(path))) == [("b", "c"), ("d", "e")]  # where tabs belong


@pytest.mark.parametrize("line, is_told", [('{"a": "b"} ', True), ("{a}", False), ("[1]", False)])
def test_json_lines_read_as_plain_text_are_told_once(tmp_path, line, is_told):
    path = tmp_path / "text"
    path.write_text(f'{line}\n{{"a": 1}}\n')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            assert (
                list(read_lines(path)) == list(read_lines(path, plain=True)) == [line, '{"a": 1}']
            )
    told = [(warning.category, str(warning.message)) for warning in caught]
    message = (
        f"{path}, line 1: plain text is a JSON object. A file of JSON lines has the format 'jsonl'"
    )
    assert told == [(FormatWarning, message)] * is_told


def _columns(path):
    path.write_text("b\tc\nd\te\n")
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_read_once(tmp_path):
    """A second pass would wait for ever, or find nothing."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    assert list(read_lines(path)) == ["one", "two"]
    writer.join()
    reading, writing = os.pipe()  # as the shell makes of <(...)
    with open(reading, "rb"):
        with open(writing, "wb") as file:
            file.write(b"three\n")
        assert list(read_lines(f"/dev/fd/{reading}")) == ["three"]
        for read in (path, f"/dev/fd/{reading}"):
            with pytest.raises(ValueError, match=f"a pipe can be read only once.*over '{read}'"):
                next(read_lines(read))
