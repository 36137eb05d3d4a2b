"""Plots of a run, in its folder: how it went, and where a trained model looks."""

import importlib.util

import numpy as np

from keras_transformer.models import attention_scores
from keras_transformer.training.callbacks import read_metrics
from keras_transformer_runner.atomic import write_file
from keras_transformer_runner.streams import log

FOLDER = "plots"


def draw_run(run_dir, metrics_file, model, tokenizers, samples):
    """Draws `plots/training.png` and `plots/attention.png`; says so where matplotlib is missing.

    Args:
        run_dir: The folder of the run.
        metrics_file: Its JSON lines, one an epoch.
        model: The trained `Transformer`.
        tokenizers: Its `Tokenizers`.
        samples: Source texts, of which one is drawn.
    """
    if importlib.util.find_spec("matplotlib") is None:
        log("no plots: they need matplotlib (pip install 'keras-transformer-edge[plots]')")
        return
    folder = run_dir / FOLDER
    plots = {"training.png": draw_training(metrics_file)}
    if samples and hasattr(model, "encode"):
        plots["attention.png"] = draw_attention(model, tokenizers, samples[0])
    for name, plot in plots.items():
        write_file(folder / name, lambda path, plot=plot: plot.savefig(path, dpi=120))
    log(f"drew {', '.join(sorted(plots))} in {folder}")


def draw_training(metrics_file):
    """Loss, learning rate and scores over epochs, as a `matplotlib.figure.Figure`."""
    from keras_transformer.plots import plot_lines

    records = read_metrics(metrics_file)

    def line(name):
        points = [(record["epoch"], record[name]) for record in records if name in record]
        return tuple(zip(*points, strict=True)) if points else None

    groups = {
        "loss": {"training": "loss", "validation": "val_loss"},
        "learning rate": {"learning rate": "learning_rate"},
        "scores of the validation set": {"BLEU": "val_bleu", "chrF": "val_chrf"},
    }
    panels = {}
    for title, names in groups.items():
        lines = {label: line(name) for label, name in names.items()}
        lines = {label: points for label, points in lines.items() if points}
        if lines:
            panels[title] = lines
    return plot_lines(panels, x_label="epoch")


def draw_attention(model, tokenizers, text):
    """Cross-attention of the last decoder block for one text, as a `matplotlib.figure.Figure`.

    The target is the model's own translation.
    """
    from keras_transformer.plots import plot_attention
    from keras_transformer.translation import Translator

    translator = Translator(
        model, tokenizers.source, target_tokenizer=tokenizers.target, batch_size=1
    )
    source = translator.source_ids(text)
    (target,) = translator.translate_ids([source])
    places = model.config.max_positions  # of which BOS takes one
    target = target if places is None else target[: places - 1]
    target_ids = np.array([[model.config.bos_id, *target]], "int32")
    weights = attention_scores(model, np.array([source], "int32"), target_ids).cross[-1][0]
    return plot_attention(
        weights,
        [tokenizers.target.pieces[token] for token in (*target, model.config.eos_id)],
        [tokenizers.source.pieces[token] for token in source],
        title="cross-attention of the last block: rows write, columns are read",
    )
