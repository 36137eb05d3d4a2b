"""Docstrings write code as Markdown does, `so`; reStructuredText wants two marks a side,
and no letter behind them."""

import re

CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)(\w?)")


def as_rst(app, what, name, thing, options, lines):
    """Changes the lines of a docstring in place, before napoleon reads its sections."""
    text = "\n".join(lines)
    parts = re.split(r"(^ *>>> .*\n(?:^ *\S.*\n?)*)", text, flags=re.MULTILINE)
    parts[::2] = [_outside_examples(part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def _outside_examples(text):
    pieces = CODE.split(text)  # text, code, letter behind it, text, ...
    found = [pieces[0]]
    for code, letter, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        found += [f"``{code}``", "\\ " * bool(letter), letter, after]
    found[::4] = [re.sub(r"([|*])", r"\\\1", piece) for piece in found[::4]]
    return "".join(found)


def skip_field(app, what, name, thing, skip, options):
    """Python's own docstring of a named tuple's field says nothing."""
    return skip or str(getattr(thing, "__doc__", "")).startswith("Alias for field number")


def setup(app):
    app.connect("autodoc-skip-member", skip_field)
    app.connect("autodoc-process-docstring", as_rst, priority=400)  # napoleon has 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
