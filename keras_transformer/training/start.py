"""Weights of an earlier run into a new model, whose vocabulary and depth may be others."""

from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.models import Transformer
from keras_transformer.presets.record import MODEL_FILE
from keras_transformer_runner.streams import log

_MOST_NAMED = 8
_TABLES = ("embeddings", "output_bias")  # of a `TokenEmbedding`: a row an id


class _Rows(NamedTuple):
    """A table of the earlier model, one of the new, and the ids of the pieces that both know."""

    theirs: object
    ours: object
    their_ids: np.ndarray
    our_ids: np.ndarray


def take_over(start, model, tokenizers):
    """Copies the weights of a run into a model, as far as both have them.

    A layer that the model alone has, such as one more block, keeps its fresh weights. Rows of
    embeddings go by the piece that they stand for, special ids by what they mean.

    Args:
        start: A `Start`.
        model: The new `Transformer`.
        tokenizers: Its `Tokenizers`.

    Returns:
        What was taken, as a dictionary for JSON.

    Raises:
        ValueError: if the run's model is no `Transformer`, or a weight has another shape.
    """
    theirs = keras.models.load_model(start.folder / MODEL_FILE, compile=False)
    if not isinstance(theirs, Transformer):
        raise ValueError(
            "`training.start_from` must hold a `Transformer`. "
            f"Received: {type(theirs).__name__} in {start.folder}"
        )
    tables = _tables(theirs, model, start.tokenizers, tokenizers)
    in_tables = {id(weight) for rows in tables for weight in rows[:2]}
    old, new = (
        {weight.path: weight for weight in each.weights if id(weight) not in in_tables}
        for each in (theirs, model)
    )
    both = [path for path in new if path in old]
    shapes = {rows.ours.path: (rows.theirs.shape[1:], rows.ours.shape[1:]) for rows in tables}
    shapes |= {path: (old[path].shape, new[path].shape) for path in both}
    settings = _other_settings(theirs.config, model.config)
    _check_shapes(start, settings, shapes)
    for path in both:
        new[path].assign(old[path])
    report = {
        "start_from": str(start.folder),
        "fingerprint": list(start.fingerprint),
        "weights": len(both),
        "rows": _copy_rows(tables),
        "fresh": _in_one_only(new, old),
        "left": _in_one_only(old, new),
        "other_settings": settings,
    }
    _say(report)
    return report


def _tables(theirs, ours, their_tokenizers, our_tokenizers):
    """The `_Rows` of all sides. Of a table that sides share, the target's rows come last."""
    found, old, new = {}, theirs.token_embeddings, ours.token_embeddings
    for side in ("source", "output", "target"):
        place = 0 if side == "source" else 1
        pair = their_tokenizers[place], our_tokenizers[place]
        for name in _TABLES:
            one, other = (getattr(each[side], name, None) for each in (old, new))
            if one is not None and other is not None:
                key = tuple(map(id, (one, other, *pair)))
                if key not in found:
                    found[key] = _Rows(one, other, *_common_ids(*pair))
    return list(found.values())


def _common_ids(theirs, ours):
    """Ids of both tokenizers that stand for the same: arrays of equal length."""
    if theirs.pieces == ours.pieces and theirs.special_ids == ours.special_ids:
        return np.arange(theirs.vocab_size), np.arange(ours.vocab_size)
    old = {piece: number for number, piece in enumerate(theirs.pieces)}
    special = {theirs.pieces[number] for number in theirs.special_ids}
    pairs = {
        number: old[piece]
        for number, piece in enumerate(ours.pieces)
        if piece in old and piece not in special
    }
    pairs |= dict(zip(ours.special_ids, theirs.special_ids, strict=True))
    return np.array(list(pairs.values())), np.array(list(pairs))


def _check_shapes(start, settings, shapes):
    wrong = [f"{path} {one} -> {other}" for path, (one, other) in shapes.items() if one != other]
    if wrong:
        changed = ", ".join(f"{name}={new!r} for {old!r}" for name, (old, new) in settings.items())
        raise ValueError(
            "the layers of `[model]` must have the shapes of those in `training.start_from`. "
            f"Received: {start.folder}, {changed}; {len(wrong)} weights of other shapes: "
            f"{_named(wrong)}"
        )


def _copy_rows(tables):
    """Copies rows, and counts those of each table that have come from the earlier one."""
    taken = {}
    for rows in tables:
        values = keras.ops.convert_to_numpy(rows.ours).copy()
        values[rows.our_ids] = keras.ops.convert_to_numpy(rows.theirs)[rows.their_ids]
        rows.ours.assign(values)
        taken.setdefault(rows.ours.path, (len(values), set()))[1].update(rows.our_ids.tolist())
    return {path: {"taken": len(ids), "of": size} for path, (size, ids) in taken.items()}


def _in_one_only(one, other):
    """What of the first weights the second lack: layers, and of layers that both have, weights."""
    layers = {path.partition("/")[0] for path in other}
    missing = [path for path in one if path not in other]
    known = {path: path.partition("/")[0] in layers for path in missing}
    return list(dict.fromkeys(path if known[path] else path.partition("/")[0] for path in missing))


def _other_settings(theirs, ours):
    """Fields in which two configs differ, beside the vocabulary: `{name: [theirs, ours]}`."""
    one, other = theirs.to_dict(), ours.to_dict()
    by_tokenizer = {"vocab_size", "target_vocab_size", *ours.special_ids._asdict()}
    return {
        name: [one[name], other[name]]
        for name in one
        if name not in by_tokenizer and one[name] != other[name]
    }


def _say(report):
    log(f"started from {report['start_from']}: {report['weights']} weights taken over")
    for path, rows in report["rows"].items():
        log(f"  {path}: {rows['taken']:,} of {rows['of']:,} rows")
    for name, what in (("fresh", "new, not trained yet"), ("left", "not taken over")):
        if report[name]:
            log(f"  {what}: {_named(report[name])}")
    for name, (one, other) in report["other_settings"].items():
        log(f"  {name} is {other!r}, where it was {one!r}")


def _named(paths):
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
