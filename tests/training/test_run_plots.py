"""Pictures of a run."""

import importlib.util
import json

import pytest

from keras_transformer.training.run_plots import draw_run, draw_training


def test_each_figure_has_a_panel_and_each_series_a_line(tmp_path):
    records = [
        {"epoch": 1, "loss": 3.0, "val_loss": 2.5, "learning_rate": 0.1},
        {"epoch": 2, "loss": 2.0, "val_loss": 2.1, "learning_rate": 0.2, "val_bleu": 10.0},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    axes = draw_training(path).axes
    lines = {
        axis.get_title(loc="left"): [line.get_xydata().tolist() for line in axis.lines]
        for axis in axes
    }
    (loss,) = [found for title, found in lines.items() if title == "loss"]
    assert [[1.0, 3.0], [2.0, 2.0]] in loss and [[1.0, 2.5], [2.0, 2.1]] in loss
    (scores,) = [found for title, found in lines.items() if title.startswith("scores")]
    assert scores == [[[2.0, 10.0]]]


def test_without_matplotlib_a_run_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    draw_run(tmp_path, tmp_path / "none", None, None, [])
    assert "no plots: they need matplotlib (pip install" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("samples", [[], ["a"]])
def test_figures_are_files(tmp_path, samples, monkeypatch):
    from matplotlib.figure import Figure

    from keras_transformer.training import run_plots

    class Model:
        encode = None

    monkeypatch.setattr(run_plots, "draw_training", lambda path: Figure())
    monkeypatch.setattr(run_plots, "draw_attention", lambda *_: Figure())
    draw_run(tmp_path, tmp_path / "metrics", Model(), None, samples)
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == (["attention.png"] if samples else []) + ["training.png"]
