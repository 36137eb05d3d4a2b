"""The model card of a run: what it learned from, how, how good it is, and how to make it again."""

import os
import platform
import re

import keras
import numpy as np

from keras_transformer.data import MixedCorpus, PreparedCorpus
from keras_transformer.evaluation import text_scores
from keras_transformer.experiment.figures import best_figures
from keras_transformer.experiment.run_folder import EXPERIMENT_FILE, METRICS_FILE
from keras_transformer.presets.card import Card, changed_fields
from keras_transformer.presets.card_file import CARD_FILE, write_card
from keras_transformer.presets.record import MODEL_FILE
from keras_transformer.training.callbacks import read_metrics
from keras_transformer_runner import __version__
from keras_transformer_runner.failures import told
from keras_transformer_runner.integrity import checksum
from keras_transformer_runner.streams import log

_USE = 'kt.Translator.from_preset(FOLDER).translate(["..."])'
# A language's code at the end of a file's name, `train.en.gz`, or as a key of JSON lines.
_CODE = re.compile(r"(?:\A|\.)([a-z]{2})(?:\.gz)?\Z")
_LATER = {"start_from", "max_epochs", "max_minutes"}  # rows of their own


def write_run_card(run_dir, experiment, data, model, model_file):
    """Writes the model card of a run, unless somebody has edited the one that is there.

    It names files without their folders, which are nobody else's business. What goes wrong with it
    is only said: no card is worth a model.

    Args:
        run_dir: The folder of the run.
        experiment: Its `Experiment`.
        data: Its `TrainingData`.
        model: The trained `Transformer`.
        model_file: Where its file is now.
    """
    try:
        written = write_card(run_dir, _text(run_dir, experiment, data, model, model_file))
    except Exception as error:
        log(f"no model card: {told(error)}")
        return
    if not written:
        log(f"{run_dir / CARD_FILE} is kept as it is: somebody has edited it")


def _text(run_dir, experiment, data, model, model_file):
    """The card; see `write_run_card`."""
    card = Card(
        name=run_dir.resolve().name,
        languages=languages_of(experiment.data),
        data=", ".join(_names(experiment.data, "")),
        figures=best_figures(run_dir / METRICS_FILE),
        search=experiment.decoding.search(),
        sections={
            "Data": _data(experiment.data, data),
            "Tokenizer": _tokenizer(experiment, data.tokenizers),
            "Training": _training(experiment.training, run_dir),
            **({} if data.valid is None else {"Scores": _scores(experiment.training)}),
            "Make it again": _again(run_dir, model_file),
        },
        translates=True,
    )
    return card.text(model.config, model.count_params(), _USE)


def languages_of(section):
    """The languages of a `DataSection`, as its files and keys call them; none if they do not.

    Returns:
        Two codes, such as `("en", "de")`, or `()`.
    """
    pairs = set()
    for each in section.corpora:
        pair = (each.source_key, each.target_key)
        if not all(pair):
            pair = (each.source, each.target)
        codes = [_CODE.search(os.path.basename(side or "")) for side in pair]
        pairs.add(tuple(code[1] for code in codes if code))
    found = pairs.pop()
    return found if not pairs and len(set(found)) == 2 else ()


def _names(section, prefix):
    """What the corpora are called: names of files, or of a dataset."""
    for each in section.corpora:
        sides = [getattr(each, f"{prefix}{key}") for key in ("source", "target", "tsv")]
        yield " and ".join(
            side if side.startswith("tfds:") else os.path.basename(side) for side in sides if side
        )


def _data(section, data):
    """Names and counts of what was trained and validated on."""
    what = "rows of packed pairs" if data.options.pack else "pairs"
    if not isinstance(data.training, PreparedCorpus):  # which has a limit of its own
        what += f" of at most {section.max_length} ids a side"
    rows = {
        "training": ", ".join(_names(section, "")),
        "used": f"{len(data.training):,} {what}",
        "left out": ", ".join(f"{kind} {count:,}" for kind, count in data.training.skipped.items()),
    }
    if isinstance(data.training, MixedCorpus):
        rows["weights"] = ", ".join(f"{weight:.3g}" for weight in data.training.weights)
    if section.distilled:
        rows["targets"] = "written by teachers (distillation)"
    if data.valid is not None:
        rows["validation"] = ", ".join(filter(None, _names(section, "valid_")))
        rows["validation, used"] = f"{len(data.valid):,} pairs"
    return rows


def _tokenizer(experiment, tokenizers):
    kinds = {type(each).__name__: None for each in tokenizers}
    sizes = dict.fromkeys(f"{each.vocab_size:,}" for each in tokenizers)
    joint = tokenizers.source is tokenizers.target
    return {
        "kind": ", ".join(kinds),
        "vocabulary": f"{' and '.join(sizes)} ids" + (", of both sides" if joint else ""),
    }


def _training(options, run_dir):
    """The options that are not left at their defaults, and how long it took."""
    rows = {name: value for name, value in changed_fields(options).items() if name not in _LATER}
    if options.start_from:
        rows["started from"] = os.path.basename(options.start_from)
    records = read_metrics(run_dir / METRICS_FILE)
    if records:
        last = records[-1]
        rows |= {"epochs": last["epoch"], "updates": last.get("step")}
        rows["minutes"] = round(last.get("seconds", 0) / 60, 1)
    return rows


def _scores(options):
    """How the figures were computed."""
    rows = {"validation loss": f"a token, label smoothing {options.label_smoothing:g} included"}
    if options.score_every_epochs:
        for score in text_scores(["."], ["."]).values():
            name = score.text.partition(" ")[0]
            rows[f"{name}, by sacreBLEU"] = score.signature
    return rows


def _again(run_dir, model_file):
    versions = {"Keras": keras.__version__, "NumPy": np.__version__}
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        versions["TensorFlow"] = tf.__version__
    return {
        "command": f"`keras-transformer train {EXPERIMENT_FILE} NEW_RUN`, with the files above",
        "versions": f"keras_transformer {__version__}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f", backend {keras.backend.backend()}",
        f"sha256 of {MODEL_FILE}": checksum(model_file),
        "bytes": f"{os.path.getsize(model_file):,}",
    }
