"""FIELD_CASES.md names tests that exist."""

import ast
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
PAGE = (TESTS / "FIELD_CASES.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if re.match(r"\| \S+#\d+", line)]


def named(text):
    """Paths and test names; `::name` is of the file that was named before it."""
    found, path = [], None
    for reference in re.findall(r"`([\w/]*(?:\.py|::)\S*)`", text):
        given, _, name = reference.partition("::")
        path = given or path
        found.append((path, name))
    return found


def functions_of(path):
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split(",")[0].strip())
def test_a_case_names_tests_that_exist(row):
    reports, fault, tests = row
    assert re.fullmatch(r"( ?([\w.-]+)?#\d+,?)+ ", reports) and fault.strip()
    references = named(tests)
    assert references
    for path, name in references:
        assert (TESTS / path).is_file(), path
        assert not name or name in functions_of(path), f"{path}::{name}"


def test_what_is_named_beside_the_table_exists():
    assert len(ROWS) > 45
    for path, name in named(PAGE):
        places = [file for file in TESTS.rglob(pathlib.Path(path).name)]
        assert places, path
        assert not name or any(name in functions_of(file) for file in places), f"{path}::{name}"
