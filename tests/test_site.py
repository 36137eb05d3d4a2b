"""What Sphinx is helped with: keys of sections, docstrings, the table of contents."""

import dataclasses
import runpy

import pytest

from keras_transformer.experiment.sections import DecodingSection


@pytest.fixture
def extension(repo_root):
    def load(name):
        return runpy.run_path(str(repo_root / "docs" / "extensions" / f"{name}.py"))

    return load


def test_a_section_is_a_table_of_its_keys(extension):
    lines = extension("experiment_keys")["table"](DecodingSection)
    assert "| `extra_length` | `50` | It may be this many tokens longer than its source. |" in lines
    assert any(
        line.startswith("| `temperature`, `top_k`, `top_p`, `min_p`, `seed` |") for line in lines
    )


def test_a_key_that_no_docstring_describes_is_an_error(extension):
    @dataclasses.dataclass
    class Section:
        """One.

        Attributes:
            a, b: Two of
                three.

        Raises:
            ValueError: never.
        """

        a: bool = True
        b: str = "x"
        c: int = 3

    table = extension("experiment_keys")["table"]
    with pytest.raises(ValueError, match=r"Section must describe its fields. It lacks \['c'\]"):
        table(Section)
    del Section.__dataclass_fields__["c"]
    assert table(Section)[2:] == ['| `a`, `b` | `true`, `"x"` | Two of three. |']


def test_code_of_docstrings_becomes_rst(extension):
    lines = ["`None`s of ``x`` and **kwargs, |a|", "", "    >>> `a` | b", "    *", "", "`a`"]
    extension("docstrings")["as_rst"](None, "", "", None, None, lines)
    said = ["``None``\\ s of ``x`` and \\*\\*kwargs, \\|a\\|", "", "    >>> `a` | b", "    *", ""]
    assert lines == [*said, "``a``"]


def test_a_formula_of_a_docstring_stays_as_it_stands(extension):
    lines = ["One.", "", "    y = |x| * 2", "    z = `y`", "", "Returns:", "    A `y`: so."]
    extension("docstrings")["as_rst"](None, "", "", None, None, lines)
    formula = ["One.", "", "::", "", "    y = |x| * 2", "    z = `y`", ""]
    assert lines == [*formula, "Returns:", "    : A ``y``: so."]


def test_the_contents_are_the_lists_of_the_front_page(extension):
    text = "# A\n- [no](no.md)\n\n## One\n- [a b](a/b.md)\n- [at](c.md#d)\n"
    text += "- [x](https://e.org/f.md)\n\n## Two\n"
    assert extension("contents")["entries"](text) == [("One", [("a b", "a/b")])]
