"""What an editor says: the packages and the examples are clean, and mistakes are reported."""

import pathlib
import re
import subprocess
import sys

import pytest

MISTAKES = pathlib.Path("tests", "types", "mistakes.py")


@pytest.fixture(scope="module")
def reported(repo_root, tmp_path_factory):
    """`(file, line, code)` of all that mypy reports of the packages and their use."""
    checked = ["keras_transformer", "keras_transformer_runner", "examples", MISTAKES]
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--no-error-summary"]
    command += ["--cache-dir", tmp_path_factory.mktemp("cache")]
    done = subprocess.run([*command, *checked], cwd=repo_root, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    found = re.findall(r"^(.+?):(\d+): error: .*\[(.+)\]$", done.stdout, re.MULTILINE)
    return {(pathlib.Path(file), int(line), code) for file, line, code in found}


@pytest.mark.slow
def test_packages_and_examples_are_clean(reported):
    assert {each for each in reported if each[0] != MISTAKES} == set()


@pytest.mark.slow
def test_mistakes_are_reported(reported, repo_root):
    lines = (repo_root / MISTAKES).read_text(encoding="utf-8").splitlines()
    marked = {
        (MISTAKES, number, line.split("# error: ")[1])
        for number, line in enumerate(lines, start=1)
        if "# error: " in line
    }
    assert len(marked) > 5
    assert {each for each in reported if each[0] == MISTAKES} == marked
