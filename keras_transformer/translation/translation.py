"""Hypotheses of a search as a `Translator` gives them, and searches that give scores."""

import dataclasses

from keras_transformer.decoding.constraints import IMPOSSIBLE


def hypotheses_of(ids, scores, log_probs, config):
    """The (ids, score, log-probabilities, truncated) of each hypothesis of one row.

    Args:
        ids: (N, T) int array, tokens, EOS if there is one, then pads.
        scores: (N,) array, IMPOSSIBLE where the search found none, which is left out.
        log_probs: (N, T) array.
        config: Any object with `pad_id` and `eos_id`.
    """
    found = []
    for row, score, values in zip(ids, scores, log_probs, strict=True):
        if score < IMPOSSIBLE / 2:
            continue
        tokens = tuple(int(token) for token in row if token != config.pad_id)
        values = tuple(float(value) for value in values[: len(tokens)])
        truncated = bool(tokens) and tokens[-1] != config.eos_id
        found.append((tokens, float(score), values, truncated))
    return found


def with_scores(search, n_best):
    """The same search, which finds `n_best` hypotheses and gives scores.

    Args:
        search: A search.
        n_best: Hypotheses; as many as it finds anyway when `None`.

    Raises:
        ValueError: if it cannot find as many.
    """
    names = {field.name for field in dataclasses.fields(search)}
    changes = {name: True for name in ("scores", "token_log_probs") if name in names}
    if n_best is not None and "n_best" in names:
        changes["n_best"] = n_best
    elif n_best not in (None, 1):
        raise ValueError(
            f"`n_best` must be 1 for {type(search).__name__}. Received: n_best={n_best}"
        )
    return dataclasses.replace(search, **changes)
