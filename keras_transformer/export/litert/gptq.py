"""Weights rounded to a few bits so that products, not weights, change least."""

import numpy as np

_DAMPING = 0.01  # of the mean square input, for directions that the sentences did not show
_AS_ROWS = 1.0  # weight of the rows themselves where they are looked up too
_SHRINKAGES = np.linspace(0.4, 1.0, 13)
_ROWS = 512  # at a time, which stay in the processor's cache
_COLUMNS = 64  # between products that make up for errors: GPTQ's "lazy batch-updates"


def rounded(weight, gram, bits, *, is_looked_up=False):
    """The nearest weights that symmetric integers with a scale a row can stand for.

    Each row's scale is the one that loses least, in the squared error of the product; it may cut
    off a row's greatest weights. Then inputs are rounded one after the other, the strongest first,
    and the error of each is made up for by those that are still free: GPTQ (Frantar et al. 2022,
    arXiv 2210.17323, equations 2 and 3), with the order of its `act-order`.

    Args:
        weight: (outputs, inputs) float.
        gram: (inputs, inputs), the sum of x xᵀ over inputs x; `None` where none were seen.
        bits: 2 to 8.
        is_looked_up: Whether the rows are used as they are, too, as embeddings.

    Returns:
        (outputs, inputs) float32, where quantizing with the greatest number of a row as the
        greatest integer loses nothing.
    """
    weight = np.asarray(weight, "float64")
    gram = _conditioned(gram, weight.shape[1], is_looked_up)
    order = np.argsort(-np.diag(gram))
    upper = np.linalg.cholesky(np.linalg.inv(gram[np.ix_(order, order)])).T
    greatest = 2 ** (bits - 1) - 1
    parts = [weight[start : start + _ROWS] for start in range(0, len(weight), _ROWS)]
    parts = [_rounded_rows(part, gram, order, upper, greatest) for part in parts]
    return np.concatenate(parts).astype("float32")


def _rounded_rows(weight, gram, order, upper, greatest):
    scale = _scales(weight, gram, greatest)
    free, integers = weight[:, order], np.empty_like(weight)
    for start in range(0, len(order), _COLUMNS):
        end = min(start + _COLUMNS, len(order))
        errors = np.empty((len(weight), end - start))
        for place in range(start, end):
            now = np.clip(np.round(free[:, place] / scale), -greatest, greatest)
            error = (free[:, place] - now * scale) / upper[place, place]
            free[:, place + 1 : end] -= np.outer(error, upper[place, place + 1 : end])
            integers[:, order[place]], errors[:, place - start] = now, error
        # One product for all that comes behind the block.
        free[:, end:] -= errors @ upper[start:end, end:]
    _add_greatest(integers, greatest)
    # The best scale for these integers, by least squares.
    products = integers @ gram
    scale = (products * weight).sum(axis=1) / (products * integers).sum(axis=1)
    return integers * scale[:, None]


def _conditioned(gram, size, is_looked_up):
    """The matrix of the squared error, scaled to a mean diagonal of 1 and invertible."""
    if gram is None or not np.trace(gram):
        return np.eye(size)
    gram = gram / (np.trace(gram) / size)
    return gram + (_AS_ROWS if is_looked_up else _DAMPING) * np.eye(size)


def _scales(weight, gram, greatest):
    """(outputs,) the scale of each row, of some between 0.4 and 1 times the widest."""
    widest = np.maximum(np.abs(weight).max(axis=1), np.finfo("float32").tiny) / greatest
    best, scale = np.full(len(weight), np.inf), widest
    for shrinkage in _SHRINKAGES:
        tried = widest * shrinkage
        integers = np.clip(np.round(weight / tried[:, None]), -greatest, greatest)
        error = weight - integers * tried[:, None]
        loss = ((error @ gram) * error).sum(axis=1)
        scale = np.where(loss < best, tried, scale)
        best = np.minimum(loss, best)
    return scale


def _add_greatest(integers, greatest):
    """Makes each row hold the greatest integer, in place, where the quantizer reads its scale."""
    rows = np.arange(len(integers))
    columns = np.abs(integers).argmax(axis=1)
    integers[rows, columns] = np.where(integers[rows, columns] < 0, -greatest, greatest)
