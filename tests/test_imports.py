"""The house keeps its order: which room may import which, no `assert`, no private Keras, no
integers as wide as `floatx`, no endless file."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGES = ("keras_transformer", "keras_transformer_command", "keras_transformer_runner")
MOST_LINES = 300  # of code, a file: docstrings, comments and empty lines are free
SHORT = (*PACKAGES, "tests", "benchmarks", "examples")

# What each room may import of ours. A new room must be given its place here. All may import
# `keras_transformer_runner`, which imports nothing of ours.
_LIGHT = {"arguments", "config", "data", "evaluation", "experiment", "artifacts", "outputs"}
_LAYERS = {"arguments", "config", "typing"}
_MODELS = _LAYERS | {"layers", "presets"}
_DECODING = _MODELS | {"models"}
_TRANSLATION = _DECODING | {"decoding", "outputs", "data"}
_ALL = _TRANSLATION | _LIGHT | {"translation", "plots"}
ALLOWED = {
    "typing": set(),
    "arguments": {"typing"},
    "config": {"arguments"},
    "artifacts": set(),
    "presets": {"config"},
    "outputs": set(),
    "evaluation": {"typing"},
    "comparison": {"arguments", "evaluation"},
    "quiet": set(),
    "plots": {"typing"},
    "data": {"arguments", "config", "typing"},
    "layers": _LAYERS,
    "models": _MODELS,
    "checks": {"typing"},
    "diagnostics": _DECODING,
    "decoding": _DECODING,
    "translation": _TRANSLATION,
    # Without Keras, but for what a run that is loaded gives.
    "experiment": _ALL - {"plots"},
    "training": _ALL,
    "distillation": _ALL - {"plots"} | {"training"},  # without Keras, but while it works
    "interop": _ALL - {"plots"},
    "export": _ALL | {"quiet"},
    "__init__": _ALL | {"checks", "export", "training"},
    "kits": {"artifacts"},
    "command": _ALL
    | {"quiet", "training", "distillation", "export", "interop", "kits", "__init__"}
    | {"comparison"},
    "keras_transformer_command": {"command"},
    "keras_transformer_runner": set(),
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


def room_of(dotted):
    """`keras_transformer.layers.masks` -> `layers`; the package itself -> `__init__`."""
    package, *parts = dotted.split(".")
    if package != PACKAGES[0]:
        return package
    return parts[0] if parts and parts[0] in ALLOWED else "__init__"


def untyped_ranges(tree):
    """Yields the line of every `ops.arange` without a `dtype`."""
    typed = {
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and any(word.arg == "dtype" for word in node.keywords)
    }
    for node in ast.walk(tree):
        named = isinstance(node, ast.Attribute) and ast.unparse(node).endswith("ops.arange")
        if named and node not in typed:
            yield node.lineno


def faults(root):
    """Returns one line for each breach of a rule in the packages below `root`."""
    found = []
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        place = path.relative_to(root)
        is_package = path.name == "__init__.py"
        names = place.with_suffix("").parts[: -1 if is_package else None]
        room = names[0] if names[0] != PACKAGES[0] else (*names, "__init__")[1]
        source = path.read_text(encoding="utf-8")
        if room not in ALLOWED:
            found.append(f"{place}: `{room}` has no place in the order of imports")
            continue
        tree = ast.parse(source)
        found += [
            f"{place}:{node.lineno}: assert in the package"
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert)
        ]
        found += [f"{place}:{line}: `ops.arange` of no dtype" for line in untyped_ranges(tree)]
        for line, name in imported_modules(tree, ".".join(names), is_package):
            if name.startswith(("keras.src", "tf_keras", "tensorflow.keras")):
                found.append(f"{place}:{line}: private or legacy Keras `{name}`")
            if name.split(".")[0] not in PACKAGES:
                continue
            target = room_of(name)
            may = ALLOWED[room] | {room, "keras_transformer_runner"}
            if target not in (may if room != "keras_transformer_runner" else {room}):
                found.append(f"{place}:{line}: `{room}` imports `{name}`, which stands above it")
    return found


def lines_of_code(source):
    """How many lines hold code: not docstrings, comments or nothing."""
    free = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            free |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped and token.string:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    return len(lines - free)


def long_files(root):
    """Returns the Python files below `root` that have too many lines of code."""
    return [
        path.relative_to(root).as_posix()
        for folder in SHORT
        for path in sorted((root / folder).rglob("*.py"))
        if lines_of_code(path.read_text(encoding="utf-8")) > MOST_LINES
    ]


@pytest.mark.smoke
def test_files_stay_short(repo_root):
    assert long_files(repo_root) == []


def test_docstrings_and_comments_are_free():
    source = (
        '"""One.\n\nTwo."""\n\n# Three\nx = """\n\n"""  # four\n\n\ndef f():\n    """Five."""\n'
    )
    assert lines_of_code(source) == 4


@pytest.mark.parametrize("folder", SHORT)
def test_a_long_file_is_found(tmp_path, folder):
    path = tmp_path / folder / "a" / "b.py"
    path.parent.mkdir(parents=True)
    path.write_text("x = 1\n\n" * MOST_LINES, encoding="utf-8")
    assert long_files(tmp_path) == []
    path.write_text("x = 1\n\n" * (MOST_LINES + 1), encoding="utf-8")
    assert long_files(tmp_path) == [f"{folder}/a/b.py"]


@pytest.mark.smoke
def test_the_packages_keep_the_rules(repo_root):
    for package in PACKAGES:
        assert list((repo_root / package).rglob("*.py"))
    assert faults(repo_root) == []


BREACHES = {
    "upward": ("layers/a.py", "from keras_transformer.decoding import cache", "stands above"),
    "upward, plain import": ("models/a.py", "import keras_transformer.data.corpus", "stands above"),
    "upward, relative": ("layers/a.py", "from ..models import Transformer", "stands above"),
    "upward, from the package": ("config.py", "from keras_transformer import models", "above"),
    "upward, in __init__": ("data/__init__.py", "from ..layers import masks", "stands above"),
    "upward, in a function": ("config.py", "def f():\n    from . import training", "stands above"),
    "the root": ("export/a.py", "from keras_transformer import Greedy", "stands above"),
    "siblings": ("export/a.py", "import keras_transformer.training.loss", "stands above"),
    "search knows no text": ("decoding/a.py", "from keras_transformer import data", "stands above"),
    "a device has no Keras": (
        "../keras_transformer_runner/a.py",
        "import keras_transformer.config",
        "stands above",
    ),
    "private Keras": ("models/a.py", "from keras.src import ops", "private or legacy"),
    "private Keras, whole": ("models/a.py", "import keras.src.backend", "private or legacy"),
    "assert": ("config.py", "def f(x):\n    assert x", ":2: assert in the package"),
    "integers of floatx": (
        "layers/a.py",
        "y = 1\nx = ops.arange(y)",
        ":2: `ops.arange` of no dtype",
    ),
    "integers of floatx, mapped": ("layers/a.py", "x = map(keras.ops.arange, y)", "of no dtype"),
    "unknown room": ("helpers.py", "", "`helpers` has no place"),
}


@pytest.mark.parametrize("file, source, message", BREACHES.values(), ids=BREACHES)
def test_a_breach_is_found(tmp_path, file, source, message):
    path = tmp_path / Path(PACKAGES[0], file)
    path.parent.mkdir(parents=True)
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    (fault,) = faults(tmp_path.resolve())
    assert message in fault
    assert fault.startswith(str(path.relative_to(tmp_path.resolve())))


def test_arrows_that_point_down_are_fine(tmp_path):
    path = tmp_path / PACKAGES[0] / "export" / "a.py"
    path.parent.mkdir(parents=True)
    source = "from ..decoding import search\nfrom . import parity\nimport keras\n"
    source += "x = keras.ops.arange(3, dtype='int32')\n"
    path.write_text(source + "from keras_transformer_runner import Runner\n")
    assert faults(tmp_path) == []
