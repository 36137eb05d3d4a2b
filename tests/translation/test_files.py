"""Whole files: order, windows, formats, faults, and going on after an interruption."""

import contextlib
import gzip
import io
import itertools
import json
import os
import sys
import types

import pytest

from keras_transformer.translation import Translation
from keras_transformer.translation.files import FileFormat, translate_file
from keras_transformer.translation.whole_texts import translate_text_file
from keras_transformer_runner.atomic import TargetInUseError


class Upper:
    """Stands for a translator: capitals; counts its batches, fails when told."""

    def __init__(self, fail_at=None):
        self.seen, self.fail_at = [], fail_at

    def source_ids(self, text):
        if len(text) > 20:
            raise ValueError("a text must have at most 20 letters")
        return list(text)

    def translate(self, texts):
        self.seen.append(len(texts))
        if len(self.seen) == self.fail_at:
            raise KeyboardInterrupt
        return [text.upper() for text in texts]

    def translate_with_details(self, texts, *, n_best):
        return [
            [Translation(text.upper() * (n + 1), (), -float(n), n > 0) for n in range(n_best)]
            for text in texts
        ]


def write(path, count):
    path.write_text("".join(f"line {number}\n" for number in range(count)), encoding="utf-8")
    return path


def expected(count):
    return "".join(f"LINE {number}\n" for number in range(count))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_lines_stay_in_order_and_windows_bound_them(tmp_path):
    source, translator, steps = write(tmp_path / "in.txt", 11), Upper(), []
    done = translate_file(
        translator, source, tmp_path / "new" / "out.txt", window=4, progress=steps.append
    )
    assert done == 11 and steps == [4, 8, 11] and translator.seen == [4, 4, 3]
    assert (tmp_path / "new" / "out.txt").read_text() == expected(11)
    assert names(tmp_path / "new") == ["out.txt"]


def test_gzip_empty_lines_and_line_ends_inside_a_translation(tmp_path):
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress("a\n\nb\u2028c\n".encode()))

    class Breaking(Upper):
        def translate(self, texts):
            return [text.replace("a", "x\ny\r") for text in texts]

    translate_file(Breaking(), path, tmp_path / "out")
    assert (tmp_path / "out").read_bytes().decode() == "x y \n\nb\u2028c\n"


@pytest.mark.parametrize("fail_at", [1, 2, 3])
def test_an_interrupted_job_goes_on(tmp_path, fail_at):
    source, output = write(tmp_path / "in.txt", 11), tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(Upper(fail_at), source, output, window=4, fingerprint="a")
    assert not output.exists()
    with open(tmp_path / "out.txt.part", "ab") as file:
        file.write(b"half a li")  # what a kill may leave behind
    again = Upper()
    assert translate_file(again, source, output, window=4, fingerprint="a") == 11
    assert sum(again.seen) == 11 - 4 * (fail_at - 1)
    assert output.read_text() == expected(11)
    assert names(tmp_path) == ["in.txt", "out.txt"]


def test_the_part_of_another_job_is_refused(tmp_path):
    source, output = write(tmp_path / "in.txt", 5), tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        translate_file(Upper(2), source, output, window=2, fingerprint="a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileExistsError, match="goes on only with the same run.*out.txt.part.json"):
        translate_file(Upper(), source, output, window=2, fingerprint="b")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def interrupted(source, output, **options):
    """Leaves 4 lines done."""
    with pytest.raises(KeyboardInterrupt):
        translate_file(Upper(3), source, output, window=2, **options)


@pytest.mark.parametrize("text", ["line 0\nnew\n" + "line\n" * 9, "", "line 0\nline 1\nline 2\n"])
def test_another_source_is_refused(tmp_path, text):
    """Also one of the same size, or with the same beginning."""
    source, output = write(tmp_path / "in.txt", 5), tmp_path / "out.txt"
    before = source.read_text()
    interrupted(source, output)
    for other in (text, before[:-2] + "5\n", before + "\n"):
        source.write_text(other)
        with pytest.raises((FileExistsError, ValueError), match="in source|.in.txt is empty"):
            translate_file(Upper(), source, output, window=2)
    source.write_text(before)
    (tmp_path / "moved.txt").write_text(before)  # a name is no content
    assert translate_file(Upper(), tmp_path / "moved.txt", output, window=2) == 5
    assert output.read_text() == expected(5)


def test_another_form_is_refused(tmp_path):
    source, output = write(tmp_path / "in.txt", 5), tmp_path / "out.txt"
    interrupted(source, output)
    with pytest.raises(FileExistsError, match="which differs in form"):
        translate_file(Upper(), source, output, form=FileFormat(too_long="skip"))


@pytest.mark.parametrize("second", ["same", "other", "shorter"])
def test_standard_input_must_begin_as_before(tmp_path, monkeypatch, second):
    text = "".join(f"line {number}\n" for number in range(5))
    texts = {"same": text, "other": text.replace("1", "7"), "shorter": text[:14]}

    def typed(text):
        buffer = io.BufferedReader(io.BytesIO(text.encode()))
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=buffer))

    typed(text)
    interrupted("-", tmp_path / "out.txt")
    typed(texts[second])
    if second == "same":
        assert translate_file(Upper(), "-", tmp_path / "out.txt") == 5
        assert (tmp_path / "out.txt").read_text() == expected(5)
        return
    with pytest.raises(ValueError, match="the first 4 lines are others or missing"):
        translate_file(Upper(), "-", tmp_path / "out.txt")


def test_a_source_that_changes_meanwhile(tmp_path):
    source, output = write(tmp_path / "in.txt", 5), tmp_path / "out.txt"

    def append(done):
        with open(source, "a") as file:
            file.write("more\n")

    with pytest.raises(ValueError, match="must not change while it is translated.*in.txt; delete"):
        translate_file(Upper(), source, output, window=2, progress=append)
    assert not output.exists()


def test_of_two_jobs_the_second_is_refused(tmp_path):
    source, output = write(tmp_path / "in.txt", 5), tmp_path / "out.txt"
    (tmp_path / "link.txt").symlink_to("out.txt")

    def again(done):
        for target in (output, tmp_path / "link.txt"):
            with pytest.raises(TargetInUseError, match="out.txt, which is being written by proce"):
                translate_file(Upper(), source, target, fingerprint="b")

    translate_file(Upper(), source, output, window=2, progress=again)
    assert output.read_text() == expected(5)
    assert names(tmp_path) == ["in.txt", "link.txt", "out.txt"]


# A process that pytest's own threads are in may be forked: the child reads and writes, and ends.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_killed_anywhere_the_same_call_ends_as_if_it_never_was(tmp_path, monkeypatch):
    """At every opening, renaming and removing of a file, without a chance to clean up."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is lost here
    source, step = write(tmp_path / "in.txt", 3), 0
    while run_killed(source, tmp_path / "out.txt", at=step):
        is_done = (tmp_path / "out.txt").exists() and not (tmp_path / "out.txt.part.json").exists()
        with pytest.raises(FileExistsError) if is_done else contextlib.nullcontext():
            assert translate_file(Upper(), source, tmp_path / "out.txt", window=2) == 3
        assert (tmp_path / "out.txt").read_text() == expected(3)
        assert names(tmp_path) == ["in.txt", "out.txt"], step
        (tmp_path / "out.txt").unlink()
        step += 1
    assert step > 20


def run_killed(source, output, at):
    """Translates in a process that dies at its file operation `at`; whether it did."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    steps = itertools.count()

    def die(event, arguments):
        ours = event in ("open", "os.rename", "os.remove") and "out.txt" in str(arguments[0])
        if ours and next(steps) == at:
            os._exit(9)

    sys.addaudithook(die)
    try:
        translate_file(Upper(), source, output, window=2)
    finally:
        os._exit(0)


def test_a_file_that_is_there_is_not_touched(tmp_path):
    source = write(tmp_path / "in.txt", 2)
    with pytest.raises(FileExistsError, match="translations need a new file. Received: .*in.txt"):
        translate_file(Upper(), source, source)
    assert source.read_text() == "line 0\nline 1\n"


def test_json_lines_keep_their_keys(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 7, "text": "\u00e9 b"}\n{"text": "c", "x": [1]}\n', encoding="utf-8")
    form = FileFormat(format="jsonl", source_key="text")
    translate_file(Upper(), path, tmp_path / "out", form=form)
    lines = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": 7, "text": "é b", "translation": "É B"},
        {"text": "c", "x": [1], "translation": "C"},
    ]
    assert "É" in lines[0]


@pytest.mark.parametrize("n_best, key", [(None, "translation"), (2, "translations")])
def test_a_key_of_the_callers_is_never_overwritten(tmp_path, n_best, key):
    (tmp_path / "in").write_text('{"source": "a"}\n' + json.dumps({"source": "b", key: "mine"}))
    rule = f"no line may have the key '{key}', which its translation gets. Received: .*in, line 2: "
    with pytest.raises(ValueError, match=rule):
        list(FileFormat(format="jsonl", n_best=n_best).read(tmp_path / "in"))
    with pytest.raises(ValueError, match=f"`source_key` must be another key.*'{key}'"):
        FileFormat(format="jsonl", n_best=n_best, source_key=key)


def test_several_translations_have_scores(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"source": "a"}\n')
    form = FileFormat(format="jsonl", n_best=2)
    translate_file(Upper(), path, tmp_path / "out", form=form)
    assert json.loads((tmp_path / "out").read_text())["translations"] == [
        {"text": "A", "score": 0.0, "truncated": False},
        {"text": "AA", "score": -1.0, "truncated": True},
    ]


def test_a_line_that_is_too_long_is_named_or_skipped(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("a\n" + "b" * 21 + "\nc\n")
    with pytest.raises(ValueError, match="line 2: a text must have at most 20 letters"):
        translate_file(Upper(), path, tmp_path / "out")
    (tmp_path / "out.part").unlink()
    translate_file(Upper(), path, tmp_path / "out", form=FileFormat(too_long="skip"))
    assert (tmp_path / "out").read_text() == "A\n\nC\n"


@pytest.mark.parametrize("line", ["{", "[1]", '{"text": 3}', '{"source": null}', ""])
def test_faulty_json_is_named(tmp_path, line):
    path = tmp_path / "in.jsonl"
    path.write_text('{"source": "a"}\n' + line + "\n")
    with pytest.raises(ValueError, match="a string at 'source'. Received: .*in.jsonl, line 2"):
        translate_file(Upper(), path, tmp_path / "out", form=FileFormat(format="jsonl"))


def test_a_file_without_lines_leaves_nothing(tmp_path):
    (tmp_path / "in.txt").write_text("")
    with pytest.raises(ValueError, match="at least one line. Received: .*in.txt is empty"):
        translate_file(Upper(), tmp_path / "in.txt", tmp_path / "out")
    assert names(tmp_path) == ["in.txt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tsv"}, "`format` must be one of .*'tsv'"),
        ({"too_long": "cut"}, "`too_long` must be one of .*'cut'"),
        ({"n_best": 0, "format": "jsonl"}, "`n_best` must be"),
        ({"n_best": 2}, "`n_best` needs a place for several translations: format 'jsonl'"),
    ],
)
def test_wrong_formats(options, message):
    with pytest.raises(ValueError, match=message):
        FileFormat(**options)


def test_json_lines_are_lines_for_every_reader(tmp_path):
    path, record = tmp_path / "in.jsonl", {"source": "a", "id": "\u2028\x85\u2029\x0b\ud800\n"}
    path.write_text(json.dumps(record) + "\n")
    form = FileFormat(format="jsonl")
    translate_file(Upper(), path, tmp_path / "out", form=form)
    content = (tmp_path / "out").read_text(encoding="utf-8")
    (line,) = content.splitlines()
    assert json.loads(line) == {**record, "translation": "A"}


def test_control_characters_end_no_line(tmp_path):
    class Breaking(Upper):
        def translate(self, texts):
            return [f"{text}\x0b\x0c\x1c\x1d\x1e\x85{text}" for text in texts]

    translate_file(Breaking(), write(tmp_path / "in.txt", 2), tmp_path / "out")
    assert (tmp_path / "out").read_text().splitlines() == [
        f"line {n}      line {n}" for n in (0, 1)
    ]


# --- Whole texts ---------------------------------------------------------------------------


class Whole(Upper):
    """Takes sentences of at most nine letters."""

    def fits(self, text):
        return len(text) < 10


TEXT = "\ufeffA man.  Two\r\n\r\ndogs play here.\tDr. X.\u2028ok\n"
TRANSLATION = "A MAN.  TWO\r\n\r\nDOGS PLAY HERE.\tDR. X.\u2028OK\n"


def test_a_file_that_is_one_text(tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "new" / "out.txt"
    source.write_bytes(gzip.compress(TEXT.encode()))
    translator = Whole()
    assert translate_text_file(translator, source, output, language="en") == len(TEXT) - 1
    assert output.read_bytes() == TRANSLATION.encode()
    assert translator.seen == [6]  # sentences and parts of them, in one call
    with pytest.raises(FileExistsError, match="translations need a new file"):
        translate_text_file(translator, source, output)
    (tmp_path / "empty").touch()
    assert translate_text_file(translator, tmp_path / "empty", tmp_path / "none") == 0
    assert (tmp_path / "none").read_bytes() == b""


def test_what_a_file_of_one_text_refuses(tmp_path):
    (tmp_path / "latin").write_bytes(b"a\ncaf\xe9")
    with pytest.raises(ValueError, match="text must be UTF-8. Received: .*latin: "):
        translate_text_file(Whole(), tmp_path / "latin", tmp_path / "out")
    (tmp_path / "utf16").write_bytes("a b".encode("utf-16"))
    with pytest.raises(ValueError, match="which is UTF-16"):
        translate_text_file(Whole(), tmp_path / "utf16", tmp_path / "out")
    (tmp_path / "out.part.json").write_text("{}")
    with pytest.raises(FileExistsError, match="an interrupted translation goes on only with"):
        translate_text_file(Whole(), tmp_path / "latin", tmp_path / "out")


def test_json_lines_of_whole_texts(tmp_path):
    texts = [TEXT[1:], "", "no one. " * 3]
    lines = [json.dumps({"source": text}) for text in texts]
    (tmp_path / "in").write_text("\n".join(lines))
    form = FileFormat(format="jsonl", whole_texts=True, language="en")
    translator = Whole()
    assert translate_file(translator, tmp_path / "in", tmp_path / "out", form=form) == 3
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [each["translation"] for each in found] == [TRANSLATION, "", "NO ONE. " * 3]
    assert len(translator.seen) == 1


@pytest.mark.parametrize(
    "options, rule",
    [
        ({"whole_texts": 1}, "`whole_texts` must be"),
        ({"whole_texts": True}, "`whole_texts` needs the format 'jsonl'.*format='lines'"),
        ({"whole_texts": True, "format": "jsonl", "n_best": 2}, "goes without `n_best`.*n_best=2"),
        ({"whole_texts": True, "format": "jsonl", "too_long": "skip"}, "too_long='skip'"),
        ({"whole_texts": True, "format": "jsonl", "language": "english"}, "`language` must be"),
        ({"language": "de"}, "`language` goes with `whole_texts`. Received: language='de'"),
    ],
)
def test_options_of_whole_texts(options, rule):
    with pytest.raises((ValueError, TypeError), match=rule):
        FileFormat(**options)
