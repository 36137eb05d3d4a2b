"""What a person sees: every weight in its place, every token legible, nothing outside the page."""

import io
import math
import sys

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager, pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg

from keras_transformer import plots
from keras_transformer.plots import plot_attention, plot_lines

HAN = "中"  # in no font that matplotlib brings
SQUARE = "\N{WHITE SQUARE}"


def weights(heads, queries, keys):
    scores = np.random.default_rng(0).random((heads, queries, keys))
    return scores / scores.sum(-1, keepdims=True)


def tokens(count):
    return [f"t{i}" for i in range(count)]


def panels(figure):
    return figure.axes[:-1]  # the last one is the colour bar


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def draw(figure):
    """Draws as `savefig` does; returns the renderer."""
    canvas = FigureCanvasAgg(figure)
    canvas.print_png(io.BytesIO())
    return canvas.get_renderer()


@pytest.fixture
def font_with_han(tmp_path, monkeypatch):
    """A font of one letter, installed for the time of a test."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0)), pen.lineTo((0, 900)), pen.lineTo((900, 0)), pen.closePath()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "han"])
    builder.setupCharacterMap({ord(HAN): "han", ord("\n"): "han"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "han": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (500, 0), "han": (1000, 0)})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "One Letter", "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(tmp_path / "one_letter.ttf")
    fonts = font_manager.fontManager
    monkeypatch.setattr(fonts, "ttflist", list(fonts.ttflist))
    fonts.addfont(tmp_path / "one_letter.ttf")
    monkeypatch.setattr(plots, "_FONTS", ("DejaVu Sans", "Missing", "One Letter"))


def test_each_head_is_a_panel_with_queries_down_and_keys_across():
    scores = weights(5, 2, 3)
    figure = plot_attention(scores, ["q0", "q1"], ["k0", "k1", "k2"], title="cross")
    assert len(panels(figure)) == 5
    for head, axis in enumerate(panels(figure)):
        (image,) = axis.get_images()
        np.testing.assert_allclose(image.get_array(), scores[head], atol=1e-6)
        assert image.origin == "upper"
        assert axis.get_title() == f"head {head}"
    assert any(text.get_text() == "cross" for text in figure.texts)


def test_one_colour_bar_from_0_to_1_serves_all_panels():
    figure = plot_attention(weights(3, 2, 5) / 10, tokens(2), tokens(5))
    assert figure.axes[-1].get_ylim() == (0, 1)
    for axis in panels(figure):
        assert axis.get_images()[0].get_clim() == (0, 1)
        assert axis.get_images()[0].get_cmap().name == "Blues"


def test_tokens_stand_at_the_outer_panels_only():
    figure = plot_attention(weights(5, 2, 3), ["q0", "q1"], ["k0", "k1", "k2"])  # rows of 3 and 2
    named_down = [bool(labels(axis.yaxis)) for axis in panels(figure)]
    named_across = [bool(labels(axis.xaxis)) for axis in panels(figure)]
    assert named_down == [True, False, False, True, False]
    assert named_across == [False, False, True, True, True]
    assert labels(panels(figure)[3].yaxis) == ["q0", "q1"]
    assert labels(panels(figure)[2].xaxis) == ["k0", "k1", "k2"]


@pytest.mark.quick(2)
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 8, 13, 16])
def test_panels_do_not_overlap(heads):
    figure = plot_attention(weights(heads, 3, 5), tokens(3), tokens(5))
    draw(figure)
    boxes = [axis.get_position() for axis in figure.axes]
    assert len(boxes) == heads + 1
    for place, box in enumerate(boxes):
        assert 0 < box.x0 < box.x1 < 1 and 0 < box.y0 < box.y1 < 1
        assert not any(box.overlaps(other) for other in boxes[:place])


@pytest.mark.quick(1)
@pytest.mark.parametrize("queries, keys", [(2, 3), (17, 40), (40, 11), (40, 40), (3, 200)])
def test_labels_are_legible(queries, keys):
    """Large enough, none over another, none beyond the page."""
    names = ["▁" + "abcdefghijk"[: 1 + i % 11] for i in range(200)]
    figure = plot_attention(
        weights(2, queries, keys), names[:queries], names[:keys], title="all of the title " * 5
    )
    renderer = draw(figure)
    first = panels(figure)[0]
    for axis, edges in ((first.xaxis, ("x0", "x1")), (first.yaxis, ("y0", "y1"))):
        texts = axis.get_ticklabels()
        assert texts[0].get_fontsize() >= 7
        boxes = [text.get_window_extent(renderer) for text in texts]
        spans = sorted((getattr(box, edges[0]), getattr(box, edges[1])) for box in boxes)
        for (_, end), (start, _) in zip(spans, spans[1:], strict=False):
            assert end <= start + 1  # a pixel
        for text in figure.texts:  # the axes' names and the title
            assert not any(box.overlaps(text.get_window_extent(renderer)) for box in boxes)
    everything = figure.get_tightbbox(renderer)  # in inches
    assert everything.x0 >= 0 and everything.y0 >= 0
    assert everything.x1 <= figure.get_figwidth() and everything.y1 <= figure.get_figheight()


def test_short_key_tokens_stand_level_and_long_ones_upright():
    for names, degrees in ((["a", "b"], 0), (["extraordinarily", "long"], 90)):
        figure = plot_attention(weights(1, 1, 2), ["q"], names)
        assert panels(figure)[0].get_xticklabels()[0].get_rotation() == degrees


def test_of_very_many_tokens_some_are_named():
    figure = plot_attention(weights(1, 200, 3), tokens(200), tokens(3))
    assert labels(panels(figure)[0].yaxis) == [f"t{i}" for i in range(0, 200, 4)]
    assert list(panels(figure)[0].get_yticks()) == list(range(0, 200, 4))
    assert max(figure.get_size_inches()) < 12


def test_a_very_long_token_is_cut():
    figure = plot_attention(weights(1, 1, 1), ["x" * 40], ["y" * 18])
    assert labels(panels(figure)[0].yaxis) == ["x" * 17 + "…"]
    assert labels(panels(figure)[0].xaxis) == ["y" * 18]


@pytest.mark.parametrize(
    "token, shown",
    [
        ("$x^2$", "$x^2$"),  # no formula
        ("$\\no", "$\\no"),
        ("$\\no$", "$\\no$"),
        ("_a", "_a"),
        ("a\nb", f"a{SQUARE}b"),
        ("a\u200db", "ab"),  # a joiner
        ("a\u3000b", "a b"),  # a wide space
        ("\ud800", SQUARE),  # half a letter
        (HAN, SQUARE),
        ("", ""),
        (7, "7"),
        ("Übermaß ∑ ▁Ω", "Übermaß ∑ ▁Ω"),
    ],
)
def test_any_token_draws_without_a_warning(token, shown):
    figure = plot_attention(weights(1, 1, 2), [token], [token, "b"], title=str(token))
    draw(figure)
    assert labels(panels(figure)[0].yaxis) == [shown]
    assert labels(panels(figure)[0].xaxis) == [shown, "b"]


def test_a_letter_is_drawn_from_the_font_that_has_it(font_with_han):
    names = [f"a{HAN}", f"{HAN}国\n"]  # the second letter has no font, a line end needs none
    figure = plot_attention(weights(1, 2, 2), names, names, title=HAN)
    draw(figure)
    label = panels(figure)[0].get_yticklabels()[0]
    assert label.get_text() == f"a{HAN}"
    assert label.get_fontfamily() == ["DejaVu Sans", "One Letter"]
    assert labels(panels(figure)[0].yaxis) == [f"a{HAN}", f"{HAN}{SQUARE}{SQUARE}"]
    (title,) = [text for text in figure.texts if text.get_text() == HAN]
    assert title.get_fontfamily() == ["DejaVu Sans", "One Letter"]


def test_scores_of_a_layer_in_bfloat16_are_taken_as_they_are():
    from keras import ops

    scores = ops.cast(weights(2, 3, 5), "bfloat16")
    figure = plot_attention(scores, tokens(3), tokens(5))
    drawn = panels(figure)[1].get_images()[0].get_array()
    np.testing.assert_allclose(drawn, weights(2, 3, 5)[1], atol=0.01)


@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (1, 2, 3, 5), (0, 3, 5), (2, 3, 4)])
def test_scores_of_other_sizes_are_refused(shape):
    with pytest.raises(ValueError, match=r"`scores` must be \(N, T, S\).* Received.*T=3, S=5"):
        plot_attention(np.zeros(shape), tokens(3), tokens(5))


def test_no_tokens_are_refused():
    with pytest.raises(ValueError, match=r"none of them 0. Received.* T=0, S=5"):
        plot_attention(np.zeros((2, 0, 5)), [], tokens(5))


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_what_is_no_weight_is_refused(value):
    scores = weights(2, 3, 5)
    scores[1, 2, 4] = value
    with pytest.raises(ValueError, match=r"`scores` must be attention weights between 0 and 1"):
        plot_attention(scores, tokens(3), tokens(5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: plot_attention(weights(2, 3, 5), tokens(3), tokens(5)),
        lambda: plot_lines({"a": {"b": ([1], [2])}}, x_label="x"),
    ],
)
def test_without_matplotlib_the_error_names_the_extra(make, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'keras-transformer-edge\[plots\]'"):
        make()


def test_figures_need_no_closing():
    plot_attention(weights(1, 2, 3), tokens(2), tokens(3))
    plot_lines({"a": {"b": ([1], [2])}}, x_label="x")
    assert pyplot.get_fignums() == []


def test_lines_have_one_colour_for_each_name():
    figure = plot_lines(
        {
            "left": {"a": ([1, 2], [3, 4]), "b": ([1, 2], [5, 6])},
            "right": {"b": ([4, 8], [1, 0]), "c": ([4, 8], [1, 2])},
        },
        x_label="depth",
        title="both",
    )
    left, right = figure.axes
    draw(figure)
    assert [axis.get_title("left") for axis in figure.axes] == ["left", "right"]
    colors = [{line.get_label(): line.get_color() for line in axis.lines} for axis in figure.axes]
    assert colors[0]["b"] == colors[1]["b"]
    assert len({colors[0]["a"], colors[0]["b"], colors[1]["c"]}) == 3
    np.testing.assert_array_equal(right.lines[0].get_xydata(), [[4, 1], [8, 0]])
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["b", "c"]
    assert left.get_xlabel() == right.get_xlabel() == "depth"
    assert left.get_xscale() == left.get_yscale() == "linear"
    assert figure.get_suptitle() == "both"


def test_many_lines_differ_in_style():
    lines = {str(i): ([0, 1], [i, i]) for i in range(12)}
    (axis,) = plot_lines({"all": lines}, x_label="x").axes
    assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 12


def test_logarithmic_axes_name_what_occurs_and_leave_out_zeros():
    (axis,) = plot_lines(
        {"a": {"b": ([4, 64, 16], [1, 0, 1e-9])}}, x_label="x", x_base=2, y_base=10
    ).axes
    draw(axis.figure)
    assert labels(axis.xaxis) == ["4", "16", "64"]
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    assert 0 < axis.get_ylim()[0] <= 1e-9
    assert not np.isfinite(axis.transData.transform([64, 0])).all()


def test_lines_must_be_there_and_match():
    for nothing in ({}, {"a": {}}):
        with pytest.raises(ValueError, match=r"`panels` must hold lines. Received: \{"):
            plot_lines(nothing, x_label="x")
    with pytest.raises(ValueError, match=r"as many x as y values.* Received: 2 and 3 for 'b'"):
        plot_lines({"a": {"b": ([1, 2], [1, 2, 3])}}, x_label="x")


def test_histograms_have_common_bins_about_zero():
    figure = plots.plot_histograms(
        {"one": [1.0, -8.0, 0.5], "two": [0.0]}, x_label="difference", title="both"
    )
    one, two = figure.axes
    edges = [patch.get_x() for patch in one.patches]
    assert edges == [patch.get_x() for patch in two.patches] and min(edges) == -8
    assert sum(patch.get_height() for patch in one.patches) == 3
    assert (one.get_title(loc="left"), one.get_xlabel()) == ("one", "difference")
    assert plots.plot_histograms({"same": [0.0, 0.0]}, x_label="x").axes[0].patches


@pytest.mark.parametrize("panels", [{}, {"one": []}])
def test_histograms_need_numbers(panels):
    with pytest.raises(ValueError, match="`panels` must hold numbers. Received: "):
        plots.plot_histograms(panels, x_label="x")
