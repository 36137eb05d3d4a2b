"""FIELD_CASES.md names tests that exist."""

import ast
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
PAGE = (TESTS / "FIELD_CASES.md").read_text(encoding="utf-8")
ROWS = [
    line.strip("|").split("|")
    for line in PAGE.splitlines()
    if re.match(r"\| (\S+#\d+|F\d\d, )", line)
]
# Cases of ours, in the order in which they were found, and where each came from.
OWN = [f"F{number}" for number in (*range(51, 67), *range(70, 85), *range(90, 98))]


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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip().replace(", ", "-"))
def test_a_case_names_tests_that_exist(row):
    reports, fault, tests = row
    report = r"F\d\d|([\w.-]+)?#\d+|own trial|newcomer"
    assert re.fullmatch(rf" ({report})(, ({report}))* ", reports) and fault.strip()
    references = named(tests)
    assert references
    for path, name in references:
        assert (TESTS / path).is_file(), path
        assert not name or name in functions_of(path), f"{path}::{name}"


def test_every_case_of_ours_has_a_row():
    assert {row[0].strip().split(",")[0] for row in ROWS} >= {*OWN}


def test_what_is_named_beside_the_table_exists():
    assert len(ROWS) > 45
    for path, name in named(PAGE):
        places = [file for file in TESTS.rglob(pathlib.Path(path).name)]
        assert places, path
        assert not name or any(name in functions_of(file) for file in places), f"{path}::{name}"
