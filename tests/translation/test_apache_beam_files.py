"""A pipeline of Apache Beam writes the file that `translate_file` writes, byte for byte."""

import functools
import importlib.util
import sys

import pytest

from keras_transformer.translation.apache_beam import translate_file_with_beam
from keras_transformer.translation.files import FileFormat, translate_file

needs_beam = pytest.mark.skipif(
    not importlib.util.find_spec("apache_beam"),
    reason="needs apache-beam: pip install apache-beam",
)
# What the library itself warns of.
pytestmark = pytest.mark.filterwarnings("default")


class Reversing:
    """Stands for a translator."""

    def source_ids(self, text):
        return list(text)

    def translate(self, texts):
        return [text[::-1] for text in texts]


class Failing(Reversing):
    def translate(self, texts):
        raise RuntimeError("no such luck")


@needs_beam
@pytest.mark.parametrize("form", [FileFormat(), FileFormat(format="jsonl")])
def test_the_file_is_the_same(tmp_path, form):
    source = tmp_path / "in"
    lines = [f"text {number}" * (number % 3) for number in range(50)]
    if form.format == "jsonl":
        lines = [f'{{"source": "{line}", "n": {number}}}' for number, line in enumerate(lines)]
    source.write_text("\n".join(lines) + "\n")
    translate_file(Reversing(), source, tmp_path / "a", form=form)
    done = translate_file_with_beam(Reversing, source, tmp_path / "b", form=form, window=7)
    assert done == 50
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "in"]


@needs_beam
def test_nothing_is_left_of_a_failure(tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a\n")
    with pytest.raises(Exception, match="no such luck"):
        translate_file_with_beam(functools.partial(Failing), source, output)
    source.write_text("")
    with pytest.raises(ValueError, match="at least one line"):
        translate_file_with_beam(Reversing, source, output)
    with pytest.raises(ValueError, match="Received: standard input"):
        translate_file_with_beam(Reversing, "-", output)
    with pytest.raises(FileExistsError, match="translations need a new file"):
        translate_file_with_beam(Reversing, source, source)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_missing_library_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match="pip install apache-beam"):
        translate_file_with_beam(Reversing, tmp_path / "in", tmp_path / "out")
