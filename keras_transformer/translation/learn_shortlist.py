"""Lexical shortlists from the alignments of a model, over pairs of sentences."""

import functools
import itertools
from collections.abc import Callable, Iterable

import numpy as np
from keras import ops

from keras_transformer.arguments import check_count, check_flag, check_rate
from keras_transformer.decoding import align
from keras_transformer.decoding.compiled import compiled
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.translation.translator import Translator

_LEAST_WEIGHT = 0.05  # of attention that counts as an alignment
_WINDOW = 4096  # pairs that are sorted by length
_BATCH = 64
_MOST_COUNTS = 1 << 22  # that wait to be summed


def learn_shortlist(
    translator: Translator,
    pairs: Iterable[tuple[str, str]],
    *,
    first: int = 100,
    best: int = 100,
    threshold: float = 0.0,
    own: bool = True,
    progress: Callable[[int], object] = lambda done: None,
) -> Shortlist:
    """The `Shortlist` that a model's own alignments give.

    Each target token counts for the source tokens that it attends to, by its attention (see
    `align`). A source id gets the `best` target ids by P(target | source) from these counts, and
    before all others those of which it is the largest part: so that each target id can be chosen,
    where one source id is that of no more than `best`.

    Args:
        translator: A `Translator` of a `Transformer`.
        pairs: Pairs of a source and a translation, best those that the model was trained on. One
            with a side that is empty or longer than the translator takes is left out.
        first: The most frequent target ids, which every sentence has.
        best: Most target ids of a source id.
        threshold: Least P(target | source), in [0, 1); those ids may have less.
        own: Whether the translator's own translations of the sources count too, beside the given
            ones: what it says is what it needs.
        progress: Called with the number of pairs done, now and then.

    Raises:
        TypeError: if the model has no cross-attention to read, as an `Ensemble`.
        ValueError: if there is no pair.

    Example:
        >>> from keras_transformer.translation.learn_shortlist import learn_shortlist
        >>> tokenizer = kt.CharacterTokenizer("abcd")
        >>> config = kt.TransformerConfig.preset("tiny", vocab_size=tokenizer.vocab_size)
        >>> translator = kt.Translator(kt.Transformer(config), tokenizer, kt.Greedy(max_length=3))
        >>> shortlist = learn_shortlist(translator, [("ab", "cd")], first=1, own=False)
        >>> {*tokenizer.encode("cd")} <= {*shortlist.ids_for(tokenizer.encode("b"))}
        True
    """
    check_count(first=first, best=best)
    check_rate(threshold=threshold)
    check_flag(own=own)
    model = translator.model
    counts = _Counts(model.config.target_size)
    run = compiled(functools.partial(align, model), model, 2)

    def count(sources, targets):
        counts.add(sources, targets, ops.convert_to_numpy(run(sources, targets).probabilities))

    done = 0
    for window in _windows(_rows(translator, pairs)):
        window.sort(key=lambda rows: (len(rows[0]), len(rows[1])))
        for start in range(0, len(window), _BATCH):
            sides = zip(*window[start : start + _BATCH], strict=True)
            sources, targets = (translator.pad(list(side)) for side in sides)
            count(sources, targets)
            if own:
                found = translator.translate_ids(sources)
                count(sources, translator.pad([[*ids, model.config.eos_id] for ids in found]))
        done += len(window)
        progress(done)
    if not done:
        raise ValueError(
            "`pairs` must hold a pair that the translator takes, to learn from. Received: none"
        )
    source_ids, target_ids, weights = counts.table()
    frequent = np.argsort(-counts.frequencies, kind="stable")[:first]
    return Shortlist.from_scores(
        source_ids,
        target_ids,
        _preferred(source_ids, target_ids, weights),
        source_size=model.config.vocab_size,
        target_size=model.config.target_size,
        best=best,
        threshold=threshold,
        frequent=frequent[counts.frequencies[frequent] > 0],
        joint=translator.target_tokenizer is translator.tokenizer,
    )


def _preferred(source_ids, target_ids, weights):
    """P(target | source), and 1 more where the target is the largest part of this source."""
    sums = np.bincount(source_ids, weights)
    scores = weights / sums[source_ids]
    order = np.lexsort((source_ids, -scores, target_ids))
    is_first = np.diff(target_ids[order], prepend=-1) != 0
    scores[order[is_first]] += 1
    return scores


def _rows(translator, pairs):
    """Yields the ids of both sides, EOS included, of the pairs that the translator takes."""
    longest, eos_id = translator.max_source_length, translator.model.config.eos_id
    for source, target in pairs:
        rows = [
            [*tokenizer.encode(text), eos_id]
            for tokenizer, text in zip(
                (translator.tokenizer, translator.target_tokenizer), (source, target), strict=True
            )
        ]
        if all(1 < len(row) <= longest for row in rows):
            yield rows


def _windows(rows):
    rows = iter(rows)
    while window := list(itertools.islice(rows, _WINDOW)):
        yield window


class _Counts:
    """Sums of weights by pair of ids."""

    def __init__(self, target_size):
        self._target_size = target_size
        self.frequencies = np.zeros(target_size, "int64")  # of target ids
        self._keys, self._weights, self._waiting = [], [], 0

    def add(self, sources, targets, weights_BTS):
        """(B, S) and (B, T) ids, and the attention between them, 0 at pads."""
        rows, places, keys = np.nonzero(weights_BTS >= _LEAST_WEIGHT)
        found = sources[rows, keys].astype("int64") * self._target_size + targets[rows, places]
        self._keys.append(found)
        self._weights.append(weights_BTS[rows, places, keys].astype("float64"))
        is_token = weights_BTS.any(axis=2)
        self.frequencies += np.bincount(targets[is_token], minlength=self._target_size)
        self._waiting += len(found)
        if self._waiting > _MOST_COUNTS:
            self._sum()

    def table(self):
        """Source ids, target ids and sums."""
        self._sum()
        (keys,), (weights,) = self._keys, self._weights
        return keys // self._target_size, keys % self._target_size, weights

    def _sum(self):
        keys, places = np.unique(np.concatenate(self._keys), return_inverse=True)
        weights = np.bincount(places, np.concatenate(self._weights), len(keys))
        self._keys, self._weights, self._waiting = [keys], [weights], 0
