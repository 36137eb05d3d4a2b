"""The directive `public-names`: what `keras_transformer` itself exports, by the room it is from."""

import importlib
import inspect

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

ROOMS = (
    *(f"keras_transformer.{room}" for room in ("layers", "models", "decoding", "translation")),
    *(f"keras_transformer.{room}" for room in ("data", "experiment", "training", "export")),
    *("keras_transformer_runner", "keras_transformer_runner.tokenizers"),
)


def place(thing, name):
    """The dotted name under which the reference describes a public name."""
    for room in ROOMS:
        if name in importlib.import_module(room).__all__:
            return f"{room}.{name}"
    return f"{thing.__module__}.{name}"


class PublicNames(Directive):
    def run(self):
        package = importlib.import_module("keras_transformer")
        lines = ["| `kt.` | what |", "|---|---|"]
        for name in sorted(package.__all__, key=str.lower):
            if not name.startswith("__"):
                thing = getattr(package, name)
                said = inspect.getdoc(thing).partition("\n\n")[0].replace("\n", " ")
                lines.append(f"| {{py:obj}}`{name} <{place(thing, name)}>` | {said} |")
        node = nodes.container()
        self.state.nested_parse(StringList(lines, "public-names"), self.content_offset, node)
        return node.children


def setup(app):
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
