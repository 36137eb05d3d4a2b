"""The distributions, built from a copy of the sources: setuptools leaves folders behind."""

import shutil
import subprocess
import sys

# All that a source distribution is made from.
FOLDERS = (
    *("keras_transformer", "keras_transformer_command", "keras_transformer_runner"),
    *("tests", "examples", "export", "benchmarks", "docs", ".ci", ".github"),
)
FILES = (
    *("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"),
    *("CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", ".gitignore"),
)
_LEFTOVERS = shutil.ignore_patterns("__pycache__", "node_modules", "vendor", "*.tgz", ".*_cache")


def copy_sources(repo_root, folder):
    """Copies what the distributions are made from; returns the folder."""
    for name in FOLDERS:
        shutil.copytree(repo_root / name, folder / name, ignore=_LEFTOVERS)
    for name in FILES:
        shutil.copy(repo_root / name, folder)
    return folder


def build(source, out, *options):
    """Builds a folder's distributions as `python -m build` does, without fetching anything."""
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", out, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
