"""Every public class and function shows its use in its docstring, and the example runs."""

import doctest
import importlib
import inspect

import pytest

PACKAGES = (
    "keras_transformer",
    *(f"keras_transformer.{room}" for room in ("layers", "models", "decoding", "translation")),
    *(f"keras_transformer.{room}" for room in ("data", "experiment", "training", "export")),
    *("keras_transformer.interop", "keras_transformer.distillation"),
    *("keras_transformer.comparison", "keras_transformer.kits"),
    *("keras_transformer_runner", "keras_transformer_runner.tokenizers"),
)
# What an example may use without saying where it comes from.
NAMES = {"keras": "keras", "ops": "keras.ops", "np": "numpy", "kt": "keras_transformer"}


def public():
    """All public classes and functions, each once, by name. Records and errors are no tools."""
    found = {}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            thing = getattr(package, name)
            is_record = hasattr(thing, "_fields") or issubclass_of(thing, BaseException)
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and not is_record:
                found.setdefault(thing, f"{thing.__module__}.{thing.__qualname__}")
    return {name: thing for thing, name in found.items()}


def issubclass_of(thing, base):
    return inspect.isclass(thing) and issubclass(thing, base)


PUBLIC = public()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_example_of_a_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {short: importlib.import_module(module) for short, module in NAMES.items()}
    finder, flags = doctest.DocTestFinder(recurse=False), doctest.ELLIPSIS
    (example,) = finder.find(PUBLIC[name], name, globs=names)
    assert example.examples, f"{name} has no example in its docstring"
    said = []
    doctest.DocTestRunner(optionflags=flags).run(example, out=said.append)
    assert not said, "".join(said)


def test_an_example_that_does_not_hold_is_found():
    def f():
        """
        >>> 1 + 1
        3
        """

    (example,) = doctest.DocTestFinder().find(f, "f", globs={})
    said = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert "Expected:" in "".join(said)
