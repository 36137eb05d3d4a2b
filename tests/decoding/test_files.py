"""Whole files: order, windows, formats, faults, and going on after an interruption."""

import gzip
import json

import pytest

from keras_transformer.decoding.files import FileFormat, translate_file
from keras_transformer.decoding.translation import Translation


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
            [Translation(text.upper() * (n + 1), (), -float(n), (), n > 0) for n in range(n_best)]
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
