"""The model card of an artefact: what is in its folder, and how it agrees with Python."""

import dataclasses
from pathlib import Path

from keras_transformer.models import Transformer
from keras_transformer.presets.card import Card
from keras_transformer.presets.card_file import CARD_FILE, carried_card

_USES = {
    "litert": (
        "from keras_transformer_runner import Runner\n\n"
        'Runner(FOLDER).{method}(["..."])  # needs neither TensorFlow nor Keras'
    ),
    "savedmodel": (
        "import tensorflow as tf\n"
        "import tensorflow_text  # its ops\n\n"
        "model = tf.saved_model.load(FOLDER)\n"
        'model.signatures["serving_default"](text=tf.constant(["..."]))'
    ),
}
_LIBRARIES = {"litert": "litert", "savedmodel": "tensorflow"}


def write_artifact_card(folder, target, card, model, report, facts, method="translate"):
    """Writes the card into an artefact that is being made.

    Args:
        folder: Where it is made.
        target: What it becomes: an edited card of an artefact that is replaced there is kept.
        card: A `Card` of where the model comes from, or `None`.
        model: The exported model.
        report: Its `ParityReport`.
        facts: A dictionary: rows of the table of what the folder has, such as signatures.
        method: What the runner of a device calls to use it.
    """
    is_translator = isinstance(model, Transformer)
    card = card or Card(name=type(model).__name__, translates=is_translator)
    sections = {
        "Artefact": {
            "kind": {"litert": "LiteRT", "savedmodel": "SavedModel"}[report.artefact],
            "number format": report.mode,
            "bytes, without this card": f"{report.size_bytes:,}",
            **facts,
        },
        "Agreement with Python": _agreement(report),
    }
    card = dataclasses.replace(
        card, sections={**sections, **card.sections}, library=_LIBRARIES[report.artefact]
    )
    use = _USES[report.artefact].format(method=method)
    text = card.text(model.config, model.count_params(), use)
    (Path(folder) / CARD_FILE).write_bytes(carried_card(target, text))


def _agreement(report):
    """What the export has compared, and what the number format promises."""
    promised = f"at least {report.promised_agreement:.0%} promised"
    rows = {
        "samples with the same text": f"{report.identical} of {report.samples}",
        "tokens": f"{report.token_agreement:.2%}, {promised}",
    }
    if report.bleu is not None:
        rows["BLEU"] = f"{report.bleu:.2f}, in Python {report.python_bleu:.2f}"
    rows["a sample, where it was exported"] = f"{report.seconds_a_sample * 1e3:.1f} ms"
    if report.runtime:
        rows["runtime"] = report.runtime
    return rows
