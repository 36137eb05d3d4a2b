"""What an editor says of code that uses the packages: the examples are clean, mistakes reported."""

import pathlib
import re
import subprocess
import sys

import pytest

MISTAKES = pathlib.Path("tests", "types", "mistakes.py")


@pytest.fixture(scope="module")
def reported(repo_root, tmp_path_factory):
    """`(file, line, code)` of all that mypy reports of the examples and of the mistakes."""
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--no-error-summary"]
    command += ["--follow-imports", "silent", "--cache-dir", tmp_path_factory.mktemp("cache")]
    command += ["examples", MISTAKES]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    found = re.findall(r"^(.+?):(\d+): error: .*\[(.+)\]$", done.stdout, re.MULTILINE)
    return {(pathlib.Path(file), int(line), code) for file, line, code in found}


@pytest.mark.slow
def test_examples_are_clean(reported):
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
