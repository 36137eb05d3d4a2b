"""Figures a person can read: attention weights with their tokens, and lines of a study.

Needs matplotlib (extra `plots`). Figures are plain `matplotlib.figure.Figure` objects, without
pyplot's global state: they draw without a display, and need no closing.
"""

import functools
import importlib
import math
import unicodedata

import numpy as np

_CELL_INCHES = 0.13  # the smallest side of a token's square that leaves its label readable
_PANEL_INCHES = 2.2  # what a panel grows to where tokens are few
_MAX_PANEL_INCHES = 8.0
_GAP_INCHES = 0.14
_HEADING_INCHES = 0.3
_TITLE_POINTS = 12
_LETTER_INCHES = 0.62 / 72  # width of a letter, for each point of its size
_MAX_LABELS = 60  # on each axis; of more tokens every second, third ... is named
_MAX_LETTERS = 18
_MISSING = "\N{WHITE SQUARE}"
_COLORS = ("#2f6db5", "#d1632b", "#3f8f4f", "#8a4fa3", "#6b6b6b", "#b08a00")
_GRAY = "#555555"


def plot_attention(scores, query_tokens, key_tokens, *, title=None):
    """Draws one sentence's attention weights: a panel for each head, tokens on both axes.

    Rows are queries and columns are keys: a row shows where its token looks. All panels share one
    colour bar from 0 to 1. Labels stay readable up to about 40 tokens, in any script that an
    installed font has; a letter that none has becomes a square.

    Args:
        scores: Attention weights of one sentence, (N, T, S), as one item of a batch in what
            `attention_scores` or a layer with `return_attention_scores=True` returns.
        query_tokens: The T tokens that attend.
        key_tokens: The S tokens that are attended to.
        title: Text above the figure.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig("attention.png")` writes it.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `scores` are not (N, T, S) weights in [0, 1] for these tokens.
    """
    scores = _checked_scores(scores, query_tokens, key_tokens)
    query_axis, key_axis = _TokenAxis(query_tokens), _TokenAxis(key_tokens)
    grid = _Grid(scores.shape, query_axis, key_axis, _text_inches(title or "", _TITLE_POINTS))
    figure = _figure((grid.width, grid.height))
    for head, weights in enumerate(scores):
        axis = figure.add_axes(grid.panel(head))
        image = axis.imshow(
            weights, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto"
        )
        axis.set_title(f"head {head}", fontsize=9, color=_GRAY, pad=3)
        axis.spines[:].set_color("#cccccc")
        axis.tick_params(length=0, pad=3)
        last, first = head + grid.columns >= len(scores), head % grid.columns == 0
        key_axis.name(axis.xaxis, grid.points, shown=last, upright=grid.upright)
        query_axis.name(axis.yaxis, grid.points, shown=first)
    bar = figure.colorbar(image, cax=figure.add_axes(grid.color_bar()))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=_GRAY)
    grid.write_names(figure)
    if title:
        grid.write_title(figure, title)
    return figure


def plot_lines(panels, *, x_label, x_base=None, y_base=None, title=None):
    """Draws one or more panels of lines, side by side, with one legend each.

    Args:
        panels: Panel title -> {line name: (x values, y values)}. A name that occurs in several
            panels has one colour.
        x_label: Name of the horizontal axis, the same in all panels.
        x_base: Base of a logarithmic horizontal axis, such as 2, which names the x values that
            occur; linear when `None`.
        y_base: The same for the vertical axis. Values that are not above 0 are left out.
        title: Text above the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there is nothing to draw, or x and y differ in length.
    """
    _check_panels(panels)
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    figure = _figure((1.4 + 4.3 * len(panels), 4.0), "constrained")
    for axis, (heading, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False).flat, panels.items(), strict=True
    ):
        for name, (x, y) in lines.items():
            place = names.index(name)
            color, style = _COLORS[place % len(_COLORS)], "-" if place < len(_COLORS) else "--"
            axis.plot(x, y, style, color=color, marker="o", markersize=4, linewidth=1.6, label=name)
        if x_base:
            axis.set_xscale("log", base=x_base)
            places = sorted({value for x, _ in lines.values() for value in x})
            axis.set_xticks(places, [f"{place:g}" for place in places], fontsize=9)
            axis.set_xticks([], minor=True)
        if y_base:
            axis.set_yscale("log", base=y_base, nonpositive="mask")
        axis.set_title(heading, fontsize=11, loc="left")
        axis.set_xlabel(x_label, color=_GRAY)
        axis.grid(color="#e6e6e6", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=_GRAY)
        axis.legend(frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, fontsize=12)
    return figure


def _figure(size, layout=None):
    figure_class = _matplotlib("figure").Figure
    return figure_class(figsize=size, dpi=120, layout=layout, facecolor="white")


def _matplotlib(module):
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib: pip install 'keras-transformer-edge[plots]'"
        ) from error


def _checked_scores(scores, query_tokens, key_tokens):
    scores = np.asarray(scores).astype("float32")
    shape = ("N", len(query_tokens), len(key_tokens))
    if scores.ndim != 3 or scores.shape[1:] != shape[1:] or 0 in scores.shape:
        raise ValueError(
            "`scores` must be (N, T, S), of one sentence with T query tokens and S key tokens, "
            f"none of them 0. Received: scores of shape {scores.shape}, "
            f"T={len(query_tokens)}, S={len(key_tokens)}"
        )
    if not (scores.min() >= -1e-3 and scores.max() <= 1 + 1e-3):  # also catches NaN
        raise ValueError(
            "`scores` must be attention weights between 0 and 1. Received: values between "
            f"{scores.min()} and {scores.max()}"
        )
    return scores


def _check_panels(panels):
    if not panels or not all(panels.values()):
        raise ValueError(f"`panels` must hold lines. Received: {panels!r}")
    for lines in panels.values():
        for name, (x, y) in lines.items():
            if len(x) != len(y):
                raise ValueError(
                    "`panels` must have as many x as y values in each line. Received: "
                    f"{len(x)} and {len(y)} for {name!r}"
                )


class _TokenAxis:
    """The labels of one axis: which of the tokens, and in which fonts."""

    def __init__(self, tokens):
        self.step = math.ceil(len(tokens) / _MAX_LABELS)
        self.places = range(0, len(tokens), self.step)
        labels, self.families = _drawable([str(tokens[place]) for place in self.places])
        self.labels = [x if len(x) <= _MAX_LETTERS else x[: _MAX_LETTERS - 1] + "…" for x in labels]
        self.letters = max(map(_width, self.labels))

    def name(self, axis, points, *, shown, upright=False):
        """Writes the labels of a panel that stands at the edge."""
        if not shown:
            axis.set_ticks([])
            return
        axis.set_ticks(
            self.places,
            self.labels,
            fontsize=points,
            fontfamily=self.families,
            rotation=90 if upright else 0,
            parse_math=False,  # a "$" is a "$"
        )


class _Grid:
    """Where everything stands, in inches from the lower left."""

    def __init__(self, shape, query_axis, key_axis, title_inches):
        heads, queries, keys = shape
        cell = max(_PANEL_INCHES / max(queries, keys), _CELL_INCHES)
        self.points = min(9.0, 60 * cell)
        self.columns = min(heads, 4 if heads > 6 or heads == 4 else 3)
        self.rows = math.ceil(heads / self.columns)
        self.panel_width = min(keys * cell, _MAX_PANEL_INCHES)
        self.panel_height = min(queries * cell, _MAX_PANEL_INCHES)
        self.left = 0.4 + query_axis.letters * self.points * _LETTER_INCHES
        label = (key_axis.letters + 0.5) * self.points * _LETTER_INCHES
        self.upright = label > self.panel_width / len(key_axis.labels)
        self.bottom = 0.4 + (label if self.upright else 0.15)
        self.top = 0.3 if not title_inches else 0.6
        across = self.columns * (self.panel_width + _GAP_INCHES)
        self.width = self.left + max(across + 0.6, title_inches + 0.1)
        self.grid_height = self.rows * (self.panel_height + _HEADING_INCHES) - _HEADING_INCHES
        self.height = self.bottom + self.grid_height + self.top

    def place(self, x, y):
        """Inches as fractions of the figure."""
        return x / self.width, y / self.height

    def panel(self, head):
        """The rectangle of a head's panel, as `add_axes` wants it."""
        row, column = divmod(head, self.columns)
        x = self.left + column * (self.panel_width + _GAP_INCHES)
        y = self.bottom + (self.rows - 1 - row) * (self.panel_height + _HEADING_INCHES)
        return *self.place(x, y), *self.place(self.panel_width, self.panel_height)

    def write_names(self, figure):
        """Says what the two axes are."""
        style = dict(color=_GRAY, fontsize=9)
        figure.text(*self.place(self.left, 0.08), "keys: attended to", **style)
        queries = self.place(0.08, self.height - self.top)
        figure.text(*queries, "queries: attend", rotation=90, va="top", **style)

    def write_title(self, figure, title):
        """Writes the title above the first panel, from its left edge on."""
        (title,), families = _drawable([title])
        place = self.place(self.left, self.height - 0.1)
        style = dict(fontsize=_TITLE_POINTS, fontfamily=families, parse_math=False)
        figure.text(*place, title, va="top", **style)

    def color_bar(self):
        """The rectangle of the colour bar, right of the first row."""
        x = self.left + self.columns * (self.panel_width + _GAP_INCHES)
        height = min(self.grid_height, 2.2)
        y = self.bottom + self.grid_height - height
        return *self.place(x, y), *self.place(0.14, height)


def _text_inches(text, points):
    return _width(text) * points * _LETTER_INCHES


def _width(text):
    """Letters, of which the wide ones of East Asia count twice."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def _drawable(texts):
    """Texts without what cannot be drawn, and the font families that they need together."""
    texts = ["".join(map(_visible, text)) for text in texts]
    families, missing = _fonts_for(frozenset("".join(texts)))
    return [text.translate(dict.fromkeys(map(ord, missing), _MISSING)) for text in texts], families


def _visible(letter):
    """Joiners vanish, spaces of any kind are spaces, line ends and the like become squares."""
    replaced = {"Cf": "", "Zs": " "}.get(unicodedata.category(letter), letter)
    return replaced if replaced.isprintable() else _MISSING


def _fonts_for(letters):
    """Returns font families that together have the letters, and the letters that no font has."""
    fonts = _matplotlib("font_manager")
    regular = {
        font.name
        for font in fonts.fontManager.ttflist
        if (font.style, font.weight) == ("normal", 400)
        and not font.name.startswith("Last Resort")  # a box for every letter there is
    }
    families = ["DejaVu Sans"]  # comes with matplotlib
    missing = letters - _letters_in(fonts.findfont(families[0]))
    for name in sorted(regular) if missing else []:
        if found := missing & _letters_in(fonts.findfont(name)):
            families.append(name)
            missing = missing - found
    return families, missing


@functools.lru_cache(maxsize=1024)
def _letters_in(path):
    """The letters of a font file; none if it has no outlines, as with bitmap emoji."""
    try:
        font = _matplotlib("font_manager").get_font(path)
        return frozenset(map(chr, font.get_charmap())) if font.scalable else frozenset()
    except (OSError, RuntimeError):
        return frozenset()
