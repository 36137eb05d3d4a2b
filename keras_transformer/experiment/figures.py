"""The best figures of a run, from its `metrics.jsonl`."""

import json

from keras_transformer.arguments import is_finite

_FIGURES = {
    "validation loss": ("val_loss", min),
    "validation BLEU, greedy": ("val_bleu", max),
    "validation chrF, greedy": ("val_chrf", max),
}


def best_figures(path):
    """`{"validation loss": "3.124 after epoch 3", …}`; what cannot be read is left out.

    Args:
        path: The file, which may be missing.
    """
    records = list(_records(path))
    found = {}
    for name, (key, best) in _FIGURES.items():
        values = [(record[key], record["epoch"]) for record in records if _is_number(record, key)]
        if values:
            value, epoch = best(values, key=lambda pair: pair[0])
            found[name] = f"{value:.4g} after epoch {epoch}"
    return found


def _records(path):
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue  # training checks the file; who translates needs it not
        if isinstance(record, dict) and "epoch" in record:
            yield record


def _is_number(record, key):
    return is_finite(record.get(key))
