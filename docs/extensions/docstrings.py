"""What docstrings write shortly, as reStructuredText and napoleon want it.

Code is `so`, which wants two marks a side and no letter behind them; what is indented is kept as
it stands; what a function returns has no type before a colon.
"""

import inspect
import re

from docutils import nodes
from sphinx.util.inspect import stringify_signature

CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)(\w?)")
RETURNS = re.compile(r"^(?P<section> *(?:Returns|Yields):\n +)(?=\S)", re.MULTILINE)
KEPT = re.compile(  # examples, and blocks that are indented below a paragraph
    r"(^ *>>> .*\n(?:^ *\S.*\n?)*|^::\n(?:^ +.*\n|^\n)+)", re.MULTILINE
)


def as_rst(app, what, name, thing, options, lines):
    """Changes the lines of a docstring in place, before napoleon reads its sections."""
    text = RETURNS.sub(r"\g<section>: ", "\n".join(with_blocks(lines)) + "\n")
    parts = KEPT.split(text)
    parts[::2] = [_with_code(part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")[:-1]


def with_blocks(lines):
    """Puts `::` before each block that is indented below a paragraph, such as a formula."""
    before = ""
    for index, line in enumerate(lines):
        starts = index and not lines[index - 1].strip() and line.startswith("    ")
        if starts and before and not before.startswith(" ") and not line.strip().startswith(">>>"):
            yield from ("::", "")
        if line.strip():
            before = line
        yield line


def _with_code(text):
    pieces = CODE.split(text)  # text, code, letter behind it, text, ...
    found = [pieces[0]]
    for code, letter, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        found += [f"``{code}``", "\\ " * bool(letter), letter, after]
    found[::4] = [re.sub(r"([|*])", r"\\\1", piece) for piece in found[::4]]
    return "".join(found)


def signature_of_init(app, what, name, thing, options, signature, returns):
    """Keras' classes have a `__new__` of any arguments, which autodoc looks at first."""
    if what == "class" and signature == "(*args, **kwargs)":
        parameters = list(inspect.signature(thing.__init__).parameters.values())[1:]
        return stringify_signature(
            inspect.Signature(parameters), unqualified_typehints=True
        ), returns
    return None


def skip_field(app, what, name, thing, skip, options):
    """Python's own docstring of a named tuple's field says nothing."""
    return skip or str(getattr(thing, "__doc__", "")).startswith("Alias for field number")


def with_dashes(app, doctree):
    """Sphinx puts two hyphens behind an argument's name, which smart quotes would make a dash."""
    for node in list(doctree.findall(nodes.Text)):
        if node.astext() == " -- ":
            node.parent.replace(node, nodes.Text(" – "))


def setup(app):
    app.connect("autodoc-skip-member", skip_field)
    app.connect("autodoc-process-signature", signature_of_init)
    app.connect("autodoc-process-docstring", as_rst, priority=400)  # napoleon has 500
    app.connect("doctree-read", with_dashes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
