"""Figures a person can read: attention weights with their tokens, lines of a study, and
how differences spread.

Needs matplotlib (extra `plots`). Figures are plain `matplotlib.figure.Figure` objects, without
pyplot's global state: they draw without a display, and need no closing.
"""

import functools
import importlib
import math
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.typing import Tensor

_CELL_INCHES = 0.13  # the smallest side of a token's square that leaves its label readable
_PANEL_INCHES = 2.2  # what a panel grows to where tokens are few
_MAX_PANEL_INCHES = 8.0
_LETTER_INCHES = 0.62 / 72  # width of a letter, for each point of its size
_MAX_LABELS = 60  # on each axis; of more tokens every second, third ... is named
_MAX_LETTERS = 18
_MISSING = "\N{WHITE SQUARE}"
# Where the first has no such letter, the next is asked. It comes with matplotlib, the others with
# Linux, macOS and Windows.
_FONTS = (
    *("DejaVu Sans", "Noto Sans", "Arial Unicode MS", "Segoe UI", "Noto Sans CJK JP"),
    *("WenQuanYi Zen Hei", "Droid Sans Fallback", "PingFang SC", "Hiragino Sans", "Malgun Gothic"),
    *("Microsoft YaHei", "Yu Gothic", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Thai"),
    *("Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Nirmala UI", "FreeSans"),
)
_COLORS = ("#2f6db5", "#d1632b", "#3f8f4f", "#8a4fa3", "#6b6b6b", "#b08a00")
_GRAY = "#555555"
_BINS = 20  # on each side of zero


def plot_attention(
    scores: Tensor,
    query_tokens: Sequence[object],
    key_tokens: Sequence[object],
    *,
    title: str | None = None,
):
    """Draws one sentence's attention weights: a panel for each head, tokens on both axes.

    Rows are queries and columns are keys: a row shows where its token looks. All panels share one
    colour bar from 0 to 1. Labels stay readable up to about 40 tokens. A letter that no font here
    has becomes a square; DejaVu Sans and the common fonts of each system are looked into.

    Example:
        >>> scores = np.array([[[1.0, 0.0], [0.25, 0.75]]])  # one head, two tokens
        >>> figure = kt.plot_attention(scores, ["a", "man"], ["ein", "Mann"], title="layer 0")
        >>> figure.savefig("attention.png")
        >>> [axis.get_title() for axis in figure.axes]
        ['head 0', '']

    Args:
        scores: Attention weights of one sentence, (N, T, S), as one item of a batch in what
            `attention_scores` or a layer with `return_attention_scores=True` returns.
        query_tokens: The T tokens that attend.
        key_tokens: The S tokens that are attended to.
        title: Text above the figure.

    Returns:
        A `matplotlib.figure.Figure`; its last axes are the colour bar.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if `scores` are not (N, T, S) weights in [0, 1] for these tokens.
    """
    scores = _checked_scores(scores, query_tokens, key_tokens)
    heads, *counts = scores.shape
    columns = min(heads, 4 if heads > 6 or heads == 4 else 3)
    rows = math.ceil(heads / columns)
    cell = max(_PANEL_INCHES / max(counts), _CELL_INCHES)
    height, width = (min(count * cell, _MAX_PANEL_INCHES) for count in counts)
    style = {"fontsize": min(9.0, 60 * cell), "fontfamily": _families(), "parse_math": False}
    query_labels, key_labels = _labels(query_tokens), _labels(key_tokens)
    across, down = (
        max(map(_width, labels.values())) * style["fontsize"] * _LETTER_INCHES
        for labels in (query_labels, key_labels)
    )
    upright = down + 0.04 > width / len(key_labels)
    size = (columns * (width + 0.2) + across + 1.3, rows * (height + 0.35) + upright * down + 0.9)
    figure = _figure(size)
    axes = figure.subplots(rows, columns, squeeze=False)
    for head, axis in enumerate(axes.flat):
        if head >= heads:
            axis.remove()
            continue
        image = axis.imshow(scores[head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_title(f"head {head}", fontsize=9, color=_GRAY, pad=3)
        axis.spines[:].set_color("#cccccc")
        axis.tick_params(length=0, pad=3)
        is_last, is_first = head + columns >= heads, head % columns == 0
        _name_tokens(axis.xaxis, key_labels if is_last else {}, style, rotation=90 * upright)
        _name_tokens(axis.yaxis, query_labels if is_first else {}, style)
    bar = figure.colorbar(image, ax=list(figure.axes), aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=_GRAY)
    figure.supxlabel("keys: attended to", color=_GRAY, fontsize=9)
    figure.supylabel("queries: attend", color=_GRAY, fontsize=9)
    if title:
        style["fontsize"] = 12
        figure.suptitle(_drawable(title), wrap=True, **style)
    return figure


def plot_lines(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    *,
    x_label: str,
    x_base: float | None = None,
    y_base: float | None = None,
    title: str | None = None,
):
    """Draws one or more panels of lines, side by side, with one legend each.

    Example:
        >>> from keras_transformer.plots import plot_lines
        >>> losses = {"post-norm": ([1, 2, 4], [5.0, 4.2, 3.9]), "pre-norm": ([1, 2], [4.8, 3.7])}
        >>> figure = plot_lines({"loss": losses}, x_label="depth", x_base=2)
        >>> figure.savefig("losses.png")
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['post-norm', 'pre-norm']

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
    figure = _figure((1.4 + 4.3 * len(panels), 4.0))
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


def plot_histograms(
    panels: Mapping[str, Sequence[float]], *, x_label: str, title: str | None = None
):
    """Draws how often differences are how large: one or more panels about a common zero.

    Example:
        >>> from keras_transformer.plots import plot_histograms
        >>> figure = plot_histograms({"new": [0.5, -3.0, 12.5]}, x_label="difference of chrF")
        >>> figure.savefig("differences.png")
        >>> figure.axes[0].get_title(loc="left")
        'new'

    Args:
        panels: Panel title -> differences. All panels have the same bins.
        x_label: Name of the horizontal axis.
        title: Text above the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if a panel is empty.
    """
    if not panels or not all(map(len, panels.values())):
        raise ValueError(f"`panels` must hold numbers. Received: {panels!r}")
    widest = max(max(map(abs, values)) for values in panels.values()) or 1.0
    bins = np.linspace(-widest, widest, 2 * _BINS + 1)
    figure = _figure((1.4 + 4.3 * len(panels), 4.0))
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True).flat
    for axis, (heading, values) in zip(axes, panels.items(), strict=True):
        axis.hist(values, bins=bins, color=_COLORS[0])
        axis.axvline(0, color=_GRAY, linewidth=0.8)
        axis.set_title(_drawable(heading), fontsize=11, loc="left")
        axis.set_xlabel(x_label, color=_GRAY)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=_GRAY)
    if title:
        figure.suptitle(title, fontsize=12)
    return figure


def _figure(size):
    figure_class = _matplotlib("figure").Figure
    return figure_class(figsize=size, dpi=120, layout="constrained", facecolor="white")


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


def _labels(tokens):
    """The labels of an axis by their places: every token, or every second, third, ... of many."""
    places = range(0, len(tokens), math.ceil(len(tokens) / _MAX_LABELS))
    labels = {place: _drawable(str(tokens[place])) for place in places}
    return {
        place: text if len(text) <= _MAX_LETTERS else text[: _MAX_LETTERS - 1] + "…"
        for place, text in labels.items()
    }


def _name_tokens(axis, labels, style, rotation=0):
    if labels:
        axis.set_ticks(list(labels), list(labels.values()), rotation=rotation, **style)
    else:
        axis.set_ticks([])


def _width(text):
    """Letters, of which the wide ones of East Asia count twice."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def _drawable(text):
    """The text without what cannot be drawn."""
    letters = frozenset().union(*map(_letters_of, _families()))
    visible = "".join(map(_visible, text))
    return "".join(letter if letter in letters else _MISSING for letter in visible)


def _visible(letter):
    """Joiners vanish, spaces of any kind are spaces, line ends and the like become squares."""
    replaced = {"Cf": "", "Zs": " "}.get(unicodedata.category(letter), letter)
    return replaced if replaced.isprintable() else _MISSING


def _families():
    """Those of the fonts that are installed."""
    installed = set(_matplotlib("font_manager").get_font_names())
    return [name for name in _FONTS if name in installed]


@functools.cache
def _letters_of(family):
    fonts = _matplotlib("font_manager")
    return frozenset(map(chr, fonts.get_font(fonts.findfont(family)).get_charmap()))
