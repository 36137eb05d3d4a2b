"""The directive `experiment-keys`: the table of a section's keys, from the class that checks them.

```{experiment-keys} keras_transformer.experiment.sections.TrainingSection
```
"""

import dataclasses
import importlib
import inspect
import re

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

ENTRY = re.compile(r"^ {4}(\w[\w, \n]*?):\s", re.MULTILINE)


def described(section):
    """`{names: text}` of the docstring's `Attributes:`, one text for the names of an entry."""
    text = inspect.getdoc(section).partition("Attributes:\n")[2]
    text = re.split(r"\n(?=\S)", text)[0]
    parts = ENTRY.split(text)[1:]
    return {
        tuple(re.split(r",\s+", names)): " ".join(said.split())
        for names, said in zip(parts[::2], parts[1::2], strict=True)
    }


def default(field):
    """How a default is written in TOML: `true`, `4096`, `"adam"`; nothing of a key without one."""
    value = field.default
    if value is dataclasses.MISSING:
        return "must be given"
    if value is None:
        return ""
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(section):
    """The lines of a Markdown table of a section's fields, as its docstring describes them.

    Raises:
        ValueError: if it does not describe a field.
    """
    fields = {field.name: field for field in dataclasses.fields(section)}
    lines, told = ["| key | default | meaning |", "|---|---|---|"], set()
    for names, text in described(section).items():
        told.update(names)
        keys = ", ".join(f"`{name}`" for name in names)
        defaults = ", ".join(dict.fromkeys(filter(None, (default(fields[key]) for key in names))))
        lines.append(f"| {keys} | {defaults} | {text.replace('|', chr(92) + '|')} |")
    if missing := fields.keys() - told:
        raise ValueError(f"{section.__name__} must describe its fields. It lacks {sorted(missing)}")
    return lines


class ExperimentKeys(Directive):
    required_arguments = 1

    def run(self):
        module, _, name = self.arguments[0].rpartition(".")
        try:
            lines = table(getattr(importlib.import_module(module), name))
        except ValueError as error:
            raise self.error(str(error)) from error
        node = nodes.container()
        self.state.nested_parse(StringList(lines, self.arguments[0]), self.content_offset, node)
        return node.children


def setup(app):
    app.add_directive("experiment-keys", ExperimentKeys)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
