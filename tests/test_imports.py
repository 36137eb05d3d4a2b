"""Reads the source and holds it to the house rules: imports point one way, files stay short."""

import ast
from pathlib import Path

import pytest

PACKAGE = "keras_transformer"
MAX_LINES = 350
SHORT = (PACKAGE, "tests", "benchmarks", "examples")

# What each part may import of ours. A new part must be given its place here.
_FILES = {"atomic", "integrity", "outputs"}
_BELOW_DECODING = {"arguments", "config", "layers", "models"} | _FILES
_BELOW_TOP = _BELOW_DECODING | {"decoding", "text"}
ALLOWED = {
    "__init__": {"registration"},
    "registration": set(),
    "quiet": set(),
    "failures": set(),
    "folders": set(),
    "checks": set(),
    "diagnostics": {"layers", "models"},
    "plots": set(),
    "evaluation": {"folders"},
    "interop": _BELOW_TOP,
    "arguments": set(),
    "atomic": set(),
    "integrity": set(),
    "outputs": _FILES,
    "config": {"arguments"},
    "text": {"config"} | _FILES,
    "layers": {"arguments", "config", "registration"},
    "models": {"arguments", "config", "layers"},
    "decoding": _BELOW_DECODING | {"text"},
    "training": _BELOW_TOP | {"evaluation", "folders", "plots"},
    "export": _BELOW_TOP | {"quiet", "evaluation", "failures", "folders"},
    "inputs": {"text"},
    "commands": _BELOW_TOP | {"evaluation", "training", "export", "folders", "inputs", "quiet"},
    "parser": {"commands", "text", "__init__"},
    "cli": {"parser", "quiet", "failures", "text"},
}


def imported_modules(tree, module, is_package):
    """Yields `(line, dotted name)` for every import, wherever it stands, relative ones resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            drop = node.level - is_package
            base = parts[: len(parts) - drop] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def part_of(dotted):
    """`keras_transformer.layers.masks` -> `layers`; the package itself -> `__init__`."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else "__init__"


def faults(root):
    """Returns one line for each breach of a rule in the package below `root`."""
    found = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        place = path.relative_to(root)
        is_package = path.name == "__init__.py"
        names = place.with_suffix("").parts[: -1 if is_package else None]
        part = names[1] if len(names) > 1 else "__init__"
        source = path.read_text(encoding="utf-8")
        if part not in ALLOWED:
            found.append(f"{place}: `{part}` has no place in the order of imports")
            continue
        tree = ast.parse(source)
        found += [
            f"{place}:{node.lineno}: assert in the package"
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert)
        ]
        for line, name in imported_modules(tree, ".".join(names), is_package):
            if name.startswith(("keras.src", "tf_keras", "tensorflow.keras")):
                found.append(f"{place}:{line}: private or legacy Keras `{name}`")
            if name.split(".")[0] != PACKAGE:
                continue
            target = part_of(name)
            if target != part and target not in ALLOWED[part]:
                found.append(f"{place}:{line}: `{part}` imports `{name}`, which stands above it")
    return found


def long_files(root):
    """Returns the Python files below `root` that have too many lines."""
    return [
        path.relative_to(root).as_posix()
        for folder in SHORT
        for path in sorted((root / folder).rglob("*.py"))
        if path.read_text(encoding="utf-8").count("\n") > MAX_LINES
    ]


def test_files_stay_short(repo_root):
    assert long_files(repo_root) == []


@pytest.mark.parametrize("folder", SHORT)
def test_a_long_file_is_found(tmp_path, folder):
    path = tmp_path / folder / "a" / "b.py"
    path.parent.mkdir(parents=True)
    path.write_text("\n" * MAX_LINES, encoding="utf-8")
    assert long_files(tmp_path) == []
    path.write_text("\n" * (MAX_LINES + 1), encoding="utf-8")
    assert long_files(tmp_path) == [f"{folder}/a/b.py"]


def test_the_package_keeps_the_rules(repo_root):
    assert len(list((repo_root / PACKAGE).rglob("*.py"))) > 10
    assert faults(repo_root) == []


BREACHES = {
    "upward": ("layers/a.py", "from keras_transformer.decoding import cache", "stands above"),
    "upward, plain import": ("models/a.py", "import keras_transformer.text.corpus", "stands above"),
    "upward, relative": ("layers/a.py", "from ..models import Transformer", "stands above"),
    "upward, from the package": ("config.py", "from keras_transformer import models", "above"),
    "upward, in __init__": ("text/__init__.py", "from ..layers import masks", "stands above"),
    "upward, inside a function": ("config.py", "def f():\n    from . import cli", "stands above"),
    "the lazy root": ("export/a.py", "from keras_transformer import Greedy", "stands above"),
    "siblings": ("export/a.py", "import keras_transformer.training.loss", "stands above"),
    "text stands alone": ("text/a.py", "from keras_transformer import decoding", "stands above"),
    "private Keras": ("models/a.py", "from keras.src import ops", "private or legacy"),
    "private Keras, whole": ("models/a.py", "import keras.src.backend", "private or legacy"),
    "assert": ("config.py", "def f(x):\n    assert x", ":2: assert in the package"),
    "unknown part": ("helpers.py", "", "`helpers` has no place"),
}


@pytest.mark.parametrize("file, source, message", BREACHES.values(), ids=BREACHES)
def test_a_breach_is_found(tmp_path, file, source, message):
    path = tmp_path / PACKAGE / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    (fault,) = faults(tmp_path)
    assert message in fault
    assert fault.startswith(str(Path(PACKAGE) / file))


def test_arrows_that_point_down_are_fine(tmp_path):
    path = tmp_path / PACKAGE / "export" / "runner.py"
    path.parent.mkdir(parents=True)
    path.write_text("from ..decoding import search\nfrom . import parity\nimport keras\n")
    assert faults(tmp_path) == []
